"""Small JSON files that come with a model, read as what they are: foreign input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from swiftsure.errors import ModelFileError

MAX_JSON_BYTES = 1 << 20  # of a configuration, or of an index of some ten thousand tensors


def read_json_object(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object that a file holds. Raises ModelFileError, with the path, for any other content, a key given twice, NaN and infinity."""
    text = read_text(path, max_bytes=max_bytes)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ModelFileError(f"{path}: nested deeper than can be read") from None
    except ValueError as error:
        raise ModelFileError(f"{path}: not sound JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: must hold a JSON object, got {type(value).__name__}")
    return value


def read_text(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> str:
    """Raises ModelFileError, with the path, for more bytes than that and for what is not UTF-8."""
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: no such file")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > max_bytes:
        raise ModelFileError(f"{path}: must be at most {max_bytes:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} appears twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
