#include "bindings/bindings.h"

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of Swiftsure: kernels, static programs, sampling and drafting.";
    swiftsure::register_kernels(m);
    swiftsure::register_matmul(m);
    swiftsure::register_program(m);
    swiftsure::register_sampling(m);
    swiftsure::register_digest(m);
    swiftsure::register_bandwidth(m);
}
