"""The tables of a contract: what each may hold, and how it is read. Every reader raises UsageError for what is not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.limits import Limits, read_limits
from swiftsure.verify.contracts.tables import Table, reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Which release one side is. What a subject states of itself must agree; what it cannot state is recorded as declared."""

    version: str | None = None
    commit: str | None = None
    weights_sha256: str | None = None

    def to_dict(self) -> dict[str, str]:
        found = {"version": self.version, "commit": self.commit, "weights_sha256": self.weights_sha256}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """``hardware``: a text that the processor's or accelerator's name contains."""

    baseline: Release = field(default_factory=Release)
    candidate: Release = field(default_factory=Release)
    hardware: str | None = None
    batch: int | None = None
    input_sizes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRules:
    """``outputs``: names compared, all where empty. ``recipe``: variables that make both sides deterministic, set for both."""

    outputs: tuple[str, ...] = ()
    recipe: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRules:
    """One task metric, higher is better, on the same items. ``margin``: how much worse is still acceptable, in the score's units.

    Scores come from an ``output`` of every case (one number), from a built-in ``suite``, or from ``results`` files given when verifying.
    ``worst_size_margin``: the same for every range of input sizes alone. ``items``: so many of a suite are asked, ``least_items`` where
    it is None; with fewer answers than ``least_items`` nothing but a loss is concluded.
    """

    name: str
    margin: float | None
    output: str | None = None
    suite: str | None = None
    worst_size_margin: float | None = None
    least_items: int = 100
    items: int | None = None

    @property
    def asked(self) -> int:
        """Items of the suite that each side answers."""
        return self.items if self.items is not None else self.least_items


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBar:
    """What one input size owes. ``accuracy``: least mean score."""

    size: float
    accuracy: float | None = None
    memory_bytes: int | None = None
    time_s: float | None = None
    must_run: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BigRules:
    """``accuracy_output``: the output of every case that holds its score, 0 to 1. ``trained_context``: sizes beyond it are marked."""

    bars: tuple[SizeBar, ...] = ()
    memory_limit_bytes: int | None = None
    time_limit_s: float | None = None
    trained_context: float | None = None
    accuracy_output: str | None = None

    def bar(self, size: float | None) -> SizeBar | None:
        """The smallest bar that this size does not exceed; sizes above the last owe nothing."""
        return next((bar for bar in self.bars if size is not None and size <= bar.size), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRules:
    """``forward``: the phase that was made faster. Below ``least_forward_share`` of the whole time CPU or I/O dominates: HOLD.

    ``goal_s``: whole time of a case at which the baseline is already good enough. ``limits_s`` by phase, ``whole`` for all of it: median of
    the candidate. ``least_speedup``: of the whole time, geometric mean over cases.
    """

    forward: str = "forward"
    phases: tuple[str, ...] = ()
    least_forward_share: float | None = None
    goal_s: float | None = None
    limits_s: Mapping[str, float] = field(default_factory=dict)
    least_speedup: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    most_ratio: float | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationProbe:
    """How to tell that the candidate is active.

    ``log``: a regular expression found in its log; ``not_active_log``: one that says the opposite; or ``metric`` (name or regular
    expression) at ``url`` with a value of at least ``at_least``. ``required``: unknown is not enough.
    """

    required: bool = True
    log: str | None = None
    not_active_log: str | None = None
    url: str | None = None
    metric: str | None = None
    at_least: float = 1.0

    @property
    def given(self) -> bool:
        return self.log is not None or self.url is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLimit:
    """A metric of a running server: a name as Prometheus writes it, or a ``pattern`` whose first group is a number."""

    metric: str | None = None
    pattern: str | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def label(self) -> str:
        return self.metric or self.pattern or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """When to go back to ``to``: on each of ``when``, and where a metric of the running server leaves its limits."""

    to: str = "default"
    when: tuple[str, ...] = ("not_active", "breach")
    metrics: tuple[MetricLimit, ...] = ()


RECOVERY_CAUSES = ("not_active", "breach", "metric", "recheck")


def read_pins(table: Table) -> Pins:
    with reading(table):
        return Pins(
            baseline=_release(table.table("baseline")),
            candidate=_release(table.table("candidate")),
            hardware=table.text("hardware"),
            batch=table.whole("batch"),
            input_sizes=table.sizes("input_sizes"),
        )


def _release(table: Table) -> Release:
    with reading(table):
        return Release(version=table.text("version"), commit=table.text("commit"), weights_sha256=_sha256(table))


def _sha256(table: Table) -> str | None:
    value = table.text("weights_sha256")
    if value is None:
        return None
    plain = value.removeprefix("sha256:").lower()
    if len(plain) != 64 or set(plain) - set("0123456789abcdef"):
        raise table.error("weights_sha256", "64 hexadecimal digits", value)
    return plain


def read_exact(table: Table) -> ExactRules:
    with reading(table):
        return ExactRules(outputs=table.texts("outputs"), recipe=table.variables("recipe"))


def read_outputs(table: Table) -> dict[str, Limits]:
    """Of ``[fast]`` or ``[upstream]``: the tables ``[fast.outputs.NAME]``."""
    with reading(table):
        return table.table("outputs").items(read_limits)


def read_tasks(tables: list[Table]) -> tuple[TaskRules, ...]:
    tasks = tuple(_task(table) for table in tables)
    names = [task.name for task in tasks]
    if len(set(names)) != len(names):
        raise UsageError(f"tasks must have names of their own, got {', '.join(names)}")
    return tasks


def _task(table: Table) -> TaskRules:
    with reading(table):
        name = table.text("name")
        if name is None:
            raise UsageError(f"{table.place('name')} is missing: every task needs one")
        task = TaskRules(
            name=name,
            margin=table.number("margin", above=0.0),
            output=table.text("output"),
            suite=table.text("suite"),
            worst_size_margin=table.number("worst_size_margin", above=0.0),
            least_items=table.whole("least_items", 100) or 100,
            items=table.whole("items"),
        )
        if task.items is not None and task.items < task.least_items:
            raise UsageError(f"{table.place('items')} must be at least least_items, {task.least_items}, got {task.items}")
        if task.output is not None and task.suite is not None:
            raise UsageError(f"{table.place('suite')}: a task takes its scores from an output or from a suite, not from both")
        return task


def read_big(table: Table) -> BigRules:
    with reading(table):
        bars = tuple(_bar(entry) for entry in table.tables("size"))
        sizes = [bar.size for bar in bars]
        if sizes != sorted(set(sizes)):
            raise UsageError(f"big.size must ascend, got {', '.join(f'{size:g}' for size in sizes)}")
        return BigRules(
            bars=bars,
            memory_limit_bytes=table.whole("memory_limit_bytes"),
            time_limit_s=table.number("time_limit_s", above=0.0),
            trained_context=table.number("trained_context", above=0.0),
            accuracy_output=table.text("accuracy_output"),
        )


def _bar(table: Table) -> SizeBar:
    with reading(table):
        size = table.number("size", above=0.0)
        if size is None:
            raise UsageError(f"{table.place('size')} is missing: every entry needs one")
        return SizeBar(
            size=size,
            accuracy=table.number("accuracy", most=1.0),
            memory_bytes=table.whole("memory_bytes"),
            time_s=table.number("time_s", above=0.0),
            must_run=table.flag("must_run", True),
        )


def read_time(table: Table) -> TimeRules:
    with reading(table):
        limits = table.table("limits_s")
        return TimeRules(
            forward=table.text("forward") or "forward",
            phases=table.texts("phases"),
            least_forward_share=table.number("least_forward_share", most=1.0),
            goal_s=table.number("goal_s", above=0.0),
            limits_s={name: value for name in limits.names() if (value := limits.number(name, above=0.0)) is not None},
            least_speedup=table.number("least_speedup", above=0.0),
        )


def read_memory(table: Table) -> MemoryRules:
    with reading(table):
        return MemoryRules(most_ratio=table.number("most_ratio", above=0.0), most_bytes=table.whole("most_bytes"))


def read_activation(table: Table) -> ActivationProbe:
    with reading(table):
        at_least = table.number("at_least")
        probe = ActivationProbe(
            required=table.flag("required", True),
            log=table.pattern("log"),
            not_active_log=table.pattern("not_active_log"),
            url=table.text("url"),
            metric=table.metric("metric"),
            at_least=1.0 if at_least is None else at_least,
        )
        if (probe.url is None) != (probe.metric is None):
            raise UsageError("activation.url and activation.metric belong together: where to look, and for what")
        return probe


def read_recovery(table: Table) -> Recovery:
    with reading(table):
        when = table.texts("when", Recovery().when)
        for cause in when:
            if cause not in RECOVERY_CAUSES:
                raise table.error("when", f"of {', '.join(RECOVERY_CAUSES)}", cause)
        metrics = tuple(_metric(entry) for entry in table.tables("metric"))
        return Recovery(to=table.text("to") or "default", when=when, metrics=metrics)


def _metric(table: Table) -> MetricLimit:
    with reading(table):
        found = MetricLimit(
            metric=table.metric("name"),
            pattern=table.pattern("pattern"),
            at_most=table.number("at_most"),
            at_least=table.number("at_least"),
        )
        if (found.metric is None) == (found.pattern is None):
            raise UsageError(f"{table.place('name')}: a metric has either a name or a pattern")
        if found.at_most is None and found.at_least is None:
            raise UsageError(f"{table.place('at_most')}: a metric needs at_most, at_least or both")
        return found
