"""Seconds of a pass by its rows, as far as running has shown: what the scheduler's promises of time are kept with."""

from __future__ import annotations

from swiftsure.engine.speculation import StepCost

_MANY = 16  # rows up to which the costs of decode passes are measured one by one; beyond, each row costs alike
_TELLING = 16  # rows beyond those that a pass must have, or its time says little about the price of one
_FOLLOW = 0.3  # of a change seen in one pass: chunks of a long prompt cost more and more, and the next prompt is a short one again
_LEAST_FOUND, _MOST_FOUND = 0.4, 1.6  # times the price so far: what disturbs a pass makes it longer
_FADE = 0.1  # of a price that passes are too short to confirm, towards that of rows measured one by one
_LEAST_EASE = 0.4  # of what decode passes cost: a shorter pass of as many rows was mistimed
_UNTIMED_ROW_S = 0.002  # of a pass of one row, until one was timed


class PassCost:
    """Called with rows, gives seconds. Prompt rows are counted like rows that decode, which cost no less: they also need their logits."""

    __slots__ = ("_ease", "_further_s", "step")

    def __init__(self, step: StepCost) -> None:
        self.step = step  # what drafts are chosen by; replaced when that is
        self._further_s: float | None = None  # a row beyond the first _MANY
        self._ease = 1.0  # what short passes with prompt rows take, over decode passes of as many rows when these were last seen

    def __call__(self, rows: int) -> float:
        one_row_s = (self.step.one_row_s or _UNTIMED_ROW_S) * self._ease
        if rows <= _MANY:
            return one_row_s * self.step.relative(rows) if rows else 0.0
        return one_row_s * self.step.relative(_MANY) + (rows - _MANY) * self.further_s

    @property
    def further_s(self) -> float:
        """Seconds of one more row in a pass of many; before a prompt was read, as steep as the last rows that were measured."""
        return self._further_s if self._further_s is not None else self._measured_s

    @property
    def _measured_s(self) -> float:
        step = self.step
        return (step.one_row_s or _UNTIMED_ROW_S) * max(0.0, step.relative(_MANY) - step.relative(_MANY // 2)) / (_MANY - _MANY // 2)

    def observe(self, rows: int, seconds: float) -> None:
        """A pass of ``rows`` rows, some of them a prompt's, took ``seconds``. An outlier (a descheduled thread) moves little.

        Prices that are too high make passes too short to tell, and while prompts are read there may be no decode pass for long: so what
        short passes do not confirm fades, and where they take less than decode passes took, all costs come down.
        """
        further = rows - _MANY
        known = self.step.one_row_s is not None
        if further < _TELLING:
            if self._further_s is not None:
                self._further_s += _FADE * (self._measured_s - self._further_s)
            if known:
                eased = self._ease * (1.0 + _FOLLOW * (min(max(seconds / self(rows), _LEAST_FOUND), _MOST_FOUND) - 1.0))
                self._ease = min(max(eased, _LEAST_EASE), 1.0)
            return
        found = (seconds - self(_MANY)) / further if known else seconds / rows
        if self._further_s is None and not known:
            self._further_s = found
            return
        old = max(self.further_s, 1e-9)
        self._further_s = old * (1.0 + _FOLLOW * (min(max(found / old, _LEAST_FOUND), _MOST_FOUND) - 1.0))
