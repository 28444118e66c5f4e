from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from swiftsure.records.machine import peak_rss_bytes, read_machine

CPUINFO = """\
processor\t: 0
model name\t: Made Up 9000
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 fma avx512f hypervisor

processor\t: 1
model name\t: Made Up 9000
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 fma avx512f hypervisor
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:       1000 kB\n",
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/cpu.max": "max 100000",
        "sys/fs/cgroup/outer/cpu.max": "150000 100000",
        "sys/fs/cgroup/outer/inner/cpu.max": "400000 100000",
        "sys/fs/cgroup/outer/inner/memory.max": "max",
        "sys/fs/cgroup/outer/memory.max": "524288",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/devices/system/cpu/cpu0/cache/index0/size": "48K",
        "sys/devices/system/cpu/cpu0/cache/index0/level": "1",
        "sys/devices/system/cpu/cpu0/cache/index0/type": "Data",
        "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list": "0",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_facts_are_read_from_the_system(root: Path) -> None:
    facts = read_machine(root)
    assert facts.cpu_model == "Made Up 9000"
    assert facts.cpu_flags == ("avx2", "fma", "avx512f")
    assert facts.hypervisor
    assert facts.physical_cores == 1  # two hyperthreads of one core
    assert facts.memory_bytes == 1_024_000
    assert facts.transparent_huge_pages == "madvise"
    assert [(cache.level, cache.kind, cache.size_bytes) for cache in facts.caches] == [(1, "data", 49152)]


def test_the_tightest_cgroup_limit_counts_even_when_an_ancestor_sets_it(root: Path) -> None:
    facts = read_machine(root)
    assert facts.cgroup_cpus == 1.5
    assert facts.cgroup_memory_bytes == 524288


def test_a_system_that_tells_nothing_gives_absent_facts(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert facts.memory_bytes is None
    assert facts.physical_cores is None
    assert facts.cgroup_cpus is None
    assert facts.caches == ()


def test_facts_of_this_machine_become_json() -> None:
    facts = read_machine()
    assert facts.usable_cpus >= 1
    assert "numpy" in facts.libraries
    assert json.loads(json.dumps(facts.to_dict()))["logical_cpus"] == facts.logical_cpus


def test_a_childs_peak_is_its_own_and_not_its_parents() -> None:
    ballast = bytearray(200_000_000)
    ballast[::4096] = b"x" * len(ballast[::4096])
    code = "from swiftsure.records.machine import peak_rss_bytes; print(peak_rss_bytes())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    own = peak_rss_bytes()
    assert own is not None
    assert own > len(ballast)
    assert 1_000_000 < child < 150_000_000
