"""The record in a file and the tables on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.budget import Budget
from benchmarks.peers.cast import Member
from benchmarks.peers.measure import Prompt, Turn, medians, others_overall, ratio, texts_against
from benchmarks.peers.sizes import Cells, size_ratios
from swiftsure.records.statistics import Ratio

NOT_MEASURED = "not measured"


def record(
    members: Sequence[Member],
    prompts: Sequence[Prompt],
    *,
    turns: Sequence[Turn],
    base: str,
    choices: Mapping[str, Mapping[str, Any]],
    identity: Mapping[str, Mapping[str, Any]],
    cells: Cells,
    peak_rss_bytes: Mapping[str, int | None],
    budget: Budget,
    machine: Mapping[str, Any],
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything measured, as JSON. ``base_over_this``: the rate of ``base`` divided by this contender's, paired turn by turn."""
    return {
        "schema": 2,
        "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "base": base,
        "machine": dict(machine),
        "others_cpu_share": others_overall(turns),
        "model": dict(model),
        "settings": dict(settings),
        "prompts": {prompt.name: {"tokens": len(prompt.ids)} for prompt in prompts},
        "contenders": [
            _contender(member, turns, base, cells)
            | {
                "draft": choices.get(member.contender.name),
                "identity": identity.get(member.contender.name),
                "peak_rss_bytes": peak_rss_bytes.get(member.contender.name),
                "reason": budget.failed(member.contender.name),
            }
            for member in members
        ],
        "turns": [turn.to_dict() for turn in turns],
    }


def _contender(member: Member, turns: Sequence[Turn], base: str, cells: Cells) -> dict[str, Any]:
    name = member.contender.name
    rates = {"decode": "decode_tokens_per_s", "prefill": "prefill_tokens_per_s"}
    return {
        "name": name,
        "plain": member.contender.plain,
        "shares_passes": member.contender.shares_passes,
        "facts": member.facts,
        "startup_s": member.startup_s,
        "medians": medians(turns, name),
        "base_over_this": {what: _ratio(ratio(turns, base, name, rate)) for what, rate in rates.items()},
        "text_first_differs_at": texts_against(turns, member.contender),
        "sizes": _sizes(name, base, cells),
    }


def _sizes(name: str, base: str, cells: Cells) -> dict[str, Any]:
    if name not in cells:
        return {}
    ratios = {what: size_ratios(cells, base, name, what) for what in ("decode", "prefill")}
    return {
        str(size): cell.to_dict() | {"base_over_this": {what: _ratio(ratios[what][size]) for what in ratios}}
        for size, cell in cells[name].items()
    }


def _ratio(value: Ratio | None) -> dict[str, Any] | None:
    return None if value is None else value.to_dict()


def tables(result: Mapping[str, Any]) -> str:
    """Plain text: prompts, sizes, identity."""
    plan = result["settings"]["sizes"]
    parts = [prompt_table(result), *identity_lines(result)]
    for what, sizes in (("decode", plan["contexts"]), ("prefill", plan["prefills"])):
        if sizes:
            parts.append(size_table(result, f"{what} tokens/s at prompt tokens (base x this)", sizes, partial(rate_words, what=what)))
    if plan["contexts"]:
        parts.append(size_table(result, "peak memory in MB at prompt tokens", plan["contexts"], memory_words))
    return "\n".join(parts)


def prompt_table(result: Mapping[str, Any]) -> str:
    lines = [
        f"{'':24} {'decode':>8} {'prefill':>8} {'TTFT':>7} {'peak':>6} {'start':>6}  {'base decodes':>22}",
        f"{'':24} {'tok/s':>8} {'tok/s':>8} {'ms':>7} {'MB':>6} {'s':>6}  {'x this [95 %]':>22}",
    ]
    for one in result["contenders"]:
        middle, peak, start = one["medians"], one["peak_rss_bytes"], one["startup_s"]
        if middle is None:
            lines.append(f"{one['name']:24} {one['reason'] or NOT_MEASURED}")
            continue
        drafts = f"  draft {one['draft']['draft_tokens']}" if one["draft"] else ""
        lines.append(
            f"{one['name']:24} {middle['decode_tokens_per_s']:8.1f} {middle['prefill_tokens_per_s']:8.0f} {middle['ttft_s'] * 1000:7.1f} "
            f"{'-' if peak is None else format(peak / 1e6, '.0f'):>6} {'-' if start is None else format(start, '.2f'):>6}  "
            f"{ratio_words(one, result['base']):>22}{drafts}"
        )
    return "\n".join(lines)


