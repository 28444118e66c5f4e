"""The tokenizer of a folder of the transformers library: ``tokenizer.json`` and the small files that say which tokens begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.json_files import MEMORY_FREE_BYTES, kind_of, read_json_object
from swiftsure.models.tokenizer_json import TokenizerFile
from swiftsure.models.vocabulary import Vocabulary, ends_by_name

# Of a token with its merges: some 130 bytes of text that may be four times as wide in memory, and ten Python objects.
_MEMORY_PER_ROW = 2048
_LARGEST_VOCABULARY = 1 << 18
_ID = re.compile(r"[0-9]{1,9}")
_MAX_CONFIG_BYTES = 8 << 20  # large vocabularies list all their added tokens


def read_folder(folder: Path, rows: int | None) -> tuple[TokenizerFile, Vocabulary]:
    """``rows`` of the embedding, which may be more than there are tokens; None: as many.

    Raises UnsupportedModelError for a folder with ``tokenizer.model`` alone, and ModelFileError.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        if (folder / "tokenizer.model").is_file():
            raise UnsupportedModelError(
                "tokenizer.model is not read without tokenizer.json; save the tokenizer with the transformers library, which writes both"
            )
        raise ModelFileError("tokenizer.json is missing")
    config, names = _object(folder / "tokenizer_config.json"), _object(folder / "special_tokens_map.json")
    file = TokenizerFile(path, more_added=_added_in(config), memory_bytes=_memory_bytes(folder, rows or 0))
    if rows is not None and file.size > rows:
        raise ModelFileError(f"tokenizer.json has token ids up to {file.size - 1}, but the embedding {rows} rows")
    bos, eos = (_token_id(file, f"{name}_token", config, names) for name in ("bos", "eos"))
    bos, add_bos = _start(file, config, bos)
    _check_prefix(file, config)
    ends = set(_ids_in(_object(folder / "generation_config.json"))) | set(_ids_in(_object(folder / "config.json")))
    ends |= {eos} if eos is not None else set()
    spelled = list(file.special)
    ends |= {file.special[spelled[i]] for i in ends_by_name(spelled, range(len(spelled)))}
    if eos is None and ends:
        eos = min(ends)
    size = file.size if rows is None else rows
    return file, file.vocabulary(size, bos_id=bos, eos_id=eos, eos_ids=frozenset(ends), add_bos=add_bos)


def _memory_bytes(folder: Path, rows: int) -> int:
    """What reading tokenizer.json may take: twice the folder, or what a vocabulary of so many rows takes where its weights are tiny."""
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return max(2 * size + MEMORY_FREE_BYTES, _MEMORY_PER_ROW * min(rows, _LARGEST_VOCABULARY))


def _object(path: Path) -> dict[str, Any]:
    return read_json_object(path, max_bytes=_MAX_CONFIG_BYTES) if path.is_file() else {}


def _added_in(config: dict[str, Any]) -> list[dict[str, Any]]:
    """``added_tokens_decoder``: its flags win over those of tokenizer.json, as in the library."""
    found = config.get("added_tokens_decoder", {})
    if not isinstance(found, dict):
        raise ModelFileError(f"tokenizer_config.json: added_tokens_decoder must map ids to tokens, got {kind_of(found)}")
    for key, entry in found.items():
        if not _ID.fullmatch(key) or not isinstance(entry, dict):
            raise ModelFileError(
                f"tokenizer_config.json: added_tokens_decoder must map ids to objects, but maps {key!r:.80} to {kind_of(entry)}"
            )
    return [{**entry, "id": int(key)} for key, entry in found.items()]


def _token_id(file: TokenizerFile, name: str, *places: dict[str, Any]) -> int | None:
    """Of the token that the first of these objects names, as text or as an object with ``content``."""
    for place in places:
        value = place.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if content is None:
            continue
        if not isinstance(content, str) or content not in file.tokens:
            raise ModelFileError(f"the {name} {content!r} is no token of tokenizer.json")
        return file.tokens[content]
    return None


def _ids_in(values: dict[str, Any]) -> Iterable[int]:
    found = values.get("eos_token_id")
    for token in found if isinstance(found, list) else [] if found is None else [found]:
        if not isinstance(token, int) or isinstance(token, bool):
            raise ModelFileError(f"eos_token_id must be an integer or a list of them, got {found!r}")
        yield token


def _start(file: TokenizerFile, config: dict[str, Any], bos: int | None) -> tuple[int | None, bool]:
    """The start token and whether a prompt begins with it: tokenizer_config.json where it says so, else the post-processor's template.

    What they write after a text is for texts that end; a prompt is to be continued."""
    before, _ = file.template()
    if any(token not in file.tokens for token in before):
        raise ModelFileError(f"tokenizer.json: the template writes {before!r}, which are not all tokens")
    explicit = config.get("add_bos_token")
    if explicit is not None:
        if not isinstance(explicit, bool):
            raise ModelFileError(f"tokenizer_config.json: add_bos_token must be true or false, got {explicit!r}")
        return bos, explicit and bos is not None
    if len(before) > 1 or (before and bos is not None and file.tokens[before[0]] != bos):
        raise UnsupportedModelError(
            f"tokenizer.json: a prompt that begins with {' '.join(before)} is not supported, only with the bos token"
        )
    return (file.tokens[before[0]], True) if before else (bos, False)


def _check_prefix(file: TokenizerFile, config: dict[str, Any]) -> None:
    """The library changes a byte-level split after the fact when the configuration disagrees with it."""
    asked = config.get("add_prefix_space")
    for step in file.steps["pre_tokenizer"]:
        if asked is not None and step["type"] == "ByteLevel" and step.get("add_prefix_space", True) != asked:
            raise UnsupportedModelError(
                f"tokenizer_config.json: add_prefix_space {asked!r} disagrees with tokenizer.json; only what both say is supported"
            )
