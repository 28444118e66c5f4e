"""From what happened to what is said: the verdict of each mode, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swiftsure.records.machine import MachineFacts, library_versions
from swiftsure.records.memory_wall import ReadBandwidth, combine
from swiftsure.records.statistics import median
from swiftsure.verify.proving import measure
from swiftsure.verify.proving.client import WorkerError
from swiftsure.verify.proving.measure import Sample
from swiftsure.verify.proving.mode_run import BASE, ModeRun
from swiftsure.verify.proving.result import EXIT_STATUS, ModeResult, ProveResult, Verdict
from swiftsure.verify.proving.workload import Prompt, size_class

if TYPE_CHECKING:
    from swiftsure.verify.proving.prove import ProveOptions
    from swiftsure.verify.proving.screen import Screen

MODEL_PINS = (
    "name", "source", "version", "sha256", "licence", "format", "file_bytes", "architecture", "parameters", "decode_bytes_per_token",
)  # fmt: skip


def judge(run: ModeRun) -> tuple[Verdict, str | None]:
    """The verdict and, where it is not PROVED, the reason."""
    if run.reason is not None:
        return "NOT_ACTIVE", run.reason
    if run.proof.failure is not None:
        return "FAILED", run.proof.failure
    if run.proof.bits_compared == 0:
        return "INCONCLUSIVE", "no logits were compared"
    if run.contract and not run.contract["kept"]:
        return "FAILED", f"tolerances of the contract are broken: {'; '.join(run.contract['breaches'])}"
    if run.contract.get("tasks_failed"):
        return "FAILED", f"worse than default by more than the contract's margin: {'; '.join(run.contract['tasks_failed'])}"
    if run.unproved:
        return "UNPROVED", "; ".join(run.unproved)
    return ("INCONCLUSIVE", run.contract["task"]) if run.contract.get("task") else ("PROVED", None)


def finish_mode(run: ModeRun, *, prompts: int, wall_s: float, screen: Screen) -> None:
    """Collects evidence and peak memory, and lets the worker say LEVER and EXIT with the verdict. Then its process ends.

    For a worker that is gone already the EXIT line is said here.
    """
    done = prompts - len(run.proof.failed_prompts)
    try:
        if run.running:
            evidence = run.worker().ask("evidence")
            run.levers, run.unproved = evidence["levers"], tuple(evidence["unproved"])
            status = EXIT_STATUS[judge(run)[0]]
            run.peak_rss_bytes = run.worker().ask("finish", status=status, done=done, total=prompts, wall_s=wall_s)["peak_rss_bytes"]
            run.worker().close()
            return
    except WorkerError as error:
        run.break_off(error)
    if run.reason is None:
        screen.line(f"EXIT mode={run.name} status=failed items={done}/{prompts} wall_s={wall_s:.1f}")


def summarise(
    runs: Mapping[str, ModeRun],
    *,
    options: ProveOptions,
    prompts: Sequence[Prompt],
    truths: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
    machine: MachineFacts,
    probes: Sequence[ReadBandwidth],
    upstream: Mapping[str, Any],
    created: str,
    wall_s: float,
) -> ProveResult:
    base, bandwidth = runs[BASE], combine(probes)
    return ProveResult(
        modes=tuple(_mode_result(run, base, bandwidth) for run in runs.values()),
        named=options.modes or (),
        machine=machine,
        pins={
            "model": {name: info[name] for name in MODEL_PINS},
            "numerics": base.loaded["numerics"],
            "libraries": library_versions(("swiftsure", "numpy", "tokenizers", "jinja2")),
            "upstream": upstream.get("versions"),
        },
        upstream=upstream,
        workload=_workload(options, prompts, truths),
        prompts=[_prompt(prompt, truth, runs) for prompt, truth in zip(prompts, truths, strict=True)],
        settings={
            "numerics": base.loaded["numerics"],
            "isa": base.loaded["isa"],
            "threads": base.loaded["threads"],
            "thread_choice": options.thread_choice.to_dict() if options.thread_choice else None,
            "full": options.full,
            "rounds": options.rounds,
            "time_budget_s": options.time_budget_s,
        },
        bandwidth=bandwidth.to_dict(),
        wall_s=wall_s,
        created=created,
        arguments=options.arguments,
    )


def _mode_result(run: ModeRun, base: ModeRun, bandwidth: ReadBandwidth) -> ModeResult:
    verdict, reason = judge(run)
    known = ModeResult(
        mode=run.name,
        verdict=verdict,
        reason=reason,
        bits_compared=run.proof.bits_compared,
        bits_differing=run.proof.bits_differing,
        keeps_bits=run.keeps_bits,
        contract=run.contract,
        levers=run.levers,
        peak_rss_bytes=run.peak_rss_bytes,
        memory_ratio=run.peak_rss_bytes / base.peak_rss_bytes if run.peak_rss_bytes and base.peak_rss_bytes else None,
        proof=run.proof.to_dict() if run.proof.rows else {},
    )
    return replace(known, **_figures(run, base, bandwidth)) if run.samples and run.reason is None else known


def _figures(run: ModeRun, base: ModeRun, bandwidth: ReadBandwidth) -> dict[str, Any]:
    """What the timed rounds say about a mode."""
    ours, theirs = run.samples, base.samples
    load_s, base_load_s = run.loaded["load_s"], base.loaded["load_s"]
    phases = measure.phase_seconds(ours, load_s)
    ratios = measure.speedups(theirs, ours)
    end_to_end_s = measure.request_seconds(ours) + load_s
    same = [sample for sample in theirs if sample.prompt in {own.prompt for own in ours}]
    passes = [sample.tokens_per_pass for sample in ours if sample.tokens_per_pass is not None]
    return {
        "decode_tokens_per_s": measure.decode_tokens_per_s(ours),
        "ttft_s": measure.typical(ours, "ttft"),
        "end_to_end_s": end_to_end_s,
        "speedup": measure.headline(ratios),
        "intervals": measure.intervals(ratios),
        "worst": measure.worst(theirs, ours),
        "by_kind": measure.breakdown(theirs, ours, lambda sample: sample.kind),
        "by_size": measure.breakdown(theirs, ours, lambda sample: sample.size),
        "by_sampling": measure.breakdown(theirs, ours, lambda sample: "greedy" if sample.greedy else "sampled"),
        "phases_s": phases,
        "phase_speedup": measure.phase_ratio(measure.phase_seconds(same, base_load_s), phases),
        "pass_speedup": (measure.request_seconds(same) + base_load_s) / end_to_end_s,
        "memory_wall": _memory_wall(ours, run.loaded, bandwidth),
        "tokens_per_pass": median(passes) if passes else None,
        "speculation": measure.speculation(ours),
        "rounds": max(sample.round for sample in ours) + 1,
    }


def _memory_wall(samples: Sequence[Sample], loaded: Mapping[str, Any], bandwidth: ReadBandwidth) -> dict[str, float | None]:
    """The bytes that one token must read, times tokens per second, over the bandwidth; medians over samples.

    A fraction above 1 means that a pass yielded more than one token: the weights were read once for several.
    """
    weights, per_position = loaded["pass_bytes"], loaded["kv_bytes_per_position"]
    sizes, fractions = [], []
    for sample in samples:
        seconds = sample.seconds("decode")
        token_bytes = weights + per_position * (sample.prompt_tokens + sample.output_tokens / 2)
        if seconds is not None:
            sizes.append(token_bytes)
            fractions.append(token_bytes / seconds / bandwidth.bytes_per_s)
    return {
        "bytes_per_token": median(sizes) if sizes else None,
        "fraction": median(fractions) if fractions else None,
        "bound_tokens_per_s": bandwidth.bytes_per_s / median(sizes) if sizes else None,
    }


def _workload(options: ProveOptions, prompts: Sequence[Prompt], truths: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "source": "built-in" if options.prompts is None else str(options.prompts),
        "prompts": len(prompts),
        "greedy": sum(prompt.greedy for prompt in prompts),
        "kinds": sorted({prompt.kind for prompt in prompts}),
        "prompt_tokens": sum(truth["prompt_tokens"] for truth in truths),
        "new_tokens": sum(truth["output_tokens"] for truth in truths),
    }


def _prompt(prompt: Prompt, truth: Mapping[str, Any], runs: Mapping[str, ModeRun]) -> dict[str, Any]:
    """One prompt's row: what it was, and each mode's figures."""
    base = [sample for sample in runs[BASE].samples if sample.prompt == prompt.name]
    modes = {}
    for run in runs.values():
        samples = [sample for sample in run.samples if sample.prompt == prompt.name]
        if samples:
            passes = [sample.tokens_per_pass for sample in samples if sample.tokens_per_pass is not None]
            modes[run.name] = measure.figures(base, samples) | {
                "pairs": measure.pair_ratios(base, samples),
                "tokens_per_pass": median(passes) if passes else None,
            }
    return {
        "name": prompt.name,
        "kind": prompt.kind,
        "size": size_class(truth["prompt_tokens"]),
        "sampling": "greedy" if prompt.greedy else f"temperature {prompt.temperature:g}, seed {prompt.seed}",
        "prompt_tokens": truth["prompt_tokens"],
        "output_tokens": truth["output_tokens"],
        "finish_reason": truth["finish_reason"],
        "text": truth["text"],
        "modes": modes,
    }
