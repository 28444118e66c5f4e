"""Timed rounds: modes alternate prompt by prompt, every store is cleared before each generation, tokens are compared as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftsure.records.memory_wall import ReadBandwidth, measure_read_bandwidth
from swiftsure.verify.proving.client import WorkerError
from swiftsure.verify.proving.measure import Sample
from swiftsure.verify.proving.mode_run import BASE, ModeRun
from swiftsure.verify.proving.proof import generate, tokens_failure
from swiftsure.verify.proving.screen import Screen
from swiftsure.verify.proving.workload import Prompt, size_class

PROBE_PASSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """When to stop. Without a budget there is always time."""

    began: float
    budget_s: float | None

    def allows(self, seconds: float) -> bool:
        return self.budget_s is None or time.perf_counter() + seconds <= self.began + self.budget_s


def time_rounds(
    runs: Mapping[str, ModeRun],
    prompts: Sequence[Prompt],
    *,
    rounds: int,
    clock: Clock,
    buffer_bytes: int,
    screen: Screen,
) -> list[ReadBandwidth]:
    """Adds samples to the runs. The first round is whole; a later one takes the prompts that still fit the time, and starts elsewhere.
    A mode that broke its promise is not timed: a breach stops the optimized run.

    Returns the read bandwidth of a buffer of ``buffer_bytes``, probed before the first and after every round: the machine's speed drifts.
    """
    threads = runs[BASE].loaded["threads"]
    probes = [measure_read_bandwidth(buffer_bytes, threads=threads, passes=PROBE_PASSES)]
    cost_s = [float("inf")] * len(prompts)
    for number in range(rounds if runs[BASE].sound else 0):
        start = number * (len(prompts) // 2 + 1)
        order = [(start + i) % len(prompts) for i in range(len(prompts))]
        todo = [i for i in order if number == 0 or clock.allows(cost_s[i])]
        for i in screen.track(todo, f"timing: round {number + 1}"):
            if number == 0 or clock.allows(cost_s[i]):
                began = time.perf_counter()
                _time_prompt(runs, prompts, i, number)
                cost_s[i] = time.perf_counter() - began
        if not todo:
            break
        probes.append(measure_read_bandwidth(buffer_bytes, threads=threads, passes=PROBE_PASSES))
    return probes


def _time_prompt(runs: Mapping[str, ModeRun], prompts: Sequence[Prompt], index: int, number: int) -> None:
    """One generation per mode, back to back; who goes first changes from round to round."""
    prompt = prompts[index]
    order = [run for run in runs.values() if run.sound]
    for run in order if number % 2 == 0 else reversed(order):
        try:
            answer = generate(run.worker(), [prompt], clear=True)[0]
        except WorkerError as error:
            run.break_off(error)
            continue
        failure = tokens_failure(f"prompt {prompt.name}, timed round {number + 1}", run.truths[index]["token_ids"], answer["token_ids"])
        if failure is not None:
            run.proof.fail(failure, prompt.name)
        else:
            run.samples.append(_sample(prompt, number, answer))


def _sample(prompt: Prompt, number: int, answer: Mapping[str, Any]) -> Sample:
    speculation, best = answer["levers"].get("speculation", {}), answer["draft_ceiling"]
    return Sample(
        prompt=prompt.name,
        kind=prompt.kind,
        size=size_class(answer["prompt_tokens"]),
        greedy=prompt.greedy,
        round=number,
        prompt_tokens=answer["prompt_tokens"],
        output_tokens=answer["output_tokens"],
        wall_s=answer["wall_s"],
        ttft_s=answer["ttft_s"],
        phases_s=answer["phases_s"],
        drafted=speculation.get("drafted", 0),
        accepted=speculation.get("accepted", 0),
        best_passes=best["passes"] if best else None,
        best_cost=best["cost"] if best else None,
    )
