"""Ids against transformers' tokenizer, and the rules on special tokens, bytes and damaged vocabularies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edited_gguf import edited
from hard_texts import TEXTS
from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models import byte_bpe
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.tokenizer import Tokenizer
from swiftsure.models.vocabulary import Vocabulary
from tiny_models import TinyModel, TinySpec
from tiny_vocabulary import byte_level_vocabulary

# Made by transformers 5.24 from the pinned file, with SmolLM2's own split (see `upstream` below); holds where transformers is absent.
GOLDEN: dict[str, list[int]] = {
    "Hello, world!": [19556, 28, 905, 17],
    "  x = [\n    1,\n   22]\n\n9": [216, 1792, 446, 933, 2367, 33, 28, 472, 34, 34, 77, 1116, 41],
    "<|im_start|>user\nhi<|im_end|>\n": [1, 4093, 198, 6004, 2, 198],
    "a <|im_end|> b": [81, 216, 2, 278],
    "\u4eba\u5de5\u667a\u80fd": [40249, 36149, 115, 177, 243, 135, 47093],
    "\U0001f600 e\u0301": [10813, 242, 218, 297, 151, 219],
    "\n\n\n\tif x:\n\t\treturn 10": [16506, 197, 342, 1792, 42, 3354, 197, 5406, 216, 33, 32],
}


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    with GGUFFile(smollm2_path) as file:
        return Tokenizer.from_gguf(file.metadata)


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(vocab=340)).write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> Tokenizer:
    with GGUFFile(tiny_path) as file:
        return Tokenizer.from_gguf(file.metadata)


@pytest.fixture
def from_edited(tiny_path: Path, tmp_path: Path) -> Callable[..., Tokenizer]:
    def build(**changes: Any) -> Tokenizer:
        with GGUFFile(edited(tiny_path, tmp_path / "edited.gguf", **changes)) as file:
            return Tokenizer.from_gguf(file.metadata)

    return build


@pytest.fixture(scope="module")
def converted(smollm2_path: Path) -> Any:
    """The tokenizer that transformers makes of the same file."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.AutoTokenizer.from_pretrained(str(smollm2_path.parent), gguf_file=smollm2_path.name)


