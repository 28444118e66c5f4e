"""``swiftsure bench scenario``: fast enough to be used interactively, or for the background?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftsure.cli import bench_options as shared
from swiftsure.cli import options
from swiftsure.cli.bench_progress import ScenarioDisplay
from swiftsure.cli.console import note, print_table, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.errors import EndpointError, UsageError

if TYPE_CHECKING:
    from swiftsure.bench.scenarios import Answer, Figure

NAMES = ("agent", "voice", "rag", "reasoning")
_SCENARIO = "Scenario"

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="agent, voice, rag or reasoning.")]
Within = Annotated[
    float | None,
    option(
        "--within",
        metavar="S",
        section=_SCENARIO,
        help="How long a person waits: agent 60 for the whole, voice 0.5 for a sound, rag 2 for a token, reasoning 10 for the answer.",
    ),
]
Times = Annotated[
    int | None,
    option("--times", metavar="N", section=_SCENARIO, help="Calls of agent (20), turns of voice (20), documents of rag (3), problems (5)."),
]
Tokens = Annotated[
    int | None,
    option(
        "--tokens",
        metavar="N",
        section=_SCENARIO,
        help="Of an answer: agent 800, voice 100, rag 120; of reasoning what should have come in time: 1000.",
    ),
]
ContextTokens = Annotated[
    int | None, option("--context", metavar="TOKENS", section=_SCENARIO, help="Length of rag's documents. Default: 50000.")
]
Words = Annotated[
    float | None, option("--words-per-s", metavar="X", section=_SCENARIO, help="How fast voice speaks. Default: 4, people 3 to 4.")
]
Tool = Annotated[float | None, option("--tool-s", metavar="S", section=_SCENARIO, help="How long agent's tools take. Default: 0.5.")]
Output = Annotated[
    Path | None, option("--output", "-o", metavar="FILE", section=options.OUTPUT, help="Write the answer and its exchanges as JSON.")
]


def bench_scenario(
    name: Name,
    target: shared.TargetArgument,
    *,
    endpoint: shared.EndpointOptions,
    sampling: shared.SamplingOptions,
    within: Within = None,
    times: Times = None,
    tokens: Tokens = None,
    context: ContextTokens = None,
    words_per_s: Words = None,
    tool_s: Tool = None,
    into: shared.Into = None,
    output: Output = None,
    as_json: options.JsonFlag = False,
) -> int:
    """Play a whole use through, and say whether the endpoint serves it while somebody waits, or in the background only.

    agent: serial calls with a growing context and tools between. voice: short answers, spoken without a gap. rag: short answers from a long
    context. reasoning: what is thought in some seconds. After Ctrl-C, a crash or a kill the same command with --into DIR goes on.

    Ends with 0 for INTERACTIVE, 1 for BACKGROUND, 3 where that cannot be measured.
    """
    from swiftsure.bench.client import measure
    from swiftsure.bench.scenarios.session import ScenarioAsked, play

    scenario, settings = _scenario(name, within=within, times=times, tokens=tokens, context=context, words_per_s=words_per_s, tool_s=tool_s)
    place = endpoint.target(target)
    asked = ScenarioAsked(
        name=name,
        scenario=scenario,
        settings=settings,
        target=place,
        find=lambda: endpoint.find(place),
        interfaces=endpoint.interfaces(target),
        interface=endpoint.interface,
        sampling=sampling.fields,
    )
    folder = into or shared.new_folder()
    display = ScenarioDisplay(name, settings.requests)
    note(f"folder: {folder}")
    try:
        answer = play(folder, asked, measure=measure, watcher=display, say=note)
    except (KeyboardInterrupt, EndpointError):
        display.close()
        shared.tell_how_to_go_on(folder, "--into")
        raise
    display.close()
    if output is not None:
        _write(output, answer)
    if as_json:
        print(json.dumps(answer.to_dict(), ensure_ascii=False))
    else:
        _print(answer)
    return {"INTERACTIVE": 0, "BACKGROUND": 1}.get(answer.verdict, 3)


def _scenario(
    name: str,
    *,
    within: float | None,
    times: int | None,
    tokens: int | None,
    context: int | None,
    words_per_s: float | None,
    tool_s: float | None,
) -> tuple[Callable[..., Answer], Any]:
    """The scenario and its settings. Raises UsageError for an unknown one, and for an option that is not its own."""
    from swiftsure.bench import scenarios
    from swiftsure.bench.scenarios.agent import AgentSettings
    from swiftsure.bench.scenarios.rag import RagSettings
    from swiftsure.bench.scenarios.reasoning import ReasoningSettings
    from swiftsure.bench.scenarios.voice import VoiceSettings

    known: dict[str, tuple[type, Callable[..., Answer], dict[str, object]]] = {
        "agent": (AgentSettings, scenarios.agent, {"calls": times, "tokens": tokens, "tool_s": tool_s, "wait_s": within}),
        "voice": (VoiceSettings, scenarios.voice, {"turns": times, "tokens": tokens, "words_per_s": words_per_s, "gap_s": within}),
        "rag": (RagSettings, scenarios.rag, {"documents": times, "tokens": tokens, "context_tokens": context, "wait_s": within}),
        "reasoning": (ReasoningSettings, scenarios.reasoning, {"problems": times, "tokens": tokens, "seconds": within}),
    }
    if name not in known:
        raise UsageError(f"a scenario is one of {', '.join(NAMES)}, got {name!r}")
    settings, scenario, values = known[name]
    for flag, value, own in (("--context", context, "rag"), ("--words-per-s", words_per_s, "voice"), ("--tool-s", tool_s, "agent")):
        if value is not None and name != own:
            raise UsageError(f"{flag} belongs to {own}, not to {name}")
    return scenario, settings(**{key: value for key, value in values.items() if value is not None})


def _print(answer: Answer) -> None:
    print(f"{answer.verdict}: {answer.scenario}")
    kept = {True: "kept", False: "broken", None: ""}
    rows = [[figure.name, _value(figure), figure.limit or "", kept[figure.keeps]] for figure in answer.figures]
    print_table(["figure", "value", "limit", ""], rows, right=(1,))
    for words in answer.notes:
        print_wrapped("  ", words)


def _value(figure: Figure) -> str:
    value = figure.value
    if value is None:
        return "not known"
    if value == float("inf"):
        return "not reached"
    if figure.unit == "s" and value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:,.0f} {figure.unit}" if value >= 100 or value == int(value) else f"{value:.3g} {figure.unit}"


def _write(path: Path, answer: Answer) -> None:
    from swiftsure.bench.protocol.rows import to_row
    from swiftsure.records.run_record import write_json

    write_json(path, answer.to_dict() | {"exchanges": [to_row(exchange) for exchange in answer.exchanges]})
    note(f"written: {path}")
