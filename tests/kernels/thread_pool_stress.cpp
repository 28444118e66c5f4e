// Runs a pool hard and checks what it promises: every chunk once, stages in order, runs apart, sleepers woken. Prints "ok".
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "thread_pool.h"

namespace {

constexpr int32_t kStages = 7;
constexpr int32_t kChunks[kStages] = {5, 0, 1, 64, 3, 0, 2};

struct Work {
    std::vector<int32_t> result = std::vector<int32_t>(64);  // not atomic: stages must order it, and a race detector sees it
    int64_t total = 0;
    std::atomic<int64_t> calls{0};
};

void chunk(void* context, int32_t stage, int32_t c, int32_t) {
    Work& work = *static_cast<Work*>(context);
    work.calls.fetch_add(1, std::memory_order_relaxed);
    if (stage == 2) work.total = 0;
    if (stage == 3) work.result[static_cast<size_t>(c)] += c;
    if (stage == 4 && c == 2)
        for (int32_t r : work.result) work.total += r;
    if (stage == 6 && c == 1) std::this_thread::yield();
}

bool run_many(int32_t threads, int32_t runs, int32_t pause_every) {
    swiftsure::ThreadPool pool(threads, kStages);
    Work work;
    for (int32_t r = 1; r <= runs; ++r) {
        pool.run(kChunks, kStages, chunk, &work);
        if (work.total != int64_t{r} * 64 * 63 / 2 || work.calls.load() != int64_t{r} * 75) {
            std::printf("run %d of %d threads: total %lld, calls %lld\n", r, threads, static_cast<long long>(work.total),
                        static_cast<long long>(work.calls.load()));
            return false;
        }
        // Longer than the pool spins, so that its workers fall asleep and must be woken.
        if (pause_every > 0 && r % pause_every == 0) std::this_thread::sleep_for(std::chrono::microseconds(700));
    }
    return true;
}

}  // namespace

int main() {
    for (int32_t threads : {1, 2, 3, 8})
        if (!run_many(threads, 400, 5)) return 1;
    if (!run_many(4, 3000, 0)) return 1;
    for (int i = 0; i < 50; ++i) swiftsure::ThreadPool idle(4, 1);  // made and destroyed without a run
    std::puts("ok");
    return 0;
}
