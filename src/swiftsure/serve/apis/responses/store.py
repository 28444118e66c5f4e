"""Responses that are kept in memory, so that a later one can continue them: bounded by number and bytes, the least used go first."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftsure.serve.apis.responses.items import Item

MAX_RESPONSES = 10_000
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A response that has ended. context: every item before its output, earlier turns included. owner: the API key that made it."""

    response: Mapping[str, Any]
    context: tuple[Item, ...]
    owner: str | None

    @property
    def conversation(self) -> tuple[Item, ...]:
        return (*self.context, *self.response["output"])


class ResponseStore:
    """By id. Sizes are those of the JSON, with the earlier turns that a response continues: an upper bound, since they are shared."""

    def __init__(self, *, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, tuple[Kept, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        """One that is larger than the whole store is not kept, and drives nobody out."""
        size = len(json.dumps([kept.response, kept.context]))
        if size > self._max_bytes:
            return
        response_id = kept.response["id"]
        self.remove(response_id, kept.owner)
        self._kept[response_id] = (kept, size)
        self.bytes += size
        while len(self._kept) > self._max_responses or self.bytes > self._max_bytes:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed

    def get(self, response_id: str, owner: str | None) -> Kept | None:
        """None too for a response that another key made: that it exists is its own."""
        found = self._kept.get(response_id)
        if found is None or found[0].owner != owner:
            return None
        self._kept.move_to_end(response_id)
        return found[0]

    def remove(self, response_id: str, owner: str | None) -> bool:
        if self.get(response_id, owner) is None:
            return False
        self.bytes -= self._kept.pop(response_id)[1]
        return True
