// What Python sees as _core.PackedMatrix: a packed matrix and the memory it lies in.
#pragma once

#include "packed_matrix.h"
#include "pages.h"

namespace swiftsure {

struct PackedWeights {
    PackedMatrix matrix;
    Pages memory;
};

}  // namespace swiftsure
