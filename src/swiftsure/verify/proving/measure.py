"""From timed samples to figures. Pure: no clock, no process.

The three metrics are seconds, smaller is better: ``decode`` (per token after the first), ``ttft`` (call to first token) and
``end_to_end`` (call to last text). A speed-up is base / mode, from pairs measured next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftsure.records.statistics import Noise, Ratio, median, pair_noise, paired_ratio

METRICS = ("decode", "ttft", "end_to_end")
PHASES = ("load", "tokenize", "prefill", "decode", "detokenize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timed generation."""

    prompt: str
    kind: str
    size: str
    greedy: bool
    round: int
    prompt_tokens: int
    output_tokens: int
    wall_s: float
    ttft_s: float | None
    phases_s: Mapping[str, float]  # tokenize, prefill, decode, detokenize
    drafted: int = 0  # draft tokens that passes verified
    accepted: int = 0  # of those, the ones kept
    best_passes: int | None = None  # decode passes, had every draft from the text itself had its best length in hindsight
    best_cost: float | None = None  # the time of those in passes of one row

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens that one decode pass yielded: a pass without accepted draft tokens yields one."""
        tokens = self.output_tokens - 1
        return tokens / (tokens - self.accepted) if tokens > self.accepted else None

    def seconds(self, metric: str) -> float | None:
        """``None`` where the sample does not tell: a single token has no decode time."""
        if metric == "end_to_end":
            return self.wall_s
        if metric == "ttft":
            return self.ttft_s
        tokens = self.output_tokens - 1
        return self.phases_s["decode"] / tokens if tokens > 0 and self.phases_s["decode"] > 0 else None


def paired(base: Iterable[Sample], other: Iterable[Sample], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Per prompt the pairs (base seconds, other seconds) of the rounds that both sides ran."""
    partners = {(sample.prompt, sample.round): sample.seconds(metric) for sample in base}
    groups: dict[str, list[tuple[float, float]]] = {}
    for sample in other:
        mine, theirs = sample.seconds(metric), partners.get((sample.prompt, sample.round))
        if mine and theirs:
            groups.setdefault(sample.prompt, []).append((theirs, mine))
    return groups


def speedup(base: Iterable[Sample], other: Iterable[Sample], metric: str, noise: Noise | None = None) -> Ratio | None:
    """The paired ratio base / other of a metric; groups are prompts. ``noise`` is that of the whole run, for parts with few repeats."""
    return paired_ratio(paired(base, other, metric).values(), noise)


def run_noise(base: Sequence[Sample], other: Sequence[Sample]) -> dict[str, Noise]:
    """By metric, how much a single pair varies between rounds."""
    return {metric: pair_noise(paired(base, other, metric).values()) for metric in METRICS}


def pair_ratios(base: Sequence[Sample], other: Sequence[Sample]) -> dict[str, list[float]]:
    """Every single ratio base / other, by metric."""
    return {metric: [a / b for group in paired(base, other, metric).values() for a, b in group] for metric in METRICS}


def typical(samples: Sequence[Sample], metric: str) -> float | None:
    """The median over prompts of each prompt's median, in seconds."""
    per_prompt = [medians[metric] for medians in by_prompt(samples).values() if medians[metric] is not None]
    return median([value for value in per_prompt if value is not None]) if per_prompt else None


def decode_tokens_per_s(samples: Sequence[Sample]) -> float | None:
    """(tokens after the first) / (time after the first), median over prompts of the medians."""
    seconds = typical(samples, "decode")
    return 1 / seconds if seconds else None


def by_prompt(samples: Iterable[Sample]) -> dict[str, dict[str, float | None]]:
    """Each prompt's median of each metric, in the order of first appearance."""
    groups = _grouped(samples, lambda sample: sample.prompt)
    return {name: {metric: _median_or_none(s.seconds(metric) for s in group) for metric in METRICS} for name, group in groups.items()}


def phase_seconds(samples: Iterable[Sample], load_s: float) -> dict[str, float]:
    """The phases of one pass over the workload: for each phase the sum over prompts of the median, and loading once."""
    groups = _grouped(samples, lambda sample: sample.prompt).values()
    return {"load": load_s} | {phase: sum(median(s.phases_s[phase] for s in group) for group in groups) for phase in PHASES[1:]}


