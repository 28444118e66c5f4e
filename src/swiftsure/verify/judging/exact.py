"""Exact: the baseline against itself first, then the candidate against the baseline, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swiftsure.verify.judging.observation import Observation
from swiftsure.verify.judging.verdict import Finding

_SHOWN = 5


def judge_exact(observations: Sequence[Observation]) -> Iterator[Finding]:
    """A baseline that differs from itself makes Exact NOT_ACTIVE: there are no bits to keep."""
    compared = [seen for seen in observations if seen.exact is not None and seen.exact.not_compared is None]
    unsteady = [seen for seen in observations if seen.against_itself is not None and seen.against_itself.first is not None]
    if unsteady:
        first = unsteady[0].against_itself
        assert first is not None
        yield Finding(
            verdict="NOT_ACTIVE",
            about="exact",
            words=f"the baseline differs from itself in {len(unsteady)} of {len(observations)} cases: {first.describe()}",
        )
        return
    empty = [seen for seen in observations if seen.both_ran and seen.exact is not None and seen.exact.not_compared is not None]
    if empty:
        assert empty[0].exact is not None
        words = f"nothing was compared in {len(empty)} of {len(observations)} cases: {empty[0].exact.describe()}"
        yield Finding(verdict="NOT_FINISHED", about="exact", words=words)
    steady = [seen for seen in compared if seen.against_itself is not None and seen.against_itself.not_compared is None]
    if compared and len(steady) < len(compared):
        missing = len(compared) - len(steady)
        yield Finding(verdict="NOT_FINISHED", about="exact", words=f"the baseline was not compared with itself in {missing} cases")
    differing = [seen for seen in compared if seen.exact is not None and not seen.exact.equal]
    for seen in differing[:_SHOWN]:
        assert seen.exact is not None
        yield Finding(verdict="FAIL", about="exact", words=seen.exact.describe())
    if len(differing) > _SHOWN:
        yield Finding(verdict="FAIL", about="exact", words=f"{len(differing)} of {len(compared)} cases differ")
    if compared and not differing:
        bits = sum(seen.exact.bits_compared for seen in compared if seen.exact is not None)
        elements = sum(seen.exact.compared for seen in compared if seen.exact is not None)
        words = f"the same in {len(compared)} of {len(compared)} cases: {elements:,} elements, {bits:,} bits of arrays, 0 differing"
        yield Finding(verdict="PASS", about="exact", words=words)
