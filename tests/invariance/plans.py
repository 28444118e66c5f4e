"""Hypothesis strategies for schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import Part, Pass, Plan, Preempt, Replace, Wanted

SLOTS = 5
TEXTS = 6

_slot = st.integers(0, SLOTS - 1)
_rows = st.one_of(st.just(1), st.integers(1, 16), st.integers(17, 100))
_wanted = st.sampled_from(["all", *get_args(Wanted)])
_part = st.builds(Part, slot=_slot, rows=_rows, draft=st.just(0), right=st.just(0), wanted=_wanted)
_verified = st.builds(Part, slot=_slot, rows=st.integers(1, 3), draft=st.integers(1, 8), right=st.integers(0, 8), wanted=_wanted)
_decoded = st.builds(Part, slot=_slot, rows=st.just(1), draft=st.just(0), right=st.just(0), wanted=st.just("all"))


def _passes(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Pass]:
    return st.builds(Pass, st.lists(parts, min_size=1, max_size=4).map(tuple))


_pass = st.one_of(
    _passes(_part),
    _passes(st.one_of(_verified, _decoded)),
    _passes(st.one_of(_part, _verified, _decoded)),
)
_disturbance = st.one_of(
    st.builds(Preempt, slot=_slot, share=st.booleans()),
    st.builds(Replace, slot=_slot, text=st.integers(0, TEXTS - 1), share=st.booleans(), keep=st.booleans()),
)
# Every disturbance is followed by a pass, or it could not be noticed.
_turn = st.one_of(st.tuples(_pass), st.tuples(_pass), st.tuples(_disturbance, _pass))


@st.composite
def plans(draw: st.DrawFn, *, isas: Sequence[str], threads: tuple[int, int] = (1, 4), turns: tuple[int, int] = (4, 12)) -> Plan:
    """Any schedule of a few sequences over the given instruction sets and numbers of threads."""
    count = draw(st.integers(1, SLOTS))
    return Plan(
        isa=draw(st.sampled_from(list(isas))),
        threads=draw(st.integers(*threads)),
        texts=tuple(draw(st.lists(st.integers(0, TEXTS - 1), min_size=count, max_size=count))),
        shares=tuple(draw(st.lists(st.booleans(), min_size=count, max_size=count))),
        block_order=draw(st.integers(0, 1000)),
        actions=tuple(chain.from_iterable(draw(st.lists(_turn, min_size=turns[0], max_size=turns[1])))),
    )


def run_plans(run: Callable[[Plan], object], count: int, *, isas: Sequence[str]) -> None:
    """Runs ``count`` schedules, the same ones each time."""

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(plan=plans(isas=isas))
    def check(plan: Plan) -> None:
        run(plan)

    check()