def request_seconds(samples: Iterable[Sample]) -> float:
    """The time of one pass over the workload without loading: the sum over prompts of the median."""
    return sum(median(s.wall_s for s in group) for group in _grouped(samples, lambda sample: sample.prompt).values())


def phase_ratio(base: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float | None]:
    """base / other per phase; ``None`` where a phase took no time."""
    return {phase: base[phase] / other[phase] if base[phase] > 0 and other[phase] > 0 else None for phase in base}


def speedups(base: Sequence[Sample], other: Sequence[Sample], noise: Mapping[str, Noise] | None = None) -> dict[str, Ratio | None]:
    return {metric: speedup(base, other, metric, noise[metric] if noise else None) for metric in METRICS}


def worst(base: Sequence[Sample], other: Sequence[Sample]) -> dict[str, Any]:
    """The prompt with the smallest speed-up of each metric."""
    found: dict[str, Any] = {}
    for metric in METRICS:
        ratios = {name: speedup(base, group, metric) for name, group in _grouped(other, lambda sample: sample.prompt).items()}
        known = {name: ratio.value for name, ratio in ratios.items() if ratio is not None}
        name = min(known, key=known.__getitem__) if known else None
        found[metric] = known[name] if name is not None else None
        found[f"{metric}_prompt"] = name
    return found


def breakdown(base: Sequence[Sample], other: Sequence[Sample], key: Callable[[Sample], str]) -> dict[str, dict[str, Any]]:
    """Figures per kind, per size or per any other key of a sample."""
    noise = run_noise(base, other)
    return {name: figures(base, group, noise) for name, group in _grouped(other, key).items()}


def figures(base: Sequence[Sample], other: Sequence[Sample], noise: Mapping[str, Noise] | None = None) -> dict[str, Any]:
    """What stands in the JSON for a group of samples. A ratio with too few samples is null there and INCONCLUSIVE in ``intervals``."""
    ratios = speedups(base, other, noise)
    return {
        "prompts": len({sample.prompt for sample in other}),
        "samples": len(other),
        "decode_tokens_per_s": decode_tokens_per_s(other),
        "ttft_s": typical(other, "ttft"),
        "end_to_end_s": typical(other, "end_to_end"),
        "speedup": headline(ratios),
        "intervals": intervals(ratios),
        "speculation": speculation(other),
    }


def speculation(samples: Iterable[Sample]) -> dict[str, Any] | None:
    """Tokens a decode pass, and the ceiling that no choice of draft lengths passes with the same look-up: pooled over samples, so that long
    outputs weigh more. None where no draft was possible.

    ``ceiling_speedup`` is over plain decoding, at the costs of rows that the engine measured.
    """
    able = [sample for sample in samples if sample.best_passes and sample.best_cost]
    if not able:
        return None
    tokens = sum(sample.output_tokens - 1 for sample in able)
    accepted = sum(sample.accepted for sample in able)
    return {
        "tokens_per_pass": tokens / (tokens - accepted),
        "accepted_per_drafted": accepted / drafted if (drafted := sum(sample.drafted for sample in able)) else None,
        "ceiling_tokens_per_pass": tokens / sum(sample.best_passes or 0 for sample in able),
        "ceiling_speedup": tokens / sum(sample.best_cost or 0.0 for sample in able),
    }


def headline(ratios: Mapping[str, Ratio | None]) -> dict[str, float | None]:
    return {metric: ratio.value if ratio is not None and ratio.conclusive else None for metric, ratio in ratios.items()}


def intervals(ratios: Mapping[str, Ratio | None]) -> dict[str, Any]:
    """Ratio, bounds and number of pairs, or the word INCONCLUSIVE beside what little was measured."""
    found: dict[str, Any] = {}
    for metric, ratio in ratios.items():
        if ratio is None:
            found[metric] = {"verdict": "INCONCLUSIVE", "pairs": 0}
        else:
            found[metric] = {**({} if ratio.conclusive else {"verdict": "INCONCLUSIVE"}), **ratio.to_dict()}
    return found


def _grouped(samples: Iterable[Sample], key: Callable[[Sample], str]) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return groups


def _median_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
