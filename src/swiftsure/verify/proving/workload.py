"""Prompts to prove and to measure with, and the two file formats they can be read from.

``.txt``: one prompt a line; blank lines are skipped; greedy, 128 new tokens each.
``.jsonl``: one object a line with ``prompt`` (a text) or ``messages`` (a list of ``{"role", "content"}``), and optionally ``name``,
``kind``, ``max_tokens``, ``temperature``, ``top_p``, ``top_k``, ``min_p``, ``seed``, ``repetition_penalty``, ``presence_penalty`` and
``frequency_penalty``. A sampled prompt without a seed gets its line number, so that every run draws the same tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import UsageError

Messages = tuple[dict[str, str], ...]

DEFAULT_MAX_TOKENS = 128
SHORT_BELOW, LONG_FROM = 256, 1024
SAMPLING_FIELDS = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request of a workload: either ``text``, which becomes the user's message, or ``messages``.

    Raises UsageError for sampling values that the engine refuses.
    """

    name: str
    kind: str
    text: str | None = None
    messages: Messages | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        if (self.text is None) == (self.messages is None):
            raise UsageError("a prompt has either prompt or messages, not both and not neither")
        SamplingParams.of(self.sampling())

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def chat(self) -> Messages:
        return self.messages if self.messages is not None else ({"role": "user", "content": self.text or ""},)

    def sampling(self) -> dict[str, Any]:
        """The keyword arguments of ``LLM.generate``."""
        return {name: getattr(self, name) for name in SAMPLING_FIELDS}


def size_class(prompt_tokens: int) -> str:
    """``short`` below 256 prompt tokens, ``long`` from 1,024, else ``medium``."""
    if prompt_tokens < SHORT_BELOW:
        return "short"
    return "long" if prompt_tokens >= LONG_FROM else "medium"


def read_prompts(path: str | Path) -> tuple[Prompt, ...]:
    """Reads a ``.txt`` or ``.jsonl`` file. Raises ``UsageError`` that names the file, the line and the rule."""
    source = Path(path)
    if source.suffix not in (".txt", ".jsonl"):
        raise UsageError(f"a prompt file ends with .txt or .jsonl, got {source.name}")
    try:
        lines = source.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"the prompt file {source} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt file {source} must be UTF-8: {error.reason} at byte {error.start}") from error
    prompts: list[Prompt] = []
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = _plain(line.strip(), number) if source.suffix == ".txt" else _from_json(line, number)
            if prompt.name in names:
                raise UsageError(f"the name {prompt.name!r} is taken by an earlier prompt")
        except UsageError as error:
            raise UsageError(f"{source.name} line {number}: {error}") from None
        names.add(prompt.name)
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"the prompt file {source} holds no prompt")
    return tuple(prompts)


def _plain(text: str, number: int) -> Prompt:
    return Prompt(name=f"line-{number}", kind="prompts", text=text)


def _from_json(line: str, number: int) -> Prompt:
    try:
        record = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode()  # "\ud800" is JSON and no text
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"texts must be valid Unicode, got {error.object[error.start]!r}, a lone surrogate") from None
    except (ValueError, RecursionError) as error:  # thousands of digits or of brackets
        raise UsageError(f"JSON beyond what can be read: {error}") from None
    if not isinstance(record, dict):
        raise UsageError(f"a line must be a JSON object, got {type(record).__name__}")
    known = {"prompt", *(field.name for field in fields(Prompt))} - {"text"}
    unknown = sorted(set(record) - known)
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    values: dict[str, Any] = {"name": f"line-{number}", "kind": "prompts"}
    for name, value in record.items():
        values["text" if name == "prompt" else name] = _checked(name, value)
    prompt = Prompt(**values)
    return prompt if prompt.greedy or "seed" in values else replace(prompt, seed=number)


def _checked(name: str, value: Any) -> Any:
    if name == "messages":
        return _messages(value)
    if name in ("prompt", "name", "kind"):
        if not isinstance(value, str) or not value:
            raise UsageError(f"{name} must be a text that is not empty, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name} must be a number, got {value!r}")
    if name in ("max_tokens", "top_k", "seed") and not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    return value


def _messages(value: Any) -> Messages:
    if not isinstance(value, list) or not value:
        raise UsageError("messages must be a list of at least 1 message")
    for message in value:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise UsageError(f"a message has exactly role and content, got {message!r}")
        if message["role"] not in _ROLES:
            raise UsageError(f"role must be one of {', '.join(_ROLES)}, got {message['role']!r}")
        if not isinstance(message["content"], str):
            raise UsageError(f"content must be a text, got {message['content']!r}")
    return tuple(value)
