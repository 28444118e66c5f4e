"""The page of a verification, from its record alone: what a release manager needs in two minutes, then the details."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from swiftsure.records.charts import Bar, Dots, bar_chart, dot_chart
from swiftsure.records.page import render_page
from swiftsure.verify.contracts.contract import WITHIN_LIMITS
from swiftsure.verify.verification import seconds

if TYPE_CHECKING:
    from swiftsure.verify.verification import Verification

PROMISES = {
    "exact": "the bits of the baseline",
    "fast": "numeric differences within the declared tolerances, and the task result holds",
    "upstream": "agreement with the upstream release within the declared limits; bits are no part of it",
    "big": "larger inputs run within the limits; whether they are accurate is answered separately",
}
_CLASSES = {"PASS": "ok", "FAIL": "failed"}
_MOST_ROWS = 40


def render_report(verification: Verification) -> str:
    """The whole page as one string."""
    record = verification.record
    return render_page(
        "swiftsure.verify",
        "verify.html.j2",
        {
            "record": record,
            "contract": record["contract"],
            "verdict": record["verdict"],
            "css": _CLASSES.get(record["verdict"]["kind"], "open"),
            "promise": PROMISES[record["contract"]["kind"]],
            "lines": summary_lines(record),
            "findings": record.get("findings", []),
            "untested": record.get("untested", []),
            "tasks": list(_task_rows(record)),
            "costs": [(name, task["seconds_per_correct"]) for name, task in _timed_tasks(record)],
            "tolerances": [row for row in record.get("tolerances", []) if row["limit"] is not None],
            "sizes": record.get("sizes", []),
            "speeds": record.get("speeds", []),
            "amdahl": record.get("end_to_end_by_amdahl"),
            "plots": list(_plots(record)),
            "cases": list(_cases(record))[:_MOST_ROWS],
            "hidden": max(0, len(record.get("observations", [])) - _MOST_ROWS),
            "facts": list(_facts(record)),
        },
        {
            "seconds": seconds,
            "count": lambda value: "not measured" if value is None else f"{value:,.4g}",
            "bytes": size_words,
            "signed": _signed,
            "cost": lambda estimate: _spread(estimate, seconds),
            "ratio": lambda estimate: _spread(estimate, lambda value: f"{value:.2f}x"),
        },
    )


def size_words(value: float | None) -> str:
    """In powers of 1000, as the rest of Swiftsure prints sizes."""
    if value is None:
        return "not measured"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def summary_lines(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines below the verdict, from promise to what a correct result costs; the same on the page and in the terminal."""
    lines = [("promise", PROMISES[record["contract"]["kind"]]), ("worst case", _worst_case(record))]
    tasks = [finding["words"] for finding in record.get("findings", []) if finding["about"] == "task"]
    lines.append(("task", tasks[0] if tasks else "not measured"))
    lines.append(("time", _time(record)))
    memory = record.get("memory")
    words = "not measured on both sides"
    if memory is not None:
        words = f"{memory['words']}; largest peaks {size_words(memory['candidate_bytes'])} against {size_words(memory['baseline_bytes'])}"
    lines.append(("memory", words))
    costs = [f"{name}: {cost_words(task['seconds_per_correct'])}" for name, task in _timed_tasks(record)]
    return [*lines, ("correct", "; ".join(costs))] if costs else lines


