"""The upstream column of ``prove``: which prompts it runs, and what stands there when it was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.errors import NotActiveError
from swiftsure.verify.proving.workload import SHORT_BELOW

if TYPE_CHECKING:
    from swiftsure.verify.proving.prove import ProveOptions
    from swiftsure.verify.proving.screen import Screen

LIBRARIES = ("torch", "transformers", "accelerate", "gguf")
PROMPTS, NEW_TOKENS = 6, 48
FULL_PROMPTS, FULL_NEW_TOKENS = 20, 128


def require_upstream() -> None:
    """Raises NotActiveError before anything runs when a library that the column needs is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise NotActiveError(f"upstream: NOT MEASURED ({', '.join(missing)} not installed; pip install 'swiftsure[upstream]')")


def compare_upstream(
    options: ProveOptions, info: Mapping[str, Any], truths: Sequence[Mapping[str, Any]], threads: int, screen: Screen
) -> dict[str, Any]:
    """Runs transformers on the first short prompts of the workload (the first prompts if none is short)."""
    if not options.upstream:
        return {"status": "NOT MEASURED", "reason": "not asked for (--upstream)"}
    from swiftsure.verify.upstream.agreement import measure_upstream

    most, new_tokens = (FULL_PROMPTS, FULL_NEW_TOKENS) if options.full else (PROMPTS, NEW_TOKENS)
    prompts = [truth["prompt_ids"] for truth in truths]
    short = [ids for ids in prompts if len(ids) < SHORT_BELOW] or prompts
    screen.show("upstream: transformers on the same weights", 0, None)
    result = measure_upstream(Path(info["path"]), short[:most], new_tokens, threads, isa=options.load.isa)
    screen.line(result.line())
    return {"status": "MEASURED", **result.to_dict()}
