"""The grammar of a forced call or a response format admits what its parser reads, and nothing else."""

import pytest

from swiftsure.serve.parsing import CALL_FORMATS, CallEnd, OutputParser, grammar_for, parser_for

llguidance = pytest.importorskip("llguidance")

WEATHER = {
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
    },
}
TOOLS = [WEATHER, {"name": "clock"}]
ARGUMENTS = '{"city": "Oslo", "days": 2}'
FORMATS = sorted({format_.name for format_ in CALL_FORMATS.values()})


def admits(grammar, text, *, whole=True) -> bool:
    source = grammar.text if grammar.kind == "lark" else llguidance.LLMatcher.grammar_from_json_schema(grammar.text)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), source)
    assert not matcher.is_error(), matcher.get_error()
    taken = matcher.try_consume_tokens(list(text.encode()))
    return taken == len(text.encode()) and (matcher.is_accepting() or not whole)


def written(parser: OutputParser, *calls: tuple[str, str]) -> str:
    format_ = parser.calls
    assert format_ is not None
    bodies = [f'{{"name": "{name}", "{format_.key}": {arguments}}}' for name, arguments in calls]
    return format_.before + format_.between.join(bodies) + format_.after


def read(parser: OutputParser, text: str) -> list[CallEnd]:
    events = parser.feed(text) + parser.finish()
    return [event for event in events if isinstance(event, CallEnd)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_required_call_can_be_written_and_read_in_each_format(name):
    parser = parser_for(None, tools=TOOLS, tool_choice="required", calls=name)
    text = written(parser, ("weather", ARGUMENTS), ("clock", "{}"))
    grammar = grammar_for(parser)
    assert grammar is not None
    assert admits(grammar, text)
    assert not admits(grammar, "It is cold.", whole=False)
    assert not admits(grammar, written(parser, ("weather", '{"city": "Oslo"}')))
    assert not admits(grammar, written(parser, ("weather", ARGUMENTS.replace("2", "3"))))
    assert not admits(grammar, written(parser, ("launch", "{}")))
    assert read(parser, text) == [CallEnd(0, "weather", ARGUMENTS), CallEnd(1, "clock", "{}")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_tool_is_called_once_and_no_other_is(name):
    parser = parser_for(None, tools=TOOLS, tool_choice={"type": "tool", "name": "clock"}, calls=name)
    grammar = grammar_for(parser)
    assert grammar is not None
    assert admits(grammar, written(parser, ("clock", '{"zone": "CET"}')))
    assert not admits(grammar, written(parser, ("weather", ARGUMENTS)))
    assert not admits(grammar, written(parser, ("clock", "{}"), ("clock", "{}")))


def test_without_parallel_calls_there_is_one():
    parser = parser_for(None, tools=TOOLS, tool_choice="required")
    grammar = grammar_for(parser, parallel=False)
    assert grammar is not None
    assert not admits(grammar, written(parser, ("clock", "{}"), ("clock", "{}")))


@pytest.mark.parametrize("name", ["hermes", "smollm2", "gemma"])
def test_strict_tools_leave_the_choice_and_hold_a_call_to_its_schema(name):
    parser = parser_for(None, tools=TOOLS, tool_choice="auto", calls=name)
    grammar = grammar_for(parser)
    assert grammar is not None
    text = "Let me see.\n" + written(parser, ("weather", ARGUMENTS))
    assert admits(grammar, "It is < 3 degrees.")
    assert admits(grammar, text)
    assert not admits(grammar, text.replace("days", "nights"), whole=False)
    assert [call.arguments for call in read(parser, text)] == [ARGUMENTS]


@pytest.mark.parametrize("prompt", ["<think>\n", "assistant\n"])
def test_a_model_reasons_before_what_is_forced(prompt):
    thought = ("" if prompt.startswith("<think>") else "<think>\n") + "Hm, 1 < 2 </th\n</think>\n\n"
    parser = parser_for("</think>", tools=TOOLS, tool_choice="required", calls="hermes", prompt=prompt)
    grammar = grammar_for(parser)
    assert grammar is not None
    text = thought + written(parser, ("weather", ARGUMENTS))
    assert admits(grammar, text)
    assert read(parser, text) == [CallEnd(0, "weather", ARGUMENTS)]
    plain = parser_for("</think>", prompt=prompt)
    schema = grammar_for(plain, response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object", "required": ["a"]}}})
    assert schema is not None
    assert admits(schema, thought + '{"a": 1}')
    assert not admits(schema, thought + "{}")


def test_response_formats_of_both_apis_become_grammars():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    nested = grammar_for(response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}})
    flat = grammar_for(response_format={"type": "json_schema", "name": "a", "schema": schema})
    assert nested == flat
    assert nested is not None
    assert admits(nested, '{"a":1}')
    assert not admits(nested, '{"a":"1"}')
    for kind, word in (("regex", "regex"), ("grammar", "lark")):
        found = grammar_for(response_format={"type": kind, kind: 'start: "x"'})
        assert found is not None
        assert found.kind == word
