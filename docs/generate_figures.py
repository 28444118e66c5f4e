"""Writes README's measured figures from the committed results; ``--check`` only says whether they are up to date.

Results: ``benchmarks/results/prove.json`` (``swiftsure prove --json``) and ``benchmarks/results/peers.json`` (``python -m benchmarks.peers
--json``) of the default model, and the same with the name of another model. No figure in README is typed by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from generated import write_or_check

from swiftsure.verify.proving import words

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MODELS = ("", "-gemma-3-270m")  # as the names of the results end
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"

_MOST_REASON = 120  # characters


def figures() -> str:
    """The section between the two marks."""
    parts = []
    for name, write in (("prove", prove_section), ("peers", peers_section)):
        for model in MODELS:
            path = RESULTS / f"{name}{model}.json"
            if path.is_file():
                parts.append(write(json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(parts) or "No results are committed yet.\n"


def prove_section(result: dict[str, Any]) -> str:
    """What ``prove`` measured: the modes, then exact against default."""
    workload, settings, created = result["workload"], result["settings"], result["created"][:10]
    lines = [
        f"`swiftsure prove` on {created}: {result['pins']['model']['name']}, {workload['prompts']} prompts ({workload['greedy']} greedy), "
        f"{workload['new_tokens']:,} new tokens, {settings['threads']} threads, {settings['isa']}; medians.",
        machine_line(result["machine"]),
        f"{result['bandwidth']['threads']} threads read {result['bandwidth']['read_gb_per_s']:.1f} GB/s from a buffer of the weights' size "
        "in the same run.",
        "",
        "| mode | verdict | decode tokens/s | first token | peak memory | of the memory wall | bits compared | differing |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [mode_row(mode) for mode in result["modes"] if mode["phases_s"]]
    exact = next((mode for mode in result["modes"] if mode["mode"] == "exact" and mode["phases_s"]), None)
    if exact is not None:
        lines += ["", "| exact over default (95 % interval) | decode | first token | end to end |", "|---|---:|---:|---:|"]
        groups = {"all prompts": exact["intervals"]} | {name: group["intervals"] for name, group in exact["by_sampling"].items()}
        groups |= {name: group["intervals"] for name, group in exact["by_kind"].items()}
        lines += [
            f"| {name} | " + " | ".join(interval(group[m]) for m in ("decode", "ttft", "end_to_end")) + " |"
            for name, group in groups.items()
        ]
        worst = " | ".join(f"{exact['worst'][m]:.2f}x" for m in ("decode", "ttft", "end_to_end"))
        lines.append(f"| worst prompt | {worst} |")
    lines += ["", words.upstream(result["upstream"])]
    return "\n".join(lines) + "\n"


def mode_row(mode: dict[str, Any]) -> str:
    cells = [
        f"`{mode['mode']}`",
        mode["verdict"],
        f"{mode['decode_tokens_per_s']:.0f}",
        f"{mode['ttft_s'] * 1000:.0f} ms",
        f"{mode['peak_rss_bytes'] / 1e6:.0f} MB",
        f"{mode['memory_wall']['fraction']:.0%}",
        f"{mode['bits_compared']:,}",
        f"{mode['bits_differing']:,}",
    ]
    return "| " + " | ".join(cells) + " |"


def peers_section(result: dict[str, Any]) -> str:
    """Swiftsure beside other engines: rates, the paired ratio, memory, start-up, and whether company or speculation moves the answer."""
    settings, base, names = result["settings"], result["base"], {one["name"] for one in result["contenders"]}
    lines = [
        f"{result['model']['name']} beside other engines, alternating in one run on {result['measured_utc'][:10]}: "
        f"{len(result['prompts'])} greedy prompts, "
        f"{settings['max_tokens']} new tokens, {settings['repeats']} repeats, {settings['threads']} threads; medians.",
        machine_line(result["machine"]),
        "",
        f"| engine | decode tokens/s | `{base}` decodes x this (95 % interval) | decode at 4,096 | prefill at 512 | peak memory | start-up "
        "| same answer in a batch | same text with its speculation |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    left_out = []
    for one in result["contenders"]:
        if one["medians"] is None:
            left_out.append(f"{one['name']}: {_short(one['reason'])}.")
            continue
        lines.append("| " + " | ".join([one["name"], *peer_cells(one, base, speculates=one["plain"] in names)]) + " |")
    return "\n".join([*lines, *([""] if left_out else []), *left_out]) + "\n"


def _short(reason: str) -> str:
    """Its first line, as far as a reader follows it: engines fail with whole commands and traces, which the record keeps."""
    line = reason.strip().splitlines()[0].rstrip(".:")
    return line if len(line) <= _MOST_REASON else f"{line[:_MOST_REASON].rsplit(' ', 1)[0]} .."


def peer_cells(one: dict[str, Any], base: str, *, speculates: bool) -> list[str]:
    """A line of the table after its name; what was not measured stays empty."""
    ratio = one["base_over_this"]["decode"]
    rates = [one.get("sizes", {}).get(size, {}).get(f"{what}_tokens_per_s") for size, what in (("4096", "decode"), ("512", "prefill"))]
    left = [at for at in one["text_first_differs_at"].values() if at is not None]
    return [
        f"{one['medians']['decode_tokens_per_s']:.0f}",
        "base" if one["name"] == base else "INCONCLUSIVE" if ratio is None else interval(ratio),
        *("" if rate is None else f"{rate:,.0f}" for rate in rates),
        "" if one["peak_rss_bytes"] is None else f"{one['peak_rss_bytes'] / 1e6:,.0f} MB",
        "" if one.get("startup_s") is None else f"{one['startup_s']:.1f} s",
        same_answer(one.get("identity") or {}),
        "" if not speculates else "yes" if not left else f"no, from token {min(left)}",
    ]


def same_answer(found: dict[str, Any]) -> str:
    """Logits where the engine hands them out, else texts."""
    rows, batch = found.get("rows", {}), found.get("batch", {})
    if "rows" in rows:
        return f"{rows['equal_rows']} of {rows['rows']} rows"
    if "texts" in batch:
        return f"{batch['texts'] - batch['leave']} of {batch['texts']} texts"
    return ""


def machine_line(machine: dict[str, Any]) -> str:
    """The facts that an absolute figure needs."""
    kind = "virtual machine" if machine["hypervisor"] else "machine"
    memory = f", {machine['memory_bytes'] / 1e9:.0f} GB of memory" if machine["memory_bytes"] else ""
    load = f", load average {machine['load_average'][0]:.1f} before the run" if machine["load_average"] else ""
    return f"Machine: {machine['cpu_model']}, {machine['usable_cpus']} logical CPUs of a {kind}{memory}, {machine['system']}{load}."


def interval(ratio: dict[str, Any]) -> str:
    if not ratio.get("conclusive"):
        return "INCONCLUSIVE"
    return f"{ratio['ratio']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f})"


def readme() -> str:
    """README with the section between the two marks renewed."""
    head, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + figures() + END + tail


if __name__ == "__main__":
    stale = "README's figures are not those of benchmarks/results: run python docs/generate_figures.py"
    sys.exit(write_or_check(README, readme(), sys.argv[1:], stale=stale))
