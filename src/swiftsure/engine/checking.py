"""What a load would be, resolved without packing weights or running: pins, machine, levers, schedule, memory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.engine.activation import Activation, lever_states, require_available, resolve_mode
from swiftsure.engine.drafting.attach import require_speculation
from swiftsure.engine.evidence import Evidence
from swiftsure.engine.load_options import LoadOptions
from swiftsure.engine.loading import Fetching, Plan, make_plan
from swiftsure.engine.memory import MemoryPlan
from swiftsure.engine.modes import MODES, active_levers, mode_spec
from swiftsure.engine.numerics import FULL_NUMERICS
from swiftsure.engine.threads import AUTO, NeighbourLook, ThreadChoice
from swiftsure.errors import CapacityError, NotActiveError

if TYPE_CHECKING:
    from swiftsure.models.cache import Progress
    from swiftsure.models.costs import StepCost
    from swiftsure.models.licences import AcceptLicence
    from swiftsure.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a run would be. ``reason``: why it cannot be, when it is not ``active``."""

    mode: str
    active: bool
    reason: str | None
    activation: Activation | None
    memory: MemoryPlan | None
    schedule: tuple[StepCost, ...]  # of decoding one token at the start of the context
    bytes_per_token: int  # weights only; the cache adds memory.kv_bytes_per_token for each position before
    advice: tuple[str, ...]
    thread_choice: ThreadChoice | None
    start: str  # where a load would take its packed weights from
    pins: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "active": self.active,
            "reason": self.reason,
            "pins": self.pins,
            "activation": self.activation.to_dict() if self.activation else None,
            "memory": self.memory.to_dict() if self.memory else None,
            "bytes_per_token": self.bytes_per_token,
            "advice": list(self.advice),
            "threads": self.thread_choice.to_dict() if self.thread_choice else None,
            "start": self.start,
            "schedule": [asdict(cost) for cost in self.schedule],
        }


def check(
    model: str | Path,
    mode: str | None = None,
    *,
    threads: int | str | None = AUTO,
    context: int | None = None,
    kv_memory: int | str | None = None,
    kv_contexts: int = 1,
    isa: str | None = None,
    without: Iterable[str] = (),
    draft: str | Path | None = None,
    offline: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    accept_licence: AcceptLicence = False,
) -> CheckResult:
    """Resolves what :func:`swiftsure.load` would, without packing or running. A mode that cannot be had is a result, not an error."""
    from swiftsure.models.costs import decode_bytes_per_token, step_costs
    from swiftsure.models.kv_size import kv_bytes_per_position

    options = LoadOptions(
        threads=threads,
        context=context,
        kv_memory=kv_memory,
        kv_contexts=kv_contexts,
        isa=isa,
        without=without,
        draft=draft,
        offline=offline,
        cache=cache,
    )
    mode = resolve_mode(mode)
    fetch = Fetching(offline=offline, progress=progress, accept_licence=accept_licence)
    speculates = require_speculation(options.draft, mode, active_levers(mode_spec(mode), options.without)[0])
    look = NeighbourLook()
    with fetch.open(model) as opened:
        plan, reason = None, None
        try:
            require_available(mode)
            beside = fetch.open_draft(options.draft, opened) if speculates else None
            with closing(beside) if beside is not None else nullcontext():
                plan = make_plan(opened, mode, options, draft=beside, look=look)
        except (NotActiveError, CapacityError) as error:
            reason = str(error)
        schedule = opened.schedule()
        costs = step_costs(schedule, opened.tensors, positions=1)
        bytes_per_token = decode_bytes_per_token(opened.tensors, schedule)
        files = opened.files
        return CheckResult(
            mode=mode,
            active=plan is not None,
            reason=reason,
            activation=_planned_activation(opened, plan) if plan else None,
            memory=plan.memory if plan else None,
            schedule=costs,
            bytes_per_token=bytes_per_token,
            advice=_advice(bytes_per_token, kv_bytes_per_position(schedule), opened.config.context_length),
            thread_choice=plan.threads if plan else None,
            start=_start(files.sha256, plan.numerics.variant if plan else FULL_NUMERICS.variant, cache=cache),
            pins=files.pins(),
        )


def _start(weights_sha256: str, variant: str, *, cache: bool) -> str:
    from swiftsure.engine.packed_store import PackedKey, PackedStore

    if not cache:
        return "weights are packed anew; the cache is not used"
    store = PackedStore(PackedKey(weights_sha256=weights_sha256, variant=variant))
    return f"packed weights are read from {store.path}" if store.present else f"weights are packed, and kept in {store.folder} if large"


def _advice(weight_bytes: int, kv_bytes: int, context: int) -> tuple[str, ...]:
    """Which mode suits what must be preserved, and what limits a run of this model."""
    modes = [f"{spec.name}: {spec.promise}; suits: {spec.suits}" for spec in MODES.values() if spec.reason is None]
    turn = weight_bytes // kv_bytes  # the position from which a token reads more keys and values than weights
    limit = f"limit: alone, each new token reads {weight_bytes / 1e6:.1f} MB of weights, which exact shares among the tokens of a pass"
    if turn < context:
        limit += f"; from position {turn} on it reads more keys and values than weights"
    return (*modes, limit)


def _planned_activation(model: Model, plan: Plan) -> Activation:
    return Activation(
        mode=plan.mode,
        model=model.files.name,
        weights_sha256=model.files.sha256,
        numerics=plan.numerics.id,
        isa=plan.isa,
        threads=plan.threads.threads,
        levers=plan.levers,
        levers_off=plan.levers_off,
        lever_states=lever_states(plan.levers, plan.levers_off, Evidence()),
        draft=plan.draft.info if plan.draft else None,
    )
