from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.subjects.parse import SubjectOptions, subject_from_spec


@pytest.mark.parametrize("spec", ["", "mode", "fast", "http://a/v1", "MODE:fast", "shell:ls"])
def test_an_unknown_kind_lists_the_kinds(spec: str) -> None:
    with pytest.raises(UsageError, match=r"must be of one of these kinds: mode:fast.*file:x\.gguf.*url:http.*cmd:python"):
        subject_from_spec(spec, SubjectOptions(model="m"))


@pytest.mark.parametrize("kind", ["mode", "file", "url", "cmd", "upstream"])
def test_a_kind_alone_says_what_follows_it(kind: str) -> None:
    with pytest.raises(UsageError, match=f"nothing follows {kind}:; write {kind}:"):
        subject_from_spec(f"{kind}: ")


def test_a_mode_needs_a_model() -> None:
    with pytest.raises(UsageError, match="mode:fast needs a model: name it with -m"):
        subject_from_spec("mode:fast")
    with pytest.raises(UsageError, match="turbo"):
        subject_from_spec("mode:turbo", SubjectOptions(model="m"))


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        subject_from_spec(f"file:{tmp_path / 'x.gguf'}")


def test_the_release_itself_needs_a_model() -> None:
    with pytest.raises(UsageError, match="upstream:transformers needs a model: name it with -m"):
        subject_from_spec("upstream:transformers")


def test_a_memory_limit_of_an_endpoint_is_refused() -> None:
    with pytest.raises(UsageError, match="its process is not ours"):
        subject_from_spec("url:http://a/v1", SubjectOptions(memory_limit_bytes=1 << 30))


def test_each_subject_keeps_what_the_user_wrote(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    for spec in ("mode:exact", f"file:{tmp_path}/x.gguf", "url:http://a:1/v1", "cmd:cp {input} {output}"):
        subject = subject_from_spec(spec, SubjectOptions(model="m"))
        assert subject.spec == spec
        subject.close()
