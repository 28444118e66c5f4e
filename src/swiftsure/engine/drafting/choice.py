"""How a source with logits of its own chooses: as the request's sampler will, so that close logits give the same token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.request import Request
from swiftsure.kernels import DraftSampler


def draft_sampler(request: Request, vocab_size: int, *, isa: str, shortlist: NDArray[np.int32] | None = None) -> DraftSampler:
    """``shortlist``: see :class:`swiftsure.kernels.DraftSampler`."""
    return DraftSampler(vocab_size, isa=isa, shortlist=shortlist, **request.drawing)
