"""What is measured: an endpoint with its interface, or the built-in engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Interface = Literal["chat", "completions", "anthropic", "engine"]
"""``/chat/completions``, ``/completions``, ``/messages``, or ``swiftsure.load`` in a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``url``: the base, as in ``http://localhost:8000/v1``; of ``engine`` a model's name or file. ``time_limit_s`` is of a whole answer.

    ``api_key`` is sent as the interface wants it and is never written to a file. ``tokenizer``: a model name or file whose tokenizer counts
    where the endpoint does not.
    """

    url: str
    interface: Interface = "chat"
    model: str | None = None
    mode: str | None = None  # of the built-in engine
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = 600.0
    tokenizer: str | None = None
