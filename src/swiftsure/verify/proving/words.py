"""Figures and verdicts in words, the same in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.records.statistics import median
from swiftsure.verify.proving.mode_run import BASE
from swiftsure.verify.proving.result import ModeResult, ProveResult
from swiftsure.verify.tolerance import points

INCONCLUSIVE = "INCONCLUSIVE"
METRIC_NAMES = {"decode": "decode", "ttft": "first token", "end_to_end": "end to end"}


def ratio(value: float | None) -> str:
    return INCONCLUSIVE if value is None else f"{_digits(value)}x"


def interval(figures: Mapping[str, Any]) -> str:
    """``1.31x (1.27-1.35)`` from an entry of ``intervals``, or INCONCLUSIVE with what there was."""
    if figures.get("low") is None:
        return INCONCLUSIVE
    return f"{_digits(figures['ratio'])}x ({_digits(figures['low'])}-{_digits(figures['high'])})"


def _digits(value: float) -> str:
    """Two decimals, or three digits of what is larger."""
    return f"{value:.2f}" if value < 10 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """Three digits, in the unit that a person would say."""
    if value is None:
        return "not reached"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def megabytes(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.0f} MB"


def percent(value: float | None) -> str:
    return "not measurable" if value is None else f"{value:.0%}"


def rate(value: float | None) -> str:
    return "not measurable" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def count(value: int) -> str:
    """``2,612,264,960`` as ``2.61 billion``."""
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:,}"


def middle(values: Sequence[float]) -> float:
    return median(values)


def headlines(result: ProveResult) -> list[str]:
    """The run in a sentence or two: what the other modes did, or default alone where none ran."""
    others = [mode for mode in result.modes if mode.mode != BASE and mode.verdict != "NOT_ACTIVE"]
    base = result.mode(BASE)
    return [sentence(mode) for mode in ([base] if base.verdict != "PROVED" or not others else []) + others]


def breakdown_rows(mode: ModeResult) -> list[tuple[str, Mapping[str, Any]]]:
    """The rows of a mode's breakdown: all, by sampling, by kind, by size; each with its ``intervals``, ``speedup`` and ``speculation``."""
    whole = {"intervals": mode.intervals, "speedup": mode.speedup, "speculation": mode.speculation}
    rows: list[tuple[str, Mapping[str, Any]]] = [("all prompts", whole)]
    rows += [(name, figures) for name, figures in mode.by_sampling.items()]
    rows += [(name.replace("_", " "), figures) for name, figures in mode.by_kind.items()]
    return rows + [(f"{size} prompts", figures) for size, figures in mode.by_size.items()]


def draft_rows(mode: ModeResult) -> list[tuple[str, ...]]:
    """What drafts brought, and the best that they could have: name, tokens a pass, best, accepted, speed-up, best."""
    rows: list[tuple[str, ...]] = []
    for name, figures in breakdown_rows(mode):
        drafts = figures["speculation"]
        if drafts:
            accepted = drafts["accepted_per_drafted"]
            rows.append(
                (
                    name,
                    f"{drafts['tokens_per_pass']:.2f}",
                    f"{drafts['ceiling_tokens_per_pass']:.2f}",
                    "none drafted" if accepted is None else percent(accepted),
                    ratio(figures["speedup"]["decode"]),
                    ratio(drafts["ceiling_speedup"]),
                )
            )
    return rows


def untested(result: ProveResult) -> list[str]:
    """What a reader might take for granted and must not."""
    lines = [f"{mode.mode}: not active, {mode.reason}." for mode in result.modes if mode.verdict == "NOT_ACTIVE"]
    idle = [f"{name} of {mode.mode}" for mode in result.modes for name, lever in mode.levers.items() if lever.get("state") == "idle"]
    if idle:
        lines.append(f"Levers that had no occasion here: {', '.join(idle)}.")
    if result.upstream["status"] == "NOT MEASURED":
        lines.append(f"Agreement with the upstream release: NOT MEASURED, {result.upstream['reason']}.")
    longest = max(prompt["prompt_tokens"] + prompt["output_tokens"] for prompt in result.prompts)
    lines.append(f"Sequences longer than {longest:,} tokens, and prompts other than these {len(result.prompts)}.")
    lines.append("Speed with several users at once, and on any other machine: ratios of this machine do not carry over.")
    lines.append("Whether the texts are good: a mode that keeps the bits keeps the model's mistakes too.")
    lines += [f"{mode.mode}: {_untested_tasks(mode.contract)}." for mode in result.modes if mode.contract]
    return lines


def _untested_tasks(found: Mapping[str, Any]) -> str:
    tasks = ", ".join(task["name"] for task in found.get("tasks", ()))
    return f"tasks other than {tasks}" if tasks else f"whether its answers still do your task ({found['task']})"


