"""Figures in words: units a person reads, intervals beside medians, and the sentence on top."""

from __future__ import annotations

import math

from swiftsure.bench.figures.definitions import definition_of
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.summary import Summary


def amount(value: float | None, unit: str) -> str:
    """``0.212, "s"`` as ``212 ms``; None as ``not measured``."""
    if value is None:
        return "not measured"
    number, name = scaled(value, unit)
    return f"{number} {name}".rstrip()


def scaled(value: float, unit: str) -> tuple[str, str]:
    """The number and the unit it is told in: three digits, seconds below one as milliseconds, shares in percent."""
    if unit == "s" and value < 1:
        return three_digits(value * 1000), "ms"
    if unit == "share":
        return three_digits(value * 100), "%"
    return three_digits(value), {"money": "", "tokens": "tokens"}.get(unit, unit)


def three_digits(value: float) -> str:
    """``0.0123``, ``1.23``, ``12.3``, ``1,230``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "not finite"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 8)}f}" if abs(value) < 1000 else f"{value:,.0f}"


def interval(estimate: Estimate | None, unit: str) -> str:
    """``200 to 221 ms``, or why there is none."""
    if estimate is None or estimate.value is None:
        return ""
    if estimate.low is None and estimate.high is None:
        return "too few" if estimate.words else "no interval"
    if estimate.low is None or estimate.high is None:
        return f"from {amount(estimate.low, unit)}"
    high, name = scaled(estimate.high, unit)
    factor = {"ms": 1000.0, "%": 100.0}.get(name, 1.0)
    return f"{three_digits(estimate.low * factor)} to {high} {name}".rstrip()


def range_beside(estimate: Estimate | None, unit: str) -> str:
    """The interval under a value that stands with its unit: ``229 to 323``, with the unit where it is another."""
    if estimate is None or estimate.value is None or (estimate.low is None and estimate.high is None):
        return "too few" if estimate is not None and estimate.value is not None and estimate.words else ""
    words = interval(estimate, unit)
    name = scaled(estimate.value, unit)[1]
    return words.removesuffix(name).rstrip() if name else words


def figure(group: Group | None, name: str, *, with_interval: bool = False) -> str:
    """A group's figure as it stands in a table: the value, a reason (``not reached``), or ``not measured``."""
    estimate = None if group is None else group.figures.get(name)
    if estimate is None:
        return "not measured"
    unit = definition_of(name).unit
    if estimate.value is None:
        return short_reason(estimate.words)
    bounds = interval(estimate, unit) if with_interval else ""
    return amount(estimate.value, unit) + (f" ({bounds})" if bounds else "")


def short_reason(words: str | None) -> str:
    """The first words of why there is no figure."""
    return (words or "not measured").partition(":")[0].partition(" in ")[0]


def headline(summary: Summary) -> str:
    """The run in one sentence: never TTFT or decode speed alone."""
    main = summary.main
    if main is None:
        return "FAILED: nothing was measured."
    if summary.verdict == "REFUSED":
        return f"REFUSED: {main.name} has no figures, {main.refused}."
    if summary.verdict == "FAILED":
        kinds = ", ".join(f"{count} {kind}" for kind, count in main.errors.items())
        return f"FAILED: none of {main.exchanges} exchanges ended well ({kinds or 'none was sent'})."
    first, speed = (main.figures[name] for name in ("ttft_p50", "decode_p50"))
    wait = f"the first token comes after {amount(first.value, 's')}"
    then = f"then {amount(speed.value, 'tokens/s')}" if speed.value is not None else f"decode speed: {short_reason(speed.words)}"
    opening = "" if summary.verdict == "MEASURED" else "INCONCLUSIVE: "
    sentence = f"{wait}, {then}"
    return f"{opening}{sentence if opening else sentence[0].upper() + sentence[1:]}."


def sublines(summary: Summary) -> list[str]:
    """What stands under it: of how much, how sure, at most load, and how many warnings."""
    main, lines = summary.main, []
    if main is not None and main.figures:
        first, speed = main.figures["ttft_p50"], main.figures["decode_p50"]
        base = f"Medians of {main.succeeded} exchanges ({main.name}; {plural(first.prompts, 'prompt')}, {plural(first.rounds, 'round')})"
        sure = [f"{title} {interval(e, u)}" for title, e, u in (("TTFT", first, "s"), ("decode", speed, "tokens/s")) if e.conclusive]
        too_few = [e.words for e in (first, speed) if not e.conclusive and e.words]
        lines.append(f"{base}. " + ("95 % intervals: " + ", ".join(sure) + ". " if sure else "") + " ".join(f"{w}." for w in too_few[:1]))
    started = [reading.values["ttft"] for reading in summary.cold_starts if "ttft" in reading.values]
    if started:
        lines.append(f"The very first request waited {amount(started[0], 's')} for its first token; it is in no figure.")
    crowded = most_users(summary)
    if crowded is not None:
        lines.append(
            f"{crowded.users} users at once: {figure(crowded, 'aggregate', with_interval=True)} together, "
            f"{figure(crowded, 'decode_p50')} each, first token after {figure(crowded, 'ttft_p50')}."
        )
    if summary.prefill is not None and summary.prefill.value is not None:
        lines.append(f"1,000 more tokens of context cost {amount(summary.prefill.value, 's')} ({interval(summary.prefill, 's')}).")
    count = len(summary.warnings)
    lines.append(
        f"{plural(count, 'warning')} of the bench's own checks: read them first." if count else "The bench's own checks found no fault."
    )
    return [line.strip() for line in lines]


def most_users(summary: Summary) -> Group | None:
    """The group with the most closed-loop users that has a value for all together; None where there was one user only."""
    fitting = [g for g in summary.groups if g.users > 1 and g.rate_per_s is None and g.value("aggregate") is not None]
    return max(fitting, key=lambda g: g.users) if fitting else None


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
