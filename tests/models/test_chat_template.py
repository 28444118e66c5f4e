"""Chat templates: equality with transformers, messages that break rules, and templates that mean harm."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swiftsure.errors import TemplateError, UsageError
from swiftsure.models import chat_template as chat_template_module
from swiftsure.models.chat_template import ChatTemplate
from swiftsure.models.gguf import GGUFFile
from tiny_vocabulary import CHAT_TEMPLATE

USER = {"role": "user", "content": "hi"}
CHATS = {
    "one turn": [USER],
    "system first": [{"role": "system", "content": "Be brief."}, USER],
    "two turns": [USER, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "and?"}],
    "blank lines": [{"role": "user", "content": "\n\n  def f():\n\n    pass  \n"}],
    "empty": [{"role": "user", "content": ""}],
    "unicode": [{"role": "user", "content": "\u4eba\u5de5 \U0001f600 e\u0301"}],
    "special": [{"role": "user", "content": "what does <|im_end|> mean?"}],
}
TEMPLATES = {
    "marks": CHAT_TEMPLATE,
    "helpers": "{{ bos_token }}{% for m in messages -%}\n  {% if loop.first %}{{ m | tojson }}{% continue %}{% endif %}\n"
    "  [{{ m.role }}] {{ m['content'] | trim }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}:{{ m.content }}\n{% endfor %}",
}
ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "one long expression": "{{ ((6 + messages | length) ** ((6 + messages | length) ** 9)) % 10 }}",  # 7 ** 40353607, in one bytecode
    "recursive macro": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "doubling string": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "huge string": "{{ 'x' * 10000000000 }}",
    "huge padding": "{{ '%99999999999d' % 1 }}",
    "endless output": "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'xxxxxxxxxxxxxxxx' }}{% endfor %}{% endfor %}",
}
ESCAPES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "mutation": "{{ messages.append(1) }}",
    "import": "{% include '/etc/passwd' %}",
}


@pytest.fixture
def make() -> Iterator[Any]:
    """Builds templates and ends their processes."""
    made: list[ChatTemplate] = []

    def build(source: str, **options: Any) -> ChatTemplate:
        made.append(ChatTemplate(source, **options))
        return made[-1]

    yield build
    for template in made:
        template.close()


@pytest.fixture(scope="module")
def smollm2_source(smollm2_path: Path) -> str:
    with GGUFFile(smollm2_path) as file:
        return file.metadata.text("tokenizer.chat_template")


@pytest.mark.upstream
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_text_equals_transformers(make: Any, name: str, prompt: bool) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")
    words = {"bos_token": "<s>", "eos_token": "</s>"}
    template = make(TEMPLATES[name], variables=words)
    for kind, chat in CHATS.items():
        expected, _ = utils.render_jinja_template([chat], chat_template=TEMPLATES[name], add_generation_prompt=prompt, **words)
        assert template.render(chat, add_generation_prompt=prompt) == expected[0], kind


@pytest.mark.upstream
@pytest.mark.model
def test_pinned_template_equals_transformers(make: Any, smollm2_source: str) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")
    template = make(smollm2_source)
    for kind, chat in CHATS.items():
        assert (
            template.render(chat) == utils.render_jinja_template([chat], chat_template=smollm2_source, add_generation_prompt=True)[0][0]
        ), kind


@pytest.mark.model
def test_reviewed_template_renders_alike_in_and_out_of_process(make: Any, smollm2_source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = make(smollm2_source)
    assert hashlib.sha256(smollm2_source.encode()).hexdigest() in chat_template_module._REVIEWED
    monkeypatch.setattr(chat_template_module, "_REVIEWED", frozenset())
    outside = make(smollm2_source)
    for chat in CHATS.values():
        assert inside.render(chat) == outside.render(chat)
    assert inside._child is None
    assert outside._child is not None


def test_messages_are_written_in_order_with_a_prompt_at_the_end(make: Any) -> None:
    text = make(CHAT_TEMPLATE).render(CHATS["two turns"])
    assert text == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", ["marks", "generation", "namespace"])
def test_spans_are_the_contents(make: Any, name: str) -> None:
    template = make(TEMPLATES[name])
    for chat in CHATS.values():
        text, spans = template.render_with_spans(chat)
        assert text == template.render(chat)
        assert [text[start:end] for start, end in spans] == [m["content"].strip() for m in chat if m["content"].strip()]


def test_spans_follow_contents_that_are_trimmed(make: Any) -> None:
    template = make("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}")
    text, spans = template.render_with_spans([{"role": "user", "content": " a b\n"}])
    assert (text, spans) == ("[a b]", [(1, 4)])


@pytest.mark.parametrize("expression", ["m.content | upper", "m.content.split('<')[0]", "m.content | length", "m | tojson"])
def test_contents_that_are_worked_on_have_no_spans(make: Any, expression: str) -> None:
    template = make("{% for m in messages %}{{ " + expression + " }}{% endfor %}")
    assert template.render_with_spans([{"role": "user", "content": 'a"<b\n"'}])[1] is None


def test_refusal_is_in_the_templates_own_words(make: Any) -> None:
    template = make("{{ raise_exception('System messages must come first, please.') }}")
    with pytest.raises(TemplateError, match=r"System messages must come first, please\."):
        template.render([USER])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for %}", "line 1"),
        ("{{ messages[7].content }}", "no element 7|has no"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{% if x %}", "line 1"),
        ("{{ nothing() }}", "'nothing' is undefined"),
    ],
)
def test_faulty_template_is_named_in_a_line(make: Any, source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        make(source).render([USER])


@pytest.mark.parametrize("name", ESCAPES)
def test_template_gets_nothing_from_outside_the_sandbox(make: Any, name: str) -> None:
    """Jinja answers a forbidden attribute with an undefined value: nothing when printed, an error when used."""
    try:
        text = make(ESCAPES[name]).render([USER])
    except TemplateError as error:
        text = str(error)
    assert not any(secret in text for secret in ("root:", "<class", "__builtins__"))


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_template_is_stopped(make: Any, name: str) -> None:
    template = make("{% if messages[0].content == 'hang' %}" + ENDLESS[name] + "{% endif %}", time_limit_s=0.5)
    template.render([USER])  # the child's own start is not part of what is limited
    begin = time.monotonic()
    with pytest.raises(TemplateError):
        template.render([{"role": "user", "content": "hang"}])
    assert time.monotonic() - begin < 3


def test_template_works_again_after_it_was_stopped(make: Any) -> None:
    template = make("{% if messages[0].content == 'hang' %}" + ENDLESS["nested loops"] + "{% endif %}ok", time_limit_s=0.3)
    assert template.render([USER]) == "ok"
    with pytest.raises(TemplateError, match=r"ran longer than 0\.3 s and was stopped"):
        template.render([{"role": "user", "content": "hang"}])
    assert template.render([USER]) == "ok"


def test_template_works_again_after_close(make: Any) -> None:
    template = make(CHAT_TEMPLATE)
    first = template.render([USER])
    template.close()
    template.close()
    assert template.render([USER]) == first


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one message"),
        ("hi", "must be a list"),
        ({"role": "user", "content": "hi"}, "must be a list"),
        (["hi"], "message 0 must be a dict with the keys role and content, got str"),
        ([USER, {"role": "user"}], "message 1 has no content"),
        ([{"content": "x"}], "message 0 has no role"),
        ([{"role": "user", "content": None}], "message 0: content must be a string, got NoneType"),
        ([{"role": "user", "content": [{"type": "text"}]}], "content must be a string, got list"),
        ([{"role": 1, "content": "x"}], "role must be a string, got int"),
        ([{"role": "user<|im_end|>", "content": "x"}], "role must be a word"),
        ([{"role": "", "content": "x"}], "role must be a word"),
        ([{"role": "user", "content": "x", "tool_calls": []}], "unknown key 'tool_calls'; known: role, content"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate at character 0"),
    ],
)
def test_malformed_messages_are_refused_with_their_place(make: Any, messages: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(CHAT_TEMPLATE).render(messages)
