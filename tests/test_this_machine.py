"""Processors, quotas and memory that a process may use, as Linux states them."""

from __future__ import annotations

from pathlib import Path

from swiftsure import machine


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def topology(root: Path, cores: list[tuple[int, int]]) -> Path:
    for cpu, (package, core) in enumerate(cores):
        place = f"sys/devices/system/cpu/cpu{cpu}/topology"
        write(root, {f"{place}/physical_package_id": f"{package}\n", f"{place}/core_id": f"{core}\n"})
    return root


def test_hyperthreads_count_once_and_sockets_apart(tmp_path: Path) -> None:
    root = topology(tmp_path, [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)])
    assert machine.physical_cores({0, 1, 2, 3, 4, 5}, root) == 3
    assert machine.physical_cores({0, 3}, root) == 1


def test_a_cpu_without_topology_counts_as_a_core(tmp_path: Path) -> None:
    assert machine.physical_cores({0, 1}, tmp_path) == 2


def test_the_tightest_quota_of_the_lineage_counts(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/outer/inner\n", "sys/fs/cgroup/outer/cpu.max": "150000 100000\n"})
    write(tmp_path, {"sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n"})
    assert machine.cgroup_cpus(tmp_path) == 1.5
    write(tmp_path, {"sys/fs/cgroup/outer/inner/cpu.max": "50000 100000\n"})
    assert machine.cgroup_cpus(tmp_path) == 0.5


def test_version_1_quotas_are_read_and_minus_one_means_none(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/cpu/box"
    write(tmp_path, {"proc/self/cgroup": "4:cpu,cpuacct:/box\n3:memory:/box\n", f"{group}/cpu.cfs_period_us": "100000\n"})
    write(tmp_path, {f"{group}/cpu.cfs_quota_us": "-1\n"})
    assert machine.cgroup_cpus(tmp_path) is None
    write(tmp_path, {f"{group}/cpu.cfs_quota_us": "300000\n"})
    assert machine.cgroup_cpus(tmp_path) == 3.0
    write(
        tmp_path, {"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000"}
    )
    assert machine.cgroup_cpus(tmp_path) == 2.0


def test_a_container_that_sees_its_own_group_as_the_root_is_understood(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/kubepods/pod1234\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"})
    assert machine.cgroup_cpus(tmp_path) == 2.0


def test_a_system_that_tells_nothing_states_no_limit(tmp_path: Path) -> None:
    assert machine.cgroup_cpus(tmp_path) is None
    assert machine.cgroup_memory_limit(tmp_path) is None
    assert machine.cgroup_memory_left(tmp_path) is None
    assert machine.data_limit_left(tmp_path) is None
    assert machine.memory_bytes("MemTotal", tmp_path) is None
    assert machine.busy_seconds({0}, tmp_path) is None
    assert machine.load_average(tmp_path) is None


def test_both_versions_limits_of_memory_count_and_their_no_limit_does_not(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "4:memory:/x\n0::/a/b\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": str(1 << 62)})
    write(tmp_path, {"sys/fs/cgroup/a/memory.max": "5000", "sys/fs/cgroup/a/b/memory.max": "max"})
    assert machine.cgroup_memory_limit(tmp_path) == 5000
    write(tmp_path, {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4000"})
    assert machine.cgroup_memory_limit(tmp_path) == 4000
    write(
        tmp_path,
        {"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "3000", "sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 700\n"},
    )
    assert machine.cgroup_memory_left(tmp_path) == 1700


def test_busy_seconds_are_those_of_the_cpus_asked_for(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/stat": "cpu  9 9 9 9\ncpu0 100 20 30 1000 5 1 2 7 0 0\ncpu1 300 0 0 0 0 0 0 0 0 0\ncpu10 500 0 0 0 0 0 0 0 0 0\n"}
    )
    assert machine.busy_seconds({0}, tmp_path) == 1.53
    assert machine.busy_seconds({0, 1}, tmp_path) == 4.53


def test_this_machine_states_its_facts() -> None:
    cpus = machine.allowed_cpus()
    assert 1 <= machine.physical_cores(cpus) <= len(cpus)
    assert (machine.busy_seconds(cpus) or 0) > 0
    assert (machine.memory_bytes("MemTotal") or 0) > 100 << 20
