"""What bench.json says of every kind of measurement: the target, the machine, and the prompts as they are sent."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from swiftsure.bench.exchange import Prompt
from swiftsure.bench.prompts.change import characters, digest
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.target import Target
from swiftsure.records.machine import read_machine


class Sending(Protocol):
    """What settings change in every prompt: the longest answer, None for the prompt's own, and further fields of the request."""

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def sampling(self) -> Mapping[str, Any]: ...

    def to_dict(self) -> dict[str, Any]: ...


def sized(prompts: Sequence[Prompt], settings: Sending) -> tuple[Prompt, ...]:
    """The prompts as they are sent."""
    return tuple(
        replace(
            prompt,
            max_tokens=prompt.max_tokens if settings.max_tokens is None else settings.max_tokens,
            sampling={**prompt.sampling, **settings.sampling},
        )
        for prompt in prompts
    )


def common_head(target: Target, found: Found, prompts: Sequence[Prompt], source: str, settings: Sending) -> dict[str, Any]:
    """``prompts`` as they were given, ``source``: where from; ``target`` as it is asked, never with its key."""
    place = {"url": target.url, "interface": target.interface, "model": target.model, "mode": target.mode}
    return {
        "id": secrets.token_hex(8),
        "settings": settings.to_dict(),
        "target": place | {"window": found.window, "window_from": found.window_from},
        "machine": read_machine().to_dict(),
        "prompts": {
            "source": source,
            "sha256": digest(prompts),
            "items": [
                {"name": p.name, "kind": p.kind, "max_tokens": p.max_tokens, "characters": characters(p)} for p in sized(prompts, settings)
            ],
        },
    }
