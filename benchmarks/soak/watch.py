"""What a server holds, seen from outside: its metrics, and its processes' memory, sockets and threads."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    rss_bytes: int
    sockets: int
    threads: int

    @classmethod
    def read(cls, pid: int) -> Process:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        return cls(
            rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
            sockets=sum(map(_is_socket, Path(f"/proc/{pid}/fd").iterdir())),
            threads=int(status["Threads"]),
        )

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def _is_socket(descriptor: Path) -> bool:
    with suppress(OSError):  # closed meanwhile
        return os.readlink(descriptor).startswith("socket:")
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """requests, tokens: in all lanes. blocks: key-value blocks that requests hold. deaths: of engines so far."""

    requests: int
    tokens: int
    blocks: int
    running: int
    waiting: int
    deaths: int

    @classmethod
    def read(cls, url: str) -> Held:
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=60).text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value

        def of(name: str) -> int:
            return int(sums[f"swiftsure_{name}"])

        return cls(
            requests=of("lane_requests"),
            tokens=of("lane_tokens"),
            blocks=of("kv_blocks") - of("kv_blocks_free"),
            running=of("num_requests_running"),
            waiting=of("num_requests_waiting"),
            deaths=of("engine_deaths_total"),
        )

    @property
    def nothing(self) -> bool:
        return not (self.requests or self.tokens or self.blocks or self.running or self.waiting)


def rest(url: str, *, within_s: float = 60.0) -> Held:
    """What a server holds once it holds nothing, or after so many seconds."""
    ends = time.monotonic() + within_s
    while not (held := Held.read(url)).nothing and time.monotonic() < ends:
        time.sleep(0.05)
    return held
