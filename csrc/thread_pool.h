// Threads that walk a list of stages together: chunks of a stage are claimed one by one, a stage begins when the one before it is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace swiftsure {

// A stage is done when its chunks are, not when every thread has come by: a thread that is asleep or descheduled holds up nobody unless
// it holds a chunk. Each counter carries the number of its run, so a thread that lags a whole run behind finds only foreign numbers,
// claims nothing and returns to the gate.
//
// Every thread has its share of a stage, a range of neighbouring chunks claimed in ascending order: what a matmul prefetches beyond a chunk
// is what its thread needs next. A thread whose share is used up goes on with the first chunk left of another's, in ascending order too,
// since the other is most likely descheduled.
//
// Threads spin for a bounded time and then sleep, both between stages and between runs. While one spins at the end of a stage it asks for
// memory that it is to read next.
class ThreadPool {
  public:
    // Memory that a thread reads once the stage it waits for is over. Only asked for, never read here: it may be gone.
    struct Ahead {
        const uint8_t* data = nullptr;
        int64_t bytes = 0;
    };

    // Called for every chunk, on the thread with index `thread` (0 is the caller of run). Must not throw.
    using Task = void (*)(void* context, int32_t stage, int32_t chunk, int32_t thread);

    static constexpr int64_t kMaxChunks = (int64_t{1} << 20) - 1;  // in a stage

    // `threads` counts the caller; a run has at most `max_stages` stages.
    ThreadPool(int32_t threads, int32_t max_stages);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int32_t threads() const { return threads_; }
    // Runs stages 0, 1, ... of chunks[s] chunks each (0: nothing to do) and returns when all are done. One caller at a time. `ahead`: null,
    // or (stages, threads) what a thread asks for while it waits at the end of the stage.
    void run(const int32_t* chunks, int32_t stages, Task task, void* context, const Ahead* ahead = nullptr);
    // The first chunk of a thread's share of `count`; that of thread `threads` is one past the last.
    static int64_t share_begin(int64_t count, int64_t threads, int64_t thread) { return (count * thread + threads - 1) / threads; }

  private:
    // A cache line of its own: threads spin on some of them while others count.
    struct alignas(64) Counter {
        std::atomic<uint64_t> word{0};
    };

    void work(int32_t thread);
    void walk(uint64_t run, int32_t stages, int32_t thread);
    bool claim(int32_t stage, uint64_t run, int32_t thread, int32_t* chunk);
    void finish(int32_t stage);
    Counter& share(int32_t stage, int32_t thread) {
        return shares_[static_cast<size_t>(stage) * static_cast<size_t>(threads_) + static_cast<size_t>(thread)];
    }
    void stop();
    class Asking;

    // As Ahead; a thread that lags behind reads what a later run writes, and asks in vain.
    struct Asked {
        std::atomic<const uint8_t*> data{nullptr};
        std::atomic<int64_t> bytes{0};
    };

    const int32_t threads_;
    const int32_t max_stages_;
    std::unique_ptr<Counter[]>
        shares_;                       // (stages, threads)  run number (24 bits) | first chunk left (20 bits) | one past the last (20 bits)
    std::unique_ptr<Counter[]> done_;  // (stages,)          run number (24 bits) | chunks (20 bits) | chunks done (20 bits)
    std::unique_ptr<Asked[]> asked_;   // (stages, threads)
    Task task_ = nullptr;              // read by holders of a chunk only
    void* context_ = nullptr;

    alignas(64) std::atomic<uint64_t> gate_{0};  // run number << 32 | stages; a change opens the gate
    std::atomic<bool> stopping_{false};
    std::atomic<int32_t> gate_sleepers_{0}, stage_sleepers_{0};
    std::mutex mutex_;
    std::condition_variable gate_opened_, stage_done_;
    std::vector<std::thread> workers_;
};

}  // namespace swiftsure
