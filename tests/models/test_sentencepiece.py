"""SentencePiece BPE from GGUF: ids against the sentencepiece library, the way back, special tokens, damaged vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hard_texts import TEXTS
from sentencepiece_models import BYTE, BYTES, CONTROL, HEAD, NORMAL, UNUSED, USER_DEFINED, Pieces, string_array, trained
from swiftsure.engine.text import TextAssembler
from swiftsure.errors import ModelFileError
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.tokenizer import Tokenizer

BLANK = "\u2581"
FIRST = len(HEAD) + len(BYTES)  # id of the first piece of a vocabulary made by `pieces`


def pieces(*rows: tuple[str, int, float], space_prefix: bool = False, **more: Any) -> Pieces:
    head = [(piece, kind, 0.0) for piece, kind in [*HEAD, *BYTES]]
    return Pieces(rows=[*head, *rows], space_prefix=space_prefix, **more)


def normal(*spellings: str) -> list[tuple[str, int, float]]:
    """Pieces of descending score."""
    return [(spelling, NORMAL, -float(i)) for i, spelling in enumerate(spellings)]


SMALL = pieces(
    *normal("th", "he", "the", BLANK + "the", "in", "ain", "rain", BLANK + "r", *"abcdehinrtx", BLANK, "\n", "\u00e9", "\u4eba"),
    ("\n\n", USER_DEFINED, -1000.0),
    (BLANK * 2, USER_DEFINED, -1000.0),
    (BLANK * 3, USER_DEFINED, -1000.0),
    ("<turn>", CONTROL, -1000.0),
)


def built(made: Pieces, **changes: Any) -> Tokenizer:
    return Tokenizer.from_gguf(made.metadata(**changes))


def spelled(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[str]:
    return [tokenizer.token_text(token) for token in tokenizer.encode(text, special=special)]


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    assembler = TextAssembler(tokenizer)
    return "".join(map(assembler.push, ids)) + assembler.finish()


class TestMerging:
    def test_the_best_score_merges_first_wherever_it_stands(self) -> None:
        assert spelled(built(SMALL), "the rain") == ["the", BLANK, "rain"]

    def test_equal_scores_merge_from_the_left(self) -> None:
        tied = pieces(*((piece, NORMAL, -1.0) for piece in ("a", "aa", "aaa")))
        assert spelled(built(tied), "aaaaa") == ["aaa", "aa"]

    def test_unused_pieces_are_only_steps_to_longer_ones(self) -> None:
        made = built(pieces(("ab", UNUSED, -1.0), ("abc", NORMAL, -2.0), *normal("a", "b", "c")))
        assert spelled(made, "ab abc") == ["a", "b", "<0xE2>", "<0x96>", "<0x81>", "abc"]

    def test_user_defined_pieces_are_matched_first_and_never_merge(self) -> None:
        assert spelled(built(SMALL), "a\n\n\n   r") == ["a", "\n\n", "\n", "   ", "r"]

    def test_characters_without_a_piece_become_bytes(self) -> None:
        assert spelled(built(SMALL), "\u00e9\u20ac") == ["\u00e9", "<0xE2>", "<0x82>", "<0xAC>"]

    def test_text_that_spells_byte_control_or_unknown_tokens_stays_text(self) -> None:
        tokenizer = built(SMALL)
        for text in ("<0x0A>", "<s>", "<unk>", "<turn>"):
            ids = tokenizer.encode(text, special=False)
            assert len(ids) == len(text)
            assert tokenizer.decode(ids) == text

    def test_special_tokens_count_where_the_caller_says_so(self) -> None:
        assert spelled(built(SMALL), "<turn>a<s>", special=True) == ["<turn>", "a", "<s>"]

    def test_user_defined_pieces_are_matched_in_plain_spans_too(self) -> None:
        tokenizer = built(SMALL)
        text = "<turn>a\n\n<turn>b"
        guarded = tokenizer.encode(text, special=True, plain_spans=[(6, len(text))])
        assert guarded == [tokenizer.encode("<turn>", special=True)[0], *tokenizer.encode("a\n\n<turn>b", special=False)]
        assert "\n\n" in [tokenizer.token_text(i) for i in guarded]

    @pytest.mark.parametrize("text", ["a" * 100_000, "ab" * 50_000, "rain" * 25_000])
    def test_an_unbroken_word_takes_no_more_merges_than_characters(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        import swiftsure.models.sentencepiece as module

        popped = 0
        pop = module.heapq.heappop

        def counting(queue: list[Any]) -> Any:
            nonlocal popped
            popped += 1
            return pop(queue)

        tokenizer = built(pieces(*normal("a", "b", "ab", "aa", "aaaa", "ra", "in", "rain", "inra")))
        monkeypatch.setattr(module.heapq, "heappop", counting)
        ids = tokenizer.encode(text, special=False)
        assert tokenizer.decode(ids) == text
        assert popped <= 3 * len(text)


class TestBlanks:
    PREFIXED = pieces(*SMALL.rows[FIRST:], space_prefix=True)

    def test_a_blank_is_put_before_a_text_and_after_a_special_token(self) -> None:
        assert spelled(built(self.PREFIXED), "the<turn>the", special=True) == [BLANK + "the", "<turn>", BLANK + "the"]

    def test_none_is_put_before_text_that_continues(self) -> None:
        assert built(self.PREFIXED).encode("the", special=False, continues=True) == built(SMALL).encode("the", special=False)

    def test_an_empty_text_has_no_tokens(self) -> None:
        assert built(self.PREFIXED).encode("", special=False) == []

    @pytest.mark.parametrize("text", ["the", " the", "", " ", "a<turn>b", "<turn> <turn>", "<s>a"])
    def test_decoding_takes_it_off_again(self, text: str) -> None:
        tokenizer = built(self.PREFIXED)
        assert tokenizer.decode(tokenizer.encode(text, special=True), skip_special=False) == text

    def test_what_continues_keeps_its_blank_and_streams_the_same(self) -> None:
        tokenizer = built(self.PREFIXED)
        ids = tokenizer.encode("the rain", special=False)
        assert tokenizer.decode(ids, continues=True) == " the rain" == streamed(tokenizer, ids)

    def test_the_file_decides_and_silence_means_yes(self) -> None:
        assert built(SMALL).decode([FIRST + 3]) == " the"
        assert built(SMALL, add_space_prefix=None).decode([FIRST + 3]) == "the"


def test_start_token_leads_a_prompt_unless_the_file_says_no() -> None:
    assert built(SMALL).prefix_ids == (1,)
    assert built(SMALL, add_bos_token=False).prefix_ids == ()


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters=BLANK), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_unicode_text_survives_the_round_trip_and_streams_the_same(text: str) -> None:
    for tokenizer in (PLAIN, PREFIXED):
        ids = tokenizer.encode(text, special=False)
        assert tokenizer.decode(ids) == text
        assert streamed(tokenizer, ids) == tokenizer.decode(ids, continues=True)


PLAIN, PREFIXED = built(SMALL), built(TestBlanks.PREFIXED)


def test_the_character_that_stands_for_the_blank_is_read_as_one() -> None:
    assert PLAIN.decode(PLAIN.encode(f"a{BLANK}b", special=False)) == "a b"  # the one text that does not survive


def test_a_lone_byte_token_decodes_to_the_replacement() -> None:
    first, *rest = PLAIN.encode("\u20ac", special=False)
    assert PLAIN.decode([first]) == "\ufffd"
    assert b"".join(map(PLAIN.token_bytes, [first, *rest])).decode() == "\u20ac"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": string_array([])}, "the vocabulary has no tokens"),
        ({"tokens": string_array(["a", "b"])}, "2 tokens but 286 token types"),
        ({"token_type": None}, "'tokenizer.ggml.token_type' is missing"),
        ({"token_type": np.array([7] + [1] * 285, np.int32)}, "token types must be between 1 and 6, got 7 for token 0"),
        ({"token_type": np.array([1, 0] + [1] * 284, np.int32)}, "token types must be between 1 and 6, got 0 for token 1"),
        ({"token_type": np.array([1] * 286, np.int32)}, "<0x00> is missing and 255 more"),
        ({"token_type": np.array([6] * 286, np.int32)}, "a byte token must be spelled <0x00> to <0xFF>, got '<unk>' for token 0"),
        ({"scores": None}, "'tokenizer.ggml.scores' is missing"),
        ({"scores": np.zeros(285, np.float32)}, "286 tokens but 285 scores"),
        ({"scores": np.array([0.0, np.nan] + [0.0] * 284, np.float32)}, "scores must be finite, got nan for token 1"),
        ({"scores": np.array([-np.inf] + [0.0] * 285, np.float32)}, "scores must be finite, got -inf for token 0"),
        ({"scores": string_array(["0"] * 286)}, "'tokenizer.ggml.scores' must be an array"),
        ({"bos_token_id": 286}, "bos token id 286 is outside the vocabulary of 286"),
        ({"eos_token_id": 2**32 - 1}, "end-of-turn token id 4294967295 is outside"),
        ({"bos_token_id": -1}, "bos token id -1 is outside"),
    ],
)
def test_damaged_vocabulary_is_refused_with_the_fault_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        built(SMALL, **changes)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", NORMAL, 0.0), "holds the token 'a' twice"),
        (("", NORMAL, 0.0), "token 286 of the vocabulary is empty"),
        (("<0x100>", BYTE, 0.0), "a byte token must be spelled <0x00> to <0xFF>, got '<0x100>' for token 286"),
    ],
)
def test_damaged_pieces_are_refused_with_the_fault_named(row: tuple[str, int, float], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        built(Pieces(rows=[*SMALL.rows, row]))


# --- against the sentencepiece library


@st.composite
def vocabularies(draw: st.DrawFn) -> Pieces:
    """Short pieces over few letters, so that merges overlap and scores tie."""
    spellings = draw(st.lists(st.text(alphabet="ab" + BLANK, min_size=1, max_size=5), min_size=1, max_size=25, unique=True))
    kinds = st.sampled_from([NORMAL] * 8 + [USER_DEFINED, UNUSED])
    scores = st.integers(-4, 0).map(float)
    return pieces(*((spelling, draw(kinds), draw(scores)) for spelling in spellings), space_prefix=draw(st.booleans()))


@pytest.mark.upstream
def test_ids_equal_the_library_for_any_vocabulary(full: bool) -> None:
    @settings(max_examples=20_000 if full else 1500, deadline=None)
    @given(made=vocabularies(), text=st.text(alphabet="ab  " + BLANK + "c", max_size=30))
    def check(made: Pieces, text: str) -> None:
        assert built(made).encode(text, special=False) == made.reference().encode(text)

    check()


CORPUS = "\n".join(text[:2000] for text in TEXTS.values() if text.isprintable() or "\n" in text).replace("\0", "")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "prefixed"])
def corpus_pieces(request: pytest.FixtureRequest) -> Pieces:
    whole = ["\n", "\n\n", "\t", BLANK * 2, BLANK * 4, "<table>"]
    return trained(CORPUS, 700, model="llama", space_prefix=request.param, user_defined=whole)


@pytest.mark.upstream
@pytest.mark.parametrize("kind", TEXTS)
def test_ids_equal_the_library_on_hard_texts(corpus_pieces: Pieces, kind: str) -> None:
    ours, theirs = built(corpus_pieces), corpus_pieces.reference()
    ids = ours.encode(TEXTS[kind], special=False)
    assert ids == theirs.encode(TEXTS[kind])
    assert ours.decode(ids) == theirs.decode(ids) == TEXTS[kind].replace(BLANK, " ")
    assert streamed(ours, ids) == ours.decode(ids, continues=True)


# --- Gemma's vocabulary


@pytest.fixture(scope="module")
def gemma() -> Iterator[tuple[Tokenizer, Pieces]]:
    path = gemma_path()
    if path is None:
        pytest.skip("gemma-3-270m is not in the cache; `swiftsure models fetch gemma-3-270m` fetches it")
    with GGUFFile(path) as file:
        meta = file.metadata
        tokens = meta.strings("tokenizer.ggml.tokens").tolist()
        kinds = meta.integers("tokenizer.ggml.token_type").tolist()
        scores = meta.numbers("tokenizer.ggml.scores").tolist()
        rows = [(token.replace(" ", BLANK), kind, score) for token, kind, score in zip(tokens, kinds, scores, strict=True)]
        yield Tokenizer.from_gguf(meta), Pieces(rows=rows, unk_id=3, bos_id=2, eos_id=1)


def gemma_path() -> Path | None:
    from swiftsure.errors import ModelError
    from swiftsure.models.catalogue import resolve

    try:
        return resolve("gemma-3-270m", offline=True).path
    except ModelError:
        return None


@pytest.fixture(scope="module")
def gemma_reference(gemma: tuple[Tokenizer, Pieces]) -> Any:
    return gemma[1].reference()


@pytest.mark.model
@pytest.mark.upstream
@pytest.mark.parametrize("kind", TEXTS)
def test_gemma_ids_equal_the_library(gemma: tuple[Tokenizer, Pieces], gemma_reference: Any, kind: str) -> None:
    ours, text = gemma[0], TEXTS[kind]
    ids = ours.encode(text, special=False)
    assert ids == gemma_reference.encode(text)
    assert ours.decode(ids) == gemma_reference.decode(ids) == text.replace(BLANK, " ")
    assert streamed(ours, ids) == ours.decode(ids)
    with_special = ours.encode(text, special=True)
    assert ours.decode(with_special, skip_special=False) == text.replace(BLANK, " ")


@pytest.mark.model
@pytest.mark.upstream
def test_gemma_ids_equal_the_library_on_random_text(gemma: tuple[Tokenizer, Pieces], gemma_reference: Any, full: bool) -> None:
    parts = [*"ab'1 9\n\t\r.,\u00e9\u4eba\U0001f600\u0301\u200d", "  ", "\n\n", "<table>", "</", "<0x0A>", "the", "ing", " " * 33, "x" * 9]
    texts = st.one_of(st.lists(st.sampled_from(parts), max_size=40).map("".join), st.text(st.characters(codec="utf-8"), max_size=40))

    @settings(max_examples=20_000 if full else 1000, deadline=None)
    @given(texts)
    def check(text: str) -> None:
        ids = gemma[0].encode(text, special=False)
        assert ids == gemma_reference.encode(text)
        assert gemma[0].decode(ids) == text.replace(BLANK, " ")

    check()


# Made by sentencepiece 0.2.3 from the pinned file's pieces; holds where the library is absent.
GEMMA_GOLDEN: dict[str, list[int]] = {
    "Hello, world!": [9259, 236764, 1902, 236888],
    "  x = [\n    1,\n   22]\n\n9": [138, 236781, 578, 870, 107, 140, 236770, 236764, 107, 139, 236778, 236778, 236842, 108, 236819],
    "<start_of_turn>": [236820, 3041, 236779, 1340, 236779, 887, 236813],
    "\u4eba\u5de5\u667a\u80fd": [136119],
    "\U0001f600 e\u0301": [242398, 545, 238288],
    "\n\n\n\tif x:\n\t\treturn 10": [109, 255968, 584, 1123, 236787, 107, 255969, 2060, 236743, 236770, 236771],
    "\x00\x7f\u200b": [238, 251541, 237141],
    "<table><tr>\n<0x0A>": [168, 173, 107, 236820, 236771, 236781, 236771, 236776, 236813],
}


@pytest.mark.model
@pytest.mark.parametrize("text", GEMMA_GOLDEN)
def test_gemma_ids_are_the_recorded_ones(gemma: tuple[Tokenizer, Pieces], text: str) -> None:
    assert gemma[0].encode(text, special=False) == GEMMA_GOLDEN[text]


@pytest.mark.model
def test_gemma_chat_is_written_with_its_turn_tokens(gemma: tuple[Tokenizer, Pieces]) -> None:
    ids = gemma[0].encode("<bos><start_of_turn>user\nhi<end_of_turn>\n", special=True)
    assert ids == [2, 105, 2364, 107, 2202, 106, 107]
    assert gemma[0].prefix_ids == (2,)
    assert gemma[0].eos_ids == {1, 106}
    strikethrough = gemma[0].encode("</s>", special=False)
    assert len(strikethrough) == 1
    assert not gemma[0].eos_ids & {*strikethrough}  # a tag of HTML here, for all that it ends texts elsewhere
