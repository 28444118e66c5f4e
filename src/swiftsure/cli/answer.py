"""One prompt, one answer: streamed as text or printed as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.cli.console import note
from swiftsure.cli.report import generation_dict, run_record, stats_line
from swiftsure.cli.session import Tally, Work

if TYPE_CHECKING:
    from swiftsure import LLM, Generation, SamplingParams

Prompt = str | list[dict[str, str]]


def answer_work(
    prompt: Prompt,
    sampling: SamplingParams,
    *,
    json_output: bool,
    stats: bool,
    record: Path | None,
    template_variables: Mapping[str, Any] | None = None,
) -> Work:
    """A work that answers ``prompt`` once."""

    def work(llm: LLM, tally: Tally) -> None:
        tally.total = 1
        generation = None
        try:
            if json_output:
                generation = llm.generate(prompt, sampling=sampling, template_variables=template_variables, digest=True)
                print(json.dumps(generation_dict(llm, generation), ensure_ascii=False, indent=2))
            else:
                generation = _stream(llm, prompt, sampling, template_variables, digest=record is not None)
            tally.done = 1
            if stats:
                note(stats_line(llm, generation))
        except BaseException as error:  # Ctrl-C and a reader that went away too: what failed is what a record is wanted for
            if record is not None:
                run_record(llm, generation, error).write(record)
            raise
        if record is not None:
            run_record(llm, generation).write(record)

    return work


def _stream(
    llm: LLM, prompt: Prompt, sampling: SamplingParams, template_variables: Mapping[str, Any] | None, *, digest: bool
) -> Generation:
    """Prints the pieces as they come, ends the line, and returns the whole."""
    with llm.stream(prompt, sampling=sampling, template_variables=template_variables, digest=digest) as stream:
        last = ""
        for last in stream:
            print(last, end="", flush=True)
        if not last.endswith("\n"):
            print(flush=True)
        return stream.generation
