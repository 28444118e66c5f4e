"""What generated text means: tool calls and reasoning, in the formats that models were trained on. Pure: text in, events out.

::

    parser = parser_for(model.chat_template, tools=tools, tool_choice="auto", prompt=prompt_text)
    grammar = grammar_for(parser, response_format=response_format)  # None: free
    for piece in pieces:
        for event in parser.feed(piece): ...
    for event in parser.finish(): ...
"""

from swiftsure.serve.parsing.choose import CALL_FORMATS, REASONING_FORMATS, Formats, call_format_of, parser_for, reasoning_format_of
from swiftsure.serve.parsing.events import CallArguments, CallEnd, CallStart, Event, Reasoning, Text
from swiftsure.serve.parsing.grammars import grammar_for
from swiftsure.serve.parsing.parser import OutputParser
from swiftsure.serve.parsing.prompts import with_calls_spelled, with_tools_described
from swiftsure.serve.parsing.tools import NamedTool, Tool, ToolChoice, read_tool_choice, read_tools

__all__ = [
    "CALL_FORMATS",
    "REASONING_FORMATS",
    "CallArguments",
    "CallEnd",
    "CallStart",
    "Event",
    "Formats",
    "NamedTool",
    "OutputParser",
    "Reasoning",
    "Text",
    "Tool",
    "ToolChoice",
    "call_format_of",
    "grammar_for",
    "parser_for",
    "read_tool_choice",
    "read_tools",
    "reasoning_format_of",
    "with_calls_spelled",
    "with_tools_described",
]
