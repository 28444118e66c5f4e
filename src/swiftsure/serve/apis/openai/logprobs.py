"""Log probabilities in the two forms of the interface: objects (chat) and parallel lists (completions)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from swiftsure.engine.request import TokenLogprob
from swiftsure.serve.service import ServedModel

_LEAST = -9999.0  # OpenAI's number for what is next to impossible; JSON has no infinity


def chat_logprobs(model: ServedModel, entries: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object a token, the end token included: as many as ``completion_tokens``."""
    return [
        {**_object(model, entry.token_id, entry.logprob), "top_logprobs": [_object(model, token, value) for token, value in entry.top]}
        for entry in entries
    ]


def _object(model: ServedModel, token: int, logprob: float) -> dict[str, Any]:
    spelled = model.token_bytes(token)
    return {"token": spelled.decode("utf-8", "replace"), "bytes": list(spelled), "logprob": max(logprob, _LEAST)}


class LegacyLogprobs:
    """The lists of one answer, also piece by piece: offsets count the characters of the text before a token."""

    def __init__(self, model: ServedModel, *, offset: int) -> None:
        self._model = model
        self._offset = offset
        self._special = model.model.tokenizer.special_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            if entry.token_id not in self._special:  # those are no part of the text
                self._offset += len(self._decoder.decode(self._model.token_bytes(entry.token_id)))
        return {
            "tokens": [self._word(entry.token_id) for entry in entries],
            "token_logprobs": [max(entry.logprob, _LEAST) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries] if any(entry.top for entry in entries) else None,
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """The best, and the token itself where it is not one of them."""
        return {self._word(token): max(value, _LEAST) for token, value in (*entry.top, (entry.token_id, entry.logprob))}

    def _word(self, token: int) -> str:
        """The token's text; bytes that are no whole characters as OpenAI writes them, so that no two tokens look alike."""
        spelled = self._model.token_bytes(token)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
