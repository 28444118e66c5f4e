#include "arena_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace swiftsure {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // stays in the second-level cache between the copy and the checksum

struct Piece {
    uint8_t* memory;
    size_t bytes;  // a multiple of 64, as the arena hands out whole cache lines
    int64_t offset;
};

std::vector<Piece> pieces_of(const WeightArena& arena, int64_t offset) {
    std::vector<Piece> pieces;
    for (const auto& [memory, bytes] : arena.spans())
        for (size_t at = 0; at < bytes; at += kPiece) {
            pieces.push_back({memory + at, std::min(kPiece, bytes - at), offset});
            offset += static_cast<int64_t>(pieces.back().bytes);
        }
    return pieces;
}

// Every step is a bijection of the state for a given word and of the word for a given state, so a change of one word is never lost; the
// rotation carries the upper bits, which a multiplication alone would leave where they are.
uint64_t step(uint64_t state, uint64_t word) { return std::rotl(state ^ word, 29) * 0x9E3779B97F4A7C15u; }

uint64_t checksum(const Piece& piece) {
    uint64_t lanes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t at = 0; at < piece.bytes; at += sizeof lanes) {
        uint64_t words[8];
        std::memcpy(words, piece.memory + at, sizeof words);
        for (int lane = 0; lane < 8; ++lane) lanes[lane] = step(lanes[lane], words[lane]);
    }
    uint64_t sum = piece.bytes;
    for (uint64_t lane : lanes) sum = step(sum, lane);
    return sum;
}

uint64_t combine(const std::vector<uint64_t>& sums) {
    uint64_t all = sums.size();
    for (uint64_t sum : sums) all = step(all, sum);
    return all;
}

// `transfer(done)` is pread or pwrite of what is left.
template <typename Transfer>
void whole(size_t bytes, const char* what, Transfer transfer) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t now = transfer(done);
        if (now < 0 && errno == EINTR) continue;
        if (now < 0) throw std::system_error(errno, std::generic_category(), what);
        if (now == 0) throw std::system_error(EIO, std::generic_category(), what);  // the file ends here
        done += static_cast<size_t>(now);
    }
}

void read_piece(const Piece& piece, int fd) {
    whole(piece.bytes, "read",
          [&](size_t done) { return pread(fd, piece.memory + done, piece.bytes - done, piece.offset + static_cast<int64_t>(done)); });
}

}  // namespace

uint64_t write_arena(const WeightArena& arena, int fd, int64_t offset) {
    std::vector<uint64_t> sums;
    for (const Piece& piece : pieces_of(arena, offset)) {
        sums.push_back(checksum(piece));
        whole(piece.bytes, "write",
              [&](size_t done) { return pwrite(fd, piece.memory + done, piece.bytes - done, piece.offset + static_cast<int64_t>(done)); });
    }
    return combine(sums);
}

uint64_t read_arena(const WeightArena& arena, int fd, int64_t offset, int threads) {
    const std::vector<Piece> pieces = pieces_of(arena, offset);
    std::vector<uint64_t> sums(pieces.size());
    std::atomic<size_t> next{0};
    std::exception_ptr failure;
    std::mutex guard;
    auto work = [&] {
        try {
            for (size_t i; (i = next.fetch_add(1)) < pieces.size();) {
                read_piece(pieces[i], fd);
                sums[i] = checksum(pieces[i]);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(guard);
            failure = std::current_exception();
            next = pieces.size();
        }
    };
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < threads; ++i) others.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads here: those that run do the work
    }
    work();
    for (std::thread& other : others) other.join();
    if (failure) std::rethrow_exception(failure);
    return combine(sums);
}

}  // namespace swiftsure
