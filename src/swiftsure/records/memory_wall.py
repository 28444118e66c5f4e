"""The memory wall: decoding a token reads every active weight once, so bandwidth bounds tokens per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swiftsure.errors import UsageError
from swiftsure.records.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBandwidth:
    """How fast ``threads`` threads read a buffer of ``buffer_bytes`` bytes over and over, as decoding reads the weights."""

    buffer_bytes: int
    threads: int
    pass_s: tuple[float, ...]

    @property
    def bytes_per_s(self) -> float:
        """Of the median pass."""
        return self.buffer_bytes / median(self.pass_s)

    def to_dict(self) -> dict[str, float | int]:
        return {
            "buffer_bytes": self.buffer_bytes,
            "threads": self.threads,
            "passes": len(self.pass_s),
            "read_gb_per_s": self.bytes_per_s / 1e9,
        }


def measure_read_bandwidth(buffer_bytes: int, *, threads: int, passes: int = 15) -> ReadBandwidth:
    """Measures in this process; the buffer is freed again. A buffer of the weights' size sees the caches that the weights see."""
    if buffer_bytes < 4096:
        raise UsageError(f"the buffer must have at least 4096 bytes, got {buffer_bytes}")
    if threads < 1:
        raise UsageError(f"threads must be at least 1, got {threads}")
    from swiftsure.kernels import _core

    return ReadBandwidth(buffer_bytes=buffer_bytes, threads=threads, pass_s=tuple(_core.read_passes(buffer_bytes, threads, passes)))


def combine(probes: Sequence[ReadBandwidth]) -> ReadBandwidth:
    """All passes of several probes of one buffer size, spread over a run, as one measurement."""
    first = probes[0]
    if any((p.buffer_bytes, p.threads) != (first.buffer_bytes, first.threads) for p in probes):
        raise ValueError("probes of different buffers or threads cannot be combined")
    return ReadBandwidth(buffer_bytes=first.buffer_bytes, threads=first.threads, pass_s=tuple(s for p in probes for s in p.pass_s))
