"""Sampling values: each rule is stated with the value that broke it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("temperature", math.nan, "temperature must be between 0 and 10, got nan"),
        ("temperature", -0.1, "temperature must be between 0 and 10, got -0.1"),
        ("temperature", 999999, "temperature must be between 0 and 10, got 999999"),
        ("temperature", math.inf, "got inf"),
        ("temperature", "hot", "temperature must be a number, got 'hot'"),
        ("temperature", True, "temperature must be a number, got True"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1, got 0"),
        ("top_p", -1, "top_p must be above 0"),
        ("top_p", math.nan, "got nan"),
        ("top_k", -3, "top_k must be at least 0, got -3"),
        ("top_k", 2.5, "top_k must be an integer, got 2.5"),
        ("min_p", 1.5, "min_p must be between 0 and 1, got 1.5"),
        ("max_tokens", 0, "max_tokens must be at least 1, got 0"),
        ("max_tokens", True, "max_tokens must be an integer"),
        ("seed", -1, "seed must be at least 0"),
        ("seed", 2**64, "seed must be at most"),
        ("repetition_penalty", 0.0, "repetition_penalty must be between 0.01 and 10, got 0"),
        ("repetition_penalty", 1e-40, "repetition_penalty must be between 0.01 and 10, got 1e-40"),
        ("presence_penalty", 3, "presence_penalty must be between -2 and 2, got 3"),
        ("frequency_penalty", -math.inf, "frequency_penalty must be between -2 and 2"),
        ("logprobs", 21, "logprobs must be at most 20, got 21"),
        ("logit_bias", {5: math.nan}, r"logit_bias\[5\] must be between -100 and 100, got nan"),
        ("logit_bias", {-5: 1.0}, "logit_bias token id must be at least 0, got -5"),
        ("logit_bias", [1], "logit_bias must map token ids to numbers"),
        ("stop", ["ok", ""], "stop must hold strings that are not empty, got ''"),
        ("stop", 5, "stop must be a string or a list of strings, got 5"),
        ("stop", "a\ud800", "stop must hold valid Unicode"),
        ("temperature", 10**400, "temperature must be between 0 and 10, got inf"),
        ("presence_penalty", -(10**400), "presence_penalty must be between -2 and 2, got -inf"),
        ("stop", ["x"] * 17, "stop must hold at most 16 strings, got 17"),
        ("ignore_eos", 1, "ignore_eos must be True or False, got 1"),
    ],
)
def test_value_that_breaks_a_rule_is_refused_with_rule_and_value(name, value, rule):
    with pytest.raises(UsageError, match=rule):
        SamplingParams.of({name: value})


def test_unknown_name_is_refused_and_the_known_ones_are_named():
    with pytest.raises(
        UsageError, match=r"unknown sampling parameter 'temprature'; did you mean temperature\? Known: max_tokens, .*logprobs"
    ):
        SamplingParams.of({"temprature": 1.0})


def test_bias_for_a_token_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="below the vocabulary size 10, got 10"):
        SamplingParams(logit_bias={10: 1.0}).check_vocabulary(10)


def test_numpy_numbers_are_numbers():
    params = SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3), logit_bias={np.int32(4): np.float64(1)})
    assert (params.temperature, params.top_k, params.logit_bias) == (0.5, 3, {4: 1.0})


def test_sampled_request_without_a_seed_gets_one_and_says_which():
    assert SamplingParams(temperature=1.0).resolved().seed is not None
    assert SamplingParams(temperature=1.0, seed=7).resolved().seed == 7
    assert SamplingParams().resolved().seed == 0


def test_values_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 1.0


def test_one_stop_string_is_a_list_of_one():
    assert SamplingParams(stop="END").stop == ("END",)
