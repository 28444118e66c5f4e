"""Which answers are audited, and those that wait for it."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from swiftsure.serve.jobs import EngineFacts, Job, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An answer as it was given: ``facts`` of the engine that gave it, ``token_ids`` all that it generated, at least one.
    ``request_id``: of the HTTP request, as its log line has it."""

    model: str
    facts: EngineFacts
    job: Job
    token_ids: tuple[int, ...]
    outcome: Outcome
    request_id: str = ""

    @property
    def name(self) -> str:
        """What logs call it."""
        return self.request_id or self.job.id

    @property
    def tokens(self) -> int:
        return len(self.job.prompt_ids) + len(self.token_ids)


def picked(request_id: str, share: float) -> bool:
    """Whether a request is among the ``share`` (0 to 1) that is audited: its id alone decides, which the server draws beforehand."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big") < share * 2**64


class CaseQueue:
    """First in, first out, bounded by requests and by tokens; what finds no room is counted in ``dropped``, not kept."""

    def __init__(self, *, most_requests: int, most_tokens: int) -> None:
        self.dropped = 0
        self._most_requests = most_requests
        self._most_tokens = most_tokens
        self._tokens = 0
        self._cases: deque[Case] = deque()

    def __len__(self) -> int:
        return len(self._cases)

    def put(self, case: Case) -> bool:
        """False where there is no room."""
        if len(self._cases) >= self._most_requests or self._tokens + case.tokens > self._most_tokens:
            self.dropped += 1
            return False
        self._cases.append(case)
        self._tokens += case.tokens
        return True

    def take(self) -> Case:
        case = self._cases.popleft()
        self._tokens -= case.tokens
        return case

    def discard(self, unwanted: Callable[[Case], bool]) -> None:
        """Forgets the cases that ``unwanted`` names, uncounted."""
        self._cases = deque(case for case in self._cases if not unwanted(case))
        self._tokens = sum(case.tokens for case in self._cases)
