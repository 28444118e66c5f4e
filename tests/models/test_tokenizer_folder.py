"""Tokenizers from tokenizer.json: ids against the tokenizers library, start and end tokens, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from hard_texts import TEXTS
from hf_folders import whole_tiny_folder
from swiftsure.engine.text import TextAssembler
from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import Model, open_model
from swiftsure.models.tokenizer import Tokenizer
from tiny_models import TinyModel, TinySpec
from tokenizer_folders import KINDS, write_folder

# What a kind does to text before it merges, on purpose, so that decoding cannot give the text back.
COMPOSES = ("combining marks", "composed and not", "stacked marks")  # NFC
LOSES = {
    "qwen 2": COMPOSES,
    "llama 2": ("meta symbol",),  # reads as a blank
    "llama 2, blank at the start only": (
        "meta symbol",
        "blanks",
        "long blanks",
    ),  # a text's own first blank passes for it
    "gemma": ("meta symbol",),
    "unigram with bytes": ("meta symbol", "blanks", "long blanks", "nearly byte tokens"),  # the library reads a spelled byte as the byte
    "unigram without blank": ("meta symbol", "nearly byte tokens"),
}
NEVER_GIVES_BACK = ("unigram", "gpt-2 with a blank first")  # normalizes and has no bytes; decodes the blank that it put first


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def library(kind: str) -> Library:
    return KINDS[kind]()


@pytest.fixture(scope="module")
def ours(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_folder(tmp_path_factory.mktemp("folder"), library))


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    assembler = TextAssembler(tokenizer)
    return "".join(map(assembler.push, ids)) + assembler.finish()


class TestIds:
    @pytest.mark.parametrize("name", TEXTS)
    def test_ids_and_text_equal_the_library(self, kind: str, library: Library, ours: Tokenizer, name: str) -> None:
        text = TEXTS[name]
        ids = ours.encode(text, special=True)
        assert ids == library.encode(text, add_special_tokens=False).ids
        if kind not in NEVER_GIVES_BACK and name not in LOSES.get(kind, ()):
            assert ours.decode(ids, skip_special=False) == text
        plain = ours.encode(text, special=False)
        assert not ours.special_ids & {*plain} - {0}  # 0 is the unknown token
        assert streamed(ours, plain) == ours.decode(plain, continues=True)

    def test_ids_equal_the_library_on_random_text(self, library: Library, ours: Tokenizer, full: bool) -> None:
        parts = [
            *"ab'1 9\n\t\r.\u00e9\u4eba\U0001f600\u0301\u2581",
            "  ",
            "the",
            "<s>",
            "</s>",
            "<|im_end|>",
            "<tool_call>",
            "<0x0A>",
            "<unk>",
        ]
        texts = st.one_of(st.lists(st.sampled_from(parts), max_size=30).map("".join), st.text(st.characters(codec="utf-8"), max_size=30))

        @settings(max_examples=5000 if full else 200, deadline=None)
        @given(texts)
        def check(text: str) -> None:
            assert ours.encode(text, special=True) == library.encode(text, add_special_tokens=False).ids

        check()

    def test_added_tokens_that_are_not_special_are_found_in_plain_text(self, kind: str, ours: Tokenizer, library: Library) -> None:
        token = library.token_to_id("<tool_call>")
        if token is None:
            pytest.skip("this kind has none")
        assert token in ours.encode("a<tool_call>b", special=False)
        assert token not in ours.special_ids

    def test_text_that_continues_has_no_blank_put_before_it(self, kind: str, ours: Tokenizer) -> None:
        ids = ours.encode("the", special=False, continues=True)
        assert ours.decode(ids, continues=True) == "the"

    def test_special_tokens_in_spans_stay_text(self, ours: Tokenizer) -> None:
        text = "<s>the</s>"
        ids = ours.encode(text, special=True, plain_spans=[(3, len(text))])
        assert len(ours.special_ids & {*ids} - {0}) == 1


def test_tokens_found_in_normalized_text_equal_the_library(tmp_path: Path) -> None:
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    for normalizer in (normalizers.Lowercase(), normalizers.NFKC()):
        made = KINDS["llama 2, blank at the start only"]()
        made.normalizer = normalizer
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.add_tokens([AddedToken("Tool", normalized=True), AddedToken("\u2167", normalized=True)])
        ours = Tokenizer.from_folder(write_folder(tmp_path, made))
        for text in ("a TOOL b tool", "Tool", "xTooly", "\u2167 VIII", "<tool_call>tool <s>tool", "tooltool a"):
            assert ours.encode(text, special=True) == made.encode(text, add_special_tokens=False).ids


class TestEnds:
    def test_start_token_leads_a_prompt_where_the_template_or_the_configuration_says(self, tmp_path: Path) -> None:
        for kind, config, leads in [
            ("llama 3", {}, True),
            ("llama 3", {"add_bos_token": False}, False),
            ("qwen 2", {}, False),
            ("qwen 2", {"add_bos_token": True}, True),
            ("qwen 2", {"add_bos_token": True, "bos_token": None}, False),
        ]:
            made = KINDS[kind]()
            ours = Tokenizer.from_folder(write_folder(tmp_path, made, **config))
            assert ours.prefix_ids == ((made.token_to_id("<s>"),) if leads else ()), (kind, config)

    def test_all_files_may_name_end_tokens(self, tmp_path: Path) -> None:
        made = KINDS["llama 2"]()
        write_folder(tmp_path, made)
        assert Tokenizer.from_folder(tmp_path).eos_ids == {2, made.token_to_id("<|im_end|>")}
        (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
        (tmp_path / "config.json").write_text('{"eos_token_id": 11}')
        assert Tokenizer.from_folder(tmp_path).eos_ids == {2, 7, 9, 11, made.token_to_id("<|im_end|>")}

    def test_special_tokens_map_names_what_the_configuration_does_not(self, tmp_path: Path) -> None:
        write_folder(tmp_path, KINDS["llama 2"](), bos_token=None, eos_token=None)
        (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
        ours = Tokenizer.from_folder(tmp_path)
        assert (ours.bos_id, ours.eos_id) == (1, 2)

    def test_tokens_of_the_configuration_are_added(self, tmp_path: Path) -> None:
        made = KINDS["qwen 2"]()
        size = made.get_vocab_size()
        flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
        more = {str(size): {"content": "<|new|>", **flags}, str(made.token_to_id("<tool_call>")): {"content": "<tool_call>", **flags}}
        ours = Tokenizer.from_folder(write_folder(tmp_path, made, added_tokens_decoder=more))
        assert ours.encode("<|new|>", special=True) == [size]
        assert {size, made.token_to_id("<tool_call>")} <= ours.special_ids

    def test_an_embedding_may_have_more_rows_than_there_are_tokens(self, tmp_path: Path) -> None:
        made = KINDS["qwen 2"]()
        write_folder(tmp_path, made)
        ours = Tokenizer.from_folder(tmp_path, rows=1000)
        assert ours.vocab_size == 1000
        assert ours.decode([999]) == ""
        with pytest.raises(ModelFileError, match=f"token ids up to {made.get_vocab_size() - 1}, but the embedding 500 rows"):
            Tokenizer.from_folder(tmp_path, rows=500)


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(KINDS["llama 2"]().to_str())
    return values


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


class TestRefusals:
    @pytest.fixture
    def read(self, tmp_path: Path, sound: dict[str, Any]) -> Callable[[Any], Tokenizer]:
        def build(change: Callable[[dict[str, Any]], Any]) -> Tokenizer:
            values = json.loads(json.dumps(sound))
            change(values)
            (tmp_path / "tokenizer.json").write_text(json.dumps(values))
            return Tokenizer.from_folder(tmp_path)

        return build

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda v: v.update(extra=1), "key 'extra' is not known"),
            (lambda v: v["model"].update(type="WordPiece"), "model 'WordPiece' is not supported; supported: BPE, Unigram"),
            (lambda v: v["model"].update(dropout=0.1), "dropout 0.1 is not supported"),
            (lambda v: v["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix '</w>' is not supported"),
            (lambda v: v["model"].update(sparkle=True), "key 'sparkle' is not known"),
            (lambda v: v.update(normalizer={"type": "BertNormalizer"}), "normalizer 'BertNormalizer' is not supported"),
            (lambda v: v.update(normalizer={"type": "NFC", "form": 2}), "normalizer NFC: key 'form' is not known"),
            (lambda v: v.update(normalizer={"type": "Prepend", "prepend": "x"}), "prepend 'x' is not supported"),
            (lambda v: v.update(pre_tokenizer={"type": "BertPreTokenizer"}), "pre_tokenizer 'BertPreTokenizer' is not supported"),
            (lambda v: v.update(decoder={"type": "WordPiece"}), "decoder 'WordPiece' is not supported"),
            (lambda v: v.update(decoder=None), "decoder null is not supported"),
            (lambda v: v.update(post_processor={"type": "BertProcessing"}), "post_processor 'BertProcessing' is not supported"),
            (lambda v: v["added_tokens"][1].update(lstrip=True), "added token '<s>': lstrip True is not supported"),
            (
                lambda v: v["added_tokens"][1].update(normalized=True),
                "special token '<s>' that is normalized, to '\u2581<s>'",
            ),
            (
                lambda v: v.update(
                    post_processor={
                        "type": "TemplateProcessing",
                        "single": [{"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "<unk>"}}, {"Sequence": {"id": "A"}}],
                    }
                ),
                "a prompt that begins with <s> <unk> is not supported",
            ),
        ],
    )
    def test_what_is_not_understood_is_refused_by_name(self, read: Any, change: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedModelError, match=message) as refused:
            read(change)
        assert str(refused.value).startswith(str(tmp_path))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda v: v.pop("model"), "model is missing"),
            (lambda v: v.update(model=None), "model must not be null"),
            (lambda v: v.update(model=[]), "model must be an object with a type, got a list"),
            (lambda v: v["model"].update(vocab={}) or v.update(added_tokens=[]), "the vocabulary has no tokens"),
            (lambda v: v["model"].update(vocab=[["a", 0.0]]), "vocab must map tokens to ids"),
            (lambda v: v["model"]["vocab"].update({"new": -1}), "vocab must map tokens to ids"),
            (lambda v: v["model"]["vocab"].update({"new": True}), "vocab must map tokens to ids"),
            (lambda v: v["model"]["vocab"].update({"new": 5}), "of the vocabulary have the same id 5"),
            (lambda v: v["model"]["vocab"].update({"new": 10_000_000}), "the highest token id is 10000000"),
            (lambda v: v["model"].update(merges=["ab"]), "a merge must be two tokens"),
            (lambda v: v["model"].update(merges=[["a", "never"]]), "does not fit the vocabulary"),
            (lambda v: v["model"].update(merges=[["a", "b"], ["ab", "zzzzz"]]), "does not fit the vocabulary"),
            (lambda v: v.update(pre_tokenizer=split("(")), "the library refuses its steps: Oniguruma error"),
            (lambda v: v.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "////"}), "tokenizer.json: "),
            (lambda v: v["model"].update(merges=5), "merges must be a list, got a number"),
            (lambda v: v["added_tokens"].append({"id": 5, "content": "<new>"}), "of the vocabulary have the same id 5"),
            (lambda v: v["added_tokens"].append({"id": 9999, "content": "<s>"}), "added token '<s>' has id 9999, but 1"),
            (lambda v: v["added_tokens"].append({"id": 1, "content": "<x>"}), "'<s>' and '<x>' have the same id 1"),
            (lambda v: v["added_tokens"].append({"id": 9999, "content": ""}), "added token 9999 is empty"),
            (lambda v: v["added_tokens"].append("x"), "an added token must have an id and a content, got 'x'"),
            (lambda v: v.update(model={"type": "Unigram", "vocab": [["a"]]}), "pairs of a piece and a finite score"),
            (lambda v: v.update(model={"type": "Unigram", "vocab": [["a", 0], ["a", 0]]}, added_tokens=[]), "vocab holds 'a' twice"),
            (lambda v: v.update(model={"type": "Unigram", "vocab": [["a", 0]], "unk_id": 3}, added_tokens=[]), "unk_id must be an id"),
            (
                lambda v: v.update(model={"type": "Unigram", "vocab": [["a", 0]]}, added_tokens=[]),
                "unknown token or tokens for all",
            ),
        ],
    )
    def test_damage_is_refused_with_the_fault_named(self, read: Any, change: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match=message) as refused:
            read(change)
        assert str(refused.value).startswith(str(tmp_path))

    def test_a_split_that_never_ends_on_a_text_is_an_error_that_says_so(self, read: Any) -> None:
        tokenizer = read(lambda v: v.update(normalizer=None, pre_tokenizer=split("(a+)+$")))
        with pytest.raises(ModelFileError, match=r"its steps fail on this text: .*retry-limit"):
            tokenizer.encode("a" * 40 + "b", special=False)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"model": NaN}', '{"model": {}, "model": {}}', "[" * 100_000])
    def test_a_file_that_is_no_json_object_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ModelFileError, match=r"tokenizer\.json: "):
            Tokenizer.from_folder(tmp_path)

    def test_a_folder_without_tokenizer_json_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
            Tokenizer.from_folder(tmp_path)
        (tmp_path / "tokenizer.model").write_bytes(b"x")
        with pytest.raises(UnsupportedModelError, match=r"tokenizer\.model is not read without tokenizer\.json; save the tokenizer"):
            Tokenizer.from_folder(tmp_path)

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"bos_token": "<nowhere>"}, "the bos_token '<nowhere>' is no token"),
            ({"eos_token": 5}, "the eos_token 5 is no token"),
            ({"add_bos_token": "yes"}, "add_bos_token must be true or false, got 'yes'"),
            ({"added_tokens_decoder": {"x": {}}}, "must map ids to objects, but maps 'x' to an object"),
        ],
    )
    def test_damaged_configuration_is_refused(self, tmp_path: Path, config: dict[str, Any], message: str) -> None:
        with pytest.raises(ModelFileError, match=message):
            Tokenizer.from_folder(write_folder(tmp_path, KINDS["smollm"](), **config))

    @pytest.mark.parametrize("ids", [-1, 10**9, [2**40]])
    def test_end_ids_outside_the_vocabulary_are_refused(self, tmp_path: Path, ids: Any) -> None:
        write_folder(tmp_path, KINDS["smollm"]())
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
        with pytest.raises(ModelFileError, match=r"end-of-turn token id .* is outside the vocabulary"):
            Tokenizer.from_folder(tmp_path)

    def test_a_prefix_that_only_the_configuration_asks_for_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedModelError, match="add_prefix_space True disagrees"):
            Tokenizer.from_folder(write_folder(tmp_path, KINDS["smollm"](), add_prefix_space=True))


class TestModels:
    """The same tiny vocabulary in a GGUF file and in a folder."""

    @pytest.fixture
    def both(self, tmp_path: Path) -> Iterator[tuple[Model, Model]]:
        spec = TinySpec(vocab=340)
        folder = whole_tiny_folder(TinyModel(spec), tmp_path / "folder")
        with open_model(resolve(TinyModel(spec).write_gguf(tmp_path / "tiny.gguf"))) as file, open_model(resolve(folder)) as opened:
            yield file, opened

    def test_both_have_the_same_ids(self, both: tuple[Model, Model]) -> None:
        file, folder = both
        for text in TEXTS.values():
            for special in (True, False):
                assert file.tokenizer.encode(text, special=special) == folder.tokenizer.encode(text, special=special)

    def test_their_vocabularies_are_found_alike(self, both: tuple[Model, Model]) -> None:
        file, folder = both
        assert file.vocabulary_difference(folder) is None
        assert folder.vocabulary_difference(file) is None

    def test_a_token_with_another_meaning_is_found(self, both: tuple[Model, Model]) -> None:
        file, folder = both
        for path in folder.files.path.glob("tokenizer*.json"):
            path.write_text(path.read_text().replace('"<|im_end|>"', '"<|im_stop|>"'))
        assert file.vocabulary_difference(folder) == "token 2 is '<|im_end|>' in one and '<|im_stop|>' in the other"
