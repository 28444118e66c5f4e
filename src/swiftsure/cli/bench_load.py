"""``swiftsure bench load``: one load, or ever more of it up to the knee."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from swiftsure.cli import bench_options as shared
from swiftsure.cli import bench_results as results
from swiftsure.cli import options
from swiftsure.cli.bench_progress import LoadDisplay
from swiftsure.cli.console import note, note_wrapped
from swiftsure.cli.framework import option
from swiftsure.errors import EndpointError, UsageError

if TYPE_CHECKING:
    from swiftsure.bench.client.knee import Sweep
    from swiftsure.bench.loads.settings import LoadSettings

_LOAD = "Load"

_Users = Annotated[
    str | None,
    option("--users", metavar="N|N..M", section=_LOAD, help="Users who each ask again once answered; 1..64 sweeps up to the knee."),
]
_Rate = Annotated[
    str | None,
    option("--rate", metavar="R|R..S", section=_LOAD, help="Requests a second, whatever comes back; 0.5..20 sweeps up to the knee."),
]
_Arrivals = Annotated[str, option("--arrivals", metavar="KIND", section=_LOAD, help="Of --rate: poisson (default) or constant.")]
_Seed = Annotated[int, option("--seed", metavar="N", section=_LOAD, help="Of poisson arrivals. Default: 0.")]
_Seconds = Annotated[float, option("--seconds", metavar="S", section=_LOAD, help="How long each load of --rate lasts. Default: 30.")]
_PerUser = Annotated[int, option("--per-user", metavar="N", section=_LOAD, help="Requests for each of --users. Default: 4.")]
_Factor = Annotated[float, option("--factor", metavar="X", section=_LOAD, help="From one load of a sweep to the next. Default: 2.")]
_AsTheyAre = Annotated[
    bool, option("--warm", section=_LOAD, help="Send prompts as they are. Default: cold, so that no prefix cache helps.")
]


def bench_load(
    target: shared.TargetArgument,
    *,
    users: _Users = None,
    rate: _Rate = None,
    arrivals: _Arrivals = "poisson",
    seed: _Seed = 0,
    seconds: _Seconds = 30.0,
    per_user: _PerUser = 4,
    factor: _Factor = 2.0,
    warm: _AsTheyAre = False,
    into: shared.Into = None,
    endpoint: shared.EndpointOptions,
    processes: shared.Processes = None,
    prompts: shared.PromptOptions,
    sampling: shared.SamplingOptions,
    slo: results.Slo = None,
    require: results.Require = None,
    as_json: options.JsonFlag = False,
) -> int:
    """Put an endpoint under a load, or under ever more of it up to the knee.

    A closed loop (--users) or an open one (--rate). A sweep stops where the endpoint is over-saturated: tokens/s, or with --slo answers
    that keep it, rise no more, requests fail, or arrivals pile up. It says why it stopped, and looks closer at the knee. After Ctrl-C, a
    crash or a kill the same command with --into DIR goes on: loads that had ended are not measured again.

    Ends with 1 when nothing was answered, a requirement does not hold, or this machine was too slow to measure the endpoint.
    """
    from swiftsure.bench.client import measure
    from swiftsure.bench.loads.session import LoadAsked, measure_loads

    settings = _settings(users, rate, arrivals=arrivals, seed=seed, seconds=seconds, per_user=per_user, factor=factor, warm=warm)
    settings = replace(settings, max_tokens=prompts.max_tokens, sampling=sampling.fields)
    figures = results.FigureOptions(slo=slo).settings()
    requirements = results.requirements_from(require)
    place = endpoint.target(target)
    chosen, source = prompts.chosen()
    asked = LoadAsked(
        target=place,
        interface=endpoint.interface,
        find=lambda: endpoint.find(place),
        interfaces=endpoint.interfaces(target),
        prompts=chosen,
        source=source,
        settings=settings,
        slo=figures.slo,
        processes=processes,
    )
    folder = into or shared.new_folder()
    note(f"folder: {folder}")
    display = LoadDisplay()
    try:
        sweep = measure_loads(folder, asked, measure=measure, watcher=display, say=note)
    except (KeyboardInterrupt, EndpointError):
        display.close()
        shared.tell_how_to_go_on(folder, "--into")
        raise
    words = _words(sweep, settings)
    note_wrapped("", words)
    about = {**figures.about, "load": words}
    return results.show(folder, replace(figures, about=about), requirements, as_json=as_json)


def _words(sweep: Sweep, settings: LoadSettings) -> str:
    if not settings.is_sweep:
        return f"{settings.name(settings.first)}: {sweep.words}"
    if sweep.knee is None:
        return f"no knee: {sweep.words}"
    if sweep.found:
        return f"knee: {settings.name(sweep.knee)}; {sweep.words}"
    return f"the knee was not reached; the most was served from {settings.name(sweep.knee)} on; {sweep.words}"


def _settings(
    users: str | None, rate: str | None, *, arrivals: str, seed: int, seconds: float, per_user: int, factor: float, warm: bool
) -> LoadSettings:
    from swiftsure.bench.loads.settings import LoadSettings

    if (users is None) == (rate is None):
        raise UsageError("a load has either --users or --rate, got " + ("neither" if users is None else "both"))
    first, last = _range("--users" if users is not None else "--rate", users if users is not None else str(rate))
    if users is not None and not (first.is_integer() and last.is_integer()):
        raise UsageError(f"--users must be whole numbers, got {users}")
    if arrivals not in ("poisson", "constant"):
        raise UsageError(f"--arrivals must be poisson or constant, got {arrivals!r}")
    return LoadSettings(
        kind="users" if users is not None else "rate",
        first=first,
        last=last,
        factor=factor,
        per_user=per_user,
        seconds=seconds,
        arrivals="constant" if arrivals == "constant" else "poisson",
        seed=seed,
        warm=warm,
    )


def _range(name: str, text: str) -> tuple[float, float]:
    first, dots, last = text.partition("..")
    try:
        return float(first), float(last if dots else first)
    except ValueError:
        raise UsageError(f"{name} must be a number, or two as in 1..64, got {text!r:.80}") from None
