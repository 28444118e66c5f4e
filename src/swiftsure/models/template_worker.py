"""Renders chat templates: a sandboxed jinja2 environment, and the loop of the child process that runs templates nobody has reviewed.

The module imports nothing of Swiftsure, so that the child starts in the time that jinja2 takes. Run as a program it reads one JSON object a
line, ``{"source", "context"}``, and answers ``{"text"}`` or ``{"error"}``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

MAX_OUTPUT_CHARACTERS = 1 << 24
MEMORY_LIMIT_BYTES = 1 << 30  # address space of the child


class RenderError(Exception):
    """The template is malformed, refused the messages or wrote without end; the text is for the user."""


def render(source: str, context: dict[str, Any]) -> str:
    """The rendered text. Raises RenderError in the template's own words."""
    import jinja2

    try:
        pieces: list[str] = []
        size = 0
        for piece in _compiled(source).generate(**context):
            size += len(piece)
            if size > MAX_OUTPUT_CHARACTERS:
                raise RenderError(f"the output exceeds {MAX_OUTPUT_CHARACTERS} characters")
            pieces.append(piece)
        return "".join(pieces)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise RenderError(str(error)) from None
    except MemoryError:
        raise RenderError("it ran out of memory") from None
    except RenderError:
        raise
    except Exception as error:  # whatever an expression in a template can raise: a type error, a missing key, too deep a recursion
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
    environment.globals["strftime_now"] = _strftime_now
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


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(read_line: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
    import jinja2.sandbox  # noqa: F401 - before "ready", so that the time limit of a request does not pay for it

    write(b"ready\n")
    while line := read_line():
        request = json.loads(line)
        try:
            answer = {"text": render(request["source"], request["context"])}
        except RenderError as error:
            answer = {"error": str(error)[:4000]}
        write(json.dumps(answer).encode() + b"\n")


def main() -> None:
    import signal

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
