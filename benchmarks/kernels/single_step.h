// Counts the instructions of a call exactly, on any instruction set: the processor's trap flag stops after each of them.
//
// No counter, no privilege and no emulator is needed, and nothing else on the machine changes the count; a step costs a few microseconds.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <ucontext.h>

namespace single_step {

inline volatile sig_atomic_t steps = 0;

// Set in the registers that the handler returns to, so that the stepping begins and ends in the caller.
inline constexpr greg_t kTrapFlag = 0x100;

inline void begin(int, siginfo_t*, void* context) {
    steps = 0;
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}
inline void end(int, siginfo_t*, void* context) { static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag; }
inline void step(int) { steps = steps + 1; }

inline void handle() {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = begin;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_sigaction = end;
    sigaction(SIGUSR2, &action, nullptr);
    struct sigaction counting = {};
    counting.sa_handler = step;
    sigaction(SIGTRAP, &counting, nullptr);
}

inline int64_t raw(void (*call)(void*), void* argument) {
    raise(SIGUSR1);
    call(argument);
    raise(SIGUSR2);
    return steps;
}

// Instructions of call(argument), its return included. Runs it once before, so that nothing is bound or mapped meanwhile.
inline int64_t count(void (*call)(void*), void* argument) {
    handle();
    call(argument);
    raw([](void*) {}, nullptr);                                   // binds what the stepping itself calls
    return raw(call, argument) - raw([](void*) {}, nullptr) + 1;  // the empty call is a return too
}

}  // namespace single_step

#endif
