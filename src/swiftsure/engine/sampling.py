"""What a request asks of generation. Every value comes from the call; a checkpoint's ``generation_config`` never changes one silently."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from swiftsure.errors import UsageError

MAX_TEMPERATURE = 10.0
MIN_REPETITION_PENALTY = 0.01  # far below, logits overflow
MAX_REPETITION_PENALTY = 10.0
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 4096  # of one; every piece of text is compared with it
MAX_BIASED_TOKENS = 4096  # each costs the passes of others some microseconds before the first token


class SamplingFields(TypedDict, total=False):
    """The keyword arguments that ``LLM.generate`` and ``LLM.stream`` pass on to :class:`SamplingParams`."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: str | Iterable[str]
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    logprobs: int | None
    ignore_eos: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Validated sampling values.

    max_tokens: most tokens to generate, at least 1; generation also ends at the context's edge (finish reason ``length``).
    temperature: 0 takes the best token; above, the token is argmax(processed logits / temperature + Gumbel noise).
    top_p, top_k, min_p: keep the nucleus, the k best (0: all), those of at least min_p times the best probability.
    seed: with temperature above 0 and no seed, one is drawn and reported back with the generation.
    stop: strings that end the text, at most 16 of at most 4,096 characters; they are not part of it.
    repetition_penalty: divides (or multiplies, below zero) logits of tokens in prompt or output; 1 is none.
    presence_penalty, frequency_penalty: subtracted once, or once a count, for tokens in the output; 0 is none.
    logit_bias: token id -> number added to its logit, for at most 4,096 tokens.
    logprobs: None, or how many best alternatives to report beside each token (0: the token alone), of the raw logits.
    ignore_eos: go on past end-of-turn tokens (for measurements of a fixed length).
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "max_tokens", _integer("max_tokens", self.max_tokens, low=1))
        put(self, "temperature", _number("temperature", self.temperature, low=0.0, high=MAX_TEMPERATURE))
        put(self, "top_p", _number("top_p", self.top_p, low=0.0, high=1.0, above_low=True))
        put(self, "top_k", _integer("top_k", self.top_k, low=0))
        put(self, "min_p", _number("min_p", self.min_p, low=0.0, high=1.0))
        put(
            self,
            "repetition_penalty",
            _number("repetition_penalty", self.repetition_penalty, low=MIN_REPETITION_PENALTY, high=MAX_REPETITION_PENALTY),
        )
        put(self, "presence_penalty", _number("presence_penalty", self.presence_penalty, low=-2.0, high=2.0))
        put(self, "frequency_penalty", _number("frequency_penalty", self.frequency_penalty, low=-2.0, high=2.0))
        if self.seed is not None:
            put(self, "seed", _integer("seed", self.seed, low=0, high=2**64 - 1))
        if self.logprobs is not None:
            put(self, "logprobs", _integer("logprobs", self.logprobs, low=0, high=MAX_LOGPROBS))
        if not isinstance(self.ignore_eos, bool):
            raise UsageError(f"ignore_eos must be True or False, got {self.ignore_eos!r}")
        put(self, "stop", _stop_strings(self.stop))
        put(self, "logit_bias", _logit_bias(self.logit_bias))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From keyword arguments; an unknown name is refused and the known ones are named."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"unknown sampling parameter {name!r}{hint} Known: {', '.join(known)}")
        return cls(**values)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def resolved(self) -> SamplingParams:
        """The values as used: a sampled request without a seed gets one, so that the run can be repeated."""
        if self.seed is not None:
            return self
        return replace(self, seed=0 if self.greedy else secrets.randbits(63))

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises UsageError where a biased token does not exist."""
        for token in self.logit_bias:
            if not 0 <= token < vocab_size:
                raise UsageError(f"logit_bias: token ids must be at least 0 and below the vocabulary size {vocab_size}, got {token}")


def sampling_of(sampling: SamplingParams | None, fields: Mapping[str, Any]) -> SamplingParams:
    """From what a caller gives, ready or as separate values. Raises UsageError for both, and for anything else."""
    if sampling is None:
        return SamplingParams.of(fields)
    if fields:
        raise UsageError(f"sampling and separate values exclude each other, got sampling and {', '.join(fields)}")
    if not isinstance(sampling, SamplingParams):
        raise UsageError(f"sampling must be SamplingParams, got {type(sampling).__name__}")
    return sampling


def _integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    if isinstance(value, bool):
        raise UsageError(f"{name} must be an integer, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be an integer, got {value!r}") from None
    if number < low:
        raise UsageError(f"{name} must be at least {low}, got {number}")
    if high is not None and number > high:
        raise UsageError(f"{name} must be at most {high}, got {number}")
    return number


def _number(name: str, value: Any, *, low: float, high: float, above_low: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UsageError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every float
        number = math.inf if value == abs(value) else -math.inf
    if math.isnan(number) or number < low or number > high or (above_low and number == low):
        rule = f"above {low:g} and at most {high:g}" if above_low else f"between {low:g} and {high:g}"
        raise UsageError(f"{name} must be {rule}, got {number:g}")
    return number


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, Iterable):
        raise UsageError(f"stop must be a string or a list of strings, got {value!r}")
    strings = tuple(strings)
    if len(strings) > MAX_STOP_STRINGS:
        raise UsageError(f"stop must hold at most {MAX_STOP_STRINGS} strings, got {len(strings)}")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise UsageError(f"stop must hold strings that are not empty, got {string!r}")
        if len(string) > MAX_STOP_CHARACTERS:
            raise UsageError(f"stop must hold strings of at most {MAX_STOP_CHARACTERS} characters, got {len(string)}")
        if any("\ud800" <= character <= "\udfff" for character in string):
            raise UsageError(f"stop must hold valid Unicode, which never has a lone surrogate, got {string!r}")
    return strings


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise UsageError(f"logit_bias must map token ids to numbers, got {value!r}")
    if len(value) > MAX_BIASED_TOKENS:
        raise UsageError(f"logit_bias must hold at most {MAX_BIASED_TOKENS} tokens, got {len(value)}")
    return {
        _integer("logit_bias token id", token, low=0): _number(f"logit_bias[{token}]", bias, low=-100.0, high=100.0)
        for token, bias in value.items()
    }
