#include "dispatch.h"

#include <stdexcept>

#ifdef SWIFTSURE_HAS_amx
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace swiftsure {

#ifdef SWIFTSURE_HAS_amx
namespace amx {
const KernelTable& kernel_table();
}
#endif
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

namespace {

#ifdef SWIFTSURE_HAS_amx
constexpr unsigned kTileInstructions = 1u << 24, kTileInt8Instructions = 1u << 25;  // CPUID leaf 7, EDX
constexpr unsigned kTileState = 3u << 17;                                           // XCR0: tile configuration and tile data
constexpr long kRequestState = 0x1023, kTileData = 18;                              // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)

// Needs a system that has enabled XGETBV, as any with AVX has.
bool may_use_tiles() {
    unsigned a, b, c, d, xcr0, upper;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if ((d & kTileInstructions) == 0 || (d & kTileInt8Instructions) == 0) return false;
    asm volatile("xgetbv" : "=a"(xcr0), "=d"(upper) : "c"(0));
    if ((xcr0 & kTileState) != kTileState) return false;
    return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;  // for all threads, those to come too
}
#endif

std::vector<std::string> find_runnable() {
    std::vector<std::string> found;
#if defined(__x86_64__)
    // __builtin_cpu_supports checks CPUID and, through XGETBV, that the system saves the registers.
    __builtin_cpu_init();
    [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    [[maybe_unused]] const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    [[maybe_unused]] const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
#ifdef SWIFTSURE_HAS_amx
    if (vnni && may_use_tiles()) found.emplace_back("amx");
#endif
#ifdef SWIFTSURE_HAS_avx512_vnni
    if (vnni) found.emplace_back("avx512_vnni");
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
}

}  // namespace

const std::vector<std::string>& built_isas() {
    static const std::vector<std::string> isas = {
#ifdef SWIFTSURE_HAS_amx
        "amx",
#endif
#ifdef SWIFTSURE_HAS_avx512_vnni
        "avx512_vnni",
#endif
#ifdef SWIFTSURE_HAS_avx512
        "avx512",
#endif
#ifdef SWIFTSURE_HAS_avx2
        "avx2",
#endif
        "portable",
    };
    return isas;
}

const std::vector<std::string>& supported_isas() {
    static const std::vector<std::string> isas = find_runnable();
    return isas;
}

const KernelTable* find_kernel_table(const std::string& isa) {
    for (const std::string& supported : supported_isas()) {
        if (supported != isa) continue;
#ifdef SWIFTSURE_HAS_amx
        if (isa == "amx") return &amx::kernel_table();
#endif
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

GatedKernel gated_kernel(const KernelTable& kernels, std::string_view activation) {
    if (activation == "silu") return kernels.silu_mul;
    if (activation == "gelu_tanh") return kernels.gelu_tanh_mul;
    throw std::invalid_argument("activation must be silu or gelu_tanh, got '" + std::string(activation) + "'");
}

}  // namespace swiftsure
