"""The scheduler against a simulated clock: who may be held up by whom, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine.scheduler import Candidate, Limits, Step, Work, next_step

BLOCK = 4


@dataclass(slots=True)
class Person:
    """A request: when it comes, how much it reads and writes, and what became of it."""

    key: int
    tier: str
    arrives_s: float
    prompt: int
    output: int
    draft: int = 0
    computed: int = 0
    written: int = 0
    blocks: int = 0
    token_s: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.prompt + self.written

    @property
    def precedence(self) -> tuple[bool, int]:
        return self.tier != "priority", self.key

    def candidate(self) -> Candidate:
        room = self.output - self.written - 1
        return Candidate(
            key=self.key,
            length=self.length,
            computed=self.computed,
            blocks=self.blocks,
            draft=min(self.draft, max(0, room)) if self.length - self.computed == 1 else 0,
            owned=self.blocks,
            tier=self.tier,  # type: ignore[arg-type]  # drawn from the two names, a plain string to the checker
        )


class World:
    """Runs steps until everybody is served; ``look`` sees each with the queues that it was decided from."""

    def __init__(self, people: Sequence[Person], *, blocks: int, limits: Limits, pass_s: Callable[[int], float]) -> None:
        self.people = {person.key: person for person in people}
        self.total = self.free = blocks
        self.limits, self.pass_s = limits, pass_s
        self.now_s = 0.0
        self.waiting: list[Person] = []
        self.running: list[Person] = []
        self.passes: list[tuple[float, Step]] = []  # when each began

    def run(self, look: Callable[[World, list[Candidate], list[Candidate], Step], None] = lambda *_: None) -> None:
        coming = sorted(self.people.values(), key=lambda person: (person.arrives_s, person.key))
        while coming or self.waiting or self.running:
            while coming and (coming[0].arrives_s <= self.now_s or not (self.waiting or self.running)):
                person = coming.pop(0)
                self.now_s = max(self.now_s, person.arrives_s)
                self.waiting.append(person)
            self.waiting.sort(key=lambda person: person.precedence)
            step = self._step(look)
            assert step.work, "somebody can always run"
            self.passes.append((self.now_s, step))
            self.now_s += self.pass_s(step.rows)
            for work in step.work:
                self._carry_out(work)

    def _step(self, look: Callable[[World, list[Candidate], list[Candidate], Step], None]) -> Step:
        while True:
            line, queue = [p.candidate() for p in self.waiting], [p.candidate() for p in self.running]
            step = next_step(line, queue, free_blocks=self.free, limits=self.limits, pass_s=self.pass_s)
            look(self, line, queue, step)
            for key in step.preempt:
                person = self.people[key]
                self.running.remove(person)
                self.waiting.append(person)
                self.free += person.blocks
                person.blocks = person.computed = 0
            for key in step.admit:
                self.waiting.remove(self.people[key])
                self.running.append(self.people[key])
            for queue_of in (self.running, self.waiting):
                queue_of.sort(key=lambda person: person.precedence)
            if step.work or not step.preempt:
                return step

    def _carry_out(self, work: Work) -> None:
        person = self.people[work.key]
        self.free -= work.new_blocks
        person.blocks += work.new_blocks
        assert self.free >= 0
        person.computed += work.rows
        if work.sample:
            tokens = 1 + work.draft // 2  # half of a draft is right
            person.written += tokens
            person.computed += tokens - 1
            person.token_s += [self.now_s] * tokens
        if person.written >= person.output:
            self.running.remove(person)
            self.free += person.blocks
            person.blocks = 0


def some_limits(draw: st.DrawFn) -> Limits:
    priority_running = draw(st.integers(1, 3))
    return Limits(
        max_rows=draw(st.sampled_from([8, 16, 64])),
        max_logit_rows=8,
        block_size=BLOCK,
        max_running=draw(st.integers(1, 5)),
        mixed_passes=draw(st.booleans()),
        priority_running=priority_running,
        priority_rows=priority_running + draw(st.integers(0, 4)),
        priority_slack=draw(st.sampled_from([None, 0.0, 0.1, 0.5, 3.0])),
        prefill_chunk_s=draw(st.sampled_from([5.0, 20.0, 100.0])),
    )


@st.composite
def crowds(draw: st.DrawFn) -> World:
    drafts = draw(st.booleans())
    people = [
        Person(
            key,
            draw(st.sampled_from(["standard", "standard", "priority"])),
            arrives_s=draw(st.integers(0, 200)),
            prompt=draw(st.one_of(st.integers(1, 6), st.integers(1, 60))),
            output=draw(st.integers(1, 12)),
            draft=draw(st.integers(0, 5)) if drafts else 0,
        )
        for key in range(draw(st.integers(1, 9)))
    ]
    people = [replace(person, key=key) for key, person in enumerate(sorted(people, key=lambda person: person.arrives_s))]
    a_row_s = draw(st.sampled_from([0.1, 1.0, 3.0]))
    # One request of full size fits; drafts are cut where blocks run out, so that with few there are none.
    return World(
        people, blocks=400 if drafts else draw(st.integers(19, 60)), limits=some_limits(draw), pass_s=lambda rows: 10 + a_row_s * rows
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(world=crowds())
def test_everybody_is_served_and_every_block_comes_back(world):
    world.run()
    assert all(person.written >= person.output for person in world.people.values())
    assert world.free == world.total


def by_tier(candidates: Sequence[Candidate], tier: str) -> list[Candidate]:
    return [c for c in candidates if c.tier == tier]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(world=crowds())
def test_a_pass_holds_for_priority_requests_what_it_would_hold_without_any_other(world):
    """So that what they are held up by is only the time of riding rows, which is within the slack, and the pass that runs as they come."""

    def look(world: World, line: list[Candidate], queue: list[Candidate], step: Step) -> None:
        mine = [w for w in step.work if w.tier == "priority"]
        others = world.free + sum(c.owned for c in by_tier(queue, "standard"))
        alone = next_step(
            by_tier(line, "priority"),
            by_tier(queue, "priority"),
            free_blocks=others,
            limits=world.limits,
            pass_s=world.pass_s,
        )
        if step.work:
            assert mine == list(alone.work)
        if mine:
            slack = world.limits.priority_slack
            bound_s = world.pass_s(alone.rows) * (1 + (slack or 0.0))
            assert world.pass_s(step.rows) <= bound_s
            assert slack is not None or step.rows == alone.rows
        if any(world.people[key].tier == "priority" for key in step.preempt):
            assert not by_tier([c for c in queue if c.key not in step.preempt], "standard"), "standard requests give way first"

    world.run(look)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(world=crowds())
def test_no_request_waits_behind_a_later_one_of_its_tier(world):
    """Whoever has rows while an earlier request that could run has none is a short prompt, within a quarter of the pass's prompt rows."""

    def look(world: World, line: list[Candidate], queue: list[Candidate], step: Step) -> None:
        worked = {w.key: w for w in step.work}
        prompt_rows = sum(w.rows for w in step.work if world.people[w.key].length - w.start > 1)
        for tier in ("standard", "priority"):
            here = [*by_tier(queue, tier), *by_tier(line, tier)]
            decoding = [c for c in by_tier(queue, tier) if c.length - c.computed == 1 and c.key not in step.preempt]
            served = [c.key in worked for c in decoding]
            assert served == sorted(served, reverse=True), "decoding goes in order of arrival"
            reading = [c for c in here if c not in decoding and c.key not in step.preempt]
            passed_by = False
            for c in reading:
                work = worked.get(c.key)
                if work is None:
                    passed_by = True
                elif passed_by:
                    assert work.sample
                    assert 4 * work.rows <= max(prompt_rows, world.limits.max_rows)
        admitted = [world.people[key] for key in step.admit]
        for tier in ("standard", "priority"):
            keys = [person.key for person in admitted if person.tier == tier]
            assert keys == sorted(keys)

    world.run(look)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(world=crowds())
