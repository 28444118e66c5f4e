"""What a file says of a model and what running it takes: ``swiftsure models info``."""

from __future__ import annotations

from typing import Any

from swiftsure.engine.memory import WORK_BYTES, MemoryPlan, available_memory, memory_by_mode
from swiftsure.models.files import ModelFiles
from swiftsure.models.model_file import open_model_file
from swiftsure.models.model_info import model_info as file_info


def model_info(files: ModelFiles, *, context: int | None = None) -> dict[str, Any]:
    """The facts of :func:`swiftsure.models.model_info.model_info`, and ``memory``: by mode the plan that a load would make here, beside it
    ``work_bytes`` for buffers and tokenizer; where there is no room ``reason`` alone. None for a model that cannot run.

    Raises UsageError for an impossible context, and as the function named.
    """
    facts, schedule = file_info(files)
    if schedule is None or facts["unsupported"]:
        return facts | {"memory": None}
    with open_model_file(files.path) as file:
        plans = memory_by_mode(schedule, file, available=available_memory(), context=context)
    return facts | {"memory": {mode: _facts(plan) for mode, plan in plans.items()}}


def _facts(plan: MemoryPlan | str) -> dict[str, Any]:
    if isinstance(plan, str):
        return {"fits": False, "reason": plan}
    return {"fits": True, **plan.to_dict(), "work_bytes": WORK_BYTES, "total_bytes": plan.total_bytes + WORK_BYTES}
