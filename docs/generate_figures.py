"""Writes README's measured figures from the committed results; ``--check`` only says whether they are up to date.

Results: ``benchmarks/results/prove.json`` (``swiftsure prove --json``) and ``benchmarks/results/peers.json`` (``python -m benchmarks.peers
--json``). No figure in README is typed by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from swiftsure.verify import words

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def figures() -> str:
    """The section between the two marks."""
    parts = []
    for name, write in (("prove", prove_section), ("peers", peers_section)):
        path = RESULTS / f"{name}.json"
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
    """Swiftsure beside other engines: rates, the paired ratio, and whether company moves their logits."""
    settings, base = result["settings"], result["base"]
    lines = [
        f"Beside other engines, alternating in one run on {result['measured_utc'][:10]}: {len(result['prompts'])} greedy prompts, "
        f"{settings['max_tokens']} new tokens, {settings['repeats']} repeats, {settings['threads']} threads; medians.",
        machine_line(result["machine"]),
        "",
        f"| engine | decode tokens/s | prefill tokens/s | decode rate of `{base}` over this one (95 % interval) "
        "| rows of a batch equal to rows one by one |",
        "|---|---:|---:|---:|---:|",
    ]
    for one in result["contenders"]:
        ratio = one["base_over_this"]["decode"]
        faster = "base" if one["name"] == base else "INCONCLUSIVE" if ratio is None else interval(ratio)
        rows = one["rows_in_a_batch_against_one_by_one"]
        equal = "" if rows is None else f"{rows['equal_rows']} of {rows['rows']}"
        rates = f"{one['medians']['decode_tokens_per_s']:.0f} | {one['medians']['prefill_tokens_per_s']:.0f}"
        lines.append(f"| {one['name']} | {rates} | {faster} | {equal} |")
    return "\n".join(lines) + "\n"


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


def run(arguments: list[str]) -> int:
    before = README.read_text(encoding="utf-8")
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    after = head + BEGIN + figures() + END + tail
    if "--check" not in arguments:
        README.write_text(after, encoding="utf-8")
        return 0
    if before == after:
        return 0
    print("README's figures are not those of benchmarks/results: run python docs/generate_figures.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
