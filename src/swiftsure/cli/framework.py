"""What typer is asked to do differently: plain help in titled sections, and an interrupt that ends with exit code 1."""

from __future__ import annotations

import dataclasses
import errno
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from swiftsure.errors import UsageError


class Interrupted(Exception):  # noqa: N818 - an ending, not a mistake
    """Ctrl-C reached a command."""


class BrokenPipe(Exception):  # noqa: N818 - an ending, not a mistake
    """Whoever read standard output has gone."""


def option(*names: str, help: str, metavar: str | None = None, section: str = "Options", parser: Callable[[str], Any] | None = None) -> Any:
    """An option of the help section ``section``; its default is stated in ``help``."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=section, show_default=False, parser=parser)


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """The command for typer, with each parameter that is a dataclass of options taken apart: an option for every field, in their order."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind))
            continue
        groups[parameter.name] = cast("type", kind)
        own = get_type_hints(kind, include_extras=True)
        parameters += (parameter.replace(name=one.name, default=one.default, annotation=own[one.name]) for one in dataclasses.fields(kind))

    @functools.wraps(command)
    def run(**values: Any) -> int:
        for name, kind in groups.items():
            values[name] = kind(**{one.name: values.pop(one.name) for one in dataclasses.fields(kind)})
        return command(**values)

    taken_apart: Any = run
    taken_apart.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": hints["return"]}
    return run


class _Plain:
    """What commands and groups with options of their own share."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A value given twice is refused: the last one would win, and the first be lost without a word."""
        this: Any = self
        _, _, order = this.make_parser(ctx).parse_args(args=list(args))
        given: set[str] = set()
        parameters: list[Any] = order
        for parameter in parameters:
            once = parameter.param_type_name == "option" and not (parameter.multiple or parameter.count or parameter.is_flag)
            if once and parameter.name in given:
                raise UsageError(f"{max(parameter.opts, key=len)} is given more than once")
            given.add(parameter.name)
        parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # that of the class beside this one
        return parsed

    def write_sections(self, ctx: Any, formatter: Any) -> None:
        """Options by section, in the order in which they are declared."""
        this: Any = self
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters: list[Any] = this.get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                title, record = "Arguments", (parameter.metavar, parameter.help)
            else:
                title, record = getattr(parameter, "rich_help_panel", None) or "Options", parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(title, []).append(record)
        sections["Options"] = sections.pop("Options", [])  # --help comes last
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class PlainCommand(_Plain, TyperCommand):
    """A command whose help lists the options by section, in the order in which they are declared."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # typer would end the process itself
                raise BrokenPipe from error
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.write_sections(ctx, formatter)


class CommandGroup(TyperGroup):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


class PlainGroup(_Plain, CommandGroup):
    """A group that is a command too: its own options by section, then its commands."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.write_sections(ctx, formatter)
        self.format_commands(ctx, formatter)
