"""What a case asks of a language model, read from its request or from its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.verify.proving.workload import SAMPLING_FIELDS, Prompt
from swiftsure.verify.subjects.base import Case

_LONGEST_FILE = 64 << 20
KNOWN = ("prompt", "messages", "sampling", "score", "tokens", *SAMPLING_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Logits of every position of the first ``tokens`` tokens of a text are asked for; nothing is generated."""

    text: str
    tokens: int


def request_of(case: Case) -> Prompt | Score:
    """A request has ``prompt`` or ``messages``, and sampling values beside them or in ``sampling``; or ``score``, a text, and ``tokens``.

    A case without a request has a file: ``.json`` with such an object, else a text, which is the prompt. Raises UsageError.
    """
    values = dict(case.request) or _from_file(case)
    sampling = values.pop("sampling", {})
    if not isinstance(sampling, Mapping):
        raise UsageError(f"sampling must be an object, got {sampling!r}")
    values |= sampling
    unknown = sorted(set(values) - set(KNOWN))
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r} of a request; known are {', '.join(KNOWN)}")
    if "score" in values:
        text, tokens = values["score"], values.get("tokens", 2048)
        if not isinstance(text, str) or not isinstance(tokens, int) or tokens < 1:
            raise UsageError(f"score must be a text and tokens at least 1, got {type(text).__name__} and {tokens!r}")
        return Score(text=text, tokens=tokens)
    values.pop("tokens", None)
    text, messages = values.pop("prompt", None), values.pop("messages", None)
    chat = None if messages is None else tuple(dict(message) for message in messages)
    return Prompt(name=case.id, kind="case", text=text, messages=chat, **values)


def _from_file(case: Case) -> dict[str, Any]:
    if case.path is None:
        raise UsageError(f"case {case.id} has neither a request nor a file")
    try:
        if case.path.stat().st_size > _LONGEST_FILE:
            raise UsageError(f"case {case.id}: a file must be at most {_LONGEST_FILE:,} bytes")
        text = case.path.read_text(encoding="utf-8-sig")
        values = json.loads(text) if case.path.suffix.lower() == ".json" else {"prompt": text}
    except OSError as error:
        raise UsageError(f"case {case.id}: {case.path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"case {case.id}: {case.path} is neither text nor JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"case {case.id}: {case.path} must hold an object")
    return values
