"""What a ``tokenizer.json`` may say: the keys of each of its objects, and the steps of its parts. Anything else is refused by name."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.json_files import kind_of
from swiftsure.models.sentencepiece_normalizer import CharacterMap

SPACE = "\u2581"

# Keys of each object; a value is what such a key must be, None for anything.
_Fields = Mapping[str, Collection[object] | None]
_ANY = None
TOP: _Fields = dict.fromkeys(
    ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
)  # the library's users set truncation and padding for batches anew; neither touches a prompt here
_BYTE_LEVEL: _Fields = {"add_prefix_space": (True, False), "trim_offsets": (True, False), "use_regex": (True, False)}
_METASPACE: _Fields = {
    "replacement": (SPACE,), "prepend_scheme": ("always", "first", "never"), "add_prefix_space": (True, False), "split": (True, False),
    "str_rep": (SPACE,),
}  # fmt: skip
_REPLACE: _Fields = {"pattern": _ANY, "content": _ANY}
NORMALIZERS: dict[str, _Fields] = {
    "Sequence": {"normalizers": _ANY}, "NFC": {}, "NFD": {}, "NFKC": {}, "NFKD": {}, "Nmt": {}, "Lowercase": {}, "StripAccents": {},
    "Strip": {"strip_left": (True, False), "strip_right": (True, False)}, "Prepend": {"prepend": (SPACE,)}, "Replace": _REPLACE,
    "Precompiled": {"precompiled_charsmap": _ANY},
}  # fmt: skip
PRE_TOKENIZERS: dict[str, _Fields] = {
    "Sequence": {"pretokenizers": _ANY}, "ByteLevel": _BYTE_LEVEL, "Metaspace": _METASPACE, "Digits": {"individual_digits": (True, False)},
    "Split": {"pattern": _ANY, "behavior": _ANY, "invert": (True, False)}, "Punctuation": {"behavior": _ANY}, "WhitespaceSplit": {},
    "Whitespace": {},
}  # fmt: skip
DECODERS: dict[str, _Fields] = {
    "Sequence": {"decoders": _ANY}, "ByteLevel": _BYTE_LEVEL, "Metaspace": _METASPACE, "ByteFallback": {}, "Fuse": {},
    "Replace": {"pattern": ({"String": SPACE},), "content": (" ",)}, "Strip": {"content": (" ",), "start": (0, 1), "stop": (0,)},
}  # fmt: skip
POST_PROCESSORS: dict[str, _Fields] = {
    "Sequence": {"processors": _ANY}, "ByteLevel": _BYTE_LEVEL,
    "TemplateProcessing": {"single": _ANY, "pair": _ANY, "special_tokens": _ANY},
}  # fmt: skip
MODELS: dict[str, _Fields] = {
    "BPE": {
        "dropout": (None, 0, 0.0), "unk_token": _ANY, "continuing_subword_prefix": (None, ""), "end_of_word_suffix": (None, ""),
        "fuse_unk": (True, False), "byte_fallback": (True, False), "ignore_merges": (True, False), "vocab": _ANY, "merges": _ANY,
    },
    "Unigram": {"unk_id": _ANY, "byte_fallback": (True, False), "vocab": _ANY},
}  # fmt: skip
ADDED: _Fields = {
    "id": _ANY, "content": _ANY, "single_word": (False,), "lstrip": (False,), "rstrip": (False,), "normalized": (True, False),
    "special": (True, False),
}  # fmt: skip


def steps_of(part: str, step: Any, kinds: Mapping[str, _Fields]) -> Iterator[dict[str, Any]]:
    """The steps of a part in order, sequences opened, each checked."""
    if step is None:
        return
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        raise fail(f"{part} must be an object with a type, got {kind_of(step)}")
    kind = step["type"]
    if kind not in kinds:
        raise UnsupportedModelError(f"tokenizer.json: {part} {kind!r} is not supported; supported: {', '.join(sorted(kinds))}")
    check_keys(f"tokenizer.json: {part} {kind}", step, {"type": None, **kinds[kind]})
    if kind == "Sequence":
        (key,) = kinds[kind]
        for inner in list_of(step.get(key), f"{part} {kind}: {key}"):
            yield from steps_of(part, inner, kinds)
    else:
        yield step


def check_keys(where: str, found: Mapping[str, Any], known: _Fields, required: Collection[str] = ()) -> None:
    for key in required:
        if key not in found:
            raise ModelFileError(f"{where}: {key} is missing")
    for key, value in found.items():
        if key not in known:
            raise UnsupportedModelError(f"{where}: key {key!r} is not known; known: {', '.join(sorted(known))}")
        allowed = known[key]
        if allowed is not None and not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed):
            raise UnsupportedModelError(f"{where}: {key} {value!r} is not supported; supported: {', '.join(map(repr, allowed))}")


def list_of(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise fail(f"{what} must be a list, got {kind_of(value)}")
    return value


def check_character_map(step: Mapping[str, Any]) -> None:
    """Of a Precompiled normalizer: the library panics over a damaged one, and writes that to the terminal."""
    coded = step.get("precompiled_charsmap")
    if not isinstance(coded, str):
        raise fail(f"normalizer Precompiled: precompiled_charsmap must be a text, got {kind_of(coded)}")
    try:
        raw = b64decode(coded, validate=True)
    except ValueError as error:
        raise fail(f"normalizer Precompiled: precompiled_charsmap is not in base 64: {error}") from None
    try:
        CharacterMap(raw)
    except ModelFileError as error:
        raise fail(f"normalizer Precompiled: {error}") from None


def fail(fault: str) -> ModelFileError:
    return ModelFileError(f"tokenizer.json: {fault}")
