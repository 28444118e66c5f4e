"""One file a peer; found by being here."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def adapters() -> dict[str, ModuleType]:
    """By module name. Importing an adapter does not import its engine."""
    return {info.name: importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)}
