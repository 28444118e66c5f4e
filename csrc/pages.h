// Zeroed memory straight from the system: untouched pages cost nothing, large arrays ask for huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define SWIFTSURE_HAS_MMAP 1
#endif

namespace swiftsure {

// Owns `bytes` zeroed bytes, aligned to 64 at least. Throws std::bad_alloc when the system refuses. Moves, never copies.
class Pages {
  public:
    Pages() = default;
    // `huge`: weights and key-value blocks are streamed, and 4 KiB pages would cost a TLB miss every few cache lines.
    explicit Pages(size_t bytes, bool huge = false) : bytes_(bytes) {
        if (bytes == 0) return;
#ifdef SWIFTSURE_HAS_MMAP
        void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<uint8_t*>(p);
#ifdef MADV_HUGEPAGE
        if (huge) madvise(data_, bytes, MADV_HUGEPAGE);  // advice: a system without huge pages may refuse, nothing is lost
#endif
#else
        (void)huge;
        const size_t rounded = (bytes + 63) / 64 * 64;
        data_ = static_cast<uint8_t*>(std::aligned_alloc(64, rounded));
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(data_, 0, rounded);
#endif
    }
    Pages(Pages&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
        other.data_ = nullptr;
        other.bytes_ = 0;
    }
    Pages& operator=(Pages&& other) noexcept {
        if (this != &other) {
            release();
            data_ = other.data_;
            bytes_ = other.bytes_;
            other.data_ = nullptr;
            other.bytes_ = 0;
        }
        return *this;
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { release(); }

    uint8_t* data() const { return data_; }
    size_t size() const { return bytes_; }

  private:
    void release() {
        if (data_ == nullptr) return;
#ifdef SWIFTSURE_HAS_MMAP
        munmap(data_, bytes_);
#else
        std::free(data_);
#endif
        data_ = nullptr;
    }

    uint8_t* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace swiftsure