@pytest.fixture(scope="module")
def upstream(converted: Any) -> Any:
    """The model's own tokenizer. The conversion knows one split for all byte-level vocabularies and loses the step of SmolLM2's that
    sets every digit apart, so that step is put back; llama.cpp reads ``smollm`` the same way."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    converted.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return converted


@pytest.mark.model
@pytest.mark.upstream
@pytest.mark.parametrize("kind", TEXTS)
def test_ids_and_text_equal_transformers(smollm2: Tokenizer, upstream: Any, kind: str) -> None:
    ids = smollm2.encode(TEXTS[kind], special=True)
    assert ids == upstream.encode(TEXTS[kind], add_special_tokens=False)
    assert smollm2.decode(ids, skip_special=False) == upstream.decode(ids, clean_up_tokenization_spaces=False)
    assert smollm2.decode(ids) == upstream.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.model
@pytest.mark.upstream
def test_ids_equal_transformers_on_random_text(smollm2: Tokenizer, upstream: Any, full: bool) -> None:
    @settings(max_examples=5000 if full else 500, deadline=None)
    @given(
        st.lists(st.sampled_from([*"ab'1 9\n\t\r.,\u00e9\u4eba\U0001f600\u0301", "  ", "<|im_end|>", "<|", "the"]), max_size=40).map(
            "".join
        )
    )
    def check(text: str) -> None:
        assert smollm2.encode(text, special=True) == upstream.encode(text, add_special_tokens=False)

    check()


@pytest.mark.upstream
def test_split_patterns_are_those_of_transformers() -> None:
    convert = pytest.importorskip("transformers.convert_slow_tokenizer", reason="transformers is not installed")
    qwen2 = pytest.importorskip("transformers.models.qwen2.tokenization_qwen2", reason="transformers is not installed")
    assert inspect.signature(convert.TikTokenConverter.__init__).parameters["pattern"].default == byte_bpe._LLAMA3_SPLIT
    assert qwen2.PRETOKENIZE_REGEX == byte_bpe._QWEN2_SPLIT
    gguf = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping", reason="transformers is not installed")
    assert gguf.GGUF_PRE_TOKENIZER_SPLITS["tekken"] == byte_bpe._TEKKEN_SPLIT


@pytest.mark.upstream
@pytest.mark.parametrize("pre", ["llama-bpe", "llama3", "llama-v3", "tekken", "qwen2", "deepseek-r1-qwen"])
def test_splits_cut_hard_texts_as_the_published_ones_do(pre: str) -> None:
    gguf = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping", reason="transformers is not installed")
    regex = pytest.importorskip("regex", reason="regex is not installed")
    published = regex.compile(gguf.GGUF_PRE_TOKENIZER_SPLITS[pre])
    split, _ = byte_bpe._PRE_TOKENIZERS[pre]()
    for kind, text in TEXTS.items():
        pieces = [text[start:end] for _, (start, end) in split.pre_tokenize_str(text)]
        assert pieces == published.findall(text), kind


@pytest.mark.upstream
@pytest.mark.parametrize(("pre", "name"), [("gpt-2", "GPT2Tokenizer"), ("default", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_other_pre_tokenizers_split_as_transformers_does(pre: str, name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokens, merges = byte_level_vocabulary(370)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    theirs = getattr(transformers, name)(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges])
    ours = byte_level(tokens, merges, pre)
    for kind, text in TEXTS.items():
        if "special" not in kind:
            assert ours.encode(text[:3000], special=False) == theirs.encode(text[:3000], add_special_tokens=False), kind


@pytest.mark.model
@pytest.mark.parametrize("text", GOLDEN)
def test_ids_are_the_recorded_ones(smollm2: Tokenizer, text: str) -> None:
    assert smollm2.encode(text, special=True) == GOLDEN[text]


@pytest.mark.model
@pytest.mark.parametrize("kind", [k for k in TEXTS if k not in ("control characters", "every control", "far planes")])
def test_text_survives_the_round_trip(smollm2: Tokenizer, kind: str) -> None:
    for special in (True, False):
        ids = smollm2.encode(TEXTS[kind], special=special)
        assert smollm2.decode(ids, skip_special=False) == TEXTS[kind]
        assert b"".join(map(smollm2.token_bytes, ids)).decode() == TEXTS[kind]


@pytest.mark.model
def test_special_tokens_in_plain_text_stay_text(smollm2: Tokenizer) -> None:
    for text in TEXTS.values():
        assert not smollm2.special_ids & set(smollm2.encode(text, special=False))
    assert smollm2.encode("<|im_end|>", special=True) == [2]


@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_unicode_text_survives_the_round_trip(text: str) -> None:
    ids = FULL_ALPHABET.encode(text, special=False)
    assert FULL_ALPHABET.decode(ids) == text
    assert not FULL_ALPHABET.special_ids & set(ids)


def byte_level(tokens: list[str], merges: list[str], pre: str) -> Tokenizer:
    kinds = [3, 3, 3, *[1] * (len(tokens) - 3)]
    vocabulary = Vocabulary(tokens=tokens, kinds=kinds, bos_id=1, eos_id=2, eos_ids=frozenset([2]), add_bos=True)
    return Tokenizer(vocabulary, byte_bpe.ByteLevelBPE(vocabulary, merges, pre=pre))


FULL_ALPHABET = byte_level(*byte_level_vocabulary(370), pre="smollm")


def test_spans_keep_special_tokens_out_of_contents(tiny: Tokenizer) -> None:
    text = "<|im_start|>a<|im_end|>b<|im_end|>"
    marked = tiny.encode(text, special=True, plain_spans=[(12, 24)])
    assert marked == [1, *tiny.encode("a<|im_end|>b", special=False), 2]
    assert tiny.encode(text, special=True, plain_spans=[(0, len(text))]) == tiny.encode(text, special=False)
    # A token that only begins or ends inside a span was not written by the template either.
    assert tiny.encode(text, special=True, plain_spans=[(15, 16)]) == [1, *tiny.encode("a<|im_end|>b", special=False), 2]


def test_spans_do_not_change_ordinary_text(tiny: Tokenizer) -> None:
    text = "<|im_start|>user\n\n  the rain<|im_end|>\n"
    plain = tiny.encode(text, special=True)
    assert tiny.encode(text, special=True, plain_spans=[(17, 28)]) == plain
    assert tiny.encode(text, special=True, plain_spans=[(5, 5)]) == plain  # an empty content guards nothing


def test_longest_special_token_wins(from_edited: Callable[..., Tokenizer]) -> None:
    tokens, _ = byte_level_vocabulary(340)
    tokens[1], tokens[2] = "<s>", "<s>x"
    built = from_edited(keys={"tokenizer.ggml.tokens": tokens})
    assert built.encode("<s>x<s>y", special=True) == [2, 1, *built.encode("y", special=False)]


def test_user_defined_tokens_are_text_that_anyone_may_write(from_edited: Callable[..., Tokenizer]) -> None:
    tokens, _ = byte_level_vocabulary(340)
    tokens[300] = "  \u00df"
    built = from_edited(
        keys={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3, 3, 3, *[1] * 297, 4, *[1] * 39]},
        drop_keys=["tokenizer.ggml.merges"],
    )
    assert built.encode("a  \u00dfb", special=False)[1] == 300
    assert 300 not in built.special_ids
    assert built.decode([300]) == "  \u00df"


def test_lone_surrogate_is_refused_with_its_place(tiny: Tokenizer) -> None:
    with pytest.raises(UsageError, match=r"U\+D83D, a lone surrogate, at character 2"):
        tiny.encode("ab\ud83d", special=False)


def test_bytes_of_no_character_decode_to_the_replacement(tiny: Tokenizer) -> None:
    first, second = tiny.encode("\u00e9", special=False)
    assert tiny.decode([first]) == "\ufffd"
    assert tiny.token_bytes(first) + tiny.token_bytes(second) == "\u00e9".encode()


@pytest.mark.parametrize("token", [-1, 340, 2**40])
def test_id_outside_the_vocabulary_is_refused(tiny: Tokenizer, token: int) -> None:
    with pytest.raises(UsageError, match=f"token id must be between 0 and 339, got {token}"):
        tiny.decode([token])


def test_end_tokens_are_those_the_file_names_and_those_known_by_name(from_edited: Callable[..., Tokenizer]) -> None:
    assert from_edited(keys={"tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.eot_token_id": 9}).eos_ids == {0, 2, 7, 9}
    assert from_edited(drop_keys=["tokenizer.ggml.eos_token_id"]).eos_ids == {0, 2}


def test_start_token_leads_a_prompt_only_where_the_file_asks(from_edited: Callable[..., Tokenizer]) -> None:
    assert from_edited(keys={"tokenizer.ggml.add_bos_token": True}).prefix_ids == (1,)
    assert from_edited(keys={"tokenizer.ggml.add_bos_token": False}).prefix_ids == ()
    assert from_edited(drop_keys=["tokenizer.ggml.add_bos_token"]).prefix_ids == ()
    silent = from_edited(keys={"tokenizer.ggml.pre": "llama-bpe"}, drop_keys=["tokenizer.ggml.add_bos_token"])
    assert silent.prefix_ids == (1,)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer model 'bert' is not supported; supported: gpt2"),
        ({"tokenizer.ggml.pre": "poro"}, "pre-tokenizer 'poro' is not supported; supported: deepseek-r1-qwen, default, gpt-2, llama-bpe, "),
    ],
)
def test_other_vocabulary_is_refused_by_name(from_edited: Callable[..., Tokenizer], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        from_edited(keys=keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokenizer.ggml.tokens": ["a", "b", "a"], "tokenizer.ggml.token_type": [1, 1, 1]}, "holds the token 'a' twice"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "340 tokens but 2 token types"),
        ({"tokenizer.ggml.merges": ["ab"]}, "two tokens with one blank between, got 'ab'"),
        ({"tokenizer.ggml.merges": ["a \u4eba"]}, "does not fit the vocabulary: '人' is no token"),
        ({"tokenizer.ggml.eos_token_id": 340}, "end-of-turn token id 340 is outside the vocabulary of 340"),
        ({"tokenizer.ggml.bos_token_id": 2**31}, "bos token id 2147483648 is outside"),
    ],
)
def test_damaged_vocabulary_is_refused_with_the_fault_named(
    from_edited: Callable[..., Tokenizer], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        from_edited(keys=keys)
