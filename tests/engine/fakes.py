"""Stand-ins that make engine tests fast and strict.

The back end computes the logits of a row from the tokens it *reads back through the block table*, so a wrong block, a stale prefix or a
misplaced draft changes them. It also refuses passes that break the seam's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.activation import lever_states
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.compiled import chain_starter
from swiftsure.engine.drafting.lookup import Lookup
from swiftsure.engine.engine import Engine
from swiftsure.engine.llm import LLM
from swiftsure.engine.memory import MemoryPlan
from swiftsure.engine.modes import LEVERS
from swiftsure.engine.numerics import NUMERIC_LEVERS
from swiftsure.engine.pass_cost import PassCost
from swiftsure.engine.request import Request, TokenLogprob
from swiftsure.engine.request import Sequence as Running
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduling import Scheduling
from swiftsure.engine.speculation import StepCost
from swiftsure.models.conversation import conversation

VOCAB = 320
EOS = 319
ALL_LEVERS = tuple(name for name in LEVERS if name not in NUMERIC_LEVERS)


class FakeBackend:
    """Logits are a hash of the last ``reach`` tokens, as found in the cache; a small reach makes text repeat itself."""

    numerics = "fake1"
    isa = "none"
    threads = 1
    weight_bytes = 0
    kv_bytes = 0
    pass_bytes = 0
    lever_uses: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self,
        *,
        kv_blocks: int = 64,
        block_size: int = 8,
        max_rows: int = 64,
        max_logit_rows: int = 32,
        reach: int | None = None,
        vocab: int = VOCAB,
        favour: Callable[[list[int]], int | None] = lambda prefix: None,
    ) -> None:
        self.kv_blocks, self.kv_block_size = kv_blocks, block_size
        self.max_rows, self.max_logit_rows = max_rows, max_logit_rows
        self.vocab_size = vocab
        self.reach = reach
        self.favour = favour
        self.cache = np.full((kv_blocks, block_size), -1, np.int64)
        self.batches: list[RowBatch] = []
        self.before_run: Callable[[int], None] = lambda number: None
        self.closed = False
        self._logits = np.zeros((max_logit_rows, vocab), np.float32)
        self._hidden = np.zeros((max_logit_rows, 2), np.float32)

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        self.before_run(len(self.batches))
        self._check(batch)
        self.batches.append(
            RowBatch(**{name: values.copy() for name in RowBatch.__slots__ if (values := getattr(batch, name)) is not None})
        )
        wanted = {int(row): i for i, row in enumerate(batch.logit_rows)}
        for row, (token, position, sequence) in enumerate(zip(batch.tokens, batch.positions, batch.sequences, strict=True)):
            table = batch.block_tables[sequence]
            self.cache[table[position // self.kv_block_size], position % self.kv_block_size] = token
            if row in wanted:
                at = np.arange(position + 1)
                prefix = self.cache[table[at // self.kv_block_size], at % self.kv_block_size]
                if (prefix < 0).any():
                    raise AssertionError("a row reads positions that nobody wrote")
                self._logits[wanted[row]] = self.logits_of(prefix.tolist())
                self._hidden[wanted[row]] = position, token
        return self._logits[: len(wanted)]

    def hidden(self) -> NDArray[np.float32]:
        """(position, token) of each wanted row, so that a row handed to the wrong sequence shows."""
        return self._hidden[: len(self.batches[-1].logit_rows)]

    def logits_of(self, prefix: list[int]) -> NDArray[np.float32]:
        """The logits after ``prefix``, without any cache."""
        seen = prefix if self.reach is None else prefix[-self.reach :]
        row = np.random.default_rng([len(seen), *seen]).standard_normal(self.vocab_size).astype(np.float32)
        row[EOS % self.vocab_size] -= 6.0
        best = self.favour(prefix)
        if best is not None:
            row[best] = 20.0
        return row

    def _check(self, batch: RowBatch) -> None:
        rows, wanted = len(batch.tokens), len(batch.logit_rows)
        assert 0 < rows <= self.max_rows
        assert wanted <= self.max_logit_rows
        assert (np.diff(batch.logit_rows) > 0).all()
        changes = np.flatnonzero(np.diff(batch.sequences))
        assert len(changes) + 1 == len(np.unique(batch.sequences)), "rows of a sequence must be contiguous"
        for sequence in np.unique(batch.sequences):
            assert (np.diff(batch.positions[batch.sequences == sequence]) == 1).all()

    def close(self) -> None:
        self.closed = True


class FakeSampler:
    """argmax of logits, or with a seed of logits plus noise keyed by (seed, position, token id)."""

    def __init__(self, request: Request) -> None:
        self.params = request.sampling
        self.history = request.prompt_ids.tolist()
        self.prompt_length = len(self.history)

    def accept(self, logits: NDArray[np.float32], draft: NDArray[np.int32]) -> NDArray[np.int32]:
        assert logits.shape[0] == len(draft) + 1
        out = []
        for i, row in enumerate(logits):
            token = self._sample(row)
            self.history.append(token)
            out.append(token)
            if i < len(draft) and draft[i] != token:
                break
        return np.array(out, np.int32)

    def _sample(self, row: NDArray[np.float32]) -> int:
        row = row.astype(np.float64)
        for token in set(self.history):
            row[token] = row[token] / self.params.repetition_penalty if row[token] > 0 else row[token] * self.params.repetition_penalty
        output = self.history[self.prompt_length :]
        for token in set(output):
            row[token] -= self.params.presence_penalty + self.params.frequency_penalty * output.count(token)
        for token, bias in self.params.logit_bias.items():
            row[token] += bias
        if self.params.greedy:
            return int(row.argmax())
        noise = np.random.default_rng([self.params.seed or 0, len(self.history)]).gumbel(size=len(row))
        return int((row / self.params.temperature + noise).argmax())


class FakeDrafter:
    """Longest earlier occurrence of the last 1 to 4 tokens, most recent first; slow and plain."""

    def __init__(self, request: Request | None = None) -> None:
        self.ids: list[int] = []

    def extend(self, ids: NDArray[np.int32]) -> None:
        self.ids.extend(ids.tolist())

    observe = extend

    def draft(self, max_tokens: int) -> tuple[NDArray[np.int32], list[float]]:
        for size in range(4, 0, -1):
            tail = self.ids[-size:]
            for start in range(len(self.ids) - size - 1, -1, -1):
                if len(tail) == size and self.ids[start : start + size] == tail:
                    tokens = self.ids[start + size : start + size + max_tokens]
                    return np.array(tokens, np.int32), [min(0.2 + 0.15 * (size + j), 0.9) for j in range(len(tokens))]
        return np.zeros(0, np.int32), []


class StillCost(StepCost):
    """Costs that no clock moves."""

    def observe(self, rows: int, seconds: float) -> None:
        pass


class StillPassCost(PassCost):
    """The same for passes that read prompts."""

    __slots__ = ()

    def observe(self, rows: int, seconds: float) -> None:
        pass


class FakeTokenizer:
    """Tokens 0-255 are bytes; then pieces of words and of characters; the last is the end token."""

    special_ids = frozenset({EOS})
    eos_ids = frozenset({EOS})
    prefix_ids: tuple[int, ...] = ()
    vocab_size = VOCAB

    def __init__(self) -> None:
        self.pieces = [bytes([i]) for i in range(256)]
        self.pieces += [b"the ", b"end", b"STO", b"P!", "é".encode()[:1], "é".encode()[1:], "語".encode()[:2], "語".encode()[2:]]
        self.pieces += [f"<{i}>".encode() for i in range(len(self.pieces), VOCAB)]

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.pieces[i] for i in ids if i not in self.special_ids).decode("utf-8", "replace")


def _encode_chat(messages: Any, **chat: Any) -> list[int]:
    lines = [*conversation(messages, **chat).messages, *({"role": name, "content": value} for name, value in chat.items())]
    return list("".join(f"{line['role']}: {line['content']}\n" for line in lines).encode())


def fake_model(context: int, vocab: int = VOCAB) -> Any:
    """What LLM asks of a model."""
    return SimpleNamespace(
        files=SimpleNamespace(name="fake", sha256="0" * 64),
        config=SimpleNamespace(vocab_size=vocab, context_length=context),
        tokenizer=FakeTokenizer(),
        encode_chat=_encode_chat,
        close=lambda: None,
    )


def describe(row: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    values = row.astype(np.float64) - np.log(np.exp(row.astype(np.float64)).sum())
    best = np.argsort(-values, kind="stable")[:count]
    return TokenLogprob(token_id=token, logprob=float(values[token]), top=tuple((int(i), float(values[i])) for i in best))


def make_engine(
    backend: FakeBackend | None = None, *, levers: Collection[str] = (), context: int = 256, scheduling: Scheduling | None = None
) -> Engine:
    """How long drafts become and who rides along follows StepCost's prior alone, never the time that the fake took."""
    engine = Engine(
        backend or FakeBackend(),
        FakeTokenizer(),
        context=context,
        end_ids={EOS},
        levers=levers,
        make_sampler=FakeSampler,
        sources=(Lookup(FakeDrafter),),
        describe=describe,
        start_chain=chain_starter(numerics=FakeBackend.numerics, weights_sha256="0" * 64, isa="portable"),
        scheduling=scheduling,
    )
    engine.drafting.policy.cost = StillCost()
    engine._pass_s = StillPassCost(engine.drafting.policy.cost)
    return engine


