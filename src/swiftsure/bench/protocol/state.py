"""How far a round is and what it has found so far: what a terminal shows while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.figures.reading import read
from swiftsure.bench.protocol.plan import Cell
from swiftsure.records.statistics import median


@dataclass(slots=True, kw_only=True)
class CellState:
    """``took_s``: how long each measured exchange of the cell took, whole. ``saturated``: why its figures are the client's."""

    cell: Cell
    done: int = 0
    failed: int = 0
    ttft_s: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    saturated: str | None = None

    @property
    def name(self) -> str:
        return f"{self.cell.row}, {self.cell.users} user{'' if self.cell.users == 1 else 's'}"

    @property
    def left(self) -> int:
        return len(self.cell.trials) - self.done

    def add(self, exchange: Exchange) -> None:
        self.done += 1
        reading = read(exchange)
        self.failed += reading.error is not None
        for name, found in (("ttft", self.ttft_s), ("e2e", self.took_s), ("decode", self.decode)):
            if name in reading.values:
                found.append(reading.values[name])


@dataclass(slots=True)
class RoundState:
    """``cells`` in the order of the plan; ``current``: the one that is being measured."""

    number: int
    cells: Sequence[CellState]
    current: CellState | None = None

    @property
    def done(self) -> int:
        return sum(cell.done for cell in self.cells)

    @property
    def total(self) -> int:
        return sum(len(cell.cell.trials) for cell in self.cells)

    @property
    def failed(self) -> int:
        return sum(cell.failed for cell in self.cells)

    def add(self, exchange: Exchange) -> None:
        """Counts a measured exchange; warm-ups count nowhere."""
        if exchange.trial.warm_up:
            return
        for cell in self.cells:
            if (cell.cell.row, cell.cell.users) == (exchange.trial.row, exchange.trial.users):
                cell.add(exchange)
                return

    def left_s(self) -> float | None:
        """About how long the rest takes: what is left of each cell by its own mean, by its row's, or by all; None before the first."""
        known = [took for cell in self.cells for took in cell.took_s]
        if not known:
            return None
        whole = 0.0
        for cell in self.cells:
            row = [took for other in self.cells if other.cell.row == cell.cell.row for took in other.took_s]
            took = cell.took_s or row or known
            whole += cell.left * sum(took) / len(took) / cell.cell.users
        return whole


def median_or_none(values: Sequence[float]) -> float | None:
    return median(values) if values else None
