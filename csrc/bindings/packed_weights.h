// What Python sees as _core.PackedMatrix.
#pragma once

#include "../packed_weights.h"
