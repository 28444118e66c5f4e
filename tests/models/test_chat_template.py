"""Chat templates: equality with transformers, messages that break rules, and templates that mean harm."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from swiftsure.errors import TemplateError
from swiftsure.models import chat_template as chat_template_module
from swiftsure.models import template_process
from swiftsure.models.chat_template import ChatTemplate
from swiftsure.models.control_marks import ControlTokens
from swiftsure.models.conversation import conversation
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
CONCURRENT = 4
ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "one long expression": "{{ ((6 + messages | length) ** ((6 + messages | length) ** 9)) % 10 }}",  # 7 ** 40353607, in one bytecode
    "recursive macro": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "doubling string": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "huge string": "{{ 'x' * 10000000000 }}",
    "huge padding": "{{ '%99999999999d' % 1 }}",
    "repeated string": "{{ 'a' * 10**9 }}",
    "repeated list": "{{ ([0] * 10**9) | length }}",
    "joined product": "{{ (['a' * 10**6] * 10**6) | join }}",
    "formatted width": "{{ '{:>9999999999}'.format('x') }}",
    "centred": "{{ 'x' | center(10**10) }}",
    "indented": "{{ ('a\\n' * 10**6) | indent(10**6) }}",
    "replaced": "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
    "translated date": "{{ strftime_now('%d' * 10**8) }}",
    "big number": "{{ (9 ** (9 ** 8)) | string | length }}",
    "long filter chain": "{% for a in range(10**5) %}{% for b in range(10**5) %}{{ range(10**5) | sum }}{% endfor %}{% endfor %}",
    "pairs of macros": "{% macro f(n) %}{{ g(n + 1) }}{% endmacro %}{% macro g(n) %}{{ f(n + 1) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recursive loop": "{% for a in [[1]] recursive %}{{ loop([a]) }}{{ loop([a]) }}{% endfor %}",
    "deep list": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "deep json": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "endless output": "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'xxxxxxxxxxxxxxxx' }}{% endfor %}{% endfor %}",
}
ESCAPES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "mutation": "{{ messages.append(1) }}",
    "attribute filter": "{{ (messages | attr('__class__')) | attr('__mro__') }}",
    "attribute by mapping": "{{ [messages] | map(attribute='__class__') | list }}",
    "attribute by sorting": "{{ messages | map('attr', '__class__') | list }}",
    "format by name": "{{ '{x.__class__.__init__.__globals__}'.format(x=messages) }}",
    "format map": "{{ '{x.__class__}'.format_map({'x': messages}) }}",
    "format through a filter": "{{ ['{0.__class__}'] | map('format', messages) | list }}",
    "format kept": "{% set f = '{0.__class__.__mro__}'.format %}{{ f(messages) }}",
    "percent": "{{ '%(x)s' | format(x=raise_exception.__code__) }}",
    "function's code": "{{ strftime_now.__code__.co_consts }}{{ strftime_now.__closure__ }}",
    "macro's frame": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}{{ f.__call__.__globals__ }}",
    "context": "{{ self._TemplateReference__context.environment }}",
    "loader": "{{ self.__init__.__globals__['__builtins__'] }}",
    "namespace": "{% set ns = namespace() %}{{ ns.__init__.__globals__ }}{{ ns['_Namespace__attrs'] }}",
    "namespace by name": "{% set ns = namespace(__class__=1) %}{{ ns.__class__ }}",
    "dictionary": "{{ dict.__base__.__subclasses__() }}{{ dict.mro() }}",
    "generator": "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}{{ joiner.__init__.__globals__ }}{{ lipsum.__globals__ }}",
    "write to a message": "{% set x = messages[0].update({'content': 'x'}) %}{{ x }}",
    "import": "{% import '/etc/passwd' as x %}{{ x }}",
    "extends": "{% extends '/etc/passwd' %}",
    "include": "{% include '/etc/passwd' %}",
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
    inside, outside = make(smollm2_source), make(smollm2_source)
    assert hashlib.sha256(smollm2_source.encode()).hexdigest() in chat_template_module._REVIEWED
    texts = [inside.render(chat) for chat in CHATS.values()]
    assert inside._child is None
    monkeypatch.setattr(chat_template_module, "_REVIEWED", frozenset())
    assert [outside.render(chat) for chat in CHATS.values()] == texts
    assert outside._child is not None


def test_messages_are_written_in_order_with_a_prompt_at_the_end(make: Any) -> None:
    text = make(CHAT_TEMPLATE).render(CHATS["two turns"])
    assert text == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"
    )


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
    assert not any(
        secret in text for secret in ("root:", "<class", "<type", "<module", "<Environment", "__builtins__", "uid=", "<code", "<cell")
    )


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_template_is_stopped(make: Any, name: str) -> None:
    template = make("{% if messages[0].content == 'hang' %}" + ENDLESS[name] + "{% endif %}", time_limit_s=0.5)
    with contextlib.suppress(TemplateError):  # the child's own start is not part of what is limited; compiling folds constants, and may be
        template.render([USER])
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


def test_template_that_calls_itself_is_refused_in_a_sentence(make: Any) -> None:
    template = make("{% if messages[0].content == 'deep' %}{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}{% endif %}ok")
    for _ in range(2):
        with pytest.raises(TemplateError, match="nests or calls itself too deeply"):
            template.render([{"role": "user", "content": "deep"}])
        assert template.render([USER]) == "ok"


@pytest.mark.parametrize("source", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 3000, "{{ " + "-" * 20000 + "1 }}"])
def test_template_that_nests_too_deeply_to_be_read_is_refused(make: Any, source: str) -> None:
    with pytest.raises(TemplateError, match="the chat template refused or failed: "):
        make(source).render([USER])


def test_process_whose_parent_is_gone_ends_when_its_time_is_over() -> None:
    child = template_process.Child()
    assert child.ask({"source": "{{ 1 }}", "context": {}, "now": "2025-01-01"}, 5)["text"] == "1"
    child._send({"source": ENDLESS["nested loops"], "context": {}, "now": "2025-01-01", "cpu_s": 0.2})
    try:
        assert child._process.wait(60) == -signal.SIGPROF
    finally:
        child.stop()


def test_output_that_is_no_text_is_refused(make: Any) -> None:
    with pytest.raises(TemplateError, match="surrogates not allowed"):
        make("{{ '\\ud800' }}").render([USER])


def test_threads_that_render_at_once_get_their_own_texts_and_refusals(make: Any) -> None:
    """One of them is stopped again and again, which takes the others' process away but never their answers."""
    hang = "{% if messages[0].content == 'hang' %}" + ENDLESS["nested loops"] + "{% endif %}"
    template = make(hang + "{{ messages[0].content }}", time_limit_s=0.3)

    def render(name: str) -> list[str]:
        texts = []
        for turn in range(3 if name == "hang" else 20):
            try:
                texts.append(template.render([{"role": "user", "content": name if name == "hang" else f"{name} {turn}"}]))
            except TemplateError as error:
                texts.append(str(error))
        return texts

    names = ["hang", *(f"thread {i}" for i in range(CONCURRENT))]
    with ThreadPoolExecutor(len(names)) as pool:
        stopped, *rest = pool.map(render, names)
    assert all("ran longer than 0.3 s" in text for text in stopped)
    assert rest == [[f"{name} {turn}" for turn in range(20)] for name in names[1:]]


def test_interrupted_rendering_leaves_no_answer_for_the_next(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    template = make("{{ messages[0].content }}")
    template.render([USER])

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(template_process.Child, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            template.render([{"role": "user", "content": "first"}])
    assert template.render([{"role": "user", "content": "second"}]) == "second"


def test_time_is_the_same_in_all_renderings_of_one_prompt(make: Any) -> None:
    """A clock that went on between two of them would look like a template that rearranges its inputs."""
    template = make("{{ strftime_now('%H:%M:%S.%f') }} {{ messages[0].content }}")
    text, spans = template.render_guarded(conversation([{"role": "user", "content": "<s>"}]), ControlTokens(("<s>",)))
    assert [text[start:end] for start, end in spans] == ["<s>"]


def test_template_works_again_after_close(make: Any) -> None:
    template = make(CHAT_TEMPLATE)
    first = template.render([USER])
    template.close()
    template.close()
    assert template.render([USER]) == first
