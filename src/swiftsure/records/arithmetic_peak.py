"""The other wall: how many operations a second the processor does on registers alone, where no memory is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from swiftsure.errors import UsageError
from swiftsure.records.statistics import median

Kind = Literal["integer", "float"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticPeak:
    """Additions and multiplications a second of ``threads`` threads together, by pass.

    ``integer``: the products that matmuls over quantized weights are made of: of 8 bits with VNNI and tiles, of 16 bits elsewhere.
    ``float``: float32, multiplied and added in one instruction where there is one.
    """

    kind: Kind
    isa: str
    threads: int
    pass_ops_per_s: tuple[float, ...]

    @property
    def ops_per_s(self) -> float:
        """Of the median pass."""
        return median(self.pass_ops_per_s)

    def to_dict(self) -> dict[str, float | int | str]:
        return {
            "kind": self.kind,
            "isa": self.isa,
            "threads": self.threads,
            "passes": len(self.pass_ops_per_s),
            "gop_per_s": self.ops_per_s / 1e9,
        }


def measure_arithmetic_peak(kind: Kind, *, isa: str, threads: int, passes: int = 15) -> ArithmeticPeak:
    """Measures in this process, passes of about 5 ms. ``isa``: one that this machine has (``kernels.resolve_isa``)."""
    if threads < 1:
        raise UsageError(f"threads must be at least 1, got {threads}")
    from swiftsure.kernels import _core

    return ArithmeticPeak(kind=kind, isa=isa, threads=threads, pass_ops_per_s=tuple(_core.arithmetic_passes(kind, isa, threads, passes)))
