"""``swiftsure bench report``, ``compare`` and ``claim``: what measured rounds say, without measuring."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftsure.cli import bench_options as shared
from swiftsure.cli import options
from swiftsure.cli.console import note, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.bench.figures.settings import Settings
    from swiftsure.bench.figures.summary import Summary
    from swiftsure.bench.require import Requirement

Slo = Annotated[
    str | None,
    option(
        "--slo",
        metavar="NAME=VALUE,...",
        section=shared.FIGURES,
        help="What a good answer keeps: ttft, first_answer, itl, tpot, e2e in seconds, decode in tokens/s. Gives goodput.",
    ),
]
PriceIn = Annotated[float | None, option("--price-in", metavar="P", section=shared.FIGURES, help="Price of a million prompt tokens.")]
PriceOut = Annotated[float | None, option("--price-out", metavar="P", section=shared.FIGURES, help="Price of a million output tokens.")]
PriceCached = Annotated[
    float | None,
    option("--price-cached", metavar="P", section=shared.FIGURES, help="Of a million cached prompt tokens. Default: as --price-in."),
]
Bandwidth = Annotated[
    float | None,
    option(
        "--hardware-gb-per-s",
        metavar="X",
        section=shared.FIGURES,
        help="Memory bandwidth of the stated hardware; with --model-gb, speeds above its bound are flagged.",
    ),
]
ModelSize = Annotated[
    float | None, option("--model-gb", metavar="X", section=shared.FIGURES, help="Gigabytes that one token makes the model read.")
]
Require = Annotated[
    str | None,
    option(
        "--require",
        metavar="'FIGURE<X ...'",
        section=shared.FIGURES,
        help="End with 1 unless these hold, as 'ttft_p50<0.3 decode_p50>100'; also ROW.FIGURE@USERS.",
    ),
]
_Results = Annotated[
    Path, typer.Argument(metavar="RESULTS", show_default=False, help="The folder of a bench, or a summary.json written before.")
]
_A = Annotated[Path, typer.Argument(metavar="A", show_default=False, help="A folder of a bench, or its summary.json.")]
_B = Annotated[Path, typer.Argument(metavar="B", show_default=False, help="The other one, which is compared with A.")]
_Anyway = Annotated[bool, option("--despite", help="Compare what differs in prompts or protocol all the same, and mark it.")]
_FailOnWorse = Annotated[bool, option("--fail-on-worse", help="End with 1 where any figure became worse.")]
_Claim = Annotated[str, typer.Argument(metavar="CLAIM", show_default=False, help="As '3000 tokens/s' or '969 tokens/s, TTFT 240 ms'.")]
_From = Annotated[
    Path | None, option("--from", metavar="RESULTS", help="The folder of a bench, or a summary.json written before. Required.")
]
_Table = Annotated[
    Path | None, option("--table", metavar="FILE", section=options.OUTPUT, help="Write all exchanges as .csv or .parquet too.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOptions:
    """What the figures are held against."""

    slo: Slo = None
    price_in: PriceIn = None
    price_out: PriceOut = None
    price_cached: PriceCached = None
    hardware_gb_per_s: Bandwidth = None
    model_gb: ModelSize = None

    def settings(self) -> Settings:
        """Raises UsageError for values that break a rule, and for prices or bounds of which half is missing."""
        from swiftsure.bench.figures import settings

        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("--price-in and --price-out belong together: a cost has both")
        if self.price_cached is not None and self.price_in is None:
            raise UsageError("--price-cached needs --price-in and --price-out")
        if (self.hardware_gb_per_s is None) != (self.model_gb is None):
            raise UsageError("--hardware-gb-per-s and --model-gb belong together: their ratio is the bound")
        prices = None
        if self.price_in is not None and self.price_out is not None:
            prices = settings.Prices(prompt=self.price_in, output=self.price_out, cached=self.price_cached)
        return settings.Settings(
            slo=None if self.slo is None else settings.Slo.parse(self.slo),
            prices=prices,
            hardware_gb_per_s=self.hardware_gb_per_s,
            model_bytes=None if self.model_gb is None else round(self.model_gb * 1e9),
        )


def show(folder: Path, settings: Settings, requirements: list[Requirement], *, as_json: bool) -> int:
    """Writes the results of a folder, prints them, and says whether what was required holds: 0, or 1."""
    from swiftsure.bench.report.table import text_table
    from swiftsure.bench.require import evaluate, exit_code
    from swiftsure.bench.results import PAGE, SUMMARY, write_results

    summary = write_results(folder, settings, say=note)
    outcomes = evaluate(requirements, summary)
    if as_json:
        plain = summary.to_dict() | {"requirements": [outcome.to_dict() for outcome in outcomes]}
        print(json.dumps(plain, ensure_ascii=False))
    else:
        print(text_table(summary), end="")
        for outcome in outcomes:
            print_wrapped("require: ", f"{outcome.requirement.text}: {outcome.words}")
    note(f"report: {folder / PAGE}, figures: {folder / SUMMARY}")
    return max(exit_code(outcomes), _code(summary))


def _code(summary: Summary) -> int:
    return 0 if summary.verdict in ("MEASURED", "INCONCLUSIVE") and not any(f.grade == "refused" for f in summary.findings) else 1


def requirements_from(text: str | None) -> list[Requirement]:
    from swiftsure.bench.require import parse

    return [] if text is None else parse(text)


def bench_report(
    results: _Results,
    *,
    figures: FigureOptions,
    require: Require = None,
    table: _Table = None,
    as_json: options.JsonFlag = False,
) -> int:
    """Write summary.json and report.html of a folder again, with other limits or prices. Nothing is measured.

    Ends with 1 where a requirement does not hold, nothing was measured, or a load was refused.
    """
    settings = figures.settings()
    wanted = requirements_from(require)
    if not results.is_dir():
        raise UsageError(f"the report is written into the folder of a bench, got {results}")
    if table is not None:
        from swiftsure.bench.export import write
        from swiftsure.bench.protocol.store import read_bench

        write(read_bench(results, say=note).exchanges, table, prices=settings.prices)
    return show(results, settings, wanted, as_json=as_json)


def bench_compare(a: _A, b: _B, despite: _Anyway = False, fail_on_worse: _FailOnWorse = False, as_json: options.JsonFlag = False) -> int:
    """Compare two measurements: this month with last, or two providers. Medians, paired intervals, a verdict for each figure.

    Ends with 1 where they cannot be compared, and with --fail-on-worse where a figure became worse.
    """
    from swiftsure.bench.compare import compare
    from swiftsure.bench.report.table import comparison_table
    from swiftsure.bench.results import load_results

    found = compare(load_results(a, say=note), load_results(b, say=note), despite=despite)
    _print(found.to_dict() if as_json else comparison_table(found))
    return 0 if found.comparable and not (fail_on_worse and found.worse) else 1


def bench_claim(claim: _Claim, source: _From = None, as_json: options.JsonFlag = False) -> int:
    """Hold a claimed figure against a measurement: per user, or of all together? Reached, and with how many users?

    Ends with 0 where it is reached as claimed, 1 where not, 3 where the measurement does not show it.
    """
    from swiftsure.bench.claim import judge
    from swiftsure.bench.results import load_results

    if source is None:
        raise UsageError("--from is missing: a claim is held against a measurement")
    found = judge(claim, load_results(source, say=note))
    if as_json:
        _print(found.to_dict())
    else:
        print_wrapped("", found.words)
    return found.exit_code


def _print(value: dict[str, Any] | str) -> None:
    print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), end="" if isinstance(value, str) else "\n")
