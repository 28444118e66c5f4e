from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.verify.subjects.memory_limit import BY_CGROUP, BY_RLIMIT, MemoryLimit, memory_words, open_limit


def machine(root: Path, own: str, handing_down: dict[str, str], *, version: int = 2) -> Path:
    """A system's files: this process is in ``own``; ``handing_down`` gives cgroup.subtree_control by group."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"0::{own}\n" if version == 2 else f"4:memory:{own}\n")
    mount = root / "sys/fs/cgroup"
    mount.mkdir(parents=True)
    if version == 2:
        (mount / "cgroup.controllers").write_text("cpu memory\n")
    for group, controllers in handing_down.items():
        folder = mount / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(controllers + "\n")
        (folder / "cgroup.procs").write_text("")
    return mount


def test_a_group_is_made_beside_this_process_s_own_where_memory_is_handed_down(tmp_path: Path) -> None:
    mount = machine(tmp_path, "/user/app/run", {"/": "cpu memory", "/user": "cpu memory", "/user/app": "cpu memory", "/user/app/run": ""})
    limit = open_limit(1 << 30, tmp_path)
    assert limit.by == BY_CGROUP
    assert limit.group is not None
    assert limit.group.parent == mount / "user/app"
    assert (limit.group / "memory.max").read_text() == str(1 << 30)
    assert (limit.group / "memory.swap.max").read_text() == "0"


def test_without_memory_control_processes_are_limited_each(tmp_path: Path) -> None:
    machine(tmp_path, "/user/app", {"/": "cpu", "/user": "cpu", "/user/app": ""})
    limit = open_limit(1 << 30, tmp_path)
    assert (limit.group, limit.by) == (None, BY_RLIMIT)


def test_version_1_is_left_alone(tmp_path: Path) -> None:
    machine(tmp_path, "/user", {"/": "memory", "/user": "memory"}, version=1)
    assert open_limit(1 << 30, tmp_path).group is None


def test_a_system_without_these_files_is_limited_each(tmp_path: Path) -> None:
    assert open_limit(1 << 30, tmp_path).group is None


def test_a_group_that_refuses_the_limit_is_removed_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = machine(tmp_path, "/user", {"/": "memory", "/user": ""})
    write = Path.write_text

    def refuse(path: Path, text: str, *rest: object, **more: object) -> int:
        if path.name == "memory.max":
            raise PermissionError
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    assert open_limit(1 << 30, tmp_path).group is None
    assert not list(mount.glob("**/swiftsure-*"))


def test_the_kernel_s_kills_are_counted_and_the_group_goes_at_the_end(tmp_path: Path) -> None:
    limit = MemoryLimit(limit_bytes=1, group=tmp_path / "swiftsure-x")
    assert limit.kills() == 0
    (tmp_path / "swiftsure-x").mkdir()
    events = tmp_path / "swiftsure-x" / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 1\n")
    assert limit.kills() == 2
    events.unlink()
    limit.close()
    assert not (tmp_path / "swiftsure-x").exists()
    limit.close()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("Traceback\nMemoryError\n", "MemoryError"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1 GiB", "MemoryError"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "bad_alloc"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "OutOfMemory"),
        ("bash: fork: Cannot allocate memory", "annot allocate memory"),
        ("all well", None),
    ],
)
def test_words_for_running_out_of_memory_are_known(log: str, said: str | None) -> None:
    assert memory_words(log, None) == said


@pytest.mark.parametrize(
    "log", ["ImportError: x.so: failed to map segment from shared object", "memory allocation of 67108880 bytes failed"]
)
def test_some_words_mean_memory_only_under_a_limit(log: str) -> None:
    assert memory_words(log, None) is None
    assert memory_words(log, MemoryLimit(limit_bytes=1)) is not None
