"""A loaded model: generate, stream, logits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine import inputs
from swiftsure.engine.activation import Activation, lever_states
from swiftsure.engine.backend import Backend
from swiftsure.engine.compiled import lookup
from swiftsure.engine.constraints.compiler import GrammarCompiler
from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.drafting.attach import DraftInfo
from swiftsure.engine.drafting.replay import Played, ceiling, right_lengths
from swiftsure.engine.engine import Engine
from swiftsure.engine.inputs import ChatFields, GenerateFields, Prompt, is_batch, prompt_ids, split_fields
from swiftsure.engine.memory import MemoryPlan
from swiftsure.engine.request import Generation, LogitsCallback, Request, as_ids, check_fields
from swiftsure.engine.request import Sequence as Running
from swiftsure.engine.sampling import SamplingParams, sampling_of
from swiftsure.engine.scheduler import Tier
from swiftsure.engine.scheduling import Scheduling
from swiftsure.engine.snapshot import EngineSnapshot
from swiftsure.engine.stream import Stream, drive
from swiftsure.errors import ContextLengthError, SwiftsureError, UsageError

if TYPE_CHECKING:
    from swiftsure.engine.threads import ThreadChoice
    from swiftsure.models.model import Model

Sampling = SamplingParams | Sequence[SamplingParams] | None
Callbacks = LogitsCallback | Sequence[LogitsCallback | None] | None


class Closable(Protocol):
    def close(self) -> None: ...


class LLM:
    """A model, a back end that holds its weights, and an engine in one mode. Made by :func:`swiftsure.load`; a context manager.

    Methods may be called from several threads; passes are run one at a time, by whichever caller is waiting for one.
    """

    def __init__(
        self,
        model: Model,
        backend: Backend,
        engine: Engine,
        *,
        mode: str,
        levers_off: Sequence[str],
        memory: MemoryPlan,
        load_phases: Mapping[str, float],
        load_notes: Sequence[str] = (),
        thread_choice: ThreadChoice | None = None,
        draft: DraftInfo | None = None,
        close_with: Sequence[Closable] = (),
        grammars: GrammarCompiler | None = None,
    ) -> None:
        """``draft`` and ``close_with``: what speculates beside the look-up, and what is closed with the model. ``grammars``: those of the
        engine's sampler."""
        self.model = model
        self.backend = backend
        self.mode = mode
        self.memory = memory
        self.load_phases = dict(load_phases)
        self.load_notes = tuple(load_notes)
        self.thread_choice = thread_choice
        self.draft = draft
        self._close_with = tuple(close_with)
        self._grammars = grammars
        self._engine = engine
        self._numerics, self._isa, self._threads = backend.numerics, backend.isa, backend.threads  # still known once closed
        self._levers_off = tuple(levers_off)
        self._lock = threading.RLock()
        self._closed = False

    # --- generating -------------------------------------------------------------------------------------------------------

    @overload
    def generate(
        self,
        prompts: str | Sequence[Mapping[str, Any]] | Sequence[int] | NDArray[np.integer[Any]],
        *,
        sampling: SamplingParams | None = None,
        on_logits: LogitsCallback | None = None,
        tier: Tier = "standard",
        digest: bool = False,
        grammar: Grammar | None = None,
        **fields: Unpack[GenerateFields],
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompts: list[str] | list[list[dict[str, Any]]] | list[list[int]],
        *,
        sampling: Sampling = None,
        on_logits: Sequence[LogitsCallback | None] | None = None,
        tier: Tier = "standard",
        digest: bool = False,
        grammar: Grammar | None = None,
        **fields: Unpack[GenerateFields],
    ) -> list[Generation]: ...

    def generate(
        self,
        prompts: Any,
        *,
        sampling: Sampling = None,
        on_logits: Callbacks = None,
        tier: Tier = "standard",
        digest: bool = False,
        grammar: Grammar | None = None,
        **fields: Unpack[GenerateFields],
    ) -> Generation | list[Generation]:
        """Generates for one prompt, or for a list of prompts: a list of results in the same order.

        A prompt is text (continued as it stands), a list of chat messages ``{"role", "content"}`` (through the model's chat template), or a
        list of token ids. ``tools``, ``documents`` and ``template_variables`` go to the chat template with every prompt's messages (see
        :class:`~swiftsure.engine.inputs.ChatFields`). Sampling values are keyword arguments (see
        :class:`SamplingParams`) or ready in ``sampling``, for a list one each if wanted.
        ``on_logits(position, row)`` sees the raw logits of every generated token, in order; for a list, one callback each.
        ``digest`` asks for the digest of those logits in each result, the same in every company and in ``exact`` as in ``default``;
        :meth:`replay_digest` computes it anew. ``grammar`` is what every text must conform to; its tokens are the same in ``exact`` as in
        ``default``, and a text that is complete ends with reason ``stop``.
        ``tier``: ``priority`` goes before everything ``standard``, see :class:`~swiftsure.engine.scheduling.Scheduling`.

        Raises UsageError, TemplateError and ContextLengthError before anything runs. KeyboardInterrupt ends these requests and leaves the
        model usable.
        """
        asked = perf_counter()
        chat, sampling_fields = split_fields(fields)
        if not is_batch(prompts):
            if isinstance(on_logits, Sequence) or isinstance(sampling, Sequence):
                raise UsageError("one prompt takes one sampling and one on_logits, got a list")
            return self._generate(
                [prompts], [sampling_of(sampling, sampling_fields)], [on_logits], chat, asked, tier=tier, digest=digest, grammar=grammar
            )[0]
        count = len(prompts)
        if callable(on_logits):
            raise UsageError("on_logits must be a list for a list of prompts, one callback each")
        callbacks = [None] * count if on_logits is None else list(on_logits)
        many = list(sampling) if isinstance(sampling, Sequence) else [sampling] * count
        for name, given in (("on_logits", callbacks), ("sampling", many)):
            if len(given) != count:
                raise UsageError(f"{name} must have one entry for each of {count} prompts, got {len(given)}")
        return self._generate(
            prompts, [sampling_of(one, sampling_fields) for one in many], callbacks, chat, asked, tier=tier, digest=digest, grammar=grammar
        )

    def stream(
        self,
        prompt: Prompt,
        *,
        sampling: SamplingParams | None = None,
        on_logits: LogitsCallback | None = None,
        tier: Tier = "standard",
        digest: bool = False,
        grammar: Grammar | None = None,
        **fields: Unpack[GenerateFields],
    ) -> Stream:
        """Generates for one prompt piece by piece; the pieces join to exactly the text that ``generate`` returns."""
        asked = perf_counter()
        if is_batch(prompt):
            raise UsageError("stream takes one prompt, got a list of prompts")
        chat, sampling_fields = split_fields(fields)
        request = self._request(
            prompt, sampling_of(sampling, sampling_fields), on_logits, chat, asked, tier=tier, digest=digest, grammar=grammar
        )
        with self._lock:
            self._check_open()
            return Stream(self._engine, self._lock, self._engine.add(request))

    def submit(
        self,
        prompt_ids: Sequence[int] | NDArray[np.integer[Any]],
        *,
        sampling: SamplingParams | None = None,
        choice: int = 0,
        tier: Tier = "standard",
        on_logits: LogitsCallback | None = None,
        digest: bool = False,
        grammar: Grammar | None = None,
    ) -> Running:
        """Queues a request and returns at once; no pass is run. For callers that run passes themselves, with :meth:`step`.

        ``choice`` keys the noise of sampling beside the seed: one prompt, several answers. What comes back is changed by passes only: see
        :class:`~swiftsure.engine.request.Sequence` for what may be read, and :meth:`cancel` to end it. An error of the request itself (its
        callback's, or too few key-value blocks) is in its ``error`` once it is finished, never raised by ``step``.

        Raises UsageError and ContextLengthError before anything is queued.
        """
        asked = perf_counter()
        if isinstance(prompt_ids, str) or (isinstance(prompt_ids, Sequence) and any(isinstance(id_, Mapping) for id_ in prompt_ids[:1])):
            raise UsageError("submit takes token ids, got text or messages")
        request = self._request(
            prompt_ids, sampling_of(sampling, {}), on_logits, {}, asked, choice=choice, tier=tier, digest=digest, grammar=grammar
        )
        with self._lock:
            self._check_open()
            return self._engine.add(request)

    def step(self) -> bool:
        """Runs one pass over what is queued and running, whoever queued it; False once there is nothing left to do.

        Raises what the back end or an interrupt raises; the requests of that pass end as ``cancelled`` and all others go on.
        """
        with self._lock:
            self._check_open()
            return self._engine.step()

    def logits(self, token_ids: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Logits of every position: float32 ``(len(token_ids), vocab_size)``. Each row is computed, none comes from a cache.

        Raises UsageError for bad ids and ContextLengthError for more than the context holds.
        """
        out = np.empty((len(token_ids), self.backend.vocab_size), np.float32)

        def keep(position: int, rows: NDArray[np.float32]) -> None:
            out[position : position + len(rows)] = rows

        self.score(token_ids, keep)
        return out

    def score(self, token_ids: Sequence[int] | NDArray[np.integer[Any]], on_rows: Callable[[int, NDArray[np.float32]], None]) -> None:
        """As :meth:`logits`: ``on_rows`` gets the position of a first row and the rows as they are computed, valid during the call."""
        ids = inputs.token_ids(token_ids, vocab_size=self.backend.vocab_size)
        if len(ids) > self.memory.context:
            raise ContextLengthError(f"{len(ids)} tokens do not fit the context of {self.memory.context} tokens")
        with self._lock:
            self._check_open()
            self._engine.score(ids, on_rows)

    def replay_digest(
        self, prompt_ids: Sequence[int] | NDArray[np.integer[Any]], token_ids: Sequence[int] | NDArray[np.integer[Any]]
    ) -> str:
        """The digest of an answer that gave ``token_ids`` to ``prompt_ids``, computed anew from the model alone: as :meth:`score` does, in
        passes over the known tokens, with nothing from a cache, without drafts and without company.

        Raises UsageError for bad ids and ContextLengthError for more than the context holds.
        """
        prompt = inputs.token_ids(prompt_ids, vocab_size=self.backend.vocab_size)
        output = inputs.token_ids(token_ids, vocab_size=self.backend.vocab_size) if len(token_ids) else as_ids(())
        ids = np.concatenate([prompt, output])
        if len(ids) > self.memory.context:
            raise ContextLengthError(f"{len(ids)} tokens do not fit the context of {self.memory.context} tokens")
        first = len(prompt) - 1
        with self._lock:
            self._check_open()
            chain = self._engine.start_chain(prompt)

            def take(position: int, rows: NDArray[np.float32]) -> None:
                for at, row in enumerate(rows, position):
                    chain.extend(at, int(ids[at + 1]), row)

            if len(output):
                self._engine.score(ids[:-1], take, first=first)
        return chain.digest

    def cancel(self, submitted: Running | None = None) -> None:
        """Ends what :meth:`submit` returned, or every request in flight, before the next pass, with finish reason ``cancelled``. From any
        thread."""
        with self._lock:
            if submitted is not None:
                self._engine.cancel(submitted)
            else:
                self._engine.cancel_all()

    def check_grammar(self, grammar: Grammar) -> None:
        """Compiles a grammar and keeps it, for the request to come. From any thread, also while passes run.

        Raises UsageError with what is wrong: it does not compile, exceeds a limit, or llguidance is not installed.
        """
        if self._grammars is None:
            raise UsageError("this model was put together without grammars")
        self._grammars.check(grammar)

    def warm_grammars(self) -> None:
        """Builds what the first grammar would wait for, where llguidance is installed."""
        if self._grammars is not None:
            self._grammars.warm()

    # --- state ------------------------------------------------------------------------------------------------------------

    @property
    def activation(self) -> Activation:
        """What is active, with the evidence so far."""
        engine = self._engine
        return Activation(
            mode=self.mode,
            model=self.model.files.name,
            weights_sha256=self.model.files.sha256,
            numerics=self._numerics,
            isa=self._isa,
            threads=self._threads,
            levers=tuple(state.name for state in lever_states(engine.levers, (), engine.evidence)),
            levers_off=self._levers_off,
            lever_states=lever_states(engine.levers, self._levers_off, engine.evidence),
            passes=engine.evidence.of("passes"),
            tiers=engine.evidence.of_tiers(),
            draft=self.draft,
        )

    def snapshot(self) -> EngineSnapshot:
        """Queues, key-value blocks, the rows of the last pass and counts so far; cheap enough to be asked many times a second."""
        with self._lock:
            return self._engine.snapshot()

    @property
    def scheduling(self) -> Scheduling:
        """The limits of the queues."""
        return self._engine.scheduling

    def reschedule(self, scheduling: Scheduling) -> None:
        """Sets other limits of the queues and empties the prefix cache; no answer changes.

        Raises UsageError while requests are in flight.
        """
        with self._lock:
            self._check_open()
            self._engine.reschedule(scheduling)

    @property
    def context(self) -> int:
        """Tokens that a request can use, prompt and output together."""
        return self.memory.context

    def clear_caches(self) -> None:
        """Forgets every prefix and everything learnt from earlier requests, as between repeats of a measurement."""
        with self._lock:
            self._engine.clear_caches()

    def draft_ceiling(self, generation: Generation) -> Played | None:
        """What the look-up's drafts would have brought for a generation of this model, had every draft had the best length in hindsight, at
        the costs of rows measured so far. None for fewer than 2 tokens, or where speculation is off."""
        if len(generation.token_ids) < 2 or not self._engine.drafting.active:
            return None
        request = Request(prompt_ids=as_ids(generation.prompt_ids), sampling=generation.sampling)
        right = right_lengths(request, as_ids(generation.token_ids), lookup())
        with self._lock:
            cost = self._engine.drafting.policy.cost
            cost.enter(len(generation.prompt_ids) + len(generation.token_ids) // 2)
            return ceiling(right, cost)

    def close(self) -> None:
        """Frees weights, cache and files. Safe to call twice."""
        with self._lock:
            if not self._closed:
                if self._engine.in_pass:
                    raise UsageError("on_logits must not close the model: its pass is not over")
                self._closed = True
                self._engine.cancel_all()
                for part in (*self._close_with, self.backend, self.model):
                    part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _generate(
        self,
        prompts: Sequence[Any],
        params: Sequence[SamplingParams],
        callbacks: Sequence[LogitsCallback | None],
        chat: ChatFields,
        asked: float,
        *,
        tier: Tier,
        digest: bool,
        grammar: Grammar | None,
    ) -> list[Generation]:
        requests = []
        for i, (prompt, sampling, on_logits) in enumerate(zip(prompts, params, callbacks, strict=True)):
            try:
                requests.append(self._request(prompt, sampling, on_logits, chat, asked, tier=tier, digest=digest, grammar=grammar))
            except SwiftsureError as error:
                if len(prompts) > 1:
                    error.add_note(f"prompt {i} of {len(prompts)}")
                raise
        sequences: list[Running] = []
        results: list[Generation] = []
        try:
            with self._lock:
                self._check_open()
                for request in requests:
                    sequences.append(self._engine.add(request))
            for seq in sequences:
                drive(self._engine, self._lock, seq, lambda seq: seq.finished)
            for seq in sequences:
                if seq.error is not None:
                    raise seq.error
                results.append(seq.generation())
        except BaseException:
            with self._lock:
                self._engine.cancel_requests(requests)
            raise
        return results

    def _request(
        self,
        prompt: Any,
        params: SamplingParams,
        on_logits: LogitsCallback | None,
        chat: ChatFields,
        asked: float,
        *,
        choice: int = 0,
        tier: Tier = "standard",
        digest: bool = False,
        grammar: Grammar | None = None,
    ) -> Request:
        params.check_vocabulary(self.backend.vocab_size)
        check_fields(on_logits=on_logits, choice=choice, tier=tier, digest=digest)
        if grammar is not None:
            self.check_grammar(grammar)
        start = perf_counter()
        ids = prompt_ids(self.model, prompt, context=self.memory.context, chat=chat)
        return Request(
            prompt_ids=ids,
            sampling=params.resolved(),
            choice=choice,
            tier=tier,
            on_logits=on_logits,
            digest=digest,
            grammar=grammar,
            arrived_s=asked,
            tokenize_s=perf_counter() - start,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this model is closed")
