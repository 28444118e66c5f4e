"""Which instruction set's kernels run. All give the same bits; they differ in speed."""

from __future__ import annotations

import os

from swiftsure.errors import NotActiveError, UsageError
from swiftsure.kernels import _core

KNOWN_ISAS = ("amx", "avx512_vnni", "avx512", "avx2", "portable")
"""Every name there is, fastest first."""

ENVIRONMENT_VARIABLE = "SWIFTSURE_ISA"


def supported_isas() -> tuple[str, ...]:
    """What this build has and this machine runs (CPUID and the operating system agree), best first; ``portable`` is last.

    The first call asks the system for the use of AMX tiles where there are any; ``amx`` is listed only when that is granted.
    """
    return tuple(_core.supported_isas())


def resolve_isa(requested: str | None = None) -> str:
    """The instruction set to run: ``requested``, else ``SWIFTSURE_ISA``, else the best this machine has.

    Raises:
        UsageError: no such name.
        NotActiveError: the name is known, but its kernels cannot run here. Never replaced by another one.
    """
    name = requested if requested is not None else os.environ.get(ENVIRONMENT_VARIABLE) or None
    if name is None:
        return supported_isas()[0]
    origin = "isa" if requested is not None else ENVIRONMENT_VARIABLE
    if name not in KNOWN_ISAS:
        raise UsageError(f"{origin} must be one of {', '.join(KNOWN_ISAS)}, got {name!r}")
    if name not in supported_isas():
        reason = "this machine does not run it" if name in _core.built_isas() else "no kernels for it in this build"
        raise NotActiveError(f"instruction set {name} is not available: {reason}; available: {', '.join(supported_isas())}")
    return name
