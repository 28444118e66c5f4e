"""What a caller may pass as a prompt, turned into checked token ids."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.request import as_ids
from swiftsure.engine.sampling import SamplingFields
from swiftsure.errors import ContextLengthError, UsageError

if TYPE_CHECKING:
    from swiftsure.models.model import Model

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = "str | Sequence[Message] | Sequence[int] | NDArray[np.integer[Any]]"
"""Text to be continued as it stands, chat messages, or token ids."""


class ChatFields(TypedDict, total=False):
    """Keyword arguments beside chat messages: what the model's chat template is given with them.

    tools: functions that the model may call, as JSON schemas. documents: objects to answer from. template_variables: switches of the
    model's own template, like ``{"enable_thinking": False}``.
    """

    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    template_variables: Mapping[str, Any] | None


class GenerateFields(ChatFields, SamplingFields, total=False):
    """The keyword arguments of ``LLM.generate`` and ``LLM.stream``."""


def split_fields(fields: GenerateFields) -> tuple[ChatFields, SamplingFields]:
    """Raises UsageError for a name that is nearly one of those beside the messages; other unknown ones are told by SamplingParams."""
    for name in fields:
        near = difflib.get_close_matches(name, ChatFields.__annotations__, n=1)
        if near and name not in GenerateFields.__annotations__:
            raise UsageError(f"unknown parameter {name!r}; did you mean {near[0]}?")
    chat = {key: value for key, value in fields.items() if key in ChatFields.__annotations__}
    sampling = {key: value for key, value in fields.items() if key not in ChatFields.__annotations__}
    return cast(ChatFields, chat), cast(SamplingFields, sampling)


def is_batch(prompts: Any) -> bool:
    """True for a list of prompts. A list of messages or of ids is one prompt; a one-dimensional array too."""
    if isinstance(prompts, (str, np.ndarray)):
        return False
    if not isinstance(prompts, Sequence):
        raise UsageError(f"a prompt must be text, chat messages or token ids, got {type(prompts).__name__}")
    return bool(prompts) and (isinstance(prompts[0], (str, np.ndarray)) or _is_list(prompts[0]))


def prompt_of_messages(model: Model, messages: Sequence[Message]) -> Prompt:
    """The messages as a prompt of this model: as they are, or for a model without a chat template their text, to be continued."""
    return messages if model.chat_template is not None else "\n\n".join(message["content"] for message in messages)


def prompt_ids(model: Model, prompt: Any, *, context: int, chat: ChatFields | None = None) -> NDArray[np.int32]:
    """Token ids ``(n,)`` of one prompt, checked: 1 <= n < context, each in the vocabulary.

    Text is continued as it stands: the vocabulary's prefix (BOS) comes first where the model wants one, and special tokens spelled out in
    it are special tokens. Messages go through the model's chat template, where what a message says is always plain text;
    ``chat`` goes with them. Raises UsageError, TemplateError or ContextLengthError.
    """
    ids = token_ids(_encode(model, prompt, chat or {}), vocab_size=model.config.vocab_size)
    if len(ids) >= context:
        raise ContextLengthError(
            f"the prompt has {len(ids)} tokens; the context of {context} tokens takes a prompt of at most {context - 1}"
        )
    return ids


def token_ids(ids: Any, *, vocab_size: int) -> NDArray[np.int32]:
    """Checked ids ``(n,)`` of a list or an array. Raises UsageError unless there is one and all are integers in the vocabulary."""
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UsageError(f"token ids must be a one-dimensional array of integers, got {ids.ndim} dimensions of {ids.dtype}")
    elif not _is_list(ids):
        raise UsageError(f"token ids must be a list or an array of integers, got {type(ids).__name__}")
    else:
        for value in ids:
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise UsageError(f"a list prompt must hold messages or integer token ids, got {value!r}")
    if not len(ids):
        raise UsageError("a prompt must have at least 1 token, got none")
    for bad in (int(min(ids)), int(max(ids))):  # as Python's integers: none is too large to be seen
        if not 0 <= bad < vocab_size:
            raise UsageError(f"token ids must be at least 0 and below the vocabulary size {vocab_size}, got {bad}")
    return as_ids(ids)


def _encode(model: Model, prompt: Any, chat: ChatFields) -> Any:
    if _is_list(prompt) and prompt and all(isinstance(item, Mapping) for item in prompt):
        return model.encode_chat(prompt, **chat)
    for name, value in chat.items():
        if value is not None:
            raise UsageError(f"{name} goes with chat messages, got a prompt without a chat template")
    if isinstance(prompt, str):
        if not prompt:
            raise UsageError("a prompt must not be empty")
        tokenizer = model.tokenizer
        return [*tokenizer.prefix_ids, *tokenizer.encode(prompt, special=True)]
    if _is_list(prompt) and not prompt:
        raise UsageError("a prompt must not be empty")
    return prompt


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
