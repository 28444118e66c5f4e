"""What bench.json says of every kind of measurement: what was asked, the target, the machine, and the prompts as they are sent."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from swiftsure.bench.exchange import Prompt
from swiftsure.bench.prompts.change import characters, digest
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.settings import differences
from swiftsure.bench.protocol.start import Start
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError
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


def identity_of(measures: str, target: Target, interface: str, prompts: Sequence[Prompt], settings: Sending) -> dict[str, Any]:
    """What two starts into one folder must have in common. ``measures``: what the folder is for. ``target`` as given, before anything was
    looked up; headers by name only, since their values may be keys."""
    return {
        "measures": measures,
        "url": target.url,
        "interface": interface,
        "model": target.model,
        "mode": target.mode,
        "headers": sorted(target.headers),
        "tokenizer": target.tokenizer,
        "time_limit_s": target.time_limit_s,
        "prompts_sha256": digest(prompts),
        "settings": settings.to_dict(),
    }


def check_same(head: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """``asked``: by :func:`identity_of`. Raises UsageError that names every setting that is another than the folder's."""
    before = head.get("asked", {})
    began, wanted = (side.get("measures", "something else") for side in (before, asked))
    if began != wanted:
        raise UsageError(f"{folder} was begun for {began}, and this is {wanted}: give another folder")
    lines = differences(before, asked)
    if lines:
        raise UsageError(f"{folder} was begun with other settings: {'; '.join(lines)}. Give the same ones, or another folder")


def target_of(target: Target, head: Mapping[str, Any]) -> Target:
    """The target as the folder's first start found it, with this start's key."""
    found = head["target"]
    return replace(target, url=found["url"], interface=found["interface"], model=found["model"])


def common_head(found: Found, first: Start, prompts: Sequence[Prompt], source: str, settings: Sending) -> dict[str, Any]:
    """``prompts`` as they were given, ``source``: where from. The target is told as it is asked, never with its key."""
    target = found.target
    place = {"url": target.url, "interface": first.interface, "model": target.model, "mode": target.mode}
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
        "characters_per_token": {"value": round(first.characters_per_token, 3), "measured": first.measured},
    }
