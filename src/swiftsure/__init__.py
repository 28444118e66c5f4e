"""Swiftsure runs an open-weight language model faster and proves that it is still the same model.

::

    import swiftsure
    with swiftsure.load("smollm2-135m-instruct", mode="exact") as llm:
        print(llm.generate([{"role": "user", "content": "Hello!"}], max_tokens=64).text)

Everything below is imported when first used, so that ``import swiftsure`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "load": "swiftsure.engine.loading",
    "check": "swiftsure.engine.checking",
    "CheckResult": "swiftsure.engine.checking",
    "LLM": "swiftsure.engine.llm",
    "Stream": "swiftsure.engine.stream",
    "Scheduling": "swiftsure.engine.scheduling",
    "EngineSnapshot": "swiftsure.engine.snapshot",
    "Generation": "swiftsure.engine.request",
    "Grammar": "swiftsure.engine.constraints.grammar",
    "Timing": "swiftsure.engine.request",
    "TokenLogprob": "swiftsure.engine.request",
    "SamplingParams": "swiftsure.engine.sampling",
    "Activation": "swiftsure.engine.activation",
    "MemoryPlan": "swiftsure.engine.memory",
    "SwiftsureError": "swiftsure.errors",
    "UsageError": "swiftsure.errors",
    "ModelError": "swiftsure.errors",
    "ModelNotFoundError": "swiftsure.errors",
    "ModelFileError": "swiftsure.errors",
    "UnsupportedModelError": "swiftsure.errors",
    "DigestError": "swiftsure.errors",
    "LicenceError": "swiftsure.errors",
    "TemplateError": "swiftsure.errors",
    "ContextLengthError": "swiftsure.errors",
    "CapacityError": "swiftsure.errors",
    "NotActiveError": "swiftsure.errors",
    "UnprovedError": "swiftsure.errors",
    "ContractError": "swiftsure.errors",
}

__all__ = [
    "LLM",
    "Activation",
    "CapacityError",
    "CheckResult",
    "ContextLengthError",
    "ContractError",
    "DigestError",
    "EngineSnapshot",
    "Generation",
    "Grammar",
    "LicenceError",
    "MemoryPlan",
    "ModelError",
    "ModelFileError",
    "ModelNotFoundError",
    "NotActiveError",
    "SamplingParams",
    "Scheduling",
    "Stream",
    "SwiftsureError",
    "TemplateError",
    "Timing",
    "TokenLogprob",
    "UnprovedError",
    "UnsupportedModelError",
    "UsageError",
    "__version__",
    "check",
    "load",
]

if TYPE_CHECKING:
    from swiftsure.engine.activation import Activation
    from swiftsure.engine.checking import CheckResult, check
    from swiftsure.engine.constraints.grammar import Grammar
    from swiftsure.engine.llm import LLM
    from swiftsure.engine.loading import load
    from swiftsure.engine.memory import MemoryPlan
    from swiftsure.engine.request import Generation, Timing, TokenLogprob
    from swiftsure.engine.sampling import SamplingParams
    from swiftsure.engine.scheduling import Scheduling
    from swiftsure.engine.snapshot import EngineSnapshot
    from swiftsure.engine.stream import Stream
    from swiftsure.errors import (
        CapacityError,
        ContextLengthError,
        ContractError,
        DigestError,
        LicenceError,
        ModelError,
        ModelFileError,
        ModelNotFoundError,
        NotActiveError,
        SwiftsureError,
        TemplateError,
        UnprovedError,
        UnsupportedModelError,
        UsageError,
    )


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'swiftsure' has no attribute {name!r}")
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted(__all__)
