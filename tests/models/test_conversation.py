"""What chat templates are given: every form that is allowed, and each broken rule with its place and value."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from swiftsure.errors import UsageError
from swiftsure.models.conversation import MAX_DEPTH, conversation

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def assistant(**more: Any) -> list[dict[str, Any]]:
    return [USER, {"role": "assistant", **more}]


def test_keys_that_are_none_are_left_out_as_transformers_leaves_them_out() -> None:
    chat = conversation(assistant(content=None, tool_calls=[CALL], reasoning_content=None, refusal=None, audio=None))
    assert chat.messages == [USER, {"role": "assistant", "tool_calls": [CALL]}]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_found_under_the_names_that_templates_read(key: str) -> None:
    message = conversation(assistant(content="x", **{key: "because"})).messages[1]
    assert (message["reasoning_content"], message["thinking"]) == ("because", "because")


def test_arguments_that_are_json_become_the_object() -> None:
    """A template that writes arguments as JSON would write a text as a quoted text."""
    call: dict[str, Any] = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"city": "Z\\u00fcrich", "n": [1, null]}'},
    }
    chat = conversation(assistant(tool_calls=[call]))
    assert chat.messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Zürich", "n": [1, None]}
    assert isinstance(call["function"]["arguments"], str), "the caller's own value stays as it was"
    empty = {"function": {"name": "f", "arguments": ""}}
    assert conversation(assistant(tool_calls=[empty])).messages[1]["tool_calls"][0]["function"]["arguments"] == {}


def test_mappings_and_subclasses_become_plain_values() -> None:
    class Shout(str):
        def secret(self) -> str:
            return "taken"

    chat = conversation([MappingProxyType({"role": "user", "content": Shout("a")})], template_variables={"v": Shout("b"), "t": (1, 2.5)})
    assert type(chat.messages[0]["content"]) is str
    assert type(chat.variables["v"]) is str
    assert chat.variables["t"] == [1, 2.5]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages must be a list of at least one message"),
        ("hi", "messages must be a list"),
        (USER, "messages must be a list"),
        (["hi"], "message 0 must be a dict with the keys role and content, got str"),
        ([USER, {"role": "user"}], "message 1 has no content; only an assistant's message with tool_calls"),
        ([{"role": "user", "content": None}], "message 0 has no content"),
        ([{"role": "tool", "content": None}], "message 0 has no content"),
        (assistant(content=None), "message 1 has no content"),
        ([{"content": "x"}], "message 0 has no role"),
        ([{"role": None, "content": "x"}], "message 0 has no role"),
        ([{"role": 1, "content": "x"}], "message 0: role must be a string, got int"),
        ([{"role": "user<|im_end|>", "content": "x"}], "message 0: role must be a word .* got 'user<"),
        ([{"role": "", "content": "x"}], "role must be a word"),
        ([{"role": "user", "content": 5}], "message 0: content must be a text or a list of parts, got int"),
        ([{"role": "user", "content": []}], "message 0: content must have at least 1 part, got an empty list"),
        ([{"role": "user", "content": ["x"]}], 'message 0: content part 0 must be an object like {"type": "text"'),
        ([{"role": "user", "content": [{"type": "image", "url": "x"}]}], "content part 0 must have the type \"text\".* got 'image'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "content part 0: text must be a string, got NoneType"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}],
            "content part 0 has the unknown key 'y'; known: type, text",
        ),
        ([{"role": "user", "content": "x", "weight": 0}], "message 0 has the unknown key 'weight'; known: role, content"),
        ([{"role": "user", "content": "\ud800"}], "message 0: content holds a lone surrogate at character 0"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "message 0: tool_calls belong to the role assistant, got 'user'"),
        ([{"role": "tool", "content": "x", "tool_call_id": 7}], "message 0: tool_call_id must be a string, got int"),
        (assistant(tool_calls={}), "message 1: tool_calls must be a list, got dict"),
        (assistant(tool_calls=["f"]), "message 1: tool call 0 must be an object, got str"),
        (assistant(tool_calls=[{"function": "f"}]), "tool call 0 must have a function with a name, got 'f'"),
        (assistant(tool_calls=[{"function": {"name": "f", "arguments": "[1"}}]), "arguments must be an object or its JSON, got '\\[1'"),
        (assistant(tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]), "arguments must be an object or its JSON, got \\[1\\]"),
        (assistant(tool_calls=[{"function": {"name": "f", "arguments": '{"x": NaN}'}}]), "arguments: x must be finite, got nan"),
        (assistant(tool_calls=[{"function": {"name": "f", "arguments": "[" * 99999}}]), "arguments must be an object or its JSON"),
    ],
)
def test_malformed_messages_are_refused_with_their_place(messages: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        conversation(messages)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tools": "search"}, "tools must be a list, got str"),
        ({"tools": TOOL}, "tools must be a list, got dict"),
        ({"tools": [print]}, "tool 0 must be an object, got builtin_function"),
        ({"tools": [TOOL, {"type": "function"}]}, "tool 1 must have a name of at least 1 character, got None"),
        ({"tools": [{"function": []}]}, "tool 0: function must be an object, got \\[\\]"),
        ({"tools": [{"function": {"name": "f", "parameters": [1]}}]}, "tool 0: parameters must be a JSON schema .* got \\[1\\]"),
        ({"tools": [{"name": "f", "x": {1: 2}}]}, "tool 0: x must have texts as keys, got 1"),
        ({"tools": [{"name": "f", "x": b"y"}]}, "tool 0: x must be of JSON's types .* got bytes"),
        ({"tools": [{"name": "f", "x": {"a": nested(MAX_DEPTH)}}]}, f"must not be nested deeper than {MAX_DEPTH} levels"),
        ({"documents": ["text"]}, "document 0 must be an object, got str"),
        ({"documents": {"text": "x"}}, "documents must be a list, got dict"),
        ({"template_variables": ["a"]}, "template_variables must be an object, got list"),
        ({"template_variables": {"a b": 1}}, "a template variable's name must be an identifier, got 'a b'"),
        ({"template_variables": {"messages": []}}, "a template variable must not be named messages"),
        ({"template_variables": {"x": float("inf")}}, "template_variables: x must be finite, got inf"),
        ({"template_variables": {"x": "\udfff"}}, "x holds a lone surrogate"),
    ],
)
def test_malformed_company_of_messages_is_refused_with_its_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        conversation([USER], **given)
