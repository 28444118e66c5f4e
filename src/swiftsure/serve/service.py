"""The models of a server by name: text to token ids, admission, and submission to an engine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Unpack

from swiftsure.engine.activation import Status, exit_line
from swiftsure.engine.constraints.compiler import check_grammar
from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.inputs import ChatFields, Prompt, prompt_ids
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.errors import NotActiveError
from swiftsure.serve.admission import Lane
from swiftsure.serve.audit.auditor import Auditor
from swiftsure.serve.audit.cases import picked
from swiftsure.serve.audit.tolerance import BEST
from swiftsure.serve.engine_process.client import Answer, EngineProcess
from swiftsure.serve.jobs import TIERS, EngineFacts, Job
from swiftsure.serve.problems import KeyRefusedError, NotServedError, UnavailableError, UnknownModelError
from swiftsure.serve.settings import ApiKey, ModelSettings, ServeSettings

if TYPE_CHECKING:
    from swiftsure.models.model import Model

_TOKENIZER_THREADS = 2
_LONG_CHARACTERS = 200_000  # of a prompt: some 0.1 s of work and more


class ServedModel:
    """One model: its words on this side, its weights in an engine process."""

    def __init__(
        self,
        settings: ModelSettings,
        server: ServeSettings,
        threads: ThreadPoolExecutor,
        long_texts: ThreadPoolExecutor,
        on_end: Callable[[ServedModel, Answer], None],
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.created = int(time())
        self._server = server
        self.engine = self._make_engine()
        self.breach: str | None = None  # what an audit found
        self.fell_back = False  # to mode default, because of it
        self.lanes: Mapping[Tier, Lane] = {tier: Lane(tier, server.lane(tier)) for tier in TIERS}
        self._threads, self._long_texts = threads, long_texts
        self._on_end = on_end
        self._model: Model | None = None
        self._began = perf_counter()
        self.answers = 0  # that have ended, and of them those that a client got whole
        self.answers_done = 0

    def _make_engine(self) -> EngineProcess:
        settings = self.settings
        return EngineProcess(
            {"model": settings.source, "mode": settings.mode, "scheduling": asdict(self._server.scheduling), **settings.load},
            on_end=self._left,
            note=lambda text: note(f"{settings.name}: {text}"),
        )

    @property
    def model(self) -> Model:
        """Tokenizer and template. Raises UnavailableError before the model is open."""
        if self._model is None:
            raise UnavailableError(f"model {self.name} is not ready: {self.engine.reason}")
        return self._model

    @property
    def has_chat_template(self) -> bool:
        """False also before the model is open."""
        return self._model is not None and self._model.chat_template is not None

    @property
    def facts(self) -> EngineFacts:
        if self.engine.facts is None:
            raise UnavailableError(f"model {self.name} is not ready: {self.engine.reason}")
        return self.engine.facts

    async def start(self) -> None:
        """Loads the engine, and opens the same file here. Raises what :func:`swiftsure.load` raises, NotActiveError with the mode."""
        try:
            facts = await self.engine.start()
        except NotActiveError as error:
            raise NotServedError(str(error), mode=self.settings.mode) from None
        self._model = await asyncio.get_running_loop().run_in_executor(self._threads, self._open, facts.weights_sha256)

    def _open(self, sha256: str) -> Model:
        from swiftsure.errors import DigestError
        from swiftsure.models.catalogue import resolve
        from swiftsure.models.model import open_model

        model = open_model(resolve(self.settings.source, offline=bool(self.settings.load.get("offline"))))
        if model.files.sha256 != sha256:
            model.close()
            raise DigestError(f"{model.files.path} changed while it was loaded: the engine read {sha256}, now it is {model.files.sha256}")
        model.tokenizer  # noqa: B018  # built now, not under the first request
        model.chat_template  # noqa: B018  # the same
        return model

    async def encode(self, prompt: Prompt, **chat: Unpack[ChatFields]) -> tuple[int, ...]:
        """Token ids of text, chat messages or ids, checked against vocabulary and context; see :func:`swiftsure.engine.inputs.prompt_ids`.

        Raises UsageError, TemplateError and ContextLengthError. Runs on a thread: a long text or a slow template stops nobody else, and
        long texts wait for each other alone.
        """
        model, context = self.model, self.facts.context

        def encode() -> tuple[int, ...]:
            return tuple(prompt_ids(model, prompt, context=context, chat=chat).tolist())

        threads = self._long_texts if _is_long((prompt, chat)) else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, encode)

    async def check_grammar(self, grammar: Grammar | None) -> None:
        """Raises UsageError for a grammar that cannot be used, with what is wrong. On a thread: it may take some 0.1 s."""
        if grammar is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, check_grammar, grammar)

    def token_bytes(self, token_id: int) -> bytes:
        return self.model.tokenizer.token_bytes(token_id)

    def submit(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        tier: Tier = "standard",
        choice: int = 0,
        grammar: Grammar | None = None,
        deadline_s: float | None = None,
    ) -> Answer:
        """Admits and submits one answer. Raises UsageError for a biased token that does not exist, BusyError and UnavailableError.

        What is wrong with a grammar, :meth:`check_grammar` says before; the answer itself would raise it too.
        """
        facts = self.facts
        sampling.check_vocabulary(facts.vocab_size)
        most = max(1, min(sampling.max_tokens, facts.context - len(prompt_ids)))
        job = Job(
            prompt_ids=tuple(prompt_ids),
            sampling=replace(sampling.resolved(), max_tokens=most),
            choice=choice,
            tier=tier,
            grammar=grammar,
            deadline_s=min(deadline_s or self._server.deadline_s, self._server.deadline_s),
        )
        if self.settings.mode == "fast" and self._server.audit is not None and picked(job.id, self._server.audit.share):
            job = replace(job, keep_best=BEST)
        lane = self.lanes[tier]
        lane.enter(job)
        try:
            return self.engine.submit(job)
        except BaseException:
            lane.leave(job)
            raise

    def _left(self, answer: Answer) -> None:
        self.lanes[answer.job.tier].leave(answer.job)
        self.answers += 1
        self.answers_done += answer.error is None
        self._on_end(self, answer)

    def last_lines(self) -> tuple[str, ...]:
        """LEVER lines of the engine as it was last heard of, and the EXIT line (design section 3)."""
        status: Status = (
            "failed"
            if self.engine.state == "failed" or (self.breach and not self.fell_back)
            else "unproved"
            if self.engine.unproved
            else "ok"
        )
        wall_s = perf_counter() - self._began
        return (*self.engine.lever_lines, exit_line(self.facts.mode, status, self.answers_done, self.answers, wall_s))

    async def halt(self, reason: str) -> None:
        """Ends the engine and what it runs; every request is refused with the reason from now on."""
        self.breach, self.fell_back = reason, False
        await self.engine.stop(reason=reason)

    async def fall_back(self, reason: str) -> None:
        """Ends the engine and what it runs, says so, and goes on in mode default. Should that not load, requests are refused."""
        self.breach = reason
        note(f"FALLBACK from={self.settings.mode} to=default reason={'_'.join(reason.split())}")
        await self.engine.stop(reason=reason)
        self.settings = replace(self.settings, mode="default", load={**self.settings.load, "without": [], "draft": None})
        self.engine = self._make_engine()
        note((await self.engine.start()).active_line)
        self.fell_back = True

    async def stop(self, *, drain_s: float) -> None:
        await self.engine.stop(drain_s=drain_s)
        if self._model is not None:
            self._model.close()


class Service:
    """Everything that the interfaces need. ``listeners`` see each answer once it has ended: metrics, audit."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.listeners: list[Callable[[ServedModel, Answer], None]] = []
        self.draining = False
        self.auditor: Auditor | None = None
        self._audit: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(_TOKENIZER_THREADS, thread_name_prefix="text")
        self._long_texts = ThreadPoolExecutor(1, thread_name_prefix="long text")
        self._models = {model.name: ServedModel(model, settings, self._threads, self._long_texts, self._ended) for model in settings.models}

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return tuple(self._models.values())

    @property
    def under_way(self) -> int:
        """Requests that run or wait, of all models."""
        return sum(model.engine.under_way for model in self.models)

    def served(self, name: str) -> ServedModel:
        """By the name that it is served under, drained or not."""
        return self._models[name]

    def model(self, name: str | None) -> ServedModel:
        """By the name that a client wrote; None is the first. Raises UnknownModelError and, while the server drains, UnavailableError."""
        if self.draining:
            raise UnavailableError("the server stops and takes no new requests")
        if name is None:
            return self.models[0]
        try:
            return self._models[name]
        except KeyError:
            raise UnknownModelError(f"no model {name!r} is served here; served: {', '.join(self._models)}") from None

    @property
    def unready(self) -> str | None:
        """Why requests would be refused now; None where they would not."""
        if self.draining:
            return "the server stops"
        return next((f"{model.name}: {model.engine.reason}" for model in self.models if model.engine.state != "ready"), None)

    @staticmethod
    def check_tier(key: ApiKey | None, tier: Tier) -> None:
        """Raises KeyRefusedError where the key may not use the tier."""
        if key is not None and tier not in key.tiers:
            raise KeyRefusedError(f"key {key.name!r} may use {', '.join(sorted(key.tiers))}, not the {tier} tier", status=403)

    async def start(self) -> None:
        """Loads every model. Raises what the first one that fails raises; none stays behind."""
        try:
            for model in self.models:
                await model.start()
        except BaseException:
            await self.stop()
            raise
        if self.settings.audit is not None:
            self.auditor = Auditor(self, self.settings.audit, note=note)
            self.listeners.append(self.auditor.heard)
            self._audit = asyncio.create_task(self.auditor.run())

    async def stop(self) -> None:
        """Refuses new requests, lets those under way end within ``drain_s``, then ends the engines."""
        self.draining = True
        if self._audit is not None:
            self._audit.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._audit
            self._audit = None
        await asyncio.gather(*(model.stop(drain_s=self.settings.drain_s) for model in self.models))
        for threads in (self._threads, self._long_texts):
            threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, model: ServedModel, answer: Answer) -> None:
        for listener in self.listeners:
            with contextlib.suppress(Exception):  # a listener that fails must not take the answer with it
                listener(model, answer)


def _is_long(value: Any) -> bool:
    """Of JSON and tuples of it, by the characters of all texts. Without recursion, and so for any depth; an id counts as a few."""
    found, level = 0, [value]
    while level and found <= _LONG_CHARACTERS:
        found += sum(len(part) if isinstance(part, str) else 4 for part in level)
        level = [inner for part in level for inner in _parts(part)]
    return found > _LONG_CHARACTERS


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def note(text: str) -> None:
    """A line for whoever runs the server."""
    print(text, file=sys.stderr, flush=True)
