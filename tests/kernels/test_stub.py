"""The typed stub of the compiled core names exactly what the core has. Write it anew with
``python -m nanobind.stubgen -m swiftsure.kernels._core -o src/swiftsure/kernels/_core.pyi``."""

from __future__ import annotations

import ast
from pathlib import Path

from swiftsure import kernels
from swiftsure.kernels import _core

STUB = Path(kernels.__file__).with_name("_core.pyi")


def names_in_stub() -> set[str]:
    names = set()
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef)}
    return names


def names_in_core() -> set[str]:
    names = set()
    for name, value in vars(_core).items():
        if name.startswith("_"):
            continue
        names.add(name)
        if isinstance(value, type):
            # Constructors and what Python adds to every class are in the stub only where they can be called.
            members = {member for member in vars(value) if not member.startswith("_") or member in ("__init__", "__len__")}
            names |= {f"{name}.{member}" for member in members}
    return names


def test_the_stub_names_exactly_what_the_core_has() -> None:
    assert names_in_stub() == names_in_core()
