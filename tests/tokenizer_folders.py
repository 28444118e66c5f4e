"""Folders with a ``tokenizer.json`` of each kind that published models have, trained on the hard texts by the tokenizers library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hard_texts import TEXTS
from swiftsure.models.byte_bpe import _LLAMA3_SPLIT, _QWEN2_SPLIT

CORPUS = [text[:2000] for text in TEXTS.values()]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
SPACE = "\u2581"


def _byte_level(split: str, *, nfc: bool = False, **model: Any) -> Tokenizer:
    made = Tokenizer(models.BPE(**model))
    made.normalizer = normalizers.NFC() if nfc else None
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet))
    made.add_special_tokens(SPECIAL)
    made.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return made


def llama3() -> Tokenizer:
    made = _byte_level(_LLAMA3_SPLIT, ignore_merges=True)
    template = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", made.token_to_id("<s>"))])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def qwen2() -> Tokenizer:
    made = _byte_level(_QWEN2_SPLIT, nfc=True)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def gpt2_prefixed() -> Tokenizer:
    made = _byte_level(r"\s+|\S+")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


def smollm() -> Tokenizer:
    made = _byte_level(r"\s+|\S+")
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return made


def _with_bytes(made: Tokenizer) -> Tokenizer:
    """Byte tokens and special tokens are entries of the model's vocabulary, as SentencePiece's converter leaves them."""
    values = json.loads(made.to_str())
    model = values["model"]
    front = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    if isinstance(model["vocab"], dict):
        order = [*front, *(token for token in model["vocab"] if token not in front)]
        model["vocab"] = {token: i for i, token in enumerate(order)}
        model["merges"] += [["<", "s>"], ["<s", ">"]] if {"s>", "<s"} <= set(order) else []
    else:
        model["vocab"] = [[token, 0.0] for token in front] + [row for row in model["vocab"] if row[0] not in front]
        model["unk_id"] = 0
    model["byte_fallback"] = True
    made = Tokenizer.from_str(json.dumps(values))
    made.add_special_tokens(SPECIAL)
    made.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return made


def _sentencepiece_bpe(normalizer: Any, pre_tokenizer: Any, decoder: list[Any]) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, pre_tokenizer, decoders.Sequence(decoder)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<unk>"], max_token_length=9))
    return _with_bytes(made)


def _blanks(*, taken: bool) -> list[Any]:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return [*steps, decoders.Strip(" ", 1, 0)] if taken else steps


def llama2() -> Tokenizer:
    return _sentencepiece_bpe(
        normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]), None, _blanks(taken=True)
    )


def llama2_first() -> Tokenizer:
    return _sentencepiece_bpe(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), _blanks(taken=True))


def gemma() -> Tokenizer:
    return _sentencepiece_bpe(normalizers.Replace(" ", SPACE), pre_tokenizers.Split(" ", "merged_with_previous"), _blanks(taken=False))


def _unigram(*, scheme: str, fallback: bool) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]) if not fallback else None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    short = [text for text in CORPUS if len(text) < 1000]
    trainer = trainers.UnigramTrainer(vocab_size=400, show_progress=False, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"])
    made.train_from_iterator(short, trainer)
    if fallback:
        made.decoder = decoders.Sequence(_blanks(taken=scheme != "never"))
        return _with_bytes(made)
    made.add_special_tokens(SPECIAL)
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "llama 3": llama3,
    "qwen 2": qwen2,
    "gpt-2 with a blank first": gpt2_prefixed,
    "smollm": smollm,
    "llama 2": llama2,
    "llama 2, blank at the start only": llama2_first,
    "gemma": gemma,
    "unigram": lambda: _unigram(scheme="always", fallback=False),
    "unigram with bytes": lambda: _unigram(scheme="first", fallback=True),
    "unigram without blank": lambda: _unigram(scheme="never", fallback=True),
}


def write_folder(folder: Path, made: Tokenizer, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(made.to_str())
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "tokenizer_class": "X"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
