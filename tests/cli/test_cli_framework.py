"""What commands of typer are asked to do differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from swiftsure.cli.framework import PlainCommand, grouped, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    red: Annotated[int, option("--red", section="Colours", help="How much.")] = 1
    names: Annotated[list[str] | None, option("--name", section="Colours", help="One more.")] = None


def paint(
    what: Annotated[str, typer.Argument()],
    *,
    first: Annotated[bool, option("--first", help="At once.")] = False,
    colours: Colours,
    last: Annotated[int, option("--last", help="At the end.")] = 0,
) -> int:
    """Paints it."""
    print(what, first, colours, last)
    return 0


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ((), "it False Colours(red=1, names=None) 0"),
        (("--red", "5", "--name", "a", "--name", "b", "--first"), "it True Colours(red=5, names=['a', 'b']) 0"),
    ],
)
def test_a_group_of_options_is_its_options(arguments: tuple[str, ...], printed: str) -> None:
    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=PlainCommand)(grouped(paint))
    found = CliRunner().invoke(app, ["it", *arguments])
    assert found.stdout.strip() == printed, found.output
    names = [parameter.name for parameter in typer.main.get_command(app).params]
    assert names[:5] == ["what", "first", "red", "names", "last"]
