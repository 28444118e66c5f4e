"""Models as ``serve`` is given them: names, modes of their own, and what each is loaded with."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.cli.served_models import Written, model_settings, read_model
from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import UsageError
from swiftsure.serve.parsing import Formats


@pytest.mark.parametrize(
    ("text", "name", "source", "mode"),
    [
        ("smollm2", "smollm2", "smollm2", None),
        ("small=smollm2", "small", "smollm2", None),
        ("small=smollm2@exact", "small", "smollm2", "exact"),
        ("smollm2@default", "smollm2@default", "smollm2", "default"),
        ("hf:org/name@main", "hf:org/name@main", "hf:org/name@main", None),
        ("m=hf:org/name@main", "m", "hf:org/name@main", None),
        ("m=hf:org/name@main@fast", "m", "hf:org/name@main", "fast"),
        ("m=hf:org/name@fast@exact", "m", "hf:org/name@fast", "exact"),
        ("m=hf:org/name/file.gguf@exact", "m", "hf:org/name/file.gguf", "exact"),
        ("m=no/such@2/file.gguf", "m", "no/such@2/file.gguf", None),
    ],
)
def test_a_model_is_read_with_its_name_and_mode(text: str, name: str, source: str, mode: str | None) -> None:
    assert read_model(text) == Written(name=name, source=source, mode=mode)


def test_a_path_that_exists_is_a_path_whatever_it_holds(tmp_path: Path) -> None:
    for file in ("a=b.gguf", "m@exact"):
        (tmp_path / file).touch()
    assert read_model(f"{tmp_path}/a=b.gguf") == Written(name="a=b", source=f"{tmp_path}/a=b.gguf", mode=None)
    assert read_model(f"n={tmp_path}/m@exact") == Written(name="n", source=f"{tmp_path}/m@exact", mode=None)
    assert read_model(f"{tmp_path}/a=b.gguf@fast") == Written(name="a=b@fast", source=f"{tmp_path}/a=b.gguf", mode="fast")
    assert read_model(f"n={tmp_path}/a=b.gguf@fast") == Written(name="n", source=f"{tmp_path}/a=b.gguf", mode="fast")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=x", "a model is given as MODEL or NAME=MODEL"),
        ("x=", "a model is given as MODEL or NAME=MODEL"),
        ("m=@exact", "a model is given as MODEL@MODE"),
        ("m=smollm2@exakt", "unknown mode 'exakt'; known modes: default, exact"),
        ("m=hf:org/name@exact", "exact may be a revision or a mode; write hf:org/name@REVISION@exact"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can_be_written(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_model(text)


def test_parsers_are_for_every_model_or_for_the_one_that_is_named() -> None:
    options = LoadOptions()
    big, small = model_settings(["big=m", "small=n"], "exact", options, calls=["hermes", "small=none"], reasoning=["big=qwen3"])
    assert (big.formats, small.formats) == (Formats(calls="hermes", reasoning="qwen3"), Formats(calls="none"))
    with pytest.raises(UsageError, match="--reasoning-parser other=qwen3: no model is served as 'other'; served: big, small"):
        model_settings(["big=m", "small=n"], "exact", options, reasoning=["other=qwen3"])
    with pytest.raises(UsageError, match=r"tool-call format must be auto, none, hermes, .*, got 'hermis'"):
        model_settings(["m"], "exact", options, calls=["hermis"])


def test_one_model_is_served_in_two_modes_and_each_gets_what_its_mode_has() -> None:
    options = LoadOptions(threads=1, without=["speculation"], draft="other")
    exact, plain, other = model_settings(["a=m@exact", "b=m@default", "c=n"], "fast", options)
    assert [(one.name, one.source, one.mode) for one in (exact, plain, other)] == [
        ("a", "m", "exact"),
        ("b", "m", "default"),
        ("c", "n", "fast"),
    ]
    assert [one.load["without"] for one in (exact, plain, other)] == [["speculation"], [], ["speculation"]]
    assert [one.load["draft"] for one in (exact, plain, other)] == ["other", None, "other"]


@pytest.mark.parametrize(
    ("texts", "mode", "without", "words"),
    [
        (["a=m@exact"], "fast", (), "--mode fast is for models that name no mode"),
        (["a=m@exact", "b=m@default"], None, ("int8_kv",), "no mode among exact, default has a lever 'int8_kv'"),
    ],
)
def test_an_option_that_no_model_has_a_use_for_is_refused(texts: list[str], mode: str | None, without: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        model_settings(texts, mode, LoadOptions(without=without))


def test_a_mode_of_its_own_may_not_disagree_with_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_MODE", "default")
    with pytest.raises(UsageError, match="disagree; name one mode"):
        model_settings(["a=m@exact"], None, LoadOptions())
