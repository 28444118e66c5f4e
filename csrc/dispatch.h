// Chooses the kernel table of an instruction set.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

// Instruction sets that this build has and this processor (CPUID and XCR0) runs, best first; "portable" is always last.
const std::vector<std::string>& supported_isas();
// The table of a supported instruction set, or nullptr.
const KernelTable* find_kernel_table(const std::string& isa);

}  // namespace swiftsure
