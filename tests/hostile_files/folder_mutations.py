"""Mutations of the small files of a folder: configuration, tokenizer, chat template, sampling; as values, as text, as files."""

from __future__ import annotations

import json
import random
from typing import Any

from hostile_files import lies
from hostile_files.folder_parts import FILE_KINDS, FolderParts
from hostile_files.safetensors_mutations import FolderMutation

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 33, 4097, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**400, 0.5, -0.0, 1e-300, 1e308),
    *(float("nan"), float("inf"), "", "a", " ", "<s>", "\ud800", "\x1b[2J", "x" * 5000, "9" * 5000, "../../etc/passwd", "32"),
    *(
        [],
        {},
        [[]],
        [None],
        [1, 2, 3],
        ["a"],
        {"a": 1},
        {"type": "Sequence"},
        {"type": "ByteLevel"},
        {"": None},
        json.loads("[" * 60 + "]" * 60),
    ),
)
_TYPES = ("llama", "qwen2", "qwen3", "mistral", "gemma3_text", "gemma3", "gemma2", "mamba", "mixtral", "", "Llama", 1, None)
_SCALINGS: tuple[Any, ...] = (
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    {
        "rope_type": "llama3",
        "factor": 1e-300,
        "low_freq_factor": 1e300,
        "high_freq_factor": 1e308,
        "original_max_position_embeddings": 2**61,
    },
    *({"rope_type": "linear", "factor": factor} for factor in (0, -1, 1e-308, 1e300, float("nan"), "2", None)),
    *({"type": kind, "factor": 2.0} for kind in ("yarn", "dynamic", "longrope", "su", "", None, 3)),
)


def _awkward(rng: random.Random) -> Any:
    return json.loads(json.dumps(rng.choice(_VALUES)))  # a copy, to be changed again