def sentence(mode: ModeResult) -> str:
    """One mode's verdict in words."""
    bits = f"{count(mode.bits_differing)} of {count(mode.bits_compared)} bits differ"
    if mode.verdict == "NOT_ACTIVE":
        return f"{mode.mode} is not active: {mode.reason}."
    if mode.verdict == "FAILED":
        return f"{mode.mode} FAILED: {mode.reason}. {bits[0].upper()}{bits[1:]}."
    if mode.verdict == INCONCLUSIVE and mode.contract:
        found = " ".join([contract(mode.contract), *task_lines(mode.contract)])
        return f"{mode.mode} {_speed(mode)}. {found} Verdict INCONCLUSIVE: {mode.reason}."
    if mode.verdict in ("UNPROVED", INCONCLUSIVE):
        return f"{mode.mode} is {mode.verdict}: {mode.reason}."
    if mode.contract:
        return f"{mode.mode} {_speed(mode)} and keeps its contract. {contract(mode.contract)} {' '.join(task_lines(mode.contract))}"
    if mode.mode == BASE:
        return f"default gives the same bits a second time: {bits}."
    return f"{mode.mode} {_speed(mode)} and is the same model: {bits}."


def _speed(mode: ModeResult) -> str:
    value = mode.speedup["decode"]
    if value is None:
        return "has an INCONCLUSIVE speed-up (too few samples)"
    low, high = mode.intervals["decode"]["low"], mode.intervals["decode"]["high"]
    doubt = ", so no difference is shown" if low <= 1 <= high else ""
    return f"decodes {value:.2f}x as fast as default (95 % interval {low:.2f} to {high:.2f}{doubt})"


def contract(found: Mapping[str, Any]) -> str:
    """How far a mode that owes tolerances is from default, where it is farthest."""
    worst = found["worst"]
    return (
        f"Its tolerances hold; farthest from default on {worst['text']} up to {worst['size']:,} tokens: KL mean {worst['kl_mean']:.2g}, "
        f"largest {worst['kl_max']:.2g}, same best token in {worst['top1_agreement']:.1%}, perplexity {worst['perplexity_ratio']:.4f}x."
    )


def task_lines(found: Mapping[str, Any]) -> list[str]:
    """What each task came to, in a sentence."""
    return [
        f"Task {task['name']}: {task['baseline']:.1%} right in default and {task['candidate']:.1%} here, {points(task)}; "
        f"of {task['items']:,} items {task['lost']} were lost and {task['gained']} gained."
        for task in found.get("tasks", ())
    ]


CONTRACT_COLUMNS = {
    "kl_mean": "KL mean", "kl_p99": "KL p99", "kl_max": "KL max", "top1_agreement": "same best", "perplexity_ratio": "perplexity",
}  # fmt: skip


def contract_rows(found: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The limits, then a row for each text and input size: a label and one cell for each of ``CONTRACT_COLUMNS``."""
    rows = [("limit", found["limits"])]
    rows += [(f"{text} to {int(size):,}", figures) for text, by_size in found["by_text"].items() for size, figures in by_size.items()]
    return [(label, [_contract_cell(name, figures[name]) for name in CONTRACT_COLUMNS]) for label, figures in rows]


def _contract_cell(name: str, value: float) -> str:
    if name == "top1_agreement":
        return f"{value:.1%}"
    return f"{value:.4f}x" if name == "perplexity_ratio" else f"{value:.3g}"


def worst_line(mode: ModeResult) -> str:
    """The slowest prompt of each metric, to stand beside the typical value."""
    parts = [
        f"{name} {ratio(mode.worst[metric])} on {mode.worst[f'{metric}_prompt']}"
        for metric, name in METRIC_NAMES.items()
        if mode.worst.get(metric) is not None
    ]
    return f"worst case of {mode.mode}: {', '.join(parts)}"


def upstream(facts: Mapping[str, Any]) -> str:
    """What is known about agreement with the upstream release."""
    if facts["status"] == "NOT MEASURED":
        return f"upstream: NOT MEASURED ({facts['reason']})"
    agreement = facts["agreement"]
    asked = f"{facts['prompts']} prompts of {facts['new_tokens']} new tokens"
    speeds = f"{rate(facts['decode_tokens_per_s'])} tokens/s, first token {seconds(facts['ttft_s'])}"
    return (
        f"upstream: transformers {facts['versions']['transformers']} in {facts['dtype']}, {asked}: {speeds}; "
        f"largest logit difference {agreement['largest_difference']:.2g}, KL {agreement['mean_kl']:.2g}, "
        f"same best token in {agreement['top1_agreement']:.2%} of {agreement['rows']} rows{_upstream_verdict(facts)}"
    )


def _upstream_verdict(facts: Mapping[str, Any]) -> str:
    verdict = facts.get("verdict")
    return "" if verdict is None else f"; by its contract {verdict['kind']}: {'; '.join(verdict['reasons'])}"
