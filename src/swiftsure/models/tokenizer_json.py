"""Vocabularies in the tokenizers library's ``tokenizer.json``.

Normalizers, splits and merges run in that library, which is their reference; added tokens are found by our own tokenizer, and a special
token's spelling in ordinary text reaches it on no other way. What the file asks for and is not listed here is refused by name: a step
left out would change ids without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.errors import UnsupportedModelError
from swiftsure.models.byte_bpe import bytes_of, check_merges
from swiftsure.models.json_files import kind_of, read_json_object
from swiftsure.models.segmenter import Place
from swiftsure.models.token_matcher import TokenMatcher
from swiftsure.models.tokenizer_fields import (
    ADDED,
    DECODERS,
    MODELS,
    NORMALIZERS,
    POST_PROCESSORS,
    PRE_TOKENIZERS,
    SPACE,
    TOP,
    check_character_map,
    check_keys,
    fail,
    list_of,
    steps_of,
)
from swiftsure.models.tokenizers_library import faults_named, ids_of
from swiftsure.models.unigram import Unigram
from swiftsure.models.vocabulary import TokenKind, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

MAX_BYTES = 128 << 20  # the largest published ones have 35 MB
_BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}


class TokenizerFile:
    """A ``tokenizer.json``, read and found to hold nothing that is not understood."""

    def __init__(self, path: Path, *, more_added: Sequence[dict[str, Any]] = (), memory_bytes: int = 0) -> None:
        """``more_added`` are added tokens of other files, which win over those here; ``memory_bytes`` as for read_json_object. Raises
        ModelFileError and UnsupportedModelError."""
        self.values = read_json_object(path, max_bytes=MAX_BYTES, memory_bytes=memory_bytes)
        check_keys("tokenizer.json", self.values, TOP, required=("model",))
        parts = {"normalizer": NORMALIZERS, "pre_tokenizer": PRE_TOKENIZERS, "decoder": DECODERS, "post_processor": POST_PROCESSORS}
        self.steps = {part: list(steps_of(part, self.values.get(part), kinds)) for part, kinds in parts.items()}
        for step in self.steps["normalizer"]:
            if step["type"] == "Precompiled":
                check_character_map(step)
        models = list(steps_of("model", self.values["model"], MODELS))
        if not models:
            raise fail("model must not be null")
        self.model: dict[str, Any] = models[0]
        self.added = _added_tokens([*list_of(self.values.get("added_tokens") or [], "added_tokens"), *more_added])
        self.tokens = self._numbered()
        self.size = max(self.tokens.values()) + 1

    @property
    def special(self) -> dict[str, int]:
        return {token["content"]: token["id"] for token in self.added if token["special"]}

    def vocabulary(self, size: int, **ends: Any) -> Vocabulary:
        """``size`` is at least the highest id plus one: ids without a token are spelled with nothing and marked unused."""
        tokens, kinds = [""] * size, [int(TokenKind.UNUSED)] * size
        in_bytes = self.model.get("byte_fallback", False)
        for token, i in self.tokens.items():
            tokens[i], kinds[i] = token, TokenKind.BYTE if in_bytes and token in _BYTES else TokenKind.NORMAL
        for entry in self.added:
            kinds[entry["id"]] = TokenKind.CONTROL if entry["special"] else TokenKind.USER_DEFINED
        return Vocabulary(tokens=tokens, kinds=kinds, **ends)

    def template(self) -> tuple[list[str], list[str]]:
        """Special tokens that the post-processor writes before and after a text."""
        before: list[str] = []
        after: list[str] = []
        for step in self.steps["post_processor"]:
            if step["type"] == "TemplateProcessing":
                side = before
                for item in list_of(step.get("single", []), "post_processor: single"):
                    ((kind, facts),) = item.items() if isinstance(item, dict) and len(item) == 1 else ((None, None),)
                    if kind == "Sequence":
                        side = after
                    elif kind == "SpecialToken" and isinstance(facts, dict) and isinstance(facts.get("id"), str):
                        side.append(facts["id"])
                    else:
                        raise fail(f"post_processor: a template must be made of SpecialToken and Sequence, got {item!r}")
        return before, after

    def _numbered(self) -> dict[str, int]:
        vocab = self.model.get("vocab")
        if self.model["type"] == "Unigram":
            if not isinstance(vocab, list) or not all(_is_scored(row) for row in vocab):
                raise fail("model: vocab must be pairs of a piece and a finite score")
            numbers = {row[0]: i for i, row in enumerate(vocab)}
            if len(numbers) != len(vocab):
                raise fail(f"model: vocab holds {next(row[0] for i, row in enumerate(vocab) if numbers[row[0]] != i)!r} twice")
        else:
            if not isinstance(vocab, dict):
                raise fail(f"model: vocab must map tokens to ids, got {kind_of(vocab)}")
            odd = next((token for token, i in vocab.items() if not _is_id(i)), None)
            if odd is not None:
                raise fail(f"model: vocab must map tokens to ids below 2^24, but maps {odd!r} to {vocab[odd]!r}")
            numbers = dict(vocab)
        if not numbers:
            raise fail("the vocabulary has no tokens")
        for entry in self.added:
            if numbers.setdefault(entry["content"], entry["id"]) != entry["id"]:
                raise fail(f"added token {entry['content']!r} has id {entry['id']}, but {numbers[entry['content']]} in the vocabulary")
        owners = {i: token for token, i in numbers.items()}
        if len(owners) != len(numbers):
            first, i = next((token, i) for token, i in numbers.items() if owners[i] != token)
            raise fail(f"tokens {first!r} and {owners[i]!r} of the vocabulary have the same id {i}")
        if max(numbers.values()) > 2 * len(numbers) + 65536:
            raise fail(f"the highest token id is {max(numbers.values())} in a vocabulary of {len(numbers)} tokens")
        return numbers


class JsonSegmenter:
    """The text between special tokens, by the steps of a :class:`TokenizerFile`."""

    def __init__(self, file: TokenizerFile, vocabulary: Vocabulary) -> None:
        """Raises ModelFileError for a model that the library refuses and UnsupportedModelError for a decoder that says no spelling."""
        self._vocabulary = vocabulary
        self._spell, takes_blank = _spelling(file.steps["decoder"])
        self.prefixed: Collection[Place] = _prefixed(file) if takes_blank else ()
        self.added = {entry["content"]: entry["id"] for entry in file.added if not entry["special"] and not _is_late(entry, file)}
        self._late = TokenMatcher(_normalized_spellings(file))
        encode = _bpe(file) if file.model["type"] == "BPE" else _unigram(file)
        self._encoders = {place: encode(place) for place in Place}

    def encode(self, text: str, place: Place) -> list[int]:
        if not text:
            return []
        with faults_named("tokenizer.json: its steps fail on this text"):
            return self._encode(text, place)

    def _encode(self, text: str, place: Place) -> list[int]:
        normalize, encode = self._encoders[place]
        text = normalize(text)
        ids: list[int] = []
        start = 0
        for begin, end, token in self._late.matches(text):
            ids += encode(text[start:begin])
            ids.append(token)
            start = end
            if place is Place.START:
                _, encode = self._encoders[Place.AFTER_ADDED]
        return ids + encode(text[start:])

    def spell(self, token: int) -> bytes:
        text = self._vocabulary.tokens[token]
        kind = self._vocabulary.kinds[token]
        if kind == TokenKind.USER_DEFINED:
            return text.encode()
        if kind == TokenKind.BYTE:
            return bytes([_BYTES[text]])
        return self._spell(text)


_Encoder = tuple[Callable[[str], str], Callable[[str], list[int]]]  # normalizes; then encodes what is normalized


def _bpe(file: TokenizerFile) -> Callable[[Place], _Encoder]:
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    model, special = file.model, file.special
    numbers = {token: i for token, i in model["vocab"].items() if token not in special}
    pairs = [_merge(merge) for merge in list_of(model.get("merges", []), "model: merges")]
    pairs = [pair for pair in pairs if not {pair[0], pair[1], pair[0] + pair[1]} & special.keys()]
    unk = model.get("unk_token")
    if unk is not None and not isinstance(unk, str):
        raise fail(f"model: unk_token must be a text, got {unk!r}")
    options = {key: model[key] for key in ("fuse_unk", "byte_fallback", "ignore_merges") if key in model}
    if unk is not None and unk in special:
        # The library asks for it among the tokens. Nothing in text reads as this stand-in, a token that holds no character.
        numbers[""] = special[unk]
        unk = ""
    check_merges(pairs, numbers)
    with faults_named("tokenizer.json: model"):
        shared = models.BPE(numbers, pairs, unk_token=unk, **options)

    def at(place: Place) -> _Encoder:
        engine = Engine(shared)
        normalize = _set_steps(engine, file, place)
        return normalize, lambda text: ids_of(engine, text) if text else []

    return at


def _merge(merge: object) -> tuple[str, str]:
    """Of either spelling: "a b", or since 2024 ["a", "b"]."""
    halves = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(halves, list) or len(halves) != 2 or not all(isinstance(half, str) for half in halves):
        raise fail(f"model: a merge must be two tokens, got {merge!r}")
    return halves[0], halves[1]


def _unigram(file: TokenizerFile) -> Callable[[Place], _Encoder]:
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    vocab, special = file.model["vocab"], file.special
    unk = file.model.get("unk_id")
    if unk is not None and not (_is_id(unk) and unk < len(vocab)):
        raise fail(f"model: unk_id must be an id of the vocabulary of {len(vocab)}, got {unk!r}")
    in_bytes = file.model.get("byte_fallback", False) and all(token in file.tokens for token in _BYTES)
    model = Unigram(
        {piece: (i, float(score)) for i, (piece, score) in enumerate(vocab) if piece and piece not in special},
        unk_id=unk,
        byte_ids=[file.tokens[token] for token in _BYTES] if in_bytes else (),
        worst=min(float(score) for _, score in vocab),
        single=False,
    )

    def at(place: Place) -> _Encoder:
        engine = Engine(models.BPE())
        normalize = _set_steps(engine, file, place)

        def encode(text: str) -> list[int]:
            words = [text] if engine.pre_tokenizer is None else [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(text)]
            return [token for word in words for token in model.encode(word)]

        return normalize, encode

    return at


def _set_steps(engine: Engine, file: TokenizerFile, place: Place) -> Callable[[str], str]:
    """Gives the engine its split, as it applies at this place; returns the normalizer."""
    from tokenizers import Tokenizer as Engine

    parts = {part: file.values.get(part) for part in ("normalizer", "pre_tokenizer")}
    if place is not Place.START:
        parts = {part: _without_prefix(steps, everywhere=place is Place.CONTINUES) for part, steps in parts.items()}
    empty: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, **parts}
    with faults_named("tokenizer.json: the library refuses its steps"):
        read = Engine.from_str(json.dumps(empty))
    if read.pre_tokenizer is not None:
        engine.pre_tokenizer = read.pre_tokenizer
    normalizer = read.normalizer
    return (lambda text: text) if normalizer is None else (lambda text: str(normalizer.normalize_str(text)))


def _without_prefix(step: Any, *, everywhere: bool) -> Any:
    """The step without the blank that it puts before the first text, or ``everywhere`` before any."""
    if not isinstance(step, dict):
        return step
    if step["type"] == "Sequence":
        (key,) = (key for key in step if key != "type")
        inner = [_without_prefix(each, everywhere=everywhere) for each in step[key]]
        return {**step, key: [each for each in inner if each is not None]}
    if step["type"] == "Metaspace" and (everywhere or _scheme(step) == "first"):
        return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": step.get("split", True)}
    if everywhere and step["type"] == "Prepend":
        return None
    if everywhere and step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    return step


def _prefixed(file: TokenizerFile) -> set[Place]:
    """Where some step puts a blank before the text."""
    places: set[Place] = set()
    for step in [*file.steps["normalizer"], *file.steps["pre_tokenizer"]]:
        scheme = _scheme(step) if step["type"] == "Metaspace" else "never"
        if step["type"] == "Prepend" or (step["type"] == "ByteLevel" and step.get("add_prefix_space", True)):
            scheme = "always"
        places |= {"never": set(), "first": {Place.START}, "always": {Place.START, Place.AFTER_ADDED}}[scheme]
    return places


def _scheme(step: Mapping[str, Any]) -> str:
    """Of a Metaspace; older files say it with ``add_prefix_space``."""
    return str(step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never"))


def _spelling(steps: list[dict[str, Any]]) -> tuple[Callable[[str], bytes], bool]:
    """How a token's text becomes bytes, and whether a blank before a text is taken off."""
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return bytes_of, False
    if kinds and kinds <= {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"} and kinds & {"Replace", "Metaspace"}:
        taken = any(step["type"] == "Strip" and step.get("start") == 1 for step in steps)
        taken = taken or any(step["type"] == "Metaspace" and _scheme(step) != "never" for step in steps)
        return (lambda text: text.replace(SPACE, " ").encode()), taken
    raise UnsupportedModelError(f"tokenizer.json: decoder {', '.join(sorted(kinds)) or 'null'} is not supported")


def _is_late(entry: Mapping[str, Any], file: TokenizerFile) -> bool:
    """Whether the token is looked for in normalized text."""
    return bool(entry["normalized"]) and bool(file.steps["normalizer"])


def _normalized_spellings(file: TokenizerFile) -> dict[str, int]:
    """Added tokens that are looked for in normalized text. Special ones are looked for before, where it is known who wrote them, so what
    the normalizer makes of their spelling must be the same."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    normalize = _set_steps(Engine(models.BPE()), file, Place.START)
    found: dict[str, int] = {}
    for entry in file.added:
        if _is_late(entry, file):
            with faults_named("tokenizer.json: normalizer"):
                text = normalize(entry["content"])
            if entry["special"] and text != entry["content"]:
                raise UnsupportedModelError(
                    f"tokenizer.json: special token {entry['content']!r} that is normalized, to {text!r}, is not supported"
                )
            if text and not entry["special"]:
                found[text] = entry["id"]
    return found


def _added_tokens(entries: list[Any]) -> list[dict[str, Any]]:
    """Each checked and with all its flags; of two with one id the later."""
    by_id: dict[int, dict[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str) or not _is_id(entry.get("id")):
            raise fail(f"an added token must have an id and a content, got {entry!r}")
        if not entry["content"]:
            raise fail(f"added token {entry['id']} is empty")
        check_keys(f"tokenizer.json: added token {entry['content']!r}", entry, ADDED)
        earlier = by_id.get(entry["id"], {})
        if earlier and earlier["content"] != entry["content"]:
            raise fail(f"added tokens {earlier['content']!r} and {entry['content']!r} have the same id {entry['id']}")
        by_id[entry["id"]] = {"normalized": False, "special": False} | earlier | entry
    return list(by_id.values())


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 24


def _is_scored(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 2
        and isinstance(row[0], str)
        and isinstance(row[1], int | float)
        and abs(row[1]) < float("inf")
    )