def make_llm(backend: FakeBackend | None = None, *, levers: Collection[str] = (), context: int = 256) -> LLM:
    backend = backend or FakeBackend()
    memory = MemoryPlan(
        context=context,
        model_context=context,
        kv_blocks=backend.kv_blocks,
        kv_block_size=backend.kv_block_size,
        kv_bytes=0,
        kv_bytes_per_token=0,
        kv_limit_bytes=0,
        weight_bytes=0,
        available_bytes=0,
        limited_by="model",
        reason="",
    )
    engine = make_engine(backend, levers=levers, context=context)
    mode = "exact" if levers else "default"
    off = tuple(name for name in ALL_LEVERS if levers and name not in levers)
    return LLM(fake_model(context), backend, engine, mode=mode, levers_off=off, memory=memory, load_phases={})


def request(prompt: Sequence[int], **fields: Any) -> Request:
    of_request = {name: fields.pop(name) for name in ("on_logits", "tier", "digest") if name in fields}
    return Request(prompt_ids=np.array(prompt, np.int32), sampling=SamplingParams.of(fields).resolved(), **of_request)


def run_all(engine: Engine, requests: Sequence[Request]) -> list[Running]:
    sequences = [engine.add(one) for one in requests]
    while engine.step():
        pass
    return sequences


def token_by_token(backend: FakeBackend, one: Request) -> list[int]:
    """The tokens of a request from first principles: one logits row at a time, no cache, no engine."""
    sampler, prefix = FakeSampler(one), one.prompt_ids.tolist()
    while len(prefix) - len(one.prompt_ids) < one.sampling.max_tokens:
        token = int(sampler.accept(backend.logits_of(prefix)[None, :], np.zeros(0, np.int32))[0])
        prefix.append(token)
        if token == EOS and not one.sampling.ignore_eos:
            break
    return prefix[len(one.prompt_ids) :]


def unproved(engine: Engine) -> list[str]:
    return [state.name for state in lever_states(engine.levers, (), engine.evidence) if state.unproved]
