"""Calls written as Python: ``weather(city="Oslo")``, one or several, or a list of them. Read as a syntax tree, never executed."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence

from swiftsure.serve.parsing.json_text import Call

MAX_LENGTH = 64 * 1024


def calls_of_python(text: str, parameters: Mapping[str, Sequence[str]]) -> tuple[Call, ...] | None:
    """``parameters``: the names of each tool's arguments in order, for those given by place. None: it is something else."""
    if len(text) > MAX_LENGTH:
        return None
    try:
        tree = ast.parse(text.strip())
        calls = [_call(node, parameters) for statement in tree.body for node in _expressions(statement)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return tuple(calls) if calls else None


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    if not isinstance(statement, ast.Expr):
        raise ValueError("a statement")
    value = statement.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print" and len(value.args) == 1:
        value = value.args[0]  # Gemma prints what it calls
    return list(value.elts) if isinstance(value, ast.List) else [value]


def _call(node: ast.expr, parameters: Mapping[str, Sequence[str]]) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(node.func)
    if name not in parameters or len(node.args) > len(parameters[name]):
        raise ValueError("not a tool")
    given = dict(zip(parameters[name], map(ast.literal_eval, node.args), strict=False))
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise ValueError("an argument that has no name, or two values")
        given[keyword.arg] = ast.literal_eval(keyword.value)
    return Call(name, json.dumps(given, ensure_ascii=False, allow_nan=False))
