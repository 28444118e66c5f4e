// Chooses the kernel table of an instruction set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

// Instruction sets that this build has kernels for, best first; "portable" is always last.
const std::vector<std::string>& built_isas();
// Those of them that run here: the processor has them (CPUID) and the system saves their registers (XCR0). The first call asks the system
// for this process's use of tiles; amx is listed only when it is granted.
const std::vector<std::string>& supported_isas();
// The table of a supported instruction set, or nullptr.
const KernelTable* find_kernel_table(const std::string& isa);
// The kernel of an activation: "silu" or "gelu_tanh". Throws std::invalid_argument for any other.
GatedKernel gated_kernel(const KernelTable& kernels, std::string_view activation);

}  // namespace swiftsure
