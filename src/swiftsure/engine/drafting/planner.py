"""Which source drafts for which sequence in the next pass, how far, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.drafting.source import Draft, DraftSource
from swiftsure.engine.evidence import SpeculationEvidence
from swiftsure.engine.request import Sequence
from swiftsure.engine.speculation import MAX_DRAFT, Acceptance, DraftPolicy, Offer

_NO_DRAFT = Draft(np.zeros(0, np.int32), ())


@dataclass(slots=True)
class _Guess:
    """What stands as the draft of one sequence while a pass is planned."""

    seq: Sequence
    room: int
    source: str = ""
    draft: Draft = _NO_DRAFT
    chances: list[float] = field(default_factory=list)  # (n,) measured where the draft's are stated


class DraftPlanner:
    """Owns the sources and the policy."""

    def __init__(self, sources: SequenceOf[DraftSource], evidence: SpeculationEvidence) -> None:
        self.policy = DraftPolicy()
        self.wants_hidden = any(source.wants_hidden for source in sources)
        self._sources = tuple(sources)
        self._evidence = evidence

    @property
    def active(self) -> bool:
        return bool(self._sources)

    def calibrate(self) -> None:
        """Times the stepwise sources. Only before the first request, once the cost of rows is known."""
        for source in self._sources:
            if source.stepwise:
                self.policy.time_source(source.name, source.measure())

    def open(self, seq: Sequence) -> None:
        seq.acceptance = {
            source.name: Acceptance(self.policy.acceptance(source.name, trust=source.trust), trust=source.trust) for source in self._sources
        }
        for source in self._sources:
            source.open(seq)

    def close(self, seq: Sequence) -> None:
        for source in self._sources:
            source.close(seq)

    def clear(self) -> None:
        self.policy.reset()
        for source in self._sources:
            source.clear()

    # --- before a pass ----------------------------------------------------------------------------------------------------

    def plan(self, decoding: SequenceOf[Sequence], *, most_rows: int, beside: int = 0, stepwise: bool = True) -> None:
        """Leaves in each sequence the draft that the next pass, of at most ``most_rows`` rows with logits, should verify.

        ``beside``: rows that the pass runs for others. Without ``stepwise`` only sources are asked that take no passes of their own.
        """
        base_rows = len(decoding) + beside
        guesses: list[_Guess] = []
        for seq in decoding:
            seq.draft, seq.draft_length, seq.draft_declined = None, 0, False
            room = min(MAX_DRAFT, len(seq.ids) - seq.length - 1, most_rows - base_rows)
            if room > 0:
                guesses.append(_Guess(seq, room))
        if not guesses:
            return
        self.policy.cost.enter(sum(seq.length for seq in decoding) // len(decoding))
        for source in self._sources:
            if not source.stepwise:
                self._ask(source, guesses, base_rows)
            elif stepwise:
                self._ask_by_steps(source, guesses, base_rows)
        offering = [guess for guess in guesses if len(guess.draft.tokens)]
        if not offering:
            return
        lengths = self.policy.choose([Offer(guess.chances) for guess in offering], base_rows=base_rows, max_rows=most_rows)
        for guess, length in zip(offering, lengths, strict=True):
            seq = guess.seq
            seq.draft, seq.draft_source, seq.draft_length, seq.draft_declined = guess.draft, guess.source, length, length == 0

    @staticmethod
    def skip(decoding: SequenceOf[Sequence]) -> None:
        """The next pass verifies no drafts of theirs."""
        for seq in decoding:
            seq.draft, seq.draft_length, seq.draft_declined = None, 0, False

    def _ask(self, source: DraftSource, guesses: list[_Guess], base_rows: int) -> None:
        """Takes the drafts of a free source where they are worth more than what stands."""
        drafts = source.propose([guess.seq for guess in guesses], [guess.room for guess in guesses])
        for guess, draft in zip(guesses, drafts, strict=True):
            if len(draft.tokens):
                self._take_better(
                    guess, _Guess(guess.seq, guess.room, source.name, draft, self._measured(source, guess.seq, draft)), base_rows
                )

    def _ask_by_steps(self, source: DraftSource, guesses: list[_Guess], base_rows: int) -> None:
        """Has a source draft token by token, for the sequences where its draft is expected to be worth more than what stands, and takes
        what it drafts where that is true."""
        policy = self.policy
        asking, unasked = [], []
        for guess in guesses:
            acceptance = guess.seq.acceptance[source.name]
            spent = policy.worth_by_steps(source.name, policy.expected(acceptance, guess.room), base_rows)
            if spent > max(0.0, policy.worth(guess.chances, base_rows)):
                asking.append(_Guess(guess.seq, guess.room, source.name))
            else:
                unasked.append(acceptance)
        policy.pass_over(source.name, unasked, by_all=not asking)
        asked, depth = asking, 0
        while asking:
            depth += 1
            started = perf_counter()
            drafts = source.propose([guess.seq for guess in asking], [depth] * len(asking))
            policy.time_step(source.name, perf_counter() - started, first=depth == 1, sequences=len(asking))
            further = []
            for guess, draft in zip(asking, drafts, strict=True):
                guess.draft, guess.chances = draft, self._measured(source, guess.seq, draft)
                acceptance = guess.seq.acceptance[source.name]
                if len(draft.tokens) == depth < guess.room and policy.one_more(source.name, acceptance, guess.chances, base_rows):
                    further.append(guess)
            asking = further
        standing = {guess.seq.key: guess for guess in guesses}
        for guess in asked:
            self._take_better(standing[guess.seq.key], guess, base_rows)

    def _take_better(self, standing: _Guess, other: _Guess, base_rows: int) -> None:
        """Whichever is worth more now stands; the time that either took is spent."""
        if not len(other.draft.tokens):
            return
        if not standing.source or self.policy.worth(other.chances, base_rows) > self.policy.worth(standing.chances, base_rows):
            standing.source, standing.draft, standing.chances = other.source, other.draft, other.chances

    def _measured(self, source: DraftSource, seq: Sequence, draft: Draft) -> list[float]:
        return seq.acceptance[source.name].chances(draft.chances)

    # --- after a pass -----------------------------------------------------------------------------------------------------

    def learn(self, seq: Sequence, drafted: int, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        """``tokens`` (n,) came of a pass that verified ``drafted`` draft tokens; all but the last of them were drafted."""
        for source in self._sources:
            source.observe(seq, tokens, hidden if source.wants_hidden else None)
        if not self._sources or not seq.output_length:  # the first token comes of the prompt's pass
            return
        self._evidence.passes += 1
        seq.count("speculation", passes=1)
        draft = seq.draft
        if draft is None:
            return
        accepted = len(tokens) - 1
        declined = int(seq.draft_declined and not drafted)
        self._evidence.count(seq.draft_source, declined=declined, drafted=drafted, accepted=accepted)
        seq.count("speculation", occasions=1, declined=declined, drafted=drafted, accepted=accepted)
        if drafted:
            self.policy.record(seq.draft_source, seq.acceptance[seq.draft_source], draft.chances[:drafted], accepted)
        elif declined:
            self.policy.decline(seq.draft_source, seq.acceptance[seq.draft_source], draft.chances[0])
