// When a step's work was done: read by a profiler, filled only by a program that was asked to (Program::profile).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace swiftsure {

// Times of one step, in nanoseconds since it began. Each thread writes lines of its own, chunk by chunk; nobody reads while it runs.
//
// A piece is one operation of a stage: stages of row operations fuse several, and every other stage is one piece.
class Profile {
  public:
    using Clock = std::chrono::steady_clock;

    // What one thread did in one stage; `chunks` 0: nothing, and the times mean nothing.
    struct Share {
        int64_t first, last;  // begin of its first chunk, end of its last one
        int64_t chunks;
    };

    Profile(int64_t threads, int64_t stages, int64_t pieces)
        : threads_(threads), stages_(stages), pieces_(pieces), lines_(static_cast<size_t>(threads)) {
        for (Line& line : lines_) {
            line.shares.resize(static_cast<size_t>(stages));
            line.work.resize(static_cast<size_t>(pieces));
        }
    }

    void begin() {
        began_ = Clock::now();
        for (Line& line : lines_) {
            std::fill(line.shares.begin(), line.shares.end(), Share{});
            std::fill(line.work.begin(), line.work.end(), int64_t{0});
        }
    }
    void planned() { planned_ = now(); }
    void end() { wall_ = now(); }

    int64_t now() const { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began_).count(); }
    // When the chunk begins that a thread takes up now: where its last one of the stage ended, so that the clock is read once a chunk and
    // claiming counts as work.
    int64_t start(int32_t thread, int32_t stage) const {
        const Share& share = lines_[static_cast<size_t>(thread)].shares[static_cast<size_t>(stage)];
        return share.chunks == 0 ? now() : share.last;
    }
    void add_work(int32_t thread, int64_t piece, int64_t nanoseconds) {
        lines_[static_cast<size_t>(thread)].work[static_cast<size_t>(piece)] += nanoseconds;
    }
    void add_chunk(int32_t thread, int32_t stage, int64_t begin, int64_t end) {
        Share& share = lines_[static_cast<size_t>(thread)].shares[static_cast<size_t>(stage)];
        if (share.chunks++ == 0) share.first = begin;
        share.last = end;
    }

    int64_t threads() const { return threads_; }
    int64_t stages() const { return stages_; }
    int64_t pieces() const { return pieces_; }
    int64_t planned_ns() const { return planned_; }
    int64_t wall_ns() const { return wall_; }
    const std::vector<Share>& shares(int64_t thread) const { return lines_[static_cast<size_t>(thread)].shares; }
    const std::vector<int64_t>& work(int64_t thread) const { return lines_[static_cast<size_t>(thread)].work; }

  private:
    struct alignas(64) Line {
        std::vector<Share> shares;  // (stages,)
        std::vector<int64_t> work;  // (pieces,) time spent in each, over all chunks
    };

    int64_t threads_, stages_, pieces_;
    std::vector<Line> lines_;
    Clock::time_point began_;
    int64_t planned_ = 0, wall_ = 0;
};

}  // namespace swiftsure
