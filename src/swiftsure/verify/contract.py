"""What a mode owes that does not keep the bits of default: limits on how far its distributions may move, read from ``contracts/``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from itertools import pairwise

from swiftsure.errors import ContractError
from swiftsure.verify.compare.divergence import Divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """At most so much of each; of ``top1_agreement`` at least so much. KL in nats."""

    kl_mean: float
    kl_p99: float
    kl_max: float
    top1_agreement: float
    perplexity_ratio: float

    def broken_by(self, found: Divergence) -> list[str]:
        """Each broken limit in words."""
        breaches = []
        for field in fields(self):
            value, limit = getattr(found, field.name), getattr(self, field.name)
            within = value >= limit if field.name == "top1_agreement" else value <= limit
            if not within:  # a NaN is within nothing
                breaches.append(f"{field.name} {value:.4g} against a limit of {limit:g}")
        return breaches

    def to_dict(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """``texts``: name to text. ``sizes``: ends of the ranges of positions, ascending."""

    mode: str
    texts: Mapping[str, str]
    sizes: tuple[int, ...]
    limits: Limits

    def ranges(self, tokens: int) -> list[tuple[int, int, int]]:
        """``(size, begin, end)`` of the ranges that a text of so many tokens reaches; the last may be short."""
        found = [(size, begin, min(size, tokens)) for begin, size in pairwise((0, *self.sizes))]
        return [(size, begin, end) for size, begin, end in found if begin < end]


def load_contract(mode: str, text: str | None = None) -> Contract:
    """The contract of a mode, from ``text`` or from the file that comes with Swiftsure. Raises ContractError for what is not understood."""
    package = resources.files("swiftsure.verify")
    source = text if text is not None else package.joinpath("contracts", f"{mode}.toml").read_text(encoding="utf-8")
    try:
        read = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"the contract of mode {mode} is not TOML: {error}") from None
    _keys(mode, "contract", read, {"texts", "sizes", "limits"})
    names = {field.name for field in fields(Limits)}
    _keys(mode, "limits", read["limits"], names)
    _keys(mode, "sizes", read["sizes"], {"tokens"})
    sizes = read["sizes"]["tokens"]
    if not isinstance(sizes, list) or not sizes or any(not _whole(size) for size in sizes) or any(a >= b for a, b in pairwise((0, *sizes))):
        raise ContractError(f"contract of mode {mode}: sizes.tokens must be ascending whole numbers above 0, got {sizes!r}")
    for name, value in read["limits"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ContractError(f"contract of mode {mode}: limits.{name} must be a number of at least 0, got {value!r}")
    texts = {name: package.joinpath("data", file).read_text(encoding="utf-8") for name, file in read["texts"].items()}
    return Contract(mode=mode, texts=texts, sizes=tuple(sizes), limits=Limits(**{name: float(v) for name, v in read["limits"].items()}))


def _keys(mode: str, where: str, table: object, expected: set[str]) -> None:
    if not isinstance(table, dict):
        raise ContractError(f"contract of mode {mode}: {where} must be a table, got {table!r}")
    if set(table) != expected:
        missing, unknown = sorted(expected - set(table)), sorted(set(table) - expected)
        raise ContractError(f"contract of mode {mode}: {where} lacks {missing or 'nothing'} and has unknown {unknown or 'nothing'}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
