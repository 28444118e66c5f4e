"""The settings of a load, and how another process is told them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import swiftsure
from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import UsageError


def test_load_and_check_take_every_setting_as_a_keyword_with_the_same_default() -> None:
    for function in (swiftsure.load, swiftsure.check):
        taken = {name: one.default for name, one in inspect.signature(function).parameters.items()}
        for name in LoadOptions().keywords():
            assert taken[name] == getattr(LoadOptions(), name), f"{function.__name__}: {name}"


def test_keywords_survive_json_and_make_the_same_settings() -> None:
    options = LoadOptions(
        threads=2, context=64, kv_memory="1MB", isa="avx2", without=iter(["speculation"]), draft=Path("d.gguf"), cache=False
    )
    again = LoadOptions(**json.loads(json.dumps(options.keywords())))
    assert again.keywords() == options.keywords()
    assert (again.without, again.draft, again.context) == (("speculation",), "d.gguf", 64)


def test_a_lever_given_as_a_text_is_one_name() -> None:
    assert LoadOptions(without="speculation").without == ("speculation",)


def test_impossible_threads_are_refused_with_rule_and_value() -> None:
    with pytest.raises(UsageError, match="threads must be an integer from 1 to 256 or 'auto', got 0"):
        LoadOptions(threads=0)
