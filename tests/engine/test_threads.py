"""The choice of threads: cores, affinity, quota and neighbours, each with its reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from swiftsure import machine
from swiftsure.engine.threads import LOOK_S, NeighbourLook, ThreadChoice, choose_threads
from swiftsure.errors import UsageError


class Look(NeighbourLook):
    def __init__(self, busy: float | None) -> None:
        self.busy = busy

    def busy_cpus(self) -> float | None:
        return self.busy


def choose(
    root: Path, *, cores: int = 4, siblings: int = 1, allowed: int | None = None, quota: float | None = None, busy: float | None = None,
    load: float = 99.0, threads: int | str | None = "auto",
) -> ThreadChoice:  # fmt: skip
    files = {"proc/self/cgroup": "0::/\n", "proc/loadavg": f"{load:.2f} 0.00 0.00 1/2 3\n"}
    if quota is not None:
        files["sys/fs/cgroup/cpu.max"] = f"{int(quota * 100000)} 100000\n"
    for cpu in range(cores * siblings):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = f"{cpu % cores}\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    cpus = frozenset(range(cores * siblings if allowed is None else allowed))
    return choose_threads(threads, look=None if busy is None else Look(busy), cpus=cpus, root=root)


@pytest.mark.parametrize(
    ("facts", "threads", "decided_by"),
    [
        ({"cores": 8}, 8, "cores"),
        ({"cores": 4, "siblings": 2}, 4, "cores"),
        ({"cores": 8, "allowed": 3}, 3, "affinity"),
        ({"cores": 8, "quota": 2.5}, 2, "quota"),
        ({"cores": 8, "quota": 0.3}, 1, "quota"),
        ({"cores": 2, "quota": 16}, 2, "cores"),
        ({"cores": 300}, 256, "limit"),
        ({"busy": 0.5}, 4, "cores"),
        ({"busy": 0.95}, 3, "neighbours"),
        ({"busy": 1.6}, 3, "neighbours"),
        ({"busy": 2.0}, 2, "neighbours"),
        ({"busy": 2.9}, 4, "cores"),  # most are busy: the larger share is better
        ({"busy": 4.0}, 4, "cores"),
        ({"cores": 2, "busy": 1.0}, 1, "neighbours"),
        ({"cores": 2, "busy": 1.8}, 2, "cores"),
        ({"cores": 1, "busy": 1.0}, 1, "cores"),
        ({"busy": 2.0, "load": 0.4}, 4, "cores"),  # busy now, but not in the last minute: a short neighbour
        ({"busy": 2.0, "load": 1.1}, 3, "neighbours"),
        ({"busy": 1.0, "quota": 2}, 2, "quota"),  # two of the other three cores
        ({"threads": 7}, 7, "request"),
        ({"threads": None, "cores": 2}, 2, "cores"),
    ],
)
def test_the_tightest_limit_decides_and_is_named(tmp_path: Path, facts: dict, threads: int, decided_by: str) -> None:
    choice = choose(tmp_path, **facts)
    assert (choice.threads, choice.decided_by) == (threads, decided_by)
    assert choice.reason.startswith(f"{threads}, ")


def test_the_reason_says_what_was_seen(tmp_path: Path) -> None:
    choice = choose(tmp_path, cores=4, siblings=2, allowed=6, quota=3.5, busy=1.04)
    assert (
        choice.reason == "3, the whole CPUs of the cgroup's quota (4 cores behind 6 of 8 CPUs, quota 3.5 CPUs, others keep 1.0 CPUs busy)"
    )
    assert choice.to_dict()["others_busy_cpus"] == 1.04


def test_a_quiet_machine_is_not_looked_at_for_long(tmp_path: Path) -> None:
    class Never(NeighbourLook):
        def busy_cpus(self) -> float | None:
            raise AssertionError("looked")

    choose(tmp_path, load=0.2)
    choice = choose_threads("auto", look=Never(frozenset((0, 1))), cpus=frozenset((0, 1)), root=tmp_path)
    assert (choice.threads, choice.others_busy_cpus) == (2, None)
    assert choice.reason.endswith("load average 0.2)")


@pytest.mark.parametrize("threads", [0, 257, 1.5, True, "two"])
def test_what_is_no_number_of_threads_is_refused(threads: object) -> None:
    with pytest.raises(UsageError, match="threads must be an integer from 1 to 256 or 'auto', got"):
        choose_threads(threads)  # type: ignore[arg-type]  # wrong on purpose


def test_a_look_sees_others_and_not_itself() -> None:
    cpus = machine.allowed_cpus()
    burner = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert burner.stdout is not None
        burner.stdout.readline()
        seen = max(NeighbourLook(cpus).busy_cpus() or 0.0 for _ in range(10))
        assert 0.3 < seen <= len(cpus) + 0.5
    finally:
        burner.kill()
        burner.wait()
        burner.stdout.close()


def test_own_work_during_a_look_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([(0.0, 0.0, 100.0), (LOOK_S * 2, 0.08, 100.12)])
    monkeypatch.setattr(NeighbourLook, "_now", lambda self: next(clock))
    assert NeighbourLook(frozenset((0, 1))).busy_cpus() == pytest.approx(0.4)
