"""Tools and the choice among them, from a request's JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from swiftsure.engine.constraints.grammar import MAX_TEXT, Grammar
from swiftsure.errors import UsageError

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call. ``parameters``: the JSON schema of its arguments, of type object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False  # a call's arguments must conform to the schema, also where the model chose to call

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class NamedTool:
    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


def read_tools(tools: Sequence[Any] | None) -> tuple[Tool, ...]:
    """From OpenAI's form, nested (``{"type": "function", "function": {...}}``) or flat, or Anthropic's (``name``, ``input_schema``).

    Raises UsageError with the number of the tool and what is wrong with it.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise UsageError(f"tools must be a list, got {type(tools).__name__}")
    if len(tools) > MAX_TOOLS:
        raise UsageError(f"tools must be at most {MAX_TOOLS}, got {len(tools)}")
    read = [_read_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    names = [tool.name for tool in read]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise UsageError(f"tools must have different names, got {name!r} twice")
    size = sum(len(str(tool.parameters)) for tool in read)
    if size > MAX_TEXT:
        raise UsageError(f"the tools' schemas must have at most {MAX_TEXT} characters together, got {size}")
    return tuple(read)


def _read_tool(tool: Any, where: str) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if not isinstance(tool, Mapping):
        raise UsageError(f"{where} must be an object, got {type(tool).__name__}")
    kind = tool.get("type", "function")
    if kind not in ("function", "custom") or (kind == "custom" and "input_schema" not in tool):
        raise UsageError(f"{where}: only functions can be called here, got the type {kind!r}")
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise UsageError(f"{where}.function must be an object, got {type(function).__name__}")
    name, description = function.get("name"), function.get("description") or ""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a name has 1 to 128 letters, digits or any of _ . : -, got {name!r}")
    if not isinstance(description, str):
        raise UsageError(f"{where}: the description of {name} must be a string, got {type(description).__name__}")
    key = "input_schema" if "input_schema" in function else "parameters"
    parameters = function.get(key)
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, Mapping):
        raise UsageError(f"{where}: {key} of {name} must be a JSON schema, got {type(parameters).__name__}")
    try:
        Grammar.of_schema(dict(parameters))
    except UsageError as error:
        raise UsageError(f"{where}: {key} of {name}: {error}") from None
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise UsageError(f"{where}: strict must be true or false, got {strict!r}")
    return Tool(name=name, description=description, parameters=dict(parameters), strict=bool(strict))


def read_tool_choice(choice: Any, tools: Sequence[Tool]) -> ToolChoice:
    """From OpenAI's or Anthropic's form. None: ``auto`` with tools, ``none`` without. Raises UsageError."""
    if choice is None:
        return "auto" if tools else "none"
    kind, name = choice, None
    if isinstance(choice, NamedTool):
        kind, name = "tool", choice.name
    elif isinstance(choice, Mapping):
        kind = choice.get("type")
        name = choice["function"].get("name") if isinstance(choice.get("function"), Mapping) else choice.get("name")
    if kind in ("function", "tool"):
        if not any(tool.name == name for tool in tools):
            raise UsageError(f"tool_choice names {name!r}, the tools are {', '.join(tool.name for tool in tools) or 'none'}")
        return NamedTool(str(name))
    plain: dict[Any, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
    if not isinstance(kind, str) or kind not in plain:
        raise UsageError(f"tool_choice must be auto, none, required or one of the tools, got {choice!r}")
    if plain[kind] == "required" and not tools:
        raise UsageError(f"tool_choice {kind} needs tools, got none")
    return plain[kind]
