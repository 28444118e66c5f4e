"""Prefill, decode and memory at given numbers of prompt tokens.

One visit of a size: every contender reads the same ids, one after the other, and keeps them; then they take turns at decoding a few tokens
each, so that one prefill serves many paired turns; then they let go. Further visits measure the prefill again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.peers.budget import Budget
from benchmarks.peers.measure import Asked, rotated
from benchmarks.peers.process import PeerError
from swiftsure.records.statistics import Noise, Ratio, median, pair_noise, paired_ratio

OVERSHOOT = 24
"""Tokens of room a turn, because accepted drafts come in groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """contexts: prompt tokens at which decoding is timed; prefills: at which only the prefill counts. Visits: ``repeats`` at most."""

    contexts: tuple[int, ...]
    prefills: tuple[int, ...]
    repeats: int
    rounds: int = 5
    tokens: int = 12  # a decode turn
    pause_s: float = 0.25  # before a decode turn: the one before goes to sleep

    @property
    def sizes(self) -> list[int]:
        return sorted({*self.contexts, *self.prefills})

    @property
    def decode_room(self) -> int:
        """Tokens that a context must have room for beyond the prompt."""
        return 1 + self.rounds * (self.tokens + OVERSHOOT)


@dataclass(slots=True, kw_only=True)
class Cell:
    """One contender at one size. ``reason``: why there is nothing, or no more."""

    size: int
    ttft_s: list[float] = field(default_factory=list)  # by visit
    decode: list[tuple[int, float]] = field(default_factory=list)  # tokens and seconds, by round
    peak_rss_bytes: int | None = None
    reason: str | None = None

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self.size / median(self.ttft_s) if self.ttft_s else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        return median(tokens / seconds for tokens, seconds in self.decode) if self.decode else None

    def to_dict(self) -> dict[str, Any]:
        rates = {"prefill_tokens_per_s": self.prefill_tokens_per_s, "decode_tokens_per_s": self.decode_tokens_per_s}
        return {name: value for name, value in asdict(self).items() if name != "size"} | rates


Cells = dict[str, dict[int, Cell]]  # by contender and size


def measure_sizes(
    workers: Mapping[str, Asked], ids: Sequence[int], plan: Plan, budget: Budget, *, progress: Callable[[str], None] = lambda _: None
) -> Cells:
    """Sizes ascend, so that a contender's time at one size tells whether it should begin the next."""
    cells: Cells = {name: {size: Cell(size=size) for size in plan.sizes} for name in workers}
    visits = _Visits(workers, ids, plan, budget, cells, progress)
    for size in plan.sizes:
        for repeat in range(plan.repeats):
            visits.visit(size, repeat)
    return cells


class _Visits:
    def __init__(
        self,
        workers: Mapping[str, Asked],
        ids: Sequence[int],
        plan: Plan,
        budget: Budget,
        cells: Cells,
        progress: Callable[[str], None],
    ) -> None:
        self._workers, self._ids, self._plan, self._budget, self._cells, self._progress = workers, ids, plan, budget, cells, progress
        self._per_token_s: dict[str, float] = {}  # prefill, at the last size

    def visit(self, size: int, repeat: int) -> None:
        decodes = repeat == 0 and size in self._plan.contexts
        order = [name for name in rotated(list(self._workers), size + repeat) if self._may(name, size, repeat)]
        began = [name for name in order if self._begin(name, size, decodes)]
        for round_ in range(self._plan.rounds if decodes else 0):
            for name in rotated(began, round_):
                self._decode(name, size)
        for name in began:
            self._end(name, size)

    def _may(self, name: str, size: int, repeat: int) -> bool:
        cell, expected_s = self._cells[name][size], self._per_token_s.get(name, 0.0) * size
        if repeat:
            return bool(cell.ttft_s) and cell.reason is None and self._budget.repeat(name, str(size), cell.ttft_s[-1])
        cell.reason = self._budget.why_not(name, expected_s)
        return cell.reason is None

    def _begin(self, name: str, size: int, decodes: bool) -> bool:
        time.sleep(self._plan.pause_s)
        room = self._plan.decode_room if decodes else 1
        answer = self._ask(name, size, "begin", ids=list(self._ids[:size]), max_tokens=room)
        if answer is None:
            return False
        seconds = answer["ttft_s"]
        self._cells[name][size].ttft_s.append(seconds)
        self._per_token_s[name] = seconds / size
        self._progress(f"{size} tokens: {name} reads {size / seconds:.0f} tokens/s")
        return True

    def _decode(self, name: str, size: int) -> None:
        if self._budget.failed(name) is not None:
            return
        time.sleep(self._plan.pause_s)
        answer = self._ask(name, size, "more", tokens=self._plan.tokens)
        if answer is not None:
            self._cells[name][size].decode.append((answer["tokens"], answer["seconds"]))

    def _end(self, name: str, size: int) -> None:
        if self._budget.failed(name) is not None:
            return
        cell, answer = self._cells[name][size], self._ask(name, size, "end")
        if answer is not None and cell.peak_rss_bytes is None:  # the first visit's, with decoding
            cell.peak_rss_bytes = answer["peak_rss_bytes"]
        if cell.decode:
            self._progress(f"{size} tokens: {name} decodes {cell.decode_tokens_per_s:.1f} tokens/s")

    def _ask(self, name: str, size: int, do: str, **arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return self._workers[name].ask(do, **arguments)
        except PeerError as error:
            self._cells[name][size].reason = error.reason
            if not getattr(self._workers[name], "alive", True) or do != "begin":
                self._budget.fail(name, error.reason)  # a worker that lives on may manage other sizes
            self._progress(str(error))
            return None
        finally:
            self._budget.spend(name, str(size), time.perf_counter() - started)


def size_ratios(cells: Cells, first: str, second: str, what: str) -> dict[int, Ratio | None]:
    """The rate of ``first`` over that of ``second`` at each size, paired by turn; ``what`` is "decode" or "prefill".

    Where a size has few pairs, the noise of the contender's pairs at all sizes gives the interval.
    """
    pairs = {size: _pairs(cells[first][size], cells[second][size], what) for size in cells[second]}
    noise: Noise = pair_noise(list(pairs.values()))
    return {size: paired_ratio([found], noise) for size, found in pairs.items()}


def _pairs(first: Cell, second: Cell, what: str) -> list[tuple[float, float]]:
    if what == "prefill":
        return [(1 / a, 1 / b) for a, b in zip(first.ttft_s, second.ttft_s, strict=False)]
    return [(a[0] / a[1], b[0] / b[1]) for a, b in zip(first.decode, second.decode, strict=False)]
