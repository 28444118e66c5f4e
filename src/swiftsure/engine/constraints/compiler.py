"""Grammars made to run on one model's vocabulary, with llguidance: which tokens may come next, in tens of microseconds.

A grammar comes from outside, and both compiling it and following it could take for ever. So everything that llguidance counts is limited:
the grammar's symbols, the work on its expressions when it is compiled and in each step, the states kept. What exceeds a limit is refused,
or ends its own request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from swiftsure.engine.constraints.grammar import JSON_STYLE, Grammar
from swiftsure.errors import GrammarLimitError, UsageError, quotable

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import LLParserLimits

MAX_GRAMMAR_SIZE = 100_000  # symbols in productions
COMPILE_FUEL = 500_000  # about 10 ms of work on expressions
STEP_FUEL = 100_000  # about 7 ms, for one token
STEP_ITEMS = 25_000  # of the parser, in one step
ROW_ITEMS = 2_000
MAX_STATES = 20_000  # of the lexer, 1 to 2 KB each
KEPT = 16  # compiled grammars: requests of one service repeat theirs


class GrammarTokenizer(Protocol):
    """What this file needs of a tokenizer."""

    vocab_size: int

    @property
    def special_ids(self) -> Collection[int]: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...

    def encode(self, text: str, *, special: bool, continues: bool) -> list[int]: ...


class GrammarCompiler:
    """Grammars of one loaded model. Safe to share between threads."""

    def __init__(self, tokenizer: GrammarTokenizer, *, vocab_size: int, end_ids: Collection[int]) -> None:
        """``vocab_size``: columns of the logits; those without a token are never chosen. Nothing is built before the first grammar."""
        self.vocab_size = vocab_size
        self._tokenizer = tokenizer
        self._end_ids = sorted(end_ids)
        self._words: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()  # of the compiled ones
        self._building = threading.Lock()  # of the vocabulary

    def check(self, grammar: Grammar) -> None:
        """Raises UsageError, with what is wrong, for a grammar that does not compile or exceeds a limit, and without llguidance."""
        self._start(grammar)

    def matcher(self, grammar: Grammar) -> LLMatcher:
        """A matcher at the grammar's beginning, the caller's own. Raises as :meth:`check`."""
        return self._start(grammar).deep_copy()

    def warm(self) -> None:
        """Builds what every grammar needs of the vocabulary, where llguidance is installed: a server's first grammar need not wait."""
        if _installed():
            self._vocabulary()

    def _start(self, grammar: Grammar) -> LLMatcher:
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return known
        known = self._compile(grammar)  # without the lock: one that takes long holds nobody who asks for another
        with self._lock:
            self._compiled[grammar] = known
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return known

    def _compile(self, grammar: Grammar) -> LLMatcher:
        check_grammar(grammar)  # says what is wrong in better words
        from llguidance import LLMatcher

        matcher = LLMatcher(self._vocabulary(), _source(grammar), log_level=0, limits=_limits())
        matcher.compute_bitmask()
        if matcher.is_error():
            raise UsageError(quotable(f"the {grammar.kind} cannot be compiled: {_in_words(matcher.get_error())}"))
        return matcher

    def _vocabulary(self) -> LLTokenizer:
        with self._building:
            if self._words is None:
                from llguidance import LLTokenizer
                from llguidance._tokenizer import TokenizerWrapper

                words = _Words(self._tokenizer, self._end_ids)
                self._words = LLTokenizer(TokenizerWrapper(words), n_vocab=self.vocab_size, eos_token=self._end_ids)
            return self._words


class _Words:
    """A tokenizer as llguidance takes it."""

    bos_token_id = None

    def __init__(self, tokenizer: GrammarTokenizer, end_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = end_ids[0]
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted({*tokenizer.special_ids, *end_ids})

    def __call__(self, text: str) -> list[int]:
        """Raises for bytes, which is how llguidance learns that it must pass text."""
        if not isinstance(text, str):
            raise TypeError("a tokenizer takes text")
        return self._tokenizer.encode(text, special=False, continues=True)


def check_grammar(grammar: Grammar) -> None:
    """What can be said without a vocabulary. Raises UsageError, with what is wrong, also where llguidance is not installed."""
    message = _fault(grammar)
    if message:
        raise UsageError(message)


@cache
def _installed() -> bool:
    try:
        import llguidance  # noqa: F401  # whether it is there at all
    except ImportError:
        return False
    return True


def _fault(grammar: Grammar) -> str:
    if not isinstance(grammar, Grammar):
        return f"grammar must be a Grammar, got {type(grammar).__name__}"
    if not _installed():
        return "a grammar needs the package llguidance, which is not installed; pip install 'swiftsure[grammar]'"
    from llguidance import LLMatcher

    found = LLMatcher.validate_grammar(_source(grammar), limits=_limits())
    return quotable(f"the {grammar.kind} cannot be used: {found}") if found and not found.startswith("WARNING") else ""


def _source(grammar: Grammar) -> str:
    """In llguidance's own form."""
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.text)
    schema = grammar.text if grammar.kind == "json_schema" else '{"type": "object"}'
    if schema.strip() == "true":
        schema = "{}"
    style: Any = JSON_STYLE
    try:
        return LLMatcher.grammar_from_json_schema(schema, defaults=style)
    except ValueError as error:  # false, which admits nothing, and options that it does not have
        raise UsageError(quotable(f"the {grammar.kind} cannot be used: {error}")) from None


def _in_words(error: str) -> str:
    """What llguidance says, where that is a name of its inside."""
    return "it refers to itself without reading anything" if error.startswith("NoExtensionBias") else error


@cache
def _limits() -> LLParserLimits:
    from llguidance._lib import LLParserLimits

    return LLParserLimits(
        max_grammar_size=MAX_GRAMMAR_SIZE,
        initial_lexer_fuel=COMPILE_FUEL,
        step_lexer_fuel=STEP_FUEL,
        step_max_items=STEP_ITEMS,
        max_items_in_row=ROW_ITEMS,
        max_lexer_states=MAX_STATES,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def require_sound(matcher: LLMatcher) -> None:
    """Raises GrammarLimitError where a grammar ran into a limit on the way."""
    if matcher.is_error():
        raise GrammarLimitError(quotable(f"the grammar took more than its limits allow: {matcher.get_error()}"))
