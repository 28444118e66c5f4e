"""Report pages: one file that opens anywhere, without script, network or other files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from swiftsure.records.machine import MachineFacts


def render_page(package: str, template: str, values: Mapping[str, Any], filters: Mapping[str, Any]) -> str:
    """Renders ``package``'s template, which extends ``page.html.j2`` of this package. Everything is escaped but what is ``Markup``."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("swiftsure.records")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(values)


def machine_rows(machine: MachineFacts) -> list[tuple[str, str]]:
    """What a page says of the machine that it was measured on, name and value."""
    load = machine.load_average
    return [
        ("processor", str(machine.cpu_model)),
        ("system", f"{machine.system}, Python {machine.python}"),
        ("load before the run", "unknown" if load is None else " ".join(f"{x:.2f}" for x in load)),
    ]
