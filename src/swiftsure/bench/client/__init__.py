"""The client: sends requests as a load asks for, stamps what comes back at the socket, and says how it fared itself."""

from swiftsure.bench.client import schedules
from swiftsure.bench.client.measure import measure
from swiftsure.bench.client.progress import Progress

__all__ = ["Progress", "measure", "schedules"]
