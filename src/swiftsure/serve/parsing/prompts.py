"""Tools for models whose chat template reads none: described in a system message, in words that small models were trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.serve.parsing.formats import HERMES, CallFormat
from swiftsure.serve.parsing.tools import Tool

_TASK = (
    "You are an expert in composing functions. You are given a question and a set of possible functions. Based on the question, you will "
    "need to make one or more function/tool calls to achieve the purpose. If none of the functions can be used, point it out and refuse to "
    "answer. If the given question lacks the parameters required by the function, also point it out."
)


def with_tools_described(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], calls: CallFormat | None = None
) -> list[dict[str, Any]]:
    """The messages with the tools, and how to call them, at the head of the system message. For templates that read no ``tools``."""
    calls = calls or HERMES
    example = calls.before + f'{{"name": "function", "{calls.key}": {{"argument": "value"}}}}' + calls.after
    functions = [tool.for_template()["function"] for tool in tools]
    text = (
        f"{_TASK}\n\nYou have access to the following tools:\n<tools>{json.dumps(functions, ensure_ascii=False)}</tools>\n\n"
        f"The output MUST strictly adhere to the following format, and NO other text MUST be included.\n{example}"
    )
    first = messages[0] if messages else {}
    if first.get("role") in ("system", "developer") and isinstance(first.get("content"), str):
        return [{**first, "content": f"{text}\n\n{first['content']}"}, *map(dict, messages[1:])]
    return [{"role": "system", "content": text}, *map(dict, messages)]


def with_calls_spelled(message: Mapping[str, Any], calls: CallFormat | None = None) -> dict[str, Any]:
    """An earlier call or its result as text, for a template that has no place for them. Arguments are objects already."""
    calls = calls or HERMES
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_joined(message['content'])}\n</tool_response>"}
    if "tool_calls" not in message:
        return dict(message)
    made = [{"name": call["function"]["name"], calls.key: call["function"]["arguments"]} for call in message["tool_calls"]]
    text = calls.before + calls.between.join(json.dumps(call, ensure_ascii=False) for call in made) + calls.after
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join(filter(None, (_joined(message.get("content", "")), text)))}


def _joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
