"""The first request of a folder, whatever is measured into it: what is found then stands in bench.json, and later starts agree with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.exchange import Exchange
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.head import check_same
from swiftsure.bench.protocol.start import Start, start
from swiftsure.bench.protocol.store import BenchFolder
from swiftsure.bench.target import Interface
from swiftsure.errors import UsageError


def begin_folder(
    store: BenchFolder,
    identity: Mapping[str, Any],
    *,
    find: Callable[[], Found],
    interfaces: Sequence[Interface],
    measure: Measure,
    head: Callable[[Found, Start], Mapping[str, Any]],
    once: str | None = None,
) -> Exchange | None:
    """The first request of a new folder, whose bench.json is written from ``head``; of a known folder None, once it was begun by the same
    ``identity``. ``once``: what may be done into a folder one time only, as in ``a load is measured``.

    Raises UsageError where the folder is another's or whole already, EndpointError where the first request is not answered.
    """
    if not store.is_new:
        check_same(store.head, identity, store.folder)
        if once is not None and store.rounds_ended:
            raise UsageError(f"{store.folder} holds a whole measurement already; {once} into a new folder")
        return None
    found = find()
    begun = start(found.target, interfaces, round=1, window=found.window, measure=measure)
    store.head |= {**head(found, begun), "asked": dict(identity)}
    store.write_head()
    return begun.exchange
