#include "dispatch.h"

namespace swiftsure {

#ifdef SWIFTSURE_HAS_avx512_vnni
namespace avx512_vnni {
const KernelTable& kernel_table();
}
#endif
#ifdef SWIFTSURE_HAS_avx512
namespace avx512 {
const KernelTable& kernel_table();
}
#endif
#ifdef SWIFTSURE_HAS_avx2
namespace avx2 {
const KernelTable& kernel_table();
}
#endif
namespace portable {
const KernelTable& kernel_table();
}

const std::vector<std::string>& supported_isas() {
    // __builtin_cpu_supports checks CPUID and, through XGETBV, that the system saves the registers.
    static const std::vector<std::string> isas = [] {
        std::vector<std::string> found;
#if defined(__x86_64__)
        __builtin_cpu_init();
        [[maybe_unused]] const bool avx2 =
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
        [[maybe_unused]] const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef SWIFTSURE_HAS_avx512_vnni
        if (avx512 && __builtin_cpu_supports("avx512vnni")) found.emplace_back("avx512_vnni");
#endif
#ifdef SWIFTSURE_HAS_avx512
        if (avx512) found.emplace_back("avx512");
#endif
#ifdef SWIFTSURE_HAS_avx2
        if (avx2) found.emplace_back("avx2");
#endif
#endif
        found.emplace_back("portable");
        return found;
    }();
    return isas;
}

const KernelTable* find_kernel_table(const std::string& isa) {
    for (const std::string& supported : supported_isas()) {
        if (supported != isa) continue;
#ifdef SWIFTSURE_HAS_avx512_vnni
        if (isa == "avx512_vnni") return &avx512_vnni::kernel_table();
#endif
#ifdef SWIFTSURE_HAS_avx512
        if (isa == "avx512") return &avx512::kernel_table();
#endif
#ifdef SWIFTSURE_HAS_avx2
        if (isa == "avx2") return &avx2::kernel_table();
#endif
        if (isa == "portable") return &portable::kernel_table();
    }
    return nullptr;
}

}  // namespace swiftsure
