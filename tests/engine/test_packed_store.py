"""Packed weights on disk: read only when every byte is what was kept, bounded in size, and never in the way."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import swiftsure
from swiftsure import kernels
from swiftsure.engine import packed_store
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.packed_store import PackedKey, PackedStore
from swiftsure.errors import ModelFileError
from tiny_models import MemoryTensors, TinyModel, TinySpec

MODEL = TinyModel(TinySpec(types={"attn_k": "Q8_0", "ffn_up": "F16"}, vocab=333))
KEY = PackedKey(weights_sha256="ab" * 32)


class Unreadable(MemoryTensors):
    """Only the vectors can be read: whoever asks for a matrix packs it."""

    def read(self, name, rows=None):
        assert len(self.info(name).shape) == 1, f"{name} was read"
        return super().read(name, rows)


def store(folder: Path, **choices) -> PackedStore:
    return PackedStore(choices.pop("key", KEY), folder=folder, **{"least_bytes": 0, **choices})


def build(kept: PackedStore | None, source: MemoryTensors | None = None, threads: int = 2) -> CPUBackend:
    return CPUBackend(MODEL.schedule, source or MODEL.source(), isa="portable", threads=threads, kv_blocks=2, store=kept)


def logits(backend: CPUBackend) -> bytes:
    count = np.arange(6, dtype=np.int32)
    table = np.zeros((1, 1), np.int32)
    return backend.run(RowBatch(tokens=count, positions=count, sequences=count * 0, block_tables=table, logit_rows=count)).tobytes()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_second_start_reads_what_the_first_kept_and_packs_nothing(tmp_path):
    first, second = store(tmp_path / "packed"), store(tmp_path / "packed")
    packed = build(first)
    assert set(first.phases_s) == {"packed_keep_s"}
    read = build(second, Unreadable(MODEL.tensors.values()))
    assert set(second.phases_s) == {"packed_read_s"}
    assert first.notes == second.notes == []
    assert logits(packed) == logits(read) == logits(build(None))
    assert files(tmp_path / "packed") == [KEY.file_name]


@pytest.mark.parametrize("threads", [1, 5])
def test_checksum_is_the_same_for_any_number_of_threads(tmp_path, threads):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (4096, 600 * 4), dtype=np.uint8)  # several pieces of a mebibyte
    arena = kernels.WeightArena()
    kernels.PackedMatrix("F32", 4096, 600, arena).pack_rows(0, 4096, rows.reshape(-1))
    with (tmp_path / "arena").open("w+b") as file:
        written = arena.write(file.fileno(), 4096)
        other = kernels.WeightArena()
        again = kernels.PackedMatrix("F32", 4096, 600, other)
        assert other.read(file.fileno(), 4096, threads) == written
        assert kernels._core.unpack_row("portable", again, 4095).tobytes() == rows[4095].tobytes()


def damage_byte(at: int):
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            old = file.read(1)
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            file.write(bytes([old[0] ^ 0x80]))

    return change


def swap_lines(path: Path) -> None:
    """Two cache lines change places."""
    data = bytearray(path.read_bytes())
    one, two = slice(4096, 4160), slice(4160, 4224)
    assert data[one] != data[two]
    data[one], data[two] = data[two], data[one]
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_byte(4096), "its checksum is wrong"),
        (damage_byte(-1), "its checksum is wrong"),
        (swap_lines, "its checksum is wrong"),
        (damage_byte(0), "its header is damaged"),
        (damage_byte(60), "its header"),
        (lambda path: os.truncate(path, path.stat().st_size - 64), "it must have"),
        (lambda path: os.truncate(path, path.stat().st_size + 64), "it must have"),
        (lambda path: path.write_bytes(b""), "its header is damaged"),
        (lambda path: path.write_bytes(b"[]"), "its header is damaged"),
        (lambda path: path.write_bytes(b"[" * 4096), "its header is damaged"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
    ],
    ids=["first", "last", "swapped", "brace", "header", "short", "long", "empty", "no-object", "deep", "folder"],
)
def test_damaged_file_is_refused_and_the_weights_packed_anew(tmp_path, damage, reason):
    truth = logits(build(store(tmp_path)))
    damage(tmp_path / KEY.file_name)
    again = store(tmp_path)
    assert logits(build(again)) == truth
    assert "packed_refused_s" in again.phases_s
    assert "packed_read_s" not in again.phases_s
    assert reason in again.notes[0]
    if reason != "Is a directory":
        last = store(tmp_path)
        build(last, Unreadable(MODEL.tensors.values()))  # and was kept anew
        assert last.notes == []


def test_every_single_byte_of_the_first_matrix_counts(tmp_path):
    build(store(tmp_path))
    path = tmp_path / KEY.file_name
    whole = path.read_bytes()
    for at in np.random.default_rng(3).integers(4096, len(whole), 40):
        path.write_bytes(whole)
        damage_byte(int(at))(path)
        again = store(tmp_path)
        build(again)
        assert "its checksum is wrong" in again.notes[0], at


@pytest.mark.parametrize(
    "key",
    [
        PackedKey(weights_sha256="cd" * 32),
        PackedKey(weights_sha256="ab" * 32, variant="head:Q4_1"),
        PackedKey(weights_sha256="ab" * 32, layout=kernels.PACKED_LAYOUT + 1),
    ],
)
def test_other_weights_variant_or_layout_are_another_file(tmp_path, key):
    build(store(tmp_path))
    other = store(tmp_path, key=key)
    build(other)
    assert set(other.phases_s) == {"packed_keep_s"}
    shutil.copy(tmp_path / KEY.file_name, tmp_path / key.file_name)  # and under its name the wrong one is refused
    wrong = store(tmp_path, key=key)
    build(wrong)
    assert "its header names other contents" in wrong.notes[0]


def test_matrices_in_another_order_or_shape_are_refused(tmp_path):
    build(store(tmp_path))
    arena = kernels.WeightArena()
    kernels.PackedMatrix("Q4_1", 32, 64, arena)
    other = store(tmp_path)
    assert not other.read(arena, ["blk.0 Q4_1 32 64"], threads=1)
    assert "its header names other contents" in other.notes[0]


def test_least_recently_used_go_first_and_the_limit_holds(tmp_path):
    size = 4096 + build(store(tmp_path)).weight_bytes
    keys = [PackedKey(weights_sha256=f"{i:064x}") for i in range(4)]
    shutil.rmtree(tmp_path)
    for age, key in enumerate(keys[:3]):
        build(store(tmp_path, key=key, limit_bytes=3 * size))
        os.utime(tmp_path / key.file_name, (1000 + age, 1000 + age))
    assert len(files(tmp_path)) == 3
    build(store(tmp_path, key=keys[0], limit_bytes=3 * size))  # used again: now the youngest
    build(store(tmp_path, key=keys[3], limit_bytes=3 * size))
    assert files(tmp_path) == sorted(key.file_name for key in (keys[0], keys[2], keys[3]))
    build(store(tmp_path, key=PackedKey(weights_sha256="e" * 64), limit_bytes=size - 4096))
    assert len(files(tmp_path)) == 3, "what is larger than the limit alone pushes nothing out"


def test_leftovers_of_dead_processes_go_and_fresh_ones_stay(tmp_path):
    dead, alive = tmp_path / "x.1.part", tmp_path / "x.2.part"
    for path in (dead, alive):
        path.write_bytes(b"half")
    os.utime(dead, (time.time() - 2 * 3600,) * 2)
    build(store(tmp_path))
    assert files(tmp_path) == sorted([KEY.file_name, alive.name])


def test_small_models_are_not_kept(tmp_path):
    small = store(tmp_path / "packed", least_bytes=packed_store.LEAST_BYTES)
    build(small)
    assert not (tmp_path / "packed").exists()
    assert small.phases_s == {}


def test_folder_that_cannot_be_made_is_noted_and_loading_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    blocked = store(tmp_path / "file" / "packed")
    assert logits(build(blocked)) == logits(build(None))
    assert "packed weights not kept in" in blocked.notes[-1]


def test_full_disk_is_noted_and_nothing_half_written_is_left(tmp_path, monkeypatch):
    class Full(kernels.WeightArena):
        def write(self, fd, offset):
            os.pwrite(fd, b"half", 0)
            raise OSError(28, "No space left on device")

    full = store(tmp_path)
    arena = Full()
    kernels.PackedMatrix("Q4_1", 32, 64, arena)
    full.keep(arena, ["a"])
    assert full.notes == [f"packed weights not kept in {tmp_path}: No space left on device"]
    assert files(tmp_path) == []

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**10, 10**10 - 5, 5))
    tight = store(tmp_path)
    build(tight)
    assert "GB are free" in tight.notes[0]
    assert files(tmp_path) == []


def test_two_starts_at_once_both_get_right_weights(tmp_path):
    truth, found = logits(build(None)), []
    starts = [threading.Thread(target=lambda: found.extend(logits(build(store(tmp_path))) for _ in range(3))) for _ in range(4)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert found == [truth] * 12
    assert files(tmp_path) == [KEY.file_name]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(packed_store.PackedStore.__init__, "__kwdefaults__", {"folder": None, "limit_bytes": 1 << 30, "least_bytes": 0})
    return MODEL.write_gguf(tmp_path / "tiny.gguf")


def test_load_keeps_reads_and_says_so(tiny, tmp_path):
    packed = tmp_path / "home" / "packed"
    with swiftsure.load(tiny, cache=False) as llm:
        truth = llm.logits([1, 2, 3]).tobytes()
        assert not packed.exists()
    with swiftsure.load(tiny) as llm:
        assert "packed_keep_s" in llm.load_phases
    with swiftsure.load(tiny, mode="exact") as llm:
        assert "packed_read_s" in llm.load_phases
        assert llm.load_notes == ()
        assert llm.logits([1, 2, 3]).tobytes() == truth
    (kept,) = packed.iterdir()
    damage_byte(5000)(kept)
    with swiftsure.load(tiny) as llm:
        assert {"packed_refused_s", "pack_s", "packed_keep_s"} <= set(llm.load_phases)
        assert "its checksum is wrong; packed anew" in llm.load_notes[0]
        assert llm.logits([1, 2, 3]).tobytes() == truth
    with swiftsure.load(tiny, cache=False) as llm:
        assert "packed_read_s" not in llm.load_phases


def test_weights_that_change_while_they_load_are_refused(tiny, monkeypatch):
    build_backend = CPUBackend.__init__

    def meanwhile(self, *arguments, **choices):
        build_backend(self, *arguments, **choices)
        with tiny.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
        os.utime(tiny)

    monkeypatch.setattr(CPUBackend, "__init__", meanwhile)
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: the file changed while it was being loaded"):
        swiftsure.load(tiny)
