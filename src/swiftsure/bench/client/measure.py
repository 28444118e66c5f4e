"""A load from its requests to its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swiftsure.bench.client.progress import Progress
from swiftsure.bench.exchange import ClientFacts, Exchange, Request
from swiftsure.bench.target import Target


def measure(
    target: Target,
    requests: Sequence[Request],
    *,
    users: int | None,
    on_exchange: Callable[[Exchange], None],
    processes: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> ClientFacts:
    """Sends all ``requests`` and hands each :class:`Exchange` to ``on_exchange`` as soon as it ended, in the order of their ends.

    With ``users`` a closed loop: so many users take the next request in order, each when its last answer has ended. Without, an open loop:
    each request leaves at its ``at_s``, which all must have, whatever has come back by then. What fails is an exchange with an error, never
    an exception. Ctrl-C and SIGTERM close all connections; what had ended by then has been handed over, and the signal then takes its
    usual way (KeyboardInterrupt). ``on_exchange`` and ``on_progress`` run in the calling thread and are never interrupted by these signals.

    Raises UsageError for a target or requests that cannot be sent, and for ``users`` or ``processes`` below 1.
    """
    raise NotImplementedError
