"""A conversation and its tools into token ids, and what reads and forces the answer."""

from __future__ import annotations

from typing import Any

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.errors import UsageError
from swiftsure.serve.apis.responses.request import Asked
from swiftsure.serve.parsing import (
    OutputParser,
    grammar_for,
    parser_for,
    with_calls_spelled,
    with_tools_described,
)
from swiftsure.serve.parsing.formats import HERMES
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel

_PROMPT_TAIL = 16  # tokens of a prompt that say whether an answer begins inside of reasoning


async def encode(model: ServedModel, messages: list[dict[str, Any]], asked: Asked) -> tuple[tuple[int, ...], OutputParser, Grammar | None]:
    """Token ids of the prompt, what reads the answer, and what it must conform to.

    A template that reads no tools gets them described in the system message. Raises UsageError, TemplateError and ContextLengthError.
    """
    template, formats = model.model.chat_template, model.settings.formats
    calls = formats.calls
    tools = asked.tools if asked.tool_choice != "none" else ()
    variables = None
    if asked.thinks is False and formats.reasoning_format(template) is not None:
        variables = {"enable_thinking": False}
    try:
        shown = [tool.for_template() for tool in tools] or None
        ids = await model.encode(messages, tools=shown, template_variables=variables)
    except UsageError:
        if not tools:
            raise
        known, calls = formats.for_described_tools(template)
        spelled = [with_calls_spelled(message, known or HERMES) for message in messages]
        ids = await model.encode(with_tools_described(spelled, tools, known or HERMES), template_variables=variables)
    tail = b"".join(map(model.token_bytes, ids[-_PROMPT_TAIL:])).decode("utf-8", "replace")
    parser = parser_for(template, tools=tools, tool_choice=asked.tool_choice, prompt=tail, calls=calls, reasoning=formats.reasoning)
    if parser.reasoning_open and asked.thinks is False:
        raise RefusedError("reasoning cannot be switched off: this model's chat template begins with it", param="reasoning.effort")
    if asked.logprobs is not None and not parser.plain:
        raise RefusedError(
            "logprobs go with plain text only: not with tools, nor with a model that reasons before it answers", param="include"
        )
    if not asked.parallel and tools and asked.tool_choice == "auto":
        raise RefusedError("parallel_tool_calls false needs a tool_choice that forces a call", param="parallel_tool_calls")
    return ids, parser, grammar_for(parser, response_format=asked.response_format, parallel=asked.parallel)
