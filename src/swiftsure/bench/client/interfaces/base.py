"""The seam between the client and a wire format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from swiftsure.bench.client.transcript import Transcript
from swiftsure.bench.exchange import Prompt
from swiftsure.bench.target import Target


class Wire(Protocol):
    """``path`` follows the endpoint's base. ``optional``: fields of the body, by name, that a request is repeated without when refused."""

    @property
    def path(self) -> str: ...

    @property
    def optional(self) -> Collection[str]: ...

    def headers(self, target: Target) -> Mapping[str, str]:
        """Those that carry the key and the version."""
        ...

    def body(self, prompt: Prompt, target: Target, without: Collection[str]) -> Mapping[str, Any]:
        """The request. Raises UsageError for a prompt that this interface cannot ask."""
        ...

    def read_event(self, event: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        """One event of a stream."""
        ...

    def read_whole(self, answer: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        """An answer that was not streamed, though asked to be."""
        ...


def bearer(target: Target) -> dict[str, str]:
    return {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
