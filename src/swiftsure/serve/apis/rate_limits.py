"""What OpenAI's interfaces say in headers of the room that a request's tier has."""

from __future__ import annotations

from swiftsure.engine.scheduler import Tier
from swiftsure.serve.service import ServedModel


def rate_limit_headers(model: ServedModel, tier: Tier) -> dict[str, str]:
    """``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, read once the request itself is in. Nothing is counted by the minute: the
    limits are of what is under way, and reset is when a request is expected to have left.

    https://platform.openai.com/docs/guides/rate-limits
    """
    lane = model.lanes[tier]
    room = lane.remaining
    reset = f"{room.reset_s:.3g}s"
    figures = {
        "requests": {"limit": lane.limits.requests, "remaining": room.requests, "reset": reset},
        "tokens": {"limit": lane.limits.tokens, "remaining": room.tokens, "reset": reset},
    }
    return {f"x-ratelimit-{name}-{kind}": str(value) for kind, values in figures.items() for name, value in values.items()}
