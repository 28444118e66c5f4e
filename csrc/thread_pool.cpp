#include "thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

#include "float_mode.h"

namespace swiftsure {

namespace {

constexpr uint64_t kFieldBits = 20, kFieldMask = (uint64_t{1} << kFieldBits) - 1, kRunMask = (uint64_t{1} << 24) - 1;
// Long enough for the Python code between two steps, short enough that an idle program costs nothing.
constexpr auto kSpin = std::chrono::microseconds(200);

uint64_t word(uint64_t run, uint64_t high, uint64_t low) { return run << (2 * kFieldBits) | high << kFieldBits | low; }
uint64_t run_of(uint64_t w) { return w >> (2 * kFieldBits); }
uint64_t high_of(uint64_t w) { return w >> kFieldBits & kFieldMask; }
uint64_t low_of(uint64_t w) { return w & kFieldMask; }

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins, calling `meanwhile`, then sleeps until `ready`. Whoever makes it true does so with a sequentially consistent store, then calls
// wake: either it sees this sleeper counted, or this sleeper sees the store.
template <class Ready, class Meanwhile>
void await(Ready ready, Meanwhile meanwhile, std::atomic<int32_t>& sleepers, std::mutex& mutex, std::condition_variable& changed) {
    const auto give_up = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return;
            meanwhile();
        }
    } while (std::chrono::steady_clock::now() < give_up);
    std::unique_lock<std::mutex> lock(mutex);
    sleepers.fetch_add(1);
    changed.wait(lock, ready);
    sleepers.fetch_sub(1);
}

void wake(std::atomic<int32_t>& sleepers, std::mutex& mutex, std::condition_variable& changed) {
    if (sleepers.load() == 0) return;
    {
        std::lock_guard<std::mutex> lock(mutex);
    }  // a sleeper is either before its last look or in wait()
    changed.notify_all();
}

}  // namespace

// One thread's way through the memory that it is to read next, a few lines at a time, so that it sees soon that the wait is over.
class ThreadPool::Asking {
  public:
    // Goes on where it was when several stages lead up to the same memory.
    void begin(const Asked& what) {
        const uint8_t* data = what.data.load(std::memory_order_relaxed);
        if (data != data_) {
            data_ = data;
            at_ = 0;
        }
        bytes_ = what.bytes.load(std::memory_order_relaxed);
    }
    void ask() {
        if (at_ >= bytes_) return pause();
        for (int line = 0; line < kLines; ++line, at_ += kLineBytes) __builtin_prefetch(data_ + at_, 0, kSecondLevel);
    }

  private:
    static constexpr int kLines = 4, kSecondLevel = 2;
    static constexpr int64_t kLineBytes = 64;
    const uint8_t* data_ = nullptr;
    int64_t at_ = 0, bytes_ = 0;
};

ThreadPool::ThreadPool(int32_t threads, int32_t max_stages)
    : threads_(threads),
      max_stages_(max_stages),
      shares_(new Counter[static_cast<size_t>(max_stages) * static_cast<size_t>(threads)]),
      done_(new Counter[static_cast<size_t>(max_stages)]),
      asked_(new Asked[static_cast<size_t>(max_stages) * static_cast<size_t>(threads)]) {
    try {
        for (int32_t t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
    } catch (...) {
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_.store(true);
    wake(gate_sleepers_, mutex_, gate_opened_);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
}

void ThreadPool::run(const int32_t* chunks, int32_t stages, Task task, void* context, const Ahead* ahead) {
    if (stages > max_stages_) throw std::length_error("a run of " + std::to_string(stages) + " stages in a pool for fewer");
    task_ = task;
    context_ = context;
    const uint64_t run = ((gate_.load() >> 32) + 1) & kRunMask;
    for (int32_t s = 0; s < stages; ++s) {
        if (chunks[s] < 0 || static_cast<uint64_t>(chunks[s]) > kFieldMask) throw std::length_error("a stage has too many chunks");
        done_[s].word.store(word(run, static_cast<uint64_t>(chunks[s]), 0), std::memory_order_relaxed);
        for (int32_t t = 0; t < threads_; ++t) {
            const size_t at = static_cast<size_t>(s) * static_cast<size_t>(threads_) + static_cast<size_t>(t);
            const Ahead next = ahead ? ahead[at] : Ahead{};
            asked_[at].data.store(next.data, std::memory_order_relaxed);
            asked_[at].bytes.store(next.bytes, std::memory_order_relaxed);
            const int64_t begin = share_begin(chunks[s], threads_, t), end = share_begin(chunks[s], threads_, t + 1);
            shares_[at].word.store(word(run, static_cast<uint64_t>(begin), static_cast<uint64_t>(end)), std::memory_order_release);
        }
    }
    gate_.store(run << 32 | static_cast<uint64_t>(stages));
    wake(gate_sleepers_, mutex_, gate_opened_);
    FloatMode mode;
    walk(run, stages, 0);
}

void ThreadPool::work(int32_t thread) {
    uint64_t seen = 0;
    for (;;) {
        Asking asking;
        asking.begin(asked_[static_cast<size_t>(thread)]);  // the next run is most likely of the same program
        await([&] { return gate_.load() != seen || stopping_.load(); }, [&] { asking.ask(); }, gate_sleepers_, mutex_, gate_opened_);
        if (stopping_.load()) return;
        seen = gate_.load();
        FloatMode mode;
        walk(seen >> 32, static_cast<int32_t>(seen & 0xFFFFFFFFu), thread);
    }
}

void ThreadPool::walk(uint64_t run, int32_t stages, int32_t thread) {
    Asking asking;
    for (int32_t s = 0; s < stages; ++s) {
        int32_t chunk = 0;
        while (claim(s, run, thread, &chunk)) {
            task_(context_, s, chunk, thread);
            finish(s);
        }
        const std::atomic<uint64_t>& word = done_[s].word;
        const auto over = [&] {
            const uint64_t done = word.load();
            return run_of(done) != run || low_of(done) == high_of(done);
        };
        if (!over()) {
            asking.begin(asked_[static_cast<size_t>(s) * static_cast<size_t>(threads_) + static_cast<size_t>(thread)]);
            await(over, [&] { asking.ask(); }, stage_sleepers_, mutex_, stage_done_);
        }
        if (run_of(word.load()) != run) return;  // the others have gone on to a later run
    }
}

bool ThreadPool::claim(int32_t stage, uint64_t run, int32_t thread, int32_t* chunk) {
    for (int32_t i = 0; i < threads_; ++i) {
        std::atomic<uint64_t>& left = share(stage, (thread + i) % threads_).word;
        uint64_t w = left.load(std::memory_order_acquire);
        while (run_of(w) == run && high_of(w) < low_of(w)) {
            const uint64_t rest = word(run, high_of(w) + 1, low_of(w));
            if (!left.compare_exchange_weak(w, rest, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            *chunk = static_cast<int32_t>(high_of(w));
            return true;
        }
    }
    return false;
}

void ThreadPool::finish(int32_t stage) {
    const uint64_t w = done_[stage].word.fetch_add(1) + 1;
    if (low_of(w) == high_of(w)) wake(stage_sleepers_, mutex_, stage_done_);
}

}  // namespace swiftsure
