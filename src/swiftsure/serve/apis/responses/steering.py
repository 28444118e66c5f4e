"""``response.steer``: input for a response that is under way.

The response ends at the next token (``response.incomplete``, reason ``steered``), or by itself where that would break a function call in
two, and a successor with the same settings follows on its own, with the input added. A response that ended with function calls waits for
their output: ``response.steer.pending`` says for which, and the input goes in front of the ``response.create`` that brings them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swiftsure.serve.apis.responses.items import outstanding_calls, read_input
from swiftsure.serve.apis.responses.output import WireEvent
from swiftsure.serve.apis.responses.request import CreateResponse
from swiftsure.serve.apis.responses.turn import Turn
from swiftsure.serve.problems import RefusedError

MAX_PENDING = 16  # submissions for one response
_REMEMBERED = 256  # responses whose end is known, or whose steering waits


@dataclass(slots=True, kw_only=True)
class Lane:
    """Responses of one ``stream_id``, in order."""

    stream_id: str | None
    waiting: int = 0  # those under way, and behind it
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Submission:
    id: str
    given: Any  # as the client wrote it
    items: list[dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class _Target:
    turn: Turn
    lane: Lane
    submissions: list[_Submission] = field(default_factory=list)


class Steering:
    """The steering of one connection."""

    def __init__(self) -> None:
        self._active: dict[str, _Target] = {}
        self._ended: OrderedDict[str, Lane] = OrderedDict()
        self._pending: OrderedDict[str, list[_Submission]] = OrderedDict()  # by the response that waits for output of calls
        self._committing: list[tuple[CreateResponse, str, list[_Submission]]] = []

    # --- responses --------------------------------------------------------------------------------------------------------

    def filled(self, body: CreateResponse) -> CreateResponse:
        """The client's own continuation, with the input that waited for it in front."""
        previous = body.previous_response_id
        if previous is None or previous not in self._pending:
            return body
        own = [] if body.input is None else read_input(body.input)  # malformed, it takes nothing with it
        waited = self._pending.pop(previous)
        full = body.model_copy(update={"input": [*(item for one in waited for item in one.items), *own]})
        self._committing.append((full, previous, waited))
        return full

    def begun(self, turn: Turn, lane: Lane, body: CreateResponse) -> None:
        self._active[turn.id] = _Target(turn=turn, lane=lane)
        self._committing = [entry for entry in self._committing if entry[0] is not body]

    def not_begun(self, body: CreateResponse, message: str) -> list[WireEvent]:
        """Steering that was accepted for a response which could not be made goes back to the client."""
        failed = [entry for entry in self._committing if entry[0] is body]
        self._committing = [entry for entry in self._committing if entry[0] is not body]
        return [
            _failed("successor_creation_failed", message, previous, one.given, one.id)
            for _, previous, submissions in failed
            for one in submissions
        ]

    def ended(self, turn: Turn) -> tuple[list[WireEvent], CreateResponse | None]:
        """What to tell, and the successor where there is one."""
        target = self._active.pop(turn.id)
        _remember(self._ended, turn.id, target.lane)
        submissions = target.submissions
        if not submissions:
            return [], None
        if turn.response is None:
            message = "the response failed"
            return [turn.numbered(_failed("response_not_active", message, turn.id, one.given, one.id)) for one in submissions], None
        calls = outstanding_calls(turn.response["output"])
        if calls:
            _remember(self._pending, turn.id, submissions)
            stubs = [{"type": "function_call_output", "call_id": call["call_id"], "name": call["name"]} for call in calls]
            waits = {"type": "response.steer.pending", "reason": "waiting_for_required_input", "required_input": stubs}
            return [turn.numbered({**waits, "steer": {"id": one.id, "previous_response_id": turn.id}}) for one in submissions], None
        following = turn.body.model_copy(
            update={"previous_response_id": turn.id, "input": [item for one in submissions for item in one.items]}
        )
        self._committing.append((following, turn.id, submissions))
        return [], following

    # --- the client's event -----------------------------------------------------------------------------------------------

    def take(self, event: Mapping[str, Any]) -> tuple[WireEvent, Lane | None]:
        """The answer to a ``response.steer``: accepted, or failed with a code of the interface; and the lane it is for."""
        previous, given = event.get("previous_response_id"), event.get("input")
        target = self._active.get(previous) if isinstance(previous, str) else None
        if target is None:
            known = self._ended.get(previous) if isinstance(previous, str) else None
            code = "response_not_found" if known is None else "response_already_completed"
            message = "no such response runs on this connection" if known is None else "the response has ended; continue it"
            return _failed(code, message, previous, given), known
        turn = target.turn
        try:
            items = _read_steer(event)
        except RefusedError as error:
            return turn.numbered(_failed("invalid_input", str(error), previous, given)), target.lane
        if len(target.submissions) >= MAX_PENDING:
            message = f"at most {MAX_PENDING} submissions wait for one response"
            return turn.numbered(_failed("too_many_pending_steers", message, previous, given)), target.lane
        one = _Submission(id=f"steer_{secrets.token_hex(12)}", given=given, items=items)
        target.submissions.append(one)
        turn.steer()
        accepted = {"type": "response.steer.accepted", "steer": {"id": one.id, "previous_response_id": turn.id}}
        return turn.numbered(accepted), target.lane


def _read_steer(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Raises RefusedError: only messages of the user steer."""
    if more := set(event) - {"previous_response_id", "input"}:
        raise RefusedError(f"response.steer takes previous_response_id and input alone, got {sorted(more)[0]!r:.80}")
    items = read_input(event.get("input"))
    if not items:
        raise RefusedError("input must have at least 1 item, got none")
    for item in items:
        if item["type"] != "message" or item["role"] != "user":
            raise RefusedError("input must hold messages of the role user alone")
    return items


def _failed(code: str, message: str, previous: Any, given: Any, steer_id: str | None = None) -> WireEvent:
    steer = {"previous_response_id": previous, "input": given, **({} if steer_id is None else {"id": steer_id})}
    error = {"type": "invalid_request_error", "code": code, "message": message}
    return {"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": steer}


def _remember(store: OrderedDict[str, Any], key: str, value: Any) -> None:
    store[key] = value
    while len(store) > _REMEMBERED:
        store.popitem(last=False)
