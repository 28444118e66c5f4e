"""Modes and levers: what each promises, needs and counts. A mode is a set of levers with a promise; they are not a ladder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from swiftsure.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What a lever's requirement is checked against."""

    max_rows: int
    max_logit_rows: int
    kv_blocks: int
    matmul_columns: tuple[int, ...] = ()  # the widths of the matrices' inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverSpec:
    """One named optimization that can be switched off.

    requirement: in words; ``unmet`` gives the reason why it does not hold, or None.
    occasion, evidence: what is counted while it runs; ``proof`` names the counter that must be above zero once occasions arose
    (``excused`` names the counter of occasions that it let pass on purpose, with a reason).
    """

    name: str
    effect: str
    requirement: str
    occasion: str
    proof: str
    excused: str | None
    unmet: Callable[[EngineFacts], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSpec:
    """``keeps_bits``: its logits are those of default; without that it owes a contract of tolerances and a task result.
    ``reason`` is why the mode cannot be had in this release; None: it can."""

    name: str
    promise: str
    levers: tuple[str, ...]
    suits: str
    keeps_bits: bool = True
    reason: str | None = None


def _at_least(what: str, low: int, get: Callable[[EngineFacts], int]) -> Callable[[EngineFacts], str | None]:
    return lambda facts: None if get(facts) >= low else f"{what} must be at least {low}, got {get(facts)}"


def _columns(facts: EngineFacts) -> str | None:
    odd = [k for k in facts.matmul_columns if k % GRID_COLUMNS or k > MOST_GRID_COLUMNS]
    return f"matrices must have a multiple of {GRID_COLUMNS} columns, at most {MOST_GRID_COLUMNS}, got {odd[0]}" if odd else None


GRID_COLUMNS, MOST_GRID_COLUMNS = 32, 65_536  # the integer sum of a row stays below 2 ** 31, see csrc/packed_matrix.h

LEVERS: Mapping[str, LeverSpec] = MappingProxyType(
    {
        lever.name: lever
        for lever in (
            LeverSpec(
                name="speculation",
                effect="several tokens a pass: a draft from prompt and output is verified beside the next token",
                requirement="the back end hands back logits of at least 2 rows a pass",
                occasion="a decode pass in which the drafter had a continuation to offer",
                proof="drafted",
                excused="declined",
                unmet=_at_least("logit rows a pass", 2, lambda facts: facts.max_logit_rows),
            ),
            LeverSpec(
                name="prefix_cache",
                effect="a prompt that begins like an earlier one starts from the keys and values computed then",
                requirement="the key-value cache has at least 2 blocks",
                occasion="a prompt whose first block was computed before",
                proof="hits",
                excused="evicted",
                unmet=_at_least("key-value blocks", 2, lambda facts: facts.kv_blocks),
            ),
            LeverSpec(
                name="batching",
                effect="requests that are there together share passes",
                requirement="a pass takes at least 2 rows and hands back logits of 2, and the key-value cache has at least 2 blocks",
                occasion="a pass while more than one request was there",
                proof="shared_passes",
                excused="no_room",
                unmet=_at_least(
                    "rows, logit rows and key-value blocks", 2, lambda facts: min(facts.max_rows, facts.max_logit_rows, facts.kv_blocks)
                ),
            ),
            LeverSpec(
                name="chunked_prefill",
                effect="prompts are read in chunks that share passes with requests that decode",
                requirement="a pass takes at least 2 rows",
                occasion="a pass while one request decoded and a prompt was admitted or unfinished",
                proof="mixed_passes",
                excused=None,
                unmet=_at_least("rows a pass", 2, lambda facts: facts.max_rows),
            ),
            LeverSpec(
                name="row_integers",
                effect="weights on one 8-bit grid and activations on one 16-bit grid a row: a row is multiplied in integers, scaled once",
                requirement=f"matrices of a multiple of {GRID_COLUMNS} columns",
                occasion="a pass",
                proof="matmuls",
                excused=None,
                unmet=_columns,
            ),
            LeverSpec(
                name="int8_kv",
                effect="keys and values at 8 bits, one scale per head vector of values and per 32 dimensions of keys",
                requirement="none",
                occasion="a pass",
                proof="layers",
                excused=None,
                unmet=lambda _: None,
            ),
        )
    }
)

MODES: Mapping[str, ModeSpec] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            ModeSpec(
                name="default",
                promise="the model as released: weights exact, full numerics, one new token per decode pass",
                levers=(),
                suits="the reference: the base of every comparison",
            ),
            ModeSpec(
                name="exact",
                promise="the bits of default, sooner",
                levers=("speculation", "prefix_cache", "batching", "chunked_prefill"),
                suits="results that must not change; gains where output repeats input, prompts share beginnings or requests come together",
            ),
            ModeSpec(
                name="fast",
                promise="within the contract's tolerances, and the task result holds",
                levers=("row_integers", "int8_kv", "speculation", "prefix_cache", "batching", "chunked_prefill"),
                suits="work with a declared tolerance and a task metric, where memory bandwidth is the limit",
                keeps_bits=False,
            ),
            ModeSpec(
                name="big",
                promise="larger models and contexts run within a memory limit; accuracy is answered separately",
                levers=(),
                suits="a model or a context that does not fit into memory",
                keeps_bits=False,
                reason="its levers (key-value spilling, streamed weights) are not part of this release",
            ),
        )
    }
)


def mode_spec(name: str) -> ModeSpec:
    """Raises UsageError that names the known modes."""
    if name not in MODES:
        raise UsageError(f"unknown mode {name!r}; known modes: {', '.join(MODES)}")
    return MODES[name]


def active_levers(mode: ModeSpec, without: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``(on, off)`` levers of the mode, in its order. Raises UsageError for a name that is no lever of the mode."""
    unwanted = [without] if isinstance(without, str) else list(without)
    for name in unwanted:
        if name not in mode.levers:
            known = ", ".join(mode.levers) or "none"
            raise UsageError(f"mode {mode.name} has no lever {name!r}; its levers: {known}")
    return tuple(n for n in mode.levers if n not in unwanted), tuple(n for n in mode.levers if n in unwanted)
