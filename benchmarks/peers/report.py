"""The table on the screen and the record in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Contender
from benchmarks.peers.measure import Prompt, Turn, medians, others_overall, ratio, texts_against
from swiftsure.records.statistics import Ratio


def record(
    contenders: Sequence[Contender],
    turns: Sequence[Turn],
    prompts: Sequence[Prompt],
    *,
    base: str,
    facts: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    peak_rss_bytes: Mapping[str, int | None],
    machine: Mapping[str, Any],
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything measured, as JSON. ``base_over_this``: the rate of ``base`` divided by this contender's, paired turn by turn."""
    results = []
    for contender in contenders:
        decode = ratio(turns, base, contender.name, "decode_tokens_per_s")
        prefill = ratio(turns, base, contender.name, "prefill_tokens_per_s")
        compared = rows.get(contender.name)
        results.append(
            {
                "name": contender.name,
                "plain": contender.plain,
                "facts": dict(facts[contender.name]),
                "medians": medians(turns, contender.name),
                "base_over_this": {"decode": _ratio(decode), "prefill": _ratio(prefill)},
                "rows_in_a_batch_against_one_by_one": None if compared is None else _total(compared),
                "text_first_differs_at": texts_against(turns, contender),
                "peak_rss_bytes": peak_rss_bytes[contender.name],
            }
        )
    return {
        "schema": 1,
        "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "base": base,
        "machine": dict(machine),
        "others_cpu_share": others_overall(turns),
        "model": dict(model),
        "settings": dict(settings),
        "prompts": {prompt.name: {"tokens": len(prompt.ids)} for prompt in prompts},
        "contenders": results,
        "turns": [turn.to_dict() for turn in turns],
    }


def _ratio(value: Ratio | None) -> dict[str, Any] | None:
    return None if value is None else value.to_dict()


def _total(compared: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all prompts."""
    return {
        "rows": sum(one["rows"] for one in compared),
        "equal_rows": sum(one["equal_rows"] for one in compared),
        "largest_difference": max(one["largest_difference"] for one in compared),
        "different_best_tokens": sum(one["different_best_tokens"] for one in compared),
    }


def table(result: Mapping[str, Any]) -> str:
    """Plain text, one line a contender."""
    lines = [
        f"{'':20} {'decode':>8} {'prefill':>8} {'TTFT':>7} {'peak':>6}  {'base decodes':>22}  "
        f"{'rows in a batch = one by one':>34}  {'greedy text against plain':<}",
        f"{'':20} {'tok/s':>8} {'tok/s':>8} {'ms':>7} {'MB':>6}  {'x this [95 %]':>22}",
    ]
    for one in result["contenders"]:
        middle, peak = one["medians"], one["peak_rss_bytes"]
        lines.append(
            f"{one['name']:20} {middle['decode_tokens_per_s']:8.1f} {middle['prefill_tokens_per_s']:8.0f} {middle['ttft_s'] * 1000:7.1f} "
            f"{'-' if peak is None else format(peak / 1e6, '.0f'):>6}  {_ratio_words(one, result['base']):>22}  "
            f"{_row_words(one['rows_in_a_batch_against_one_by_one']):>34}  {_text_words(one)}"
        )
    return "\n".join(lines)


def _ratio_words(one: Mapping[str, Any], base: str) -> str:
    if one["name"] == base:
        return "base"
    found = one["base_over_this"]["decode"]
    if found is None or not found["conclusive"]:
        return "INCONCLUSIVE" if found is None else f"{found['ratio']:.2f} INCONCLUSIVE"
    return f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def _row_words(rows: Mapping[str, Any] | None) -> str:
    if rows is None:
        return "not measured"
    equal = f"{rows['equal_rows']}/{rows['rows']} equal"
    if rows["equal_rows"] == rows["rows"]:
        return equal
    return f"{equal}, max {rows['largest_difference']:.2g}, best {rows['different_best_tokens']}"


def _text_words(one: Mapping[str, Any]) -> str:
    places = one["text_first_differs_at"]
    left = {name: at for name, at in places.items() if at is not None}
    other = one["plain"] or "itself repeated"
    if not left:
        return f"= {other} on {len(places)} prompts"
    first = min(left.values())
    return f"leaves {other} on {len(left)}/{len(places)} prompts, at token {first} first"


def write(result: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
