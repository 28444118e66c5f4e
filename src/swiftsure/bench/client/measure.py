"""A load from its requests to its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from swiftsure import machine
from swiftsure.bench.client.facts import facts_of
from swiftsure.bench.client.held_signals import Held, held_signals
from swiftsure.bench.client.interfaces import wire_of
from swiftsure.bench.client.messages import FromProcess, InFlight, Plan
from swiftsure.bench.client.processes import ProcessGroup
from swiftsure.bench.client.progress import Progress
from swiftsure.bench.client.reading import CountTokens, read_exchange
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.client.sender import check_target
from swiftsure.bench.client.token_count import token_counter
from swiftsure.bench.exchange import ClientFacts, Exchange, Request
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError

USERS_A_PROCESS = 200  # a process holds so many streams of 100 tokens/s on one processor (docs/decisions/0024-stamps-at-the-socket.md)
_TICK_S = 0.1
_PROGRESS_S = 0.25
_LAST_WORDS_S = 3.0  # how long a stopped load may take to say how it fared


class Measure(Protocol):
    """What a protocol needs of :func:`measure`, which a test's stand-in gives as well."""

    def __call__(
        self,
        target: Target,
        requests: Sequence[Request],
        *,
        users: int | None,
        on_exchange: Callable[[Exchange], None],
        processes: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        keep_text: bool = False,
    ) -> ClientFacts: ...


def measure(
    target: Target,
    requests: Sequence[Request],
    *,
    users: int | None,
    on_exchange: Callable[[Exchange], None],
    processes: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    keep_text: bool = False,
) -> ClientFacts:
    """Sends all ``requests`` and hands each :class:`Exchange` to ``on_exchange`` as soon as it ended, in the order of their ends.

    With ``users`` a closed loop: so many users take the next request in order, each when its last answer has ended; a user that the
    endpoint fails waits as long as that asks (``Retry-After``), or a little. Without, an open loop: each request leaves at its ``at_s``,
    which all must have, whatever has come back by then. ``processes``: None takes one for each 200 users, and one for an open loop;
    requests and users are dealt out to them in turn. ``keep_text``: the exchanges hold the answers' text.

    What fails is an exchange with an error, never an exception. Ctrl-C and SIGTERM close all connections; what had ended by then has been
    handed over, and the signal then takes its usual way (KeyboardInterrupt). ``on_exchange`` and ``on_progress`` run in the calling thread
    and are never interrupted by the first of these signals.

    Raises UsageError for a target or requests that cannot be sent, and for ``users`` or ``processes`` below 1; ModelError for a tokenizer
    or a built-in engine that cannot be had; ContractError when a process of the load dies.
    """
    _check(target, requests, users, processes)
    plans = _plans(target, requests, users=users, processes=_process_count(target, users, processes), keep_text=keep_text)
    count_tokens = token_counter(target.tokenizer) if target.tokenizer is not None else None
    running = _Running(target=target, requests=requests, on_exchange=on_exchange, count_tokens=count_tokens, keep_text=keep_text)
    with held_signals() as held, ProcessGroup(plans) as group:
        group.start()
        _follow(group, running, held, on_progress)
        facts = group.facts
    return facts_of(facts, users=users)


@dataclass(slots=True, kw_only=True)
class _Running:
    """A load that runs: takes what its processes say, keeps count."""

    target: Target
    requests: Sequence[Request]
    on_exchange: Callable[[Exchange], None]
    count_tokens: CountTokens | None
    keep_text: bool
    started: float = field(default_factory=perf_counter)
    finished: int = 0
    failed: int = 0
    output_tokens: int = 0
    in_flight: dict[int, int] = field(default_factory=dict)

    def take(self, process: int, message: FromProcess) -> None:
        if isinstance(message, InFlight):
            self.in_flight[process] = message.requests
        elif isinstance(message, Recording):
            request, wire = self.requests[message.index], wire_of(self.target.interface)
            self._hand_over(read_exchange(message, request, wire, count_tokens=self.count_tokens, keep_text=self.keep_text))
        elif isinstance(message, Exchange):
            self._hand_over(message)

    def _hand_over(self, exchange: Exchange) -> None:
        self.finished += 1
        self.failed += exchange.error is not None
        self.output_tokens += exchange.output_tokens or 0
        self.on_exchange(exchange)

    @property
    def progress(self) -> Progress:
        return Progress(
            elapsed_s=perf_counter() - self.started,
            total=len(self.requests),
            finished=self.finished,
            failed=self.failed,
            in_flight=sum(self.in_flight.values()),
            output_tokens=self.output_tokens,
        )


def _follow(group: ProcessGroup, running: _Running, held: Held, on_progress: Callable[[Progress], None] | None) -> None:
    """Until all processes have said how they fared."""
    told = stopped = None
    while group.running:
        for process, message in group.messages(_TICK_S):
            running.take(process, message)
        now = perf_counter()
        if on_progress is not None and (told is None or now - told >= _PROGRESS_S):
            told = now
            on_progress(running.progress)
        if held.number is not None and stopped is None:
            stopped = now
            group.stop()
        if stopped is not None and now - stopped > _LAST_WORDS_S:
            return
    if on_progress is not None:
        on_progress(running.progress)


def _check(target: Target, requests: Sequence[Request], users: int | None, processes: int | None) -> None:
    for name, value in (("users", users), ("processes", processes)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if not requests:
        raise UsageError("a load needs at least 1 request, got none")
    if users is None and any(request.at_s is None or request.at_s < 0 for request in requests):
        raise UsageError("each request of an open loop needs a time to leave, at_s, of at least 0")
    if target.interface == "engine":
        if processes not in (None, 1):
            raise UsageError(f"the built-in engine runs in 1 process, got processes={processes}")
        return
    check_target(target)
    wire = wire_of(target.interface)
    for request in requests:
        if (request.prompt.messages is None) == (request.prompt.text is None):
            raise UsageError(f"a prompt has either messages or a text, prompt {request.prompt.name!r} has both or neither")
        wire.body(request.prompt, target, ())


def _process_count(target: Target, users: int | None, processes: int | None) -> int:
    if processes is None:
        most = max(1, len(machine.allowed_cpus()))
        processes = 1 if users is None else min(-(-users // USERS_A_PROCESS), most)
    return min(processes, users) if users is not None else processes


def _plans(target: Target, requests: Sequence[Request], *, users: int | None, processes: int, keep_text: bool) -> list[Plan]:
    numbered = list(enumerate(requests))
    if users is None:
        numbered.sort(key=lambda pair: pair[1].at_s or 0.0)
    return [
        Plan(
            target=target,
            requests=numbered[number::processes],
            users=None if users is None else len(range(number, users, processes)),
            process=number,
            keep_text=keep_text,
        )
        for number in range(processes)
    ]
