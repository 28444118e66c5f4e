"""Generated text into text, reasoning and tool calls."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.errors import UsageError
from swiftsure.serve.parsing import (
    CALL_FORMATS,
    CallArguments,
    CallEnd,
    CallStart,
    Event,
    OutputParser,
    Reasoning,
    Text,
    call_format_of,
    grammar_for,
    parser_for,
    reasoning_format_of,
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]

# One call of the weather in Oslo, as each family of models writes it.
CALLS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "qwen": '<tool_call>{"arguments": {"city": "Oslo"}, "name": "weather"}</tool_call>',
    "smollm2": '<tool_call>[{"name": "weather", "arguments": {"city": "Oslo"}}]</tool_call>',
    "llama3_json": '{"name": "weather", "parameters": {"city": "Oslo"}}',
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}]',
    "gemma": '```tool_code\nweather(city="Oslo")\n```',
}


def parser(calls="hermes", *, choice=None, reasoning="none", prompt=None, tools=TOOLS) -> OutputParser:
    return parser_for(None, tools=tools, tool_choice=choice, calls=calls, reasoning=reasoning, prompt=prompt)


def events_of(parser: OutputParser, *pieces: str) -> list[Event]:
    """All events, with what came in pieces put together."""
    events: list[Event] = []
    for event in [event for piece in pieces for event in parser.feed(piece)] + parser.finish():
        last = events[-1] if events else None
        if type(event) is type(last) and isinstance(event, (Text, Reasoning)):
            events[-1] = type(event)(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments) and last.index == event.index:
            events[-1] = CallArguments(event.index, last.text + event.text)
        else:
            events.append(event)
    return events


def call(arguments: str, *, name="weather", index=0, complete=True) -> list[Event]:
    return [CallStart(index, name), CallArguments(index, arguments), CallEnd(index, name, arguments, complete)]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_each_format_is_read(name):
    found = events_of(parser(name), CALLS[name])
    assert [json.loads(event.arguments) for event in found if isinstance(event, CallEnd)] == [{"city": "Oslo"}]
    assert not [event for event in found if isinstance(event, Text)]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_tool_that_was_not_offered_is_text(name):
    text = CALLS[name].replace("weather", "launch")
    assert events_of(parser(name), text) == [Text(text)]


@pytest.mark.parametrize("name", CALLS)
def test_without_tools_or_with_choice_none_everything_is_text(name):
    assert events_of(parser(name, tools=None), CALLS[name]) == [Text(CALLS[name])]
    assert events_of(parser(name, choice="none"), CALLS[name]) == [Text(CALLS[name])]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"city": NaN}}</tool_call>',
        "<tool_call>the weather in Oslo</tool_call>",
        '<tool_call>{"name": "weather"} and more</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"city": "Os',
        "<tool_call>" * 3,
        "<tool_call",
        "a < b",
    ],
)
def test_what_only_looks_like_a_call_stays_text(text):
    assert events_of(parser(), text) == [Text(text)]


def test_a_sound_call_behind_a_malformed_one_is_found():
    assert events_of(parser(), "<tool_call>{oh</tool_call>" + CALLS["hermes"]) == [
        Text("<tool_call>{oh</tool_call>"),
        *call('{"city": "Oslo"}'),
    ]


def test_a_closing_tag_inside_a_string_does_not_close_the_call():
    arguments = '{"city": "</tool_call>\\" {"}'
    assert events_of(parser(), f'<tool_call>{{"name": "weather", "arguments": {arguments}}}</tool_call>') == call(arguments)


def test_the_closing_tag_may_be_missing_at_the_end_of_the_output():
    assert events_of(parser(), CALLS["hermes"].removesuffix("</tool_call>")) == call('{"city": "Oslo"}')


def test_several_calls_are_numbered_and_blanks_around_them_are_left_out():
    text = f"Let me look. \n{CALLS['hermes']}\n{CALLS['smollm2']}\n Done."
    assert events_of(parser(), text) == [Text("Let me look."), *call('{"city": "Oslo"}'), *call('{"city": "Oslo"}', index=1), Text("Done.")]


def test_llama_separates_calls_by_a_semicolon():
    text = '{"name": "clock", "parameters": {}}; {"name": "weather", "parameters": {"city": "Oslo"}}'
    assert events_of(parser("llama3_json"), text) == [*call("{}", name="clock"), *call('{"city": "Oslo"}', index=1)]


def test_an_answer_in_json_is_no_call_and_does_not_wait_for_its_end():
    p = parser("llama3_json")
    assert p.feed('{"city": "Oslo", ') == [Text('{"city": "Oslo",')]


def test_mistral_writes_the_name_before_its_arguments_too():
    text = '[TOOL_CALLS]clock[ARGS]{}[TOOL_CALLS]weather{"city": "Oslo"}'
    assert events_of(parser("mistral"), text) == [*call("{}", name="clock"), *call('{"city": "Oslo"}', index=1)]


def test_gemma_calls_in_python_by_place_and_in_a_list():
    text = "```tool_code\n[weather('Oslo', days=-2), clock()]\n```"
    assert events_of(parser("gemma"), text) == [*call('{"city": "Oslo", "days": -2}'), *call("{}", name="clock", index=1)]


@pytest.mark.parametrize("code", ["weather(open('x'))", "x = weather()", "weather(*a)", "import os", "print(1)", "weather(1, 2, 3)"])
def test_python_that_is_no_plain_call_is_text(code):
    text = f"```tool_code\n{code}\n```"
    assert events_of(parser("gemma"), text) == [Text(text)]


def test_forced_calls_stream_their_arguments():
    p = parser(choice="required")
    assert p.feed('<tool_call>\n{"name": "weather", "arguments": {"ci') == [CallStart(0, "weather"), CallArguments(0, '{"ci')]
    assert p.feed('ty": "Oslo"}') == [CallArguments(0, 'ty": "Oslo"}')]
    assert p.feed("}\n</tool_call>") == [CallEnd(0, "weather", '{"city": "Oslo"}')]


def test_a_forced_call_that_breaks_off_says_so():
    head = '<tool_call>\n{"name": "weather", "arguments": '
    assert events_of(parser(choice="required"), head + '{"city": "Os') == call('{"city": "Os', complete=False)
    assert events_of(parser(choice="required"), head + '{"city": "Oslo"}}\n</tool') == call('{"city": "Oslo"}')


def test_reasoning_is_told_from_text():
    text = "<think>\nHmm.\n\n</think>\n\nOslo is cold."
    assert events_of(parser(reasoning="qwen3"), text) == [Reasoning("Hmm."), Text("Oslo is cold.")]
    assert events_of(parser(reasoning="deepseek_r1"), text.removeprefix("<think>")) == [Reasoning("Hmm."), Text("Oslo is cold.")]


def test_the_prompt_says_whether_an_output_begins_in_reasoning():
    assert events_of(parser(reasoning="qwen3", prompt="<|im_start|>assistant\n<think>\n"), "Hmm.</think>Oslo") == [
        Reasoning("Hmm."),
        Text("Oslo"),
    ]
    assert events_of(parser(reasoning="deepseek_r1", prompt="<think>\n\n</think>\n\n"), "Oslo") == [Text("Oslo")]


def test_reasoning_holds_no_calls_and_a_quoted_tag_is_text():
    assert events_of(parser(reasoning="qwen3"), f"<think>{CALLS['hermes']}</think>") == [Reasoning(CALLS["hermes"])]
    assert events_of(parser(reasoning="qwen3"), "Write <think> first.") == [Text("Write <think> first.")]


FRAGMENTS = st.sampled_from(
    [
        *CALLS.values(),
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "```",
        "```json\n",
        "\n",
        " ",
        "Oslo",
        "<",
        "{",
        "}",
        "[",
        '"',
        "\\",
        ";",
        '{"name": "clock"}',
        '{"name": "weather", "arguments": {"city": "',
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=8).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(CALLS)),
    text=TEXTS,
    choice=st.sampled_from(["auto", "required"]),
    reasoning=st.sampled_from(["none", "qwen3", "deepseek_r1"]),
    data=st.data(),
)
def test_events_never_depend_on_how_the_text_is_cut(name, text, choice, reasoning, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    whole = events_of(parser(name, choice=choice, reasoning=reasoning), text)
    assert events_of(parser(name, choice=choice, reasoning=reasoning), *pieces) == whole
    assert events_of(parser(name, choice=choice, reasoning=reasoning), *text) == whole


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(CALLS)), text=TEXTS, reasoning=st.sampled_from(["none", "qwen3"]))
def test_text_without_calls_and_reasoning_comes_out_as_it_went_in(name, text, reasoning):
    found = events_of(parser(name, reasoning=reasoning), text)
    if not text.lstrip().startswith("<think>") and not any(isinstance(event, CallStart) for event in found):
        assert "".join(event.text for event in found) == text


@pytest.mark.parametrize(
    ("template", "calls", "reasoning"),
    [
        ("{{ '<tool_call>' }} {{ enable_thinking }} </think>", "hermes", "qwen3"),
        ("{{ '<\uff5cAssistant\uff5c>' }} {{ content.split('</think>')[-1] }}", None, "deepseek_r1"),
        ("{{ '<|python_tag|>' }}", "llama3_json", None),
        ("{{ '[TOOL_CALLS]' }}", "mistral", None),
        ("{{ '<tool_call>[' }}", "smollm2", None),
        ("```tool_code", "gemma", None),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None, None),
        (None, None, None),
    ],
)
def test_the_formats_follow_from_the_chat_template(template, calls, reasoning):
    found, thinks = call_format_of(template), reasoning_format_of(template)
    assert (found and found.name, thinks and thinks.name) == (calls, reasoning)


def test_a_forced_choice_has_a_format_also_where_the_template_shows_none():
    assert parser_for(None, tools=TOOLS, tool_choice="required").calls is CALL_FORMATS["hermes"]
    assert parser_for(None, tools=TOOLS, tool_choice="auto").calls is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calls": "xml"}, "tool-call format must be auto, none, hermes"),
        ({"reasoning": "hm"}, "reasoning format must be auto, none, qwen3"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, r"tools\[0\]: a name has 1 to 128"),
        ({"tools": [WEATHER, WEATHER]}, "different names, got 'weather' twice"),
        ({"tools": [{"type": "web_search"}]}, r"tools\[0\]: only functions can be called here"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice names 'x', the tools are weather, clock",
        ),
        ({"tool_choice": "required"}, "tool_choice required needs tools, got none"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice must be auto, none, required"),
        ({"tools": [{"name": "f", "input_schema": 3}]}, r"tools\[0\]: input_schema of f must be a JSON schema, got int"),
    ],
)
def test_malformed_tools_and_choices_are_refused_with_the_rule(arguments, message):
    with pytest.raises(UsageError, match=message):
        parser_for(None, **arguments)


@pytest.mark.parametrize(
    ("format_", "message"),
    [
        ("json", "response_format must be an object, got str"),
        ({"type": "xml"}, "response_format.type must be text"),
        ({"type": "json_schema"}, "needs json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": [1]}}, "a JSON schema must be an object, got list"),
        ({"type": "regex"}, "needs the string regex, got NoneType"),
    ],
)
def test_malformed_response_formats_are_refused_with_the_rule(format_, message):
    with pytest.raises(UsageError, match=message):
        grammar_for(response_format=format_)


def test_free_text_needs_no_grammar():
    assert grammar_for(response_format={"type": "text"}) is None
    assert grammar_for(parser(choice="auto")) is None
    assert grammar_for(parser(choice="none")) is None


def test_a_response_format_and_a_forced_call_exclude_each_other():
    with pytest.raises(UsageError, match="exclude each other"):
        grammar_for(parser(choice="required"), response_format={"type": "json_object"})
