"""``swiftsure bench tiers``: what sharing passes costs each request, and what leaving at once is worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swiftsure.cli import options
from swiftsure.cli.console import print_table, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.bench.tiers.measure import TierResult
    from swiftsure.cli.session import Tally
    from swiftsure.engine.llm import LLM

_WHAT = "What is measured"
_CLAIM = "Prices and the claim"

Rows = Annotated[
    str, option("--rows", metavar="N,N", section=_WHAT, help="Batches: requests that share a pass, and seats. Default: 1,2,4,8,16.")
]
Requests = Annotated[int, option("--requests", metavar="N", section=_WHAT, help="Requests of each setting. Default: 32.")]
Prompt = Annotated[int, option("--prompt-tokens", metavar="N", section=_WHAT, help="Tokens of each prompt. Default: 64.")]
Tokens = Annotated[int, option("--tokens", metavar="N", section=_WHAT, help="New tokens of each request. Default: 64.")]
Load = Annotated[
    float,
    option("--load", metavar="SHARE", section=_WHAT, help="Arrivals, as a share of what the largest batch answers. Default: 0.7."),
]
Rounds = Annotated[int, option("--rounds", metavar="N", section=_WHAT, help="Rounds over all settings. Default: 2.")]
Flood = Annotated[
    str | None,
    option(
        "--flood",
        metavar="S,S",
        section=_WHAT,
        help="Also measure priority requests in a flood of standard ones, at these values of --priority-slack: 0.1,0.3,0.5.",
    ),
]
PriceHour = Annotated[
    float, option("--price-hour", metavar="P", section=_CLAIM, help="Price of an hour of this machine, in any currency. Default: 1.")
]
Speed = Annotated[
    float, option("--speed", metavar="X", section=_CLAIM, help="How much faster the fast tier is claimed to be. Default: 2.5.")
]
Price = Annotated[float, option("--price", metavar="X", section=_CLAIM, help="At how many times the price. Default: 6.")]
Record = Annotated[Path | None, option("--record", metavar="FILE", section=options.OUTPUT, help="Write a run record as JSON.")]
Html = Annotated[Path | None, option("--html", metavar="FILE", section=options.OUTPUT, help="Write a page with plots and all tables.")]


def tiers(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    mode: options.ModeOption = None,
    without: options.WithoutOption = None,
    draft: options.DraftOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    rows: Rows = "1,2,4,8,16",
    requests: Requests = 32,
    prompt_tokens: Prompt = 64,
    tokens: Tokens = 64,
    load: Load = 0.7,
    rounds: Rounds = 2,
    flood: Flood = None,
    price_hour: PriceHour = 1.0,
    speed: Speed = 2.5,
    price: Price = 6.0,
    json_output: options.JsonFlag = False,
    record: Record = None,
    html: Html = None,
    threads: options.ThreadsOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
) -> int:
    """Draw rows a pass against tokens/s of each user, of all, first token and price.

    Then board the same requests at the same moments in three ways: a bus that leaves at once, one that waits until it is full, and seats
    that are taken at every pass. Says at which batches a fast tier's claim comes true here.
    """
    from swiftsure.bench.tiers.measure import TierOptions, measure
    from swiftsure.cli.console import CountBar
    from swiftsure.cli.session import LoadRequest, run_in_mode
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.engine.scheduling import Scheduling
    from swiftsure.records.run_record import check_writable, write_text

    chosen = TierOptions(
        rows=tuple(options.numbers("--rows", rows, least=1)),
        requests=requests,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        load=load,
        rounds=rounds,
        price_hour=price_hour,
        speed=speed,
        price=price,
        slacks=_slacks(flood),
    )
    for path in (record, html):
        if path is not None:
            check_writable(path)
    request = LoadRequest(
        model=options.chosen_model(model, model_option),
        mode=mode,
        options=LoadOptions(
            threads=threads,
            isa=isa,
            without=options.split_names(without),
            draft=draft,
            offline=offline,
            cache=not no_cache,
        ),
        scheduling=Scheduling(max_running=chosen.rows[-1]),
    )

    def work(llm: LLM, tally: Tally) -> None:
        with CountBar() as bar:

            def advance(name: str, done: int, total: int) -> None:
                tally.done, tally.total = done, total
                bar(name, done, total)

            result = measure(llm, chosen, advance=advance)
        tally.done = tally.total
        if json_output:
            print(json.dumps(result.record(sys.argv[1:]).to_dict(), indent=2))
        else:
            _print(result)
        if record is not None:
            result.record(sys.argv[1:]).write(record)
        if html is not None:
            from swiftsure.bench.tiers.report import render_tiers

            write_text(html, render_tiers(result))

    settle_licences(request.model, draft, accept=accept_licence, offline=offline)
    return run_in_mode(request, work, fall_back=False, allow_fallback=False)


def _slacks(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text is not None else ()
    except ValueError:
        raise UsageError(f"--flood takes shares such as 0.1,0.3,0.5, got {text!r}") from None


def _print(result: TierResult) -> None:
    from swiftsure.bench.tiers import report

    print_wrapped("", report.headline(result))
    print()
    print_table(list(report.CURVE_HEAD), report.curve_cells(result), right=range(len(report.CURVE_HEAD)), gap=1)
    print()
    print_wrapped("", report.arrivals_line(result))
    columns = range(len(report.BOARDING_HEAD))
    print_table(list(report.BOARDING_HEAD), report.boarding_cells(result), right=[0, *columns[2:]])
    if result.floods:
        print()
        print_table(list(report.FLOOD_HEAD), report.flood_cells(result), right=range(len(report.FLOOD_HEAD)), gap=1)
    print()
    for line in report.findings(result):
        print_wrapped("", line)
    print_wrapped("", result.claim.sentence())