def identity_lines(result: Mapping[str, Any]) -> list[str]:
    lines = ["", "does company or speculation change the answer?"]
    for one in result["contenders"]:
        if one["medians"] is None:
            continue
        company = "" if one["shares_passes"] else f"rows in a batch: {rows_words(one)}; text in a batch: {batch_words(one)}; "
        lines.append(f"{one['name']:24} {company}text: {text_words(one)}")
    return lines


def size_table(result: Mapping[str, Any], title: str, sizes: Sequence[int], words: Callable[[Mapping[str, Any]], str]) -> str:
    lines = ["", title, f"{'':24}" + "".join(f" {size:>22,}" for size in sizes)]
    reasons: dict[str, str] = {}
    for one in result["contenders"]:
        if not one["sizes"]:
            continue
        shown = [words(one["sizes"][str(size)]) for size in sizes]
        lines.append(f"{one['name']:24}" + "".join(f" {_short(text, reasons):>22}" for text in shown))
    return "\n".join([*lines, *(f"  {mark} {reason}" for reason, mark in reasons.items())])


def _short(text: str, reasons: dict[str, str]) -> str:
    """Long reasons go under the table."""
    return text if len(text) <= 22 else reasons.setdefault(text, f"[{len(reasons) + 1}]")


def rate_words(cell: Mapping[str, Any], what: str) -> str:
    rate, over = cell[f"{what}_tokens_per_s"], cell["base_over_this"][what]
    if rate is None:
        return cell["reason"] or NOT_MEASURED
    return f"{rate:.0f}" if over is None else f"{rate:.0f} ({over['ratio']:.2f}x{'' if over['conclusive'] else '?'})"


def memory_words(cell: Mapping[str, Any]) -> str:
    peak = cell["peak_rss_bytes"]
    return f"{peak / 1e6:.0f}" if peak is not None else cell["reason"] or NOT_MEASURED


def ratio_words(one: Mapping[str, Any], base: str) -> str:
    if one["name"] == base:
        return "base"
    found = one["base_over_this"]["decode"]
    if found is None or not found["conclusive"]:
        return "INCONCLUSIVE" if found is None else f"{found['ratio']:.2f} INCONCLUSIVE"
    return f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def rows_words(one: Mapping[str, Any]) -> str:
    rows = (one["identity"] or {}).get("rows")
    if rows is None or "reason" in rows:
        return NOT_MEASURED if rows is None else str(rows["reason"])
    equal = f"{rows['equal_rows']}/{rows['rows']} equal"
    if rows["equal_rows"] == rows["rows"]:
        return equal
    return f"{equal}, max {rows['largest_difference']:.2g}, best {rows['different_best_tokens']}"


def batch_words(one: Mapping[str, Any]) -> str:
    batch = (one["identity"] or {}).get("batch")
    if batch is None or "reason" in batch:
        return NOT_MEASURED if batch is None else str(batch["reason"])
    if not batch["leave"]:
        return f"{batch['texts']}/{batch['texts']} as alone"
    return f"{batch['texts'] - batch['leave']}/{batch['texts']} as alone, first left at token {batch['first_at']}"


def text_words(one: Mapping[str, Any]) -> str:
    places = one["text_first_differs_at"]
    left = {name: at for name, at in places.items() if at is not None}
    other = one["plain"] or "itself repeated"
    if not places:
        return NOT_MEASURED
    if not left:
        return f"= {other} on {len(places)} prompts"
    first = min(left.values())
    return f"leaves {other} on {len(left)}/{len(places)} prompts, at token {first} first"


def write(result: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
