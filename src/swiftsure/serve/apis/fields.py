"""What becomes of a field that an interface does not act on: one rule for all of them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.errors import quotable
from swiftsure.serve.problems import RefusedError


def harmless_among(
    more: Mapping[str, Any], *, known: Collection[str], harmless: Collection[str], refused: Mapping[str, str]
) -> tuple[str, ...]:
    """Of the fields beyond the ``known`` ones, those that are set and ``harmless``. Raises RefusedError for one that is ``refused``, with
    the reason, or unknown, with the known one that is near; null is a field left out."""
    found = []
    for name, value in more.items():
        if value is None:
            continue
        if name in harmless:
            found.append(name)
        elif name in refused:
            raise RefusedError(f"{name} is not supported: {refused[name]}", param=name)
        else:
            raise RefusedError(unknown_field(name, known), param=quotable(name[:80]))
    return tuple(found)


def unknown_field(name: str, known: Collection[str]) -> str:
    """The sentence for a field that the interface does not have."""
    near = difflib.get_close_matches(name, known, n=1)
    return quotable(f"{name!r:.80} is no field of this interface" + (f"; did you mean {near[0]}?" if near else ""))
