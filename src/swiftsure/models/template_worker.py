"""Renders chat templates: a sandboxed jinja2 environment, and the loop of the child process that runs templates nobody has reviewed.

The module imports nothing of Swiftsure, so that the child starts in the time that jinja2 takes. Run as a program it reads one JSON object a
line and answers with one: ``{"source", "context", "now"}`` with ``{"text"}``, ``{"source"}`` with ``{"reads"}``, either with ``{"error"}``.
``cpu_s`` in a request is the processor time it may take.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

MAX_OUTPUT_CHARACTERS = 1 << 24
MEMORY_LIMIT_BYTES = 1 << 30  # address space of the child


class RenderError(Exception):
    """The template is malformed, refused the messages or wrote without end; the text is for the user."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What one request asks for. Raises RenderError."""
    if "context" in request:
        return {"text": render(request["source"], request["context"], request["now"])}
    return {"reads": reads(request["source"])}


def render(source: str, context: dict[str, Any], now: str) -> str:
    """The rendered text; ``now`` is what ``strftime_now`` formats (ISO 8601). Raises RenderError in the template's own words."""
    moment = datetime.fromisoformat(now)

    def strftime_now(pattern: str) -> str:
        return moment.strftime(pattern)

    with _in_words():
        pieces: list[str] = []
        size = 0
        for piece in _compiled(source).generate(**context, strftime_now=strftime_now):
            size += len(piece)
            if size > MAX_OUTPUT_CHARACTERS:
                raise RenderError(f"the output exceeds {MAX_OUTPUT_CHARACTERS} characters")
            pieces.append(piece)
        text = "".join(pieces)
        text.encode()  # a lone surrogate is no text
    return text


def reads(source: str) -> list[str]:
    """Names of the variables that the template reads from outside. Raises RenderError as :func:`render`."""
    with _in_words():
        import jinja2.meta

        names = jinja2.meta.find_undeclared_variables(_compiled(source).environment.parse(source))
    return sorted(names)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Whatever a template can raise as a RenderError."""
    import jinja2

    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise RenderError(str(error)) from None
    except MemoryError:
        raise RenderError("it ran out of memory") from None
    except RecursionError:
        raise RenderError("it nests or calls itself too deeply") from None
    except RenderError:
        raise
    except Exception as error:  # whatever an expression in a template can raise: a type error, a missing key
        if "int_max_str_digits" in str(error):
            raise RenderError("a number has more digits than can be read or written") from None
        raise RenderError(f"{type(error).__name__}: {error}") from None


@lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    """The environment that published chat templates are written for: block trimming, loop controls and the helpers of transformers."""
    import jinja2
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_tag()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["dict"] = _make_dict
    environment.globals["namespace"] = _namespace_type()
    return environment.from_string(source)


def _generation_tag() -> Any:
    """``{% generation %}`` marks what the model wrote, for training; rendering it is rendering its body."""
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser

    class GenerationTag(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012 - the attribute's shape is jinja2's

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    return GenerationTag


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """In place of the type, whose attributes are none of a template's business."""
    return dict(*args, **kwargs)


def _namespace_type() -> type:
    """Jinja's namespace without names that begin with an underscore, as transformers has it since attributes of the interpreter's own
    objects were reached through them."""
    import jinja2
    import jinja2.utils

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args: Any, **kwargs: Any) -> None:
            self, values = args[0], dict(*args[1:], **kwargs)
            for name in values:
                _check_name(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            super().__setitem__(name, value)

    def _check_name(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace takes no names that begin with an underscore, got {name!r}")

    return Namespace


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(read_line: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
    import jinja2.sandbox  # noqa: F401 - before "ready", so that the time limit of a request does not pay for it

    write(b"ready\n")
    while line := read_line():
        request = json.loads(line)
        # The system ends the process when its processor time is over, in the middle of any expression, and without a parent too.
        signal.setitimer(signal.ITIMER_PROF, request.pop("cpu_s"))
        try:
            reply = answer(request)
        except RenderError as error:
            reply = {"error": str(error)[:4000]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(json.dumps(reply).encode() + b"\n")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes our input
    sys.path[:] = json.loads(sys.stdin.buffer.readline())
    _limit_memory()
    out = sys.stdout.buffer

    def write(line: bytes) -> None:
        out.write(line)
        out.flush()

    _serve(sys.stdin.buffer.readline, write)


if __name__ == "__main__":
    main()
