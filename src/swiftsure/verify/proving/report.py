"""The HTML report: the verdict in words at the top, then the table, the plots, what was proved and what was not tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from swiftsure.records.charts import Bar, Dots, Stack, bar_chart, dot_chart, stack_chart
from swiftsure.records.page import render_page
from swiftsure.verify.proving import words
from swiftsure.verify.proving.mode_run import BASE
from swiftsure.verify.proving.proof import PASSES
from swiftsure.verify.proving.result import ModeResult, ProveResult

FILTERS = {
    "count": words.count,
    "rate": words.rate,
    "seconds": words.seconds,
    "ratio": words.ratio,
    "interval": lambda figures: _unbroken(words.interval(figures)),
    "phase_ratio": lambda value: "took no time" if value is None else f"{value:.2f}x",
}


def render_report(result: ProveResult) -> str:
    """The whole page as one string."""
    ran = [mode for mode in result.modes if mode.phases_s]
    values = {
        "result": result,
        "model": result.pins["model"],
        "workload": result.workload,
        "machine": result.machine,
        "settings": result.settings,
        "bandwidth": result.bandwidth,
        "sentences": words.headlines(result),
        "columns": [_column(mode) for mode in ran] + _upstream_column(result),
        "upstream": words.upstream(result.upstream),
        "compared": [mode for mode in ran if mode.mode != BASE],
        "rows": words.breakdown_rows,
        "draft_rows": words.draft_rows,
        "task_lines": words.task_lines,
        "contracts": [(mode, list(words.CONTRACT_COLUMNS.values()), words.contract_rows(mode.contract)) for mode in ran if mode.contract],
        "plots": list(_plots(result, ran)),
        "passes": [
            (mode.mode, name, PASSES[name], bits) for mode in result.modes for name, bits in mode.proof.get("bits_by_pass", {}).items()
        ],
        "untested": words.untested(result),
        "prompts": result.prompts,
        "facts": _facts(result),
    }
    return render_page("swiftsure.verify", "prove.html.j2", values, FILTERS)


def _unbroken(interval: str) -> Markup:
    """A narrow column breaks before the bounds, not within them."""
    return Markup(" ").join(Markup('<span class="unbroken">{}</span>').format(part) for part in interval.split())


def _column(mode: ModeResult) -> dict[str, str]:
    return {
        "name": mode.mode,
        "verdict": mode.verdict,
        "bits differing": f"{words.count(mode.bits_differing)} of {words.count(mode.bits_compared)}",
        "decode tokens/s": words.rate(mode.decode_tokens_per_s),
        "first token": words.seconds(mode.ttft_s),
        "end to end": words.seconds(mode.end_to_end_s),
        "peak memory": words.megabytes(mode.peak_rss_bytes),
        "memory ratio": "unknown" if mode.memory_ratio is None else words.ratio(mode.memory_ratio),
        "of the memory wall": words.percent(mode.memory_wall.get("fraction")),
    }


def _upstream_column(result: ProveResult) -> list[dict[str, str]]:
    """Transformers on some of the prompts, where it was measured: speeds, memory and the verdict of its contract."""
    facts = result.upstream
    if facts["status"] == "NOT MEASURED":
        return []
    return [
        dict.fromkeys(("bits differing", "end to end", "memory ratio", "of the memory wall"), "")
        | {
            "verdict": facts.get("verdict", {}).get("kind", ""),
            "name": f"transformers {facts['versions']['transformers']}",
            "decode tokens/s": words.rate(facts["decode_tokens_per_s"]),
            "first token": words.seconds(facts["ttft_s"]),
            "peak memory": words.megabytes(facts["peak_rss_bytes"]),
        }
    ]


def _plots(result: ProveResult, ran: list[ModeResult]) -> Iterator[dict[str, Any]]:
    for mode in ran:
        if mode.mode != BASE:
            yield _speedup_plot(result, mode)
    stacks = [Stack(label=mode.mode, parts=list(mode.phases_s.items()), text=words.seconds(mode.end_to_end_s)) for mode in ran]
    yield {
        "title": "Where the time goes",
        "caption": "One pass over the workload, by phase.",
        "svg": stack_chart(stacks, title="Seconds by phase and mode"),
    }
    yield {
        "title": "Decode speed by kind",
        "caption": "Tokens per second, median over the kind's prompts.",
        "svg": bar_chart(list(_kind_bars(ran)), title="Decode tokens per second by kind and mode"),
    }
    yield {
        "title": "Peak memory",
        "caption": "The largest resident size of each mode's process.",
        "svg": bar_chart(list(_memory_bars(ran)), title="Peak memory by mode"),
    }
    for mode in ran:
        bars = list(_pass_bars(result, mode))
        if mode.mode != BASE and bars:
            yield {
                "title": f"Tokens per decode pass in {mode.mode}",
                "caption": "One is what a pass yields without accepted draft tokens.",
                "svg": bar_chart(bars, title=f"Tokens per decode pass in {mode.mode}"),
            }


def _speedup_plot(result: ProveResult, mode: ModeResult) -> dict[str, Any]:
    overall = mode.intervals["decode"]
    known = overall.get("ratio")
    rows = [
        Dots(
            label="all prompts",
            values=[known] if known is not None else [],
            text=words.interval(overall),
            low=overall.get("low"),
            high=overall.get("high"),
            strong=True,
        )
    ]
    for prompt in result.prompts:
        pairs = prompt["modes"].get(mode.mode, {}).get("pairs", {}).get("decode", [])
        if pairs:
            rows.append(Dots(label=f"{prompt['name']} ({_sampling(prompt)})", values=pairs, text=f"{words.middle(pairs):.2f}x"))
    return {
        "title": f"Decode speed-up of {mode.mode} per prompt",
        "caption": "A dot is one pair measured back to back, the number its median; the band is the 95 % interval over all.",
        "svg": dot_chart(rows, title=f"Decode speed-up of {mode.mode} over default per prompt"),
    }


def _sampling(prompt: Any) -> str:
    return "greedy" if prompt["sampling"] == "greedy" else "sampled"


def _kind_bars(ran: list[ModeResult]) -> Iterator[Bar]:
    for kind in dict.fromkeys(kind for mode in ran for kind in mode.by_kind):
        for series, mode in enumerate(ran):
            speed = mode.by_kind.get(kind, {}).get("decode_tokens_per_s")
            if speed is not None:
                yield Bar(label=f"{kind.replace('_', ' ')}, {mode.mode}", value=speed, text=words.rate(speed), series=series)


def _memory_bars(ran: list[ModeResult]) -> Iterator[Bar]:
    for series, mode in enumerate(ran):
        if mode.peak_rss_bytes is not None:
            yield Bar(label=mode.mode, value=mode.peak_rss_bytes, text=words.megabytes(mode.peak_rss_bytes), series=series)


def _pass_bars(result: ProveResult, mode: ModeResult) -> Iterator[Bar]:
    for prompt in result.prompts:
        value = prompt["modes"].get(mode.mode, {}).get("tokens_per_pass")
        if value is not None:
            yield Bar(label=prompt["name"], value=value, text=f"{value:.2f}", series=1)


def _facts(result: ProveResult) -> list[tuple[str, str]]:
    model, machine = result.pins["model"], result.machine
    caches = ", ".join(f"L{c.level} {c.kind} {c.size_bytes // 1024} KiB" for c in machine.caches)
    memory = words.megabytes(machine.memory_bytes)
    if machine.cgroup_memory_bytes is not None:
        memory += f", limited to {words.megabytes(machine.cgroup_memory_bytes)} by the cgroup"
    cores = machine.physical_cores if machine.physical_cores is not None else "an unknown number of"
    quota = "" if machine.cgroup_cpus is None else f", limited to {machine.cgroup_cpus:g} by the cgroup"
    return [
        ("model", f"{model['name']} {model['version'] or ''} ({model['licence'] or 'licence unknown'}), {model['format']}"),
        ("source", str(model["source"])),
        ("sha256", model["sha256"]),
        ("libraries", ", ".join(f"{name} {version}" for name, version in result.pins["libraries"].items())),
        (
            "processor",
            f"{machine.cpu_model}{' (virtual)' if machine.hypervisor else ''}: {machine.usable_cpus} usable, {cores} cores{quota}",
        ),
        ("instruction sets", " ".join(machine.cpu_flags)),
        ("caches", caches or "unknown"),
        ("memory", memory),
        ("system", f"{machine.system}, Python {machine.python}, huge pages {machine.transparent_huge_pages or 'unknown'}"),
        ("load before the run", "unknown" if machine.load_average is None else " ".join(f"{x:.2f}" for x in machine.load_average)),
        ("took", words.seconds(result.wall_s)),
    ]
