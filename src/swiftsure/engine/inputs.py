"""What a caller may pass as a prompt, turned into checked token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.request import as_ids
from swiftsure.errors import ContextLengthError, UsageError

if TYPE_CHECKING:
    from swiftsure.models.model import Model

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = "str | Sequence[Message] | Sequence[int] | NDArray[np.integer[Any]]"
"""Text to be continued as it stands, chat messages, or token ids."""


def is_batch(prompts: Any) -> bool:
    """True for a list of prompts. A list of messages or of ids is one prompt; a one-dimensional array too."""
    if isinstance(prompts, (str, np.ndarray)):
        return False
    if not isinstance(prompts, Sequence):
        raise UsageError(f"a prompt must be text, chat messages or token ids, got {type(prompts).__name__}")
    return bool(prompts) and (isinstance(prompts[0], (str, np.ndarray)) or _is_list(prompts[0]))


def prompt_ids(model: Model, prompt: Any, *, context: int) -> NDArray[np.int32]:
    """Token ids ``(n,)`` of one prompt, checked: 1 <= n < context, each in the vocabulary.

    Text is continued as it stands: the vocabulary's prefix (BOS) comes first where the model wants one, and special tokens spelled out in
    it are special tokens. Messages go through the model's chat template, where what a message says is always plain text.
    Raises UsageError, TemplateError or ContextLengthError.
    """
    ids = as_ids(_encode(model, prompt))
    check_ids(ids, vocab_size=model.config.vocab_size)
    if len(ids) >= context:
        raise ContextLengthError(
            f"the prompt has {len(ids)} tokens; the context of {context} tokens takes a prompt of at most {context - 1}"
        )
    return ids


def check_ids(ids: NDArray[np.int32], *, vocab_size: int) -> None:
    """Raises UsageError unless there is an id and all are in the vocabulary."""
    if not len(ids):
        raise UsageError("a prompt must have at least 1 token, got none")
    bad = ids[(ids < 0) | (ids >= vocab_size)]
    if len(bad):
        raise UsageError(f"token ids must be at least 0 and below the vocabulary size {vocab_size}, got {bad[0]}")


def _encode(model: Model, prompt: Any) -> Sequence[int] | NDArray[np.integer[Any]]:
    if isinstance(prompt, str):
        if not prompt:
            raise UsageError("a prompt must not be empty")
        tokenizer = model.tokenizer
        return [*tokenizer.prefix_ids, *tokenizer.encode(prompt, special=True)]
    if isinstance(prompt, np.ndarray):
        if prompt.ndim != 1 or not np.issubdtype(prompt.dtype, np.integer):
            raise UsageError(f"token ids must be a one-dimensional array of integers, got {prompt.ndim} dimensions of {prompt.dtype}")
        return _int32(prompt.tolist())
    if not _is_list(prompt) or not prompt:
        raise UsageError("a prompt must not be empty" if _is_list(prompt) else f"a prompt must be text, messages or ids, got {prompt!r}")
    if all(isinstance(item, Mapping) for item in prompt):
        return model.encode_chat([_message(i, message) for i, message in enumerate(prompt)])
    return _int32(prompt)


def _int32(ids: Sequence[Any]) -> list[int]:
    out = []
    for value in ids:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise UsageError(f"a list prompt must hold messages or integer token ids, got {value!r}")
        number = int(value)
        if not -(2**31) <= number < 2**31:
            raise UsageError(f"token ids must be at least 0 and below the vocabulary size, got {number}")
        out.append(number)
    return out


def _message(index: int, message: Message) -> dict[str, Any]:
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise UsageError(f"message {index} must have a text under {key!r}, got {message.get(key)!r}")
    return dict(message)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