def _timed_tasks(record: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Tasks whose items were timed on both sides. Records of earlier versions have none."""
    tasks = (record.get("tasks") or {}).items()
    return [(name, task) for name, task in tasks if task is not None and task.get("seconds_per_correct") is not None]


def cost_words(cost: Mapping[str, Any]) -> str:
    """``120 ms a correct result, the baseline 300 ms: 2.50x (2.10x to 2.90x)``."""
    ours, other, ratio = (cost[name] for name in ("candidate", "baseline", "ratio"))
    sides = [seconds(side["value"]) if side["value"] is not None else "nothing right" for side in (ours, other)]
    words = f"{sides[0]} a correct result, the baseline {sides[1]}"
    return words if ratio["value"] is None else f"{words}: {_spread(ratio, lambda value: f'{value:.2f}x')}"


def _spread(estimate: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """An estimate with its bounds, on the page and in the terminal."""
    if estimate["value"] is None:
        return "nothing right"
    if estimate["low"] is None:
        return f"{show(estimate['value'])} (too few for an interval)"
    return f"{show(estimate['value'])} ({show(estimate['low'])} to {show(estimate['high'])})"


def _worst_case(record: Mapping[str, Any]) -> str:
    kind = record["contract"]["kind"]
    if kind in WITHIN_LIMITS:
        limited = [row for row in record.get("tolerances", []) if row["limit"] is not None]
        if not limited:
            return "no limited figure was measured"
        row = max(limited, key=lambda row: (row["beyond"] > 0, math.inf if row["used"] is None else row["used"]))
        return f"{row['output']} {row['figure']} {_figure(row['worst'])} of {row['limit']:g} at {row['worst_case']} ({row['range']})"
    if kind == "big":
        sizes = record.get("sizes", [])
        broken = next((row for row in sizes if row["ran"] < row["cases"]), None)
        if broken is not None:
            return f"{broken['size']:,g}: {broken['ran']} of {broken['cases']} ran; {broken['reason']}"
        return f"all {sum(row['cases'] for row in sizes)} cases ran, up to {max((row['size'] or 0 for row in sizes), default=0):,g}"
    seen = [seen["exact"] for seen in record.get("observations", []) if seen["exact"] and not seen["exact"]["not_compared"]]
    differing = [found for found in seen if not found["equal"]]
    if not differing:
        return f"none of {len(seen)} cases differs" if seen else "nothing was compared"
    most = max(differing, key=lambda found: found["differing"])
    return (
        f"case {most['case']}: {most['differing']:,} of {most['compared']:,} elements differ; {len(differing)} of {len(seen)} cases differ"
    )


def _figure(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.3g}"


def _time(record: Mapping[str, Any]) -> str:
    whole = next((row for row in record.get("speeds", []) if row["phase"] == "whole" and row["range"] == "all sizes"), None)
    if whole is None:
        return "not measured on both sides"
    interval = "too few pairs for an interval" if whole["low"] is None else f"95 % interval {whole['low']:.2f} to {whole['high']:.2f}"
    cases = "1 case" if whole["cases"] == 1 else f"{whole['cases']} cases"
    words = f"end to end {whole['speedup']:.2f}x over {cases} ({interval}), worst {whole['worst']:.2f}x at {whole['worst_case']}"
    amdahl = record.get("end_to_end_by_amdahl")
    if amdahl is not None:
        words += (
            f"; the sped-up phase alone is {amdahl['speedup']:.2f}x, which by Amdahl's law gives {amdahl['end_to_end']:.2f}x end to end"
        )
    return words


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.4f}"


def _task_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, task in (record.get("tasks") or {}).items():
        if task is not None:
            yield name, task["whole"]
            for group, found in task["by_group"].items():
                yield f"{name}, {group}", found


def _plots(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    rows = record.get("speeds", [])
    if rows:
        dots = [
            Dots(
                label=row["range"] if row["phase"] == "whole" else f"phase {row['phase']}",
                values=[row["speedup"]],
                text=f"{row['speedup']:.2f}x",
                low=row["low"],
                high=row["high"],
                strong=row["phase"] == "whole" and row["range"] == "all sizes",
            )
            for row in rows
        ]
        caption = (
            "Baseline's seconds over the candidate's; right of 1 the candidate is faster. Geometric means over cases, with 95 % intervals."
        )
        yield {"title": "Speed", "caption": caption, "svg": dot_chart(dots, title="speed-up by size and phase")}
    memory = record.get("memory")
    if memory is not None:
        sides = (("baseline", 0), ("candidate", 1))
        bars = [Bar(label=s, value=memory[f"{s}_bytes"], text=size_words(memory[f"{s}_bytes"]), series=n) for s, n in sides]
        yield {"title": "Peak memory", "caption": memory["words"], "svg": bar_chart(bars, title="peak memory")}


def _cases(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for seen in record.get("observations", []):
        runs: Sequence[Mapping[str, Any]] = seen["candidate"]
        broken = next((run for run in runs if run["status"] != "ran"), None)
        exact = seen["exact"]
        same = "not compared" if exact is None or exact["not_compared"] else f"{exact['differing']:,} of {exact['compared']:,} differ"
        yield {
            "case": seen["case"],
            "size": "" if seen["size"] is None else f"{seen['size']:,g}",
            "status": broken["status"].replace("_", " ") if broken else "ran" if runs else "not run",
            "same": same,
            "baseline_s": _first_time(seen["baseline"]),
            "candidate_s": _first_time(runs),
        }


def _first_time(runs: Sequence[Mapping[str, Any]]) -> str:
    return seconds(runs[0]["wall_s"]) if runs else "not run"


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    contract = record["contract"]
    yield "contract", f"{contract['name'] or 'without a name'}, {contract['digest']}"
    yield "owner", contract["owner"] or "nobody"
    yield "recheck", contract["recheck"] or "no date set"
    for side in ("baseline", "candidate"):
        facts = record[side]
        yield side, facts["spec"]
        said = facts.get("activation")
        if said:
            yield f"{side} active", f"{said['state'].replace('_', ' ')}: {said['evidence'] or said['reason'] or 'nothing told'}"
        for name, value in (facts.get("pins") or {}).items():
            if value not in (None, "", {}, []):
                yield f"{side} {name.replace('_', ' ')}", _plain(value)
    for name in ("recipe", "environment"):
        if contract.get(name):
            yield name, _plain(contract[name])
    machine = record.get("machine")
    if machine:
        yield "machine", f"{machine['cpu_model']}, {machine['usable_cpus']} processors usable, {machine['system']}"
    yield "run", f"{record['started']} to {record.get('finished') or 'not finished'}"


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_plain, value))
    return str(value)
