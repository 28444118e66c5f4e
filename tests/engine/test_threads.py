"""The default number of threads: physical cores, affinity and cgroup quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.engine import threads


def topology(root: Path, cores: list[tuple[int, int]]) -> Path:
    for cpu, (package, core) in enumerate(cores):
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    return root


def group(mount: Path, path: str, **files: str) -> None:
    folder = mount / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_hyperthreads_count_once_and_sockets_apart(tmp_path: Path) -> None:
    root = topology(tmp_path, [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)])
    assert threads.physical_cores({0, 1, 2, 3, 4, 5}, root) == 3
    assert threads.physical_cores({0, 3}, root) == 1


def test_a_cpu_without_topology_counts_as_a_core(tmp_path: Path) -> None:
    assert threads.physical_cores({0, 1}, tmp_path) == 2


def test_the_tightest_quota_of_the_lineage_counts(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/outer/inner\n")
    mount = tmp_path / "mount"
    group(mount, "outer", cpu__max="150000 100000\n")
    group(mount, "outer/inner", cpu__max="max 100000\n")
    assert threads.cgroup_cpus(tmp_path / "self", mount) == 1.5
    group(mount, "outer/inner", cpu__max="50000 100000\n")
    assert threads.cgroup_cpus(tmp_path / "self", mount) == 0.5


def test_version_1_quotas_are_read_and_minus_one_means_none(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("4:cpu,cpuacct:/box\n3:memory:/box\n")
    mount = tmp_path / "mount"
    group(mount / "cpu", "box", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert threads.cgroup_cpus(tmp_path / "self", mount) is None
    group(mount / "cpu", "box", cpu__cfs_quota_us="300000\n")
    assert threads.cgroup_cpus(tmp_path / "self", mount) == 3.0


def test_a_container_that_sees_its_own_group_as_the_root_is_understood(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/kubepods/pod1234\n")
    group(tmp_path / "mount", "", cpu__max="200000 100000\n")
    assert threads.cgroup_cpus(tmp_path / "self", tmp_path / "mount") == 2.0


def test_a_system_without_cgroups_states_no_limit(tmp_path: Path) -> None:
    assert threads.cgroup_cpus(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(("cores", "quota", "expected"), [(8, None, 8), (8, 2.5, 2), (8, 0.3, 1), (2, 16.0, 2)])
def test_threads_are_cores_within_the_quota_and_at_least_one(
    monkeypatch: pytest.MonkeyPatch, cores: int, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(threads, "physical_cores", lambda cpus: cores)
    monkeypatch.setattr(threads, "cgroup_cpus", lambda: quota)
    assert threads.default_threads() == expected
