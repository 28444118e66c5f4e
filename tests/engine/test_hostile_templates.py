"""A template that means harm costs its own request an error; the engine and the next request go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import swiftsure
from edited_gguf import edited
from tiny_models import TinyModel, TinySpec

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
TEMPLATE = (
    "{% set said = messages[-1].content %}"
    "{% if said == 'loop' %}" + LOOP + "{% elif said == 'fill' %}{{ said * 10**10 }}"
    "{% elif said == 'nest' %}{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}{% endif %}"
    "<|im_start|>{{ said }}<|im_end|>"
)


def test_engine_goes_on_after_templates_that_loop_fill_memory_or_call_themselves(tmp_path: Path) -> None:
    path = edited(
        TinyModel(TinySpec(seed=3)).write_gguf(tmp_path / "tiny.gguf"),
        tmp_path / "hostile.gguf",
        keys={"tokenizer.chat_template": TEMPLATE},
    )
    with swiftsure.load(str(path), threads=1, context=256) as llm:
        before = llm.generate([{"role": "user", "content": "hi"}], max_tokens=4)
        with llm.stream("in the middle of another request", max_tokens=8) as stream:
            first = next(stream)
            for said, reason in (("loop", "ran longer than 2 s"), ("fill", "ran out of memory"), ("nest", "calls itself too deeply")):
                with pytest.raises(swiftsure.TemplateError, match=reason):
                    llm.generate([{"role": "user", "content": said}], max_tokens=4)
            text = first + "".join(stream)
        assert text == llm.generate("in the middle of another request", max_tokens=8).text
        assert llm.generate([{"role": "user", "content": "hi"}], max_tokens=4).token_ids == before.token_ids