def tree(value: Any, rng: random.Random, *, depth: int = 0) -> Any:
    """The value with one node somewhere within replaced, left out, doubled, moved or renamed."""
    inner = sorted(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if not inner or (depth and rng.random() < 0.3):
        return _scalar_beside(value, rng) if rng.random() < 0.4 else _awkward(rng)
    key = rng.choice(inner)
    how = rng.random()
    if how < 0.75:
        value[key] = tree(value[key], rng, depth=depth + 1)
    elif how < 0.83:
        del value[key]
    elif how < 0.9:
        other = rng.choice(inner)
        value[key], value[other] = value[other], value[key]
    elif isinstance(value, list):
        value.insert(key, json.loads(json.dumps(value[key])) if rng.random() < 0.5 else _awkward(rng))
    else:
        value[rng.choice((str(key) + " ", "", "unheard_of", "\ud800", "x" * 300, rng.choice(inner)))] = (
            value[key] if rng.random() < 0.5 else _awkward(rng)
        )
    return value


def _scalar_beside(value: Any, rng: random.Random) -> Any:
    """A value of the same kind near by."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value - 1, value + 1, value * 2, value // 2, -value, float(value), str(value), value + 2**32))
    if isinstance(value, float):
        return rng.choice((-value, value * 1e300, value * 1e-300, value + 1, int(value)))
    if isinstance(value, str):
        return rng.choice((value[:-1], value + "x", value.upper(), value * 3, value + "\x00", " " + value))
    return [value]


def config_field(parts: FolderParts, rng: random.Random) -> None:
    found = parts.objects.get(CONFIG)
    if not isinstance(found, dict) or not found:
        return
    how, key = rng.random(), rng.choice(sorted(found))
    if how < 0.35:
        found[key] = _scalar_beside(found[key], rng)
    elif how < 0.6:
        found[key] = _awkward(rng)
    elif how < 0.7:
        del found[key]
    elif how < 0.8:
        found["model_type"] = rng.choice(_TYPES)
        if rng.random() < 0.5:
            found.pop("architectures", None)
    elif how < 0.9:
        found[rng.choice(("rope_scaling", "rope_parameters"))] = json.loads(json.dumps(rng.choice(_SCALINGS)))
    else:
        names = ("layer_types", "sliding_window", "query_pre_attn_scalar", "rope_local_base_freq", "quantization_config", "auto_map")
        found[rng.choice((*names, "tie_word_embeddings", "sliding_window_pattern", "partial_rotary_factor", "logit_scale"))] = _awkward(rng)


def config_tree(parts: FolderParts, rng: random.Random) -> None:
    parts.objects[CONFIG] = tree(parts.objects.get(CONFIG, {}), rng)


def tokenizer_tree(parts: FolderParts, rng: random.Random) -> None:
    parts.objects[TOKENIZER] = tree(parts.objects.get(TOKENIZER, {}), rng)


def _tokenizer_model(parts: FolderParts) -> dict[str, Any]:
    found = parts.objects.get(TOKENIZER)
    model = found.get("model") if isinstance(found, dict) else None
    return model if isinstance(model, dict) else {}


def tokenizer_vocabulary(parts: FolderParts, rng: random.Random) -> None:
    """Ids twice, beyond the rows, negative; tokens that are no texts; scores that are no numbers."""
    model = _tokenizer_model(parts)
    vocab = model.get("vocab")
    if isinstance(vocab, dict) and vocab:
        token = rng.choice(sorted(vocab))
        how = rng.randrange(4)
        if how == 0:
            vocab[token] = rng.choice((*lies.COUNTS, -1, 1.0, True, None, "1", rng.choice(sorted(map(str, vocab.values()))), 280, 279))
        elif how == 1:
            del vocab[token]
        elif how == 2:
            vocab[rng.choice(("", "\ud800", "\x00", "x" * 5000, token + "ß"))] = rng.choice((280, 281, 2**20, vocab[token]))
        else:
            model["vocab"] = {key: i * rng.choice((1, 2)) for i, key in enumerate(vocab)}
    elif isinstance(vocab, list) and vocab:
        at = rng.randrange(len(vocab))
        scores = (0.0, -1e300, 1e308, float("nan"), float("inf"), 10**400, "1", None, True)
        vocab[at] = rng.choice(
            (["", 0.0], ["a"], [], "a", None, vocab[0], ["a", rng.choice(scores)], ["a", 0.0, 0.0], [1, 1], ["\ud800", 0.0])
        )
    model.update(rng.choice(({}, {}, {}, {"unk_id": rng.choice((-1, 280, 2**64, "0", None, 1.0))}, {"unk_token": rng.choice(_VALUES)})))


def tokenizer_merges(parts: FolderParts, rng: random.Random) -> None:
    model = _tokenizer_model(parts)
    merges = model.get("merges")
    if not isinstance(merges, list):
        model["merges"] = [["a", "b"]]
        return
    odd = (
        ["a"],
        ["a", "b", "c"],
        ["", ""],
        ["", "a"],
        "a",
        "a b",
        "a b c",
        "",
        1,
        None,
        ["z", "q"],
        ["x" * 3000, "y"],
        [1, 2],
        ["\ud800", "a"],
    )
    for _ in range(rng.choice((1, 1, 3, 300))):
        merges.insert(rng.randrange(len(merges) + 1), rng.choice((*odd, *merges[:3])))
    if rng.random() < 0.2:
        rng.shuffle(merges)


def added_tokens(parts: FolderParts, rng: random.Random) -> None:
    """In either file that may hold them."""
    flags: dict[str, Any] = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": rng.random() < 0.5, "special": True}
    content = rng.choice(("<s>", "<unk>", "the", " ", "", "\u2581", "\ud800", "x" * 5000, "<|im_end|>", "İ", "\x1b[2J", 7, None))
    token = flags | {"content": content, rng.choice((*flags, "unheard_of")): rng.choice((True, False, None, 1, "x"))}
    number = rng.choice((0, 1, 2, 5, 279, 280, 65536, 2**24 - 1, 2**24, 2**40, -1, "1", None, 1.0, True))
    config = parts.objects.get(TOKENIZER_CONFIG)
    if rng.random() < 0.4 and isinstance(config, dict):
        config["added_tokens_decoder"] = rng.choice(
            ({str(number): token}, {str(number): token}, {"²": token}, {"٣": token}, {"9" * 5000: token}, [token], {"1": 1})
        )
        return
    found = parts.objects.get(TOKENIZER)
    if isinstance(found, dict) and isinstance(found.get("added_tokens"), list):
        found["added_tokens"].insert(0, {**token, "id": number})


def tokenizer_step(parts: FolderParts, rng: random.Random) -> None:
    """Steps of the tokenizers library that fail, run long, or are not what they say."""
    found = parts.objects.get(TOKENIZER)
    if not isinstance(found, dict):
        return
    patterns: tuple[Any, ...] = (
        *({"Regex": regex} for regex in ("(", "(a+)+$", "a{99999}", "(?<n>a)\\k<n>", "", "\\p{L}", "[^\\S]*|(.*)*", "(?!)", "x" * 5000)),
        *({"String": string} for string in ("", " ", "\ud800", "x" * 5000)),
        *("a", None, 1, {}, {"Regex": 1}, {"Regex": "a", "String": "b"}),
    )
    pattern = rng.choice(patterns)
    behaviour = rng.choice(("Isolated", "Removed", "MergedWithPrevious", "Contiguous", "isolated", "", None, 1))
    charsmap = rng.choice(("", "AAAA", "not base64!", "/////wAAAAA=", "BAAAAP////8=", "AAQAAA" + "A" * 2000, "BAAAAAAAAAA=", None, 7))
    step: dict[str, Any] = rng.choice(
        (
            {"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": rng.random() < 0.5},
            {"type": "Replace", "pattern": pattern, "content": rng.choice(("", "x", "x" * 5000, None, " "))},
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {
                "type": rng.choice(
                    ("NFC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Whitespace", "BertNormalizer", "Fuse", "Digits")
                )
            },
            {"type": "Punctuation", "behavior": behaviour},
            {
                "type": "Metaspace",
                "replacement": rng.choice(("\u2581", "", "ab", "_")),
                "prepend_scheme": rng.choice(("always", "first", "never", "x")),
            },
            {"type": "Prepend", "prepend": rng.choice(("\u2581", "", "x" * 5000))},
            {
                "type": "TemplateProcessing",
                "single": rng.choice(([], None, "$A", [{"SpecialToken": {"id": "<none>"}}], [{"SpecialToken": 1}], [1], {})),
            },
        )
    )
    part = rng.choice(("normalizer", "pre_tokenizer", "decoder", "post_processor"))
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post_processor": "processors"}
    if rng.random() < 0.4:
        step = {"type": "Sequence", names[part]: [step] * rng.choice((0, 1, 2, 200))}
    for _ in range(rng.choice((0, 0, 0, 3, 200))):
        step = {"type": "Sequence", names[part]: [step]}
    found[part] = step


def other_settings(parts: FolderParts, rng: random.Random) -> None:
    """Of tokenizer_config.json, special_tokens_map.json or generation_config.json."""
    name = rng.choice((TOKENIZER_CONFIG, TOKENIZER_CONFIG, "special_tokens_map.json", "generation_config.json"))
    found = parts.objects.get(name, {})
    if isinstance(found, dict) and rng.random() < 0.5:
        keys = (
            "bos_token",
            "eos_token",
            "add_bos_token",
            "add_prefix_space",
            "chat_template",
            "eos_token_id",
            "temperature",
            "top_k",
            "do_sample",
        )
        found[rng.choice(keys)] = _awkward(rng)
        parts.objects[name] = found
    else:
        parts.objects[name] = tree(found, rng)


def folder_template(parts: FolderParts, rng: random.Random) -> None:
    """A chat template of its own file, or in tokenizer_config.json."""
    source = rng.choice(lies.ENDLESS_TEMPLATES if rng.random() < 0.03 else lies.TEMPLATES)
    if rng.random() < 0.5:
        parts.raw["chat_template.jinja"] = rng.choice((source.encode(), source.encode("utf-16"), source.encode() + b"\xff"))
    else:
        found = parts.objects.setdefault(TOKENIZER_CONFIG, {})
        if isinstance(found, dict):
            named = [{"name": rng.choice(("default", "tool_use", "", "\x1b[2J")), "template": source}]
            found["chat_template"] = rng.choice((source, named, named * 2, {"default": source}))


def json_text(parts: FolderParts, rng: random.Random) -> None:
    """A JSON file's own text: cut, damaged, doubled keys, deep, in another encoding."""
    if not parts.objects:
        return
    name = rng.choice(sorted(parts.objects))
    text = json.dumps(parts.objects[name]).encode()
    at = rng.randrange(len(text))
    pieces = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\xff", b"\x00", b"NaN", b"1e999", b"-", b"9" * 5000, b"\\ud800", b"/*")
    parts.raw[name] = rng.choice(
        (
            text[:at],
            text[:at] + rng.choice(pieces) + text[at:],
            text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :],
            text[:-1] + b"," + text[1:],  # every key twice
            rng.choice((b"", b"[]", b"null", b"7", b'"a"', b"[" * 100_000, b'{"a":' * 100_000, b"\x80\x04\x95", b"PK\x03\x04")),
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            text + rng.choice((b"\x00", text, b" " * 2_000_000, b"//")),
        )
    )


def file_replaced(parts: FolderParts, rng: random.Random) -> None:
    """Another file, none, or something that is no file."""
    files = sorted(parts.build())
    beside = ("chat_template.jinja", "special_tokens_map.json", "tokenizer.model", "added_tokens.json", "pytorch_model.bin", "model.gguf")
    name = rng.choice((*files, rng.choice(beside)))
    how = rng.random()
    if how < 0.35:
        parts.raw[name] = None
        if name.endswith(".safetensors") and rng.random() < 0.5:
            parts.raw["pytorch_model.bin"] = b"\x80\x02}q\x00."
        if name == TOKENIZER and rng.random() < 0.5:
            parts.raw["tokenizer.model"] = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
    elif how < 0.6:
        parts.raw[name] = rng.choice(FILE_KINDS)
    elif how < 0.8:
        parts.raw[name] = rng.choice((b"", b"\x00", rng.randbytes(500), b"{}", b"\x80\x04\x95\x00"))
    else:
        other = rng.choice(files)
        parts.raw[name] = parts.build()[other]


FOLDER: tuple[FolderMutation, ...] = (
    *(config_field, config_field, config_field, config_tree, tokenizer_tree, tokenizer_tree, tokenizer_vocabulary, tokenizer_merges),
    *(added_tokens, tokenizer_step, tokenizer_step, other_settings, folder_template, json_text, file_replaced),
)
