"""What drafts would have done for a run that is over: its tokens are known, so no model is needed.

``replay`` plays the planner's decisions pass by pass; ``ceiling`` is the best that any decision could have made of the same drafts. The
sources must be free and fresh: they see the run as if it were the first.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.drafting.planner import DraftPlanner
from swiftsure.engine.drafting.source import DraftSource
from swiftsure.engine.request import Request, Sequence
from swiftsure.engine.speculation import MAX_DRAFT, StepCost
from swiftsure.engine.text import TextAssembler


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Decode passes after the first token. ``cost`` is in passes of one row: what plain decoding pays for one token."""

    tokens: int
    passes: int
    cost: float

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes

    @property
    def speedup(self) -> float:
        """Over plain decoding."""
        return self.tokens / self.cost


def replay(request: Request, output: NDArray[np.int32], planner: DraftPlanner, true_cost: StepCost, *, most_rows: int = 32) -> Played:
    """Decides pass by pass as the planner would have for this request alone, were steps to cost what ``true_cost`` says: the planner goes
    by what it has seen of that. ``output`` has at least 2 tokens."""
    seq = _recorded(request, output)
    planner.open(seq)
    planner.learn(seq, 0, output[:1], None)
    seq.length += 1
    passes, cost = 0, 0.0
    while seq.length < len(seq.ids):
        planner.plan([seq], most_rows=most_rows)
        ahead = seq.ids[seq.length :]
        drafted = seq.draft_length
        right = _right(seq.draft.tokens[:drafted], ahead) if seq.draft is not None else 0
        passes += 1
        spent = true_cost.relative(1 + drafted)
        cost += spent
        planner.policy.cost.observe(1 + drafted, spent * (true_cost.one_row_s or 1.0))
        planner.learn(seq, drafted, ahead[: min(right + 1, len(ahead))], None)
        seq.length = min(seq.length + right + 1, len(seq.ids))
    planner.close(seq)
    return Played(tokens=len(output) - 1, passes=passes, cost=cost)


def right_lengths(request: Request, output: NDArray[np.int32], source: DraftSource) -> list[int]:
    """By position from the second output token on: how many tokens of the source's draft there are those that came."""
    seq = _recorded(request, output)
    source.open(seq)
    right = []
    for _ in range(len(output) - 1):
        source.observe(seq, seq.ids[seq.length : seq.length + 1], None)
        seq.length += 1
        (draft,) = source.propose([seq], [MAX_DRAFT])
        right.append(_right(draft.tokens, seq.ids[seq.length :]))
    source.close(seq)
    return right


def ceiling(right: SequenceOf[int], cost: StepCost) -> Played:
    """The cheapest way through a run, were it known at every position how much of the draft is ``right`` there.

    No choice of draft lengths does better with these drafts and these costs of rows.
    """
    count = len(right)
    best = [0.0] * (count + 1)
    passes = [0] * (count + 1)
    for at in range(count - 1, -1, -1):
        most = min(right[at], count - at - 1)
        spent, length = min((cost.relative(1 + d) + best[at + 1 + d], d) for d in range(most + 1))
        best[at], passes[at] = spent, passes[at + 1 + length] + 1
    return Played(tokens=count, passes=passes[0], cost=best[0])


def _right(draft: NDArray[np.int32], came: NDArray[np.int32]) -> int:
    count = min(len(draft), len(came))
    wrong = np.flatnonzero(draft[:count] != came[:count])
    return int(wrong[0]) if len(wrong) else count


class _NoText:
    special_ids: frozenset[int] = frozenset()

    def token_bytes(self, token_id: int) -> bytes:
        return b""


class _NoSampler:
    def accept(self, logits: NDArray[np.float32], draft: NDArray[np.int32], /) -> NDArray[np.int32]:
        raise RuntimeError("the tokens of a run that is over are known")


def _recorded(request: Request, output: NDArray[np.int32]) -> Sequence:
    """A sequence that knows its whole future; its length says how much of it has happened."""
    return Sequence(
        key=0,
        request=request,
        ids=np.concatenate([request.prompt_ids, output]).astype(np.int32),
        length=len(request.prompt_ids),
        sampler=_NoSampler(),
        assembler=TextAssembler(_NoText(), ()),
    )
