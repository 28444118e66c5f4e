"""The engine's side: one loaded model, one thread that runs passes, one that reads messages.

What a request does wrong ends that request: everything else goes on. What the process cannot survive ends the process, and the other side
starts it anew. The process ends when the socket does, so it never outlives its server.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from swiftsure.engine.llm import LLM
from swiftsure.engine.request import Sequence
from swiftsure.engine.scheduling import Scheduling
from swiftsure.errors import SwiftsureError
from swiftsure.serve.engine_process.protocol import (
    HEADER,
    body_length,
    frame,
    grammar_from_wire,
    job_from_wire,
    logprob_to_wire,
    message_of,
    outcome_to_wire,
)
from swiftsure.serve.engine_process.weighing import weigh
from swiftsure.serve.jobs import EngineFacts, Job, JobEnd, Outcome

_SNAPSHOT_S = 0.1
_MOST_FAILED_PASSES = 3  # in a row: then a new process is likelier to help than another try
Load = Callable[..., LLM]


@dataclass(slots=True)
class Live:
    """A job under way, and how much of it was told."""

    id: int
    job: Job
    sequence: Sequence
    ends_at: float | None
    tokens_told: int = 0
    logprobs_told: int = 0
    overdue: bool = False


class Channel:
    """Frames over a blocking socket. ``messages`` fills from a thread; None in it: the other side is gone.

    ``prepare`` is called on that thread with each message first, so that what takes long need not take passes' time.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.prepare: Callable[[dict[str, Any]], None] = lambda message: None
        self.messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="messages", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(frame(message))
        except ConnectionError:  # the server ended first; the loop ends with the next look at its messages
            self.messages.put(None)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while header := stream.read(HEADER.size):
                    message = message_of(stream.read(body_length(header)))
                    self.prepare(message)
                    self.messages.put(message)
        except (OSError, ValueError) as error:
            print(f"engine: the server's messages broke off: {error}", file=sys.stderr, flush=True)
        finally:
            self.messages.put(None)


class EngineLoop:
    """Runs jobs until it is told to stop or the server is gone."""

    def __init__(self, llm: LLM, channel: Channel) -> None:
        self._llm = llm
        self._channel = channel
        self._live: dict[int, Live] = {}
        self._ended = False
        self._failed_passes = 0
        self._next_snapshot = 0.0
        channel.prepare = self._prepare

    def run(self) -> None:
        while True:
            self._take_messages()
            if self._ended:
                return
            self._end_overdue()
            if self._live:
                self._step()
                self._tell_progress()
            self.tell_snapshot()

    # --- messages ---------------------------------------------------------------------------------------------------------

    def _take_messages(self) -> None:
        """All that came; waits for one while there is nothing to run."""
        messages = self._channel.messages
        while not self._ended:
            try:
                message = messages.get(block=not self._live)
            except queue.Empty:
                return
            if message is None or message["kind"] == "stop":
                self._ended = True
            elif message["kind"] == "submit":
                self._submit(message)
            elif message["kind"] == "weigh":
                self._weigh(message)
            elif message["kind"] == "cancel" and (live := self._live.get(message["id"])) is not None:
                live.sequence.cancel_requested = True

    def _prepare(self, message: dict[str, Any]) -> None:
        """Compiles a job's grammar, on the thread that reads messages. Whether it fails is for ``_submit`` to say."""
        if message["kind"] != "submit":
            return
        with contextlib.suppress(Exception):
            grammar = grammar_from_wire(message["job"])
            if grammar is not None:
                self._llm.check_grammar(grammar)

    def _submit(self, message: dict[str, Any]) -> None:
        try:
            job = job_from_wire(message["job"])
            prompt = np.array(job.prompt_ids, np.int64)
            sampling = job.sampling
            if job.keep_best:
                sampling = replace(sampling, logprobs=max(job.keep_best, sampling.logprobs or 0))
            sequence = self._llm.submit(prompt, sampling=sampling, choice=job.choice, tier=job.tier, digest=True, grammar=job.grammar)
        except Exception as error:
            self._tell_failure(message["id"], error)
            return
        ends_at = None if job.deadline_s is None else monotonic() + job.deadline_s
        self._live[message["id"]] = Live(id=message["id"], job=job, sequence=sequence, ends_at=ends_at)

    def _weigh(self, message: dict[str, Any]) -> None:
        try:
            rows = weigh(self._llm, message["prompt_ids"], message["token_ids"], message["wanted"])
        except Exception as error:
            self._tell_failure(message["id"], error)
        else:
            self._channel.send({"kind": "weighed", "id": message["id"], "rows": rows})

    def _end_overdue(self) -> None:
        now = monotonic()
        for live in self._live.values():
            if live.ends_at is not None and live.ends_at <= now and not live.overdue:
                live.overdue = live.sequence.cancel_requested = True

    # --- passes -----------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        try:
            self._llm.step()
            self._failed_passes = 0
        except Exception:  # the engine ended the requests of that pass and kept the others
            self._failed_passes += 1
            traceback.print_exc()
            if self._failed_passes >= _MOST_FAILED_PASSES:
                raise

    def _tell_progress(self) -> None:
        items: list[list[Any]] = []
        for live in list(self._live.values()):
            sequence = live.sequence
            if sequence.finished and sequence.error is not None:
                del self._live[live.id]
                self._tell_failure(live.id, sequence.error)
                continue
            told, length = live.tokens_told, sequence.output_length
            if told == length and not sequence.finished:
                continue
            start = sequence.prompt_length
            asked = live.job.sampling.logprobs
            logprobs = sequence.logprobs[live.logprobs_told :] if asked is not None else []
            live.tokens_told, live.logprobs_told = length, len(sequence.logprobs)
            items.append(
                [
                    live.id,
                    "".join(sequence.take_pieces()),
                    sequence.ids[start + told : start + length].tolist(),
                    [logprob_to_wire(entry, most=asked or 0) for entry in logprobs],
                    outcome_to_wire(self._outcome(live)) if sequence.finished else None,
                ]
            )
            if sequence.finished:
                del self._live[live.id]
        if items:
            self._channel.send({"kind": "progress", "items": items})

    def _outcome(self, live: Live) -> Outcome:
        generation = live.sequence.generation()
        reason: JobEnd = generation.finish_reason
        if reason == "cancelled" and live.overdue:
            reason = "deadline"
        timing, keep = generation.timing, live.job.keep_best
        best = [tuple(zip(*entry.top[:keep], strict=True)) for entry in live.sequence.logprobs] if keep else []
        return Outcome(
            finish_reason=reason,
            stop_string=live.sequence.assembler.stop_string,
            prompt_tokens=timing.prompt_tokens,
            output_tokens=timing.output_tokens,
            cached_tokens=generation.levers.get("prefix_cache", {}).get("tokens_reused", 0),
            tier=live.job.tier,
            timing=timing.to_dict(),
            levers=generation.levers,
            digest=generation.digest,
            digest_trace="" if live.sequence.chain is None else live.sequence.chain.trace.hex(),
            best=best,  # type: ignore[arg-type]  # pairs of ids and values
        )

    def _tell_failure(self, job_id: int, error: Exception) -> None:
        if not isinstance(error, SwiftsureError):
            traceback.print_exception(error)
        self._channel.send({"kind": "failed", "id": job_id, "error": type(error).__name__, "message": str(error)})

    def tell_snapshot(self) -> None:
        now = monotonic()
        if now >= self._next_snapshot or not self._live:
            self._next_snapshot = now + _SNAPSHOT_S
            activation = self._llm.activation
            self._channel.send(
                {
                    "kind": "snapshot",
                    "engine": self._llm.snapshot().to_dict(),
                    "levers": activation.to_dict()["levers"],
                    "lever_lines": activation.lever_lines(),
                    "unproved": list(activation.unproved),
                }
            )


