"""Typed face of the compiled core: kernels, static programs and the choice of an instruction set.

``reference`` is the float64 twin of all of it. Everything that depends on the instruction set takes its name as ``isa``; every name gives
the same bits.
"""

from __future__ import annotations

try:
    from swiftsure.kernels import _core
except ImportError as error:
    raise ImportError(
        "Swiftsure's compiled core (swiftsure.kernels._core) cannot be loaded: "
        f"{error}. Build it with `pip install .` in the source tree (needs a C++20 compiler and CMake), "
        "and run with the Python version it was built for."
    ) from error

from swiftsure.kernels._core import KVCache, PackedMatrix, Program, WeightArena
from swiftsure.kernels.digest import hash_row
from swiftsure.kernels.instruction_sets import KNOWN_ISAS, resolve_isa, supported_isas
from swiftsure.kernels.sampling import Drafter, DraftSampler, Sampler, TextStore, log_probs, top_log_probs

NUMERICS = "cpu1"
"""The id of everything that fixes bits: digits and groups of activations, span and key-value block sizes, polynomials, orders of
operations (docs/decisions). A change of any bit changes it."""

KV_BLOCK_SIZE = 32
"""Positions in a key-value block."""

PACKED_LAYOUT = 1
"""The order of bytes in packed matrices and of matrices in an arena (csrc/packed_matrix.h). A change of either changes it: packed weights
on disk carry it."""

__all__ = [
    "KNOWN_ISAS",
    "KV_BLOCK_SIZE",
    "NUMERICS",
    "PACKED_LAYOUT",
    "DraftSampler",
    "Drafter",
    "KVCache",
    "PackedMatrix",
    "Program",
    "Sampler",
    "TextStore",
    "WeightArena",
    "_core",
    "hash_row",
    "log_probs",
    "resolve_isa",
    "supported_isas",
    "top_log_probs",
]
