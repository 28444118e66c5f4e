"""The built-in prompts: chat, code, summaries, extraction, writing, an agent's first step, and a whole module of about 2,000 tokens."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from swiftsure.bench.exchange import Prompt

QUICK = ("chat-explain", "code-function", "extract-note")


def builtin_prompts() -> tuple[Prompt, ...]:
    text = resources.files(__package__).joinpath("data", "builtin.toml").read_text(encoding="utf-8")
    return tuple(_prompt(entry) for entry in tomllib.loads(text)["prompt"])


def quick_prompts() -> tuple[Prompt, ...]:
    """Three short ones, for a first look of a minute or two."""
    return tuple(prompt for prompt in builtin_prompts() if prompt.name in QUICK)


def _prompt(entry: dict[str, Any]) -> Prompt:
    messages: Sequence[dict[str, str]] = [{"role": role, "content": entry[role].strip()} for role in ("system", "user") if role in entry]
    return Prompt(name=entry["name"], kind=entry["kind"], messages=messages, max_tokens=entry["max_tokens"])
