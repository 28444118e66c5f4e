"""Wire formats: how a prompt is asked and what the events of its answer mean."""

from swiftsure.bench.client.interfaces.anthropic import AnthropicMessages
from swiftsure.bench.client.interfaces.base import Wire
from swiftsure.bench.client.interfaces.chat import ChatCompletions
from swiftsure.bench.client.interfaces.completions import Completions
from swiftsure.bench.target import Interface
from swiftsure.errors import UsageError

WIRES: dict[Interface, Wire] = {"chat": ChatCompletions(), "completions": Completions(), "anthropic": AnthropicMessages()}


def wire_of(interface: Interface) -> Wire:
    """Raises UsageError for an interface that is not spoken over HTTP."""
    if interface not in WIRES:
        raise UsageError(f"an endpoint's interface must be one of {', '.join(WIRES)}, got {interface!r}")
    return WIRES[interface]


__all__ = ["WIRES", "Wire", "wire_of"]