def serve_engine(connection: socket.socket, load: Load) -> int:
    """Loads the model of the first message and serves until the end. Returns the process's exit code."""
    channel = Channel(connection)
    first = channel.messages.get()
    if first is None:
        return 0
    os.nice(first.get("niceness", 0))
    began = perf_counter()
    try:
        keywords = dict(first["keywords"])
        if "scheduling" in keywords:
            keywords["scheduling"] = Scheduling(**keywords["scheduling"])
        llm = load(**keywords)
    except Exception as error:
        if not isinstance(error, SwiftsureError):
            traceback.print_exc()
        exit_code = error.exit_code if isinstance(error, SwiftsureError) else 1
        channel.send({"kind": "refused", "error": type(error).__name__, "message": str(error), "exit_code": exit_code})
        return exit_code
    with llm:
        llm.warm_grammars()
        channel.send({"kind": "ready", "facts": asdict(_facts(llm, perf_counter() - began))})
        loop = EngineLoop(llm, channel)
        loop.tell_snapshot()  # so that a server that serves nothing can say that its levers had no occasion
        loop.run()
    return 0


def _facts(llm: LLM, load_s: float) -> EngineFacts:
    activation = llm.activation
    return EngineFacts(
        activation=activation.to_dict(),
        active_line=activation.active_line(),
        context=llm.context,
        vocab_size=llm.backend.vocab_size,
        model=activation.model,
        weights_sha256=activation.weights_sha256,
        mode=activation.mode,
        numerics=activation.numerics,
        isa=activation.isa,
        threads=activation.threads,
        notes=(*([llm.memory.reason] if llm.memory.fitted else []), *llm.load_notes),
        load_s=load_s,
    )


def main(argv: list[str]) -> int:
    """``FD``: the number of this process's end of the socket pair."""
    import swiftsure

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the server says what it means for its engines
    with socket.socket(fileno=int(argv[0])) as connection:
        os.set_inheritable(connection.fileno(), False)
        return serve_engine(connection, swiftsure.load)