def test_prompts_lengthen_a_pass_that_decodes_for_their_tier_by_the_chunk_time_at_most(world):
    def look(world: World, line: list[Candidate], queue: list[Candidate], step: Step) -> None:
        decodes = {c.key for c in queue if c.length - c.computed == 1}
        prompts = [w for w in step.work if w.key not in decodes]
        tiers = {w.tier for w in step.work}
        if prompts and len(tiers) == 1 and len(prompts) < len(step.work):
            rows = sum(w.rows for w in prompts)
            decoding = step.rows - rows
            assert rows <= 8 or world.pass_s(step.rows) <= world.pass_s(decoding) + world.limits.prefill_chunk_s

    world.run(look)


@pytest.mark.parametrize("slack", [0.0, 0.1, 1.0])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(world=crowds(), prompt=st.integers(1, 60), output=st.integers(1, 20), arrives_s=st.integers(0, 200))
def test_a_flood_of_standard_requests_delays_a_priority_one_by_one_pass_and_the_slack(slack, world, prompt, output, arrives_s):
    limits = replace(world.limits, priority_slack=slack)
    flood = [replace(person, tier="standard", token_s=[]) for person in world.people.values()]
    one = Person(99, "priority", arrives_s=arrives_s, prompt=prompt, output=output)
    alone = World([replace(one, token_s=[])], blocks=world.total, limits=limits, pass_s=world.pass_s)
    served = World([*flood, one], blocks=world.total, limits=limits, pass_s=world.pass_s)
    alone.run()
    served.run()
    began_s = next(began_s for began_s, step in served.passes if any(w.key == 99 for w in step.work))
    before = max((world.pass_s(step.rows) for began_s, step in served.passes if began_s < arrives_s), default=0.0)
    assert began_s <= arrives_s + before, "it leaves at the next edge"
    for with_others_s, without_s in zip(one.token_s, alone.people[99].token_s, strict=True):
        assert with_others_s - began_s <= (without_s - arrives_s) * (1 + slack) + 1e-9


def test_short_prompt_behind_a_very_long_one_is_answered_within_a_few_passes():
    limits = Limits(max_rows=256, max_logit_rows=32, block_size=BLOCK, max_running=16, mixed_passes=True)
    long, short = Person(0, "standard", 0.0, prompt=8000, output=5), Person(1, "standard", 1.0, prompt=20, output=5)
    world = World([long, short], blocks=3000, limits=limits, pass_s=lambda rows: 0.005 + 0.0005 * rows)
    world.run()
    assert short.token_s[0] - short.arrives_s < 0.3 < 4.0 < long.token_s[0]


def test_one_priority_stream_holds_standard_requests_for_as_long_as_it_lasts_and_no_longer():
    """Strict precedence, stated: where rows cost more than the slack, standard requests wait."""
    limits = Limits(max_rows=16, max_logit_rows=8, block_size=BLOCK, max_running=4, mixed_passes=True)
    stream, other = Person(0, "priority", 0.0, prompt=2, output=50), Person(1, "standard", 0.0, prompt=2, output=2)
    world = World([stream, other], blocks=100, limits=limits, pass_s=lambda rows: float(rows))
    world.run()
    assert min(other.token_s) > max(stream.token_s)
    assert sum(step.declined for _, step in world.passes) == 50
