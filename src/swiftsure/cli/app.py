"""The command tree, and how every ending of a command becomes a line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer
import typer.main

from swiftsure.cli import bench, check, gate, models, profile, prove, quantize, run, serve, verify
from swiftsure.cli.framework import BrokenPipe, CommandGroup, Interrupted, PlainCommand
from swiftsure.errors import NotActiveError, SwiftsureError

ClickException: type[Exception] = typer.BadParameter.__mro__[2]  # typer's own copy of click or click itself, as the version has it

_TYPER_INTERRUPTED = 130  # typer's own answer to a Ctrl-C outside a command; no command here ends with it


def print_version(wanted: bool) -> None:
    if wanted:
        from swiftsure import __version__

        print(f"swiftsure {__version__}")
        raise typer.Exit


app = typer.Typer(name="swiftsure", cls=CommandGroup, add_completion=False, rich_markup_mode=None)


@app.callback()
def swiftsure(
    version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Run an open-weight language model faster and prove that it is still the same model.

    Exit codes: 0 done and proved, 1 failed or a promise broken, 2 usage, 3 a mode is not active or a result is unproved.
    """


app.command("run", cls=PlainCommand)(run.run)
app.command("serve", cls=PlainCommand)(serve.serve)
app.command("prove", cls=PlainCommand)(prove.prove)
app.add_typer(verify.app, name="verify")
app.command("gate", cls=PlainCommand)(gate.gate)
app.add_typer(bench.bench_app, name="bench")
app.command("profile", cls=PlainCommand)(profile.profile)
app.command("check", cls=PlainCommand)(check.check)
app.command("quantize", cls=PlainCommand)(quantize.quantize)
app.add_typer(models.app, name="models")


def run_command(argv: list[str]) -> int:
    """Runs the command line ``argv`` (without the program's name) and returns the exit code."""
    if not argv:
        run_command(["--help"])
        return 2
    try:
        code = typer.main.get_command(app).main(args=argv, prog_name="swiftsure", standalone_mode=False)
        if code == _TYPER_INTERRUPTED:
            raise Interrupted
        sys.stdout.flush()
    except NotActiveError as error:
        print(f"error: not active: {error}", file=sys.stderr)
        return error.exit_code
    except SwiftsureError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (Interrupted, KeyboardInterrupt, typer.Abort):
        print("error: interrupted", file=sys.stderr)
        return 1
    except (BrokenPipe, BrokenPipeError):
        _forget_stdout()
        return 1
    except ClickException as error:
        return _usage_error(error)
    except OSError as error:  # a record or report that cannot be written, a disk that is full
        print(f"error: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


def _usage_error(error: Exception) -> int:
    message = str(getattr(error, "format_message", error.__str__)())
    context = getattr(error, "ctx", None)
    print(f"error: {message}", file=sys.stderr)
    if context is not None:
        print(f"Try '{context.command_path} --help'.", file=sys.stderr)
    return 2


def _forget_stdout() -> None:
    """The reader has gone (``swiftsure ... | head``): nothing may be written at interpreter exit either."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
