#include "bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

namespace swiftsure {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLine = 64, kAhead = 5 << 10;
constexpr double kArithmeticSeconds = 5e-3;

// Eight running sums, so that no addition waits for the one before it; the sum keeps the loads from being optimized away. Asking for lines
// ahead, as the kernels do, reads a third more on the machine where it was tried, within 4 % of 512-bit loads: without, kernels passed the
// wall that they were held against.
uint64_t sum_words(const uint64_t* words, std::size_t count) {
    uint64_t sums[8] = {};
    for (std::size_t i = 0; i + 8 <= count; i += 8) {
        __builtin_prefetch(reinterpret_cast<const char*>(words + i) + kAhead);
        for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
    }
    uint64_t sum = 0;
    for (uint64_t lane : sums) sum += lane;
    return sum;
}

// Runs work(thread) on all threads at once, passes + 1 times, and returns the seconds of all passes but the first.
template <typename Work>
std::vector<double> time_together(int threads, int passes, const Work& work) {
    std::vector<std::vector<Clock::time_point>> begin(threads), end(threads);
    std::barrier line(threads);
    const auto run = [&](int thread) {
        for (int pass = 0; pass <= passes; ++pass) {
            line.arrive_and_wait();
            begin[thread].push_back(Clock::now());
            work(thread, pass);
            end[thread].push_back(Clock::now());
        }
    };
    std::vector<std::thread> others;
    const auto join = [&] {
        for (std::thread& other : others) other.join();
    };
    try {
        for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    } catch (...) {  // nobody waits for the threads that the system refused; those that run come to their end
        for (int missing = threads - static_cast<int>(others.size()); missing > 0; --missing) line.arrive_and_drop();
        join();
        throw;
    }
    run(0);
    join();
    std::vector<double> seconds;
    for (int pass = 1; pass <= passes; ++pass) {
        Clock::time_point first = begin[0][pass], last = end[0][pass];
        for (int thread = 1; thread < threads; ++thread) {
            first = std::min(first, begin[thread][pass]);
            last = std::max(last, end[thread][pass]);
        }
        seconds.push_back(std::chrono::duration<double>(last - first).count());
    }
    return seconds;
}

struct Free {
    void operator()(uint64_t* buffer) const { std::free(buffer); }
};

}  // namespace

std::vector<double> read_passes(std::size_t bytes, int threads, int passes) {
    const std::size_t share = bytes / threads / kLine * (kLine / sizeof(uint64_t));  // words per thread
    constexpr std::size_t huge_page = 2 << 20;
    const std::size_t size = std::max(share * threads * sizeof(uint64_t), kLine);
    const std::size_t rounded = (size + huge_page - 1) / huge_page * huge_page;
    std::unique_ptr<uint64_t, Free> buffer(static_cast<uint64_t*>(std::aligned_alloc(huge_page, rounded)));
    if (!buffer) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(buffer.get(), rounded, MADV_HUGEPAGE);  // as packed weights ask for; a refusal only means small pages
#endif

    std::vector<uint64_t> sums(threads);
    const std::vector<double> seconds = time_together(threads, passes, [&](int thread, int pass) {
        uint64_t* mine = buffer.get() + share * thread;
        if (pass == 0)
            for (std::size_t i = 0; i < share; ++i) mine[i] = i * 0x9E3779B97F4A7C15u;  // real pages, not the shared page of zeros
        sums[thread] += sum_words(mine, share);
    });
    volatile uint64_t sink = 0;
    for (uint64_t sum : sums) sink = sink + sum;
    return seconds;
}

std::vector<double> arithmetic_passes(int64_t (*loop)(int64_t rounds), int threads, int passes) {
    int64_t rounds = 64, operations = 0;
    for (double seconds = 0; seconds < kArithmeticSeconds; rounds *= 2) {
        const Clock::time_point begin = Clock::now();
        operations = loop(rounds);
        seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    rounds /= 2;  // the last doubling was not run
    std::vector<double> rates;
    for (double seconds : time_together(threads, passes, [&](int, int) { loop(rounds); }))
        rates.push_back(static_cast<double>(operations) * threads / seconds);
    return rates;
}

}  // namespace swiftsure
