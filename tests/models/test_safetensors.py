"""The bounded reader of .safetensors files and their index: the reference library is the oracle."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_folders import framed, safetensors_bytes, stored, write_folder
from swiftsure.errors import ModelError, ModelFileError, UnsupportedModelError
from swiftsure.models.safetensors import SafetensorsFile, Shards
from swiftsure.models.safetensors_header import MAX_NAME_BYTES

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSORS = {
    "b": stored(ROWS, "BF16"),
    "a": stored(ROWS[0], "F32"),
    "c": stored(ROWS, "F16"),
    "none": ("I64", (0, 4), b""),
    "one": ("U8", (), b"x"),
}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "x.safetensors"
    path.write_bytes(data)
    return path


def refusal(folder: Path, data: bytes, kind: type[ModelError] = ModelFileError) -> str:
    path = written(folder, data)
    with pytest.raises(kind) as caught:
        SafetensorsFile(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def one(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_tensors_have_the_bytes_that_were_written(tmp_path: Path) -> None:
    file = SafetensorsFile(written(tmp_path, safetensors_bytes(TENSORS, metadata={"format": "pt", "odd": 'a"}{\\'})))
    assert set(file.tensors) == set(TENSORS)
    for name, (dtype, shape, data) in TENSORS.items():
        entry = file.tensors[name]
        assert (entry.dtype, entry.shape, file.read(name).tobytes()) == (dtype, shape, data)
    file.close()
    file.close()
    with pytest.raises(ModelFileError, match="is closed"):
        file.read("a")


def test_a_file_of_the_reference_library_is_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {"w.ä": ROWS, "h": ROWS.astype(np.float16), "ids": np.arange(3)}
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "np"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert {name: file.read(name).tobytes() for name in file.tensors} == {name: array.tobytes() for name, array in arrays.items()}
    file.close()


def test_an_empty_file_of_tensors_is_sound(tmp_path: Path) -> None:
    SafetensorsFile(written(tmp_path, framed(b"{}  "))).close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the header's length is 0 bytes in a file of 0"),
        (b"\x01\x00", "in a file of 2"),
        (b"\xff" * 8, "18,446,744,073,709,551,615 bytes in a file of 8"),
        (framed(b"{}", length=3), "the header's length is 3 bytes in a file of 10"),
        (framed(b""), "not a JSON object"),
        (framed(b"[]"), "not a JSON object"),
        (framed(b" {}"), "not a JSON object"),
        (framed(b"{}x"), "only blanks may follow"),
        (framed(b"{"), "expected a string"),
        (framed(b'{"x'), "damaged or has no end"),
        (framed(b'{"x\\"'), "damaged or has no end"),
        (framed(b'{"x" 5}'), "expected ':'"),
        (framed(b'{"x": 5}'), "must state dtype, shape and data_offsets"),
        (framed(b'{"x": {}}'), "must state dtype, shape and data_offsets"),
        (framed(b'{"x": {"a": {}}}'), "in one flat object"),
        (framed(b'{"\xff": 5}'), "not UTF-8"),
        (framed(b'{"\\ud800": 5}'), "a name in Unicode"),
        (framed(b'{"\\q": 5}'), "damaged or has no end"),
        (framed(b'{"a\nb": 5}'), "damaged or has no end"),
        (framed({"n" * (MAX_NAME_BYTES + 1): 5}), f"names have at most {MAX_NAME_BYTES:,}"),
        (framed(b'{"x": {"dtype": "F32", "shape": [' + b"1," * 5000 + b'1], "data_offsets": [0, 4]}}', bytes(4)), "in one flat object"),
        (framed(b'{"x": {"dtype": "F32", "shape": ' + b"[" * 2000 + b"}}"), "is damaged"),
        (framed(b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, ' + b"9" * 4000 + b"]}}"), "below 2^63"),
        (framed(one(shape=(1,) * 33, offsets=(0, 4)), bytes(4)), "33 dimensions; at most 32"),
        (framed(one(shape=(1 << 62, 4)), bytes(8)), "cannot lie at bytes 0 to 8"),  # 2^64 elements: wraps to 0
        (framed(one(shape=(1 << 62, 4), offsets=(0, 0))), "cannot lie at bytes 0 to 0"),
        (framed(one(shape=(-2,)), bytes(8)), "whole numbers of at least 0"),
        (framed(one(shape=(2.0,)), bytes(8)), "whole numbers"),
        (framed(one(shape=(True,)), bytes(4)), "whole numbers"),
        (framed(one(shape=5), bytes(8)), "whole numbers"),
        (framed(one(offsets=(0,)), bytes(8)), "offsets two"),
        (framed(one(offsets=(8, 0)), bytes(8)), "cannot lie at bytes 8 to 0"),
        (framed(one(offsets=(4, 12)), bytes(12)), "bytes 0 to 4 of the data, between the header and 'x', belong to no tensor"),
        (framed(one(), bytes(4)), "of a file of"),
        (framed(one(), bytes(12)), "the tensors end at byte"),
        (framed(one() | {"y": one()["x"]}, bytes(8)), "before 'x' ends: they overlap"),
        (framed(b'{"x": %b, "x": %b}' % ((json.dumps(one()["x"]).encode(),) * 2), bytes(8)), "names 'x' twice"),
        (framed(b'{"__metadata__": {}, "__metadata__": {}}'), "names '__metadata__' twice"),
        (framed(b'{"__metadata__": {"a": 5}}'), "expected a string"),
        (framed(b'{"__metadata__": []}'), "expected '{'"),
        (framed(b'{"x": {"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', bytes(8)), "once each and nothing else"),
        (framed({"x": one()["x"] | {"more": 1}}, bytes(8)), "once each and nothing else"),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused_with_the_rule(tmp_path: Path, data: bytes, words: str) -> None:
    assert words in refusal(tmp_path, data)


@pytest.mark.parametrize("dtype", ["F4", "Q4", "", ["F32"], None, 5])
def test_an_unknown_type_is_refused_by_name(tmp_path: Path, dtype: Any) -> None:
    assert f"has type {dtype!r}" in refusal(tmp_path, framed(one(dtype), bytes(8)), UnsupportedModelError)


BOMBS = {
    "brackets": b"[" * 40_000_000,
    "small numbers in an entry": b'{"x":{"shape":[' + b"0," * 20_000_000,
    "members of metadata": b'{"__metadata__":{' + b'"":"",' * 6_000_000,
    "one endless name of quotes": b'{"' + b'\\"' * 20_000_000,
    "one endless name of backslashes": b'{"' + b"\\" * 40_000_000,
    "blanks": b"{" + b" " * 40_000_000,
    "empty entries": b'{"a":{},' * 5_000_000,
    "a character beyond the basic plane": b'{"' + "\U0001f600".encode() + b"a" * 40_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_bomb_is_refused_within_twice_the_file_and_64_megabytes(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, framed(BOMBS[name]))
    program = (
        "import resource, sys\nfrom swiftsure.errors import ModelError\nfrom swiftsure.models.safetensors import SafetensorsFile\n"
        "from pathlib import Path\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    SafetensorsFile(Path(sys.argv[1]))\nexcept ModelError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    ran = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True, timeout=120)
    assert int(ran.stdout) * 1024 <= 2 * path.stat().st_size + (64 << 20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.data())
def test_what_is_accepted_after_a_byte_changed_the_reference_library_accepts_too(tmp_path: Path, data: st.DataObject) -> None:
    from safetensors import SafetensorError, safe_open

    raw = bytearray(safetensors_bytes(TENSORS, metadata={"format": "pt"}))
    header_end = 8 + int.from_bytes(raw[:8], "little")
    for at in data.draw(st.lists(st.integers(0, header_end), min_size=1, max_size=3)):
        raw[at] = data.draw(st.one_of(st.sampled_from(b'0123456789[]{},:" '), st.integers(0, 255)))
    path = written(tmp_path, bytes(raw))
    try:
        file = SafetensorsFile(path)
    except ModelError:
        return
    names = set(file.tensors)
    file.close()
    try:
        with safe_open(path, "np") as reference:
            assert set(reference.keys()) == names
    except SafetensorError as error:
        pytest.fail(f"the reference library refuses what was accepted: {error}")


def test_a_file_cut_short_after_it_was_opened_ends_in_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, safetensors_bytes(TENSORS))
    file = SafetensorsFile(path)
    os.truncate(path, path.stat().st_size - 4)
    last = max(file.tensors.values(), key=lambda entry: entry.offset + entry.nbytes)
    with pytest.raises(ModelFileError, match="cut short after it was opened"):
        file.read(last.name)
    file.close()


def test_shards_are_read_as_one_model(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, TENSORS, shards=3)
    shards = Shards(folder)
    assert set(shards.names()) == set(TENSORS)
    assert len(shards.files) == 3
    for name, (dtype, shape, data) in TENSORS.items():
        assert (shards.entry(name).dtype, shards.entry(name).shape, shards.read(name).tobytes()) == (dtype, shape, data)
    shards.close()


def test_one_file_comes_before_an_index(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, TENSORS, shards=2)
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"a": TENSORS["a"]}))
    shards = Shards(folder)
    assert list(shards.names()) == ["a"]
    shards.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"a": "model-00002-of-00002.safetensors"},
            "says that tensor 'a' lies in model-00002-of-00002.safetensors, which does not hold it",
        ),
        ({"more": "model-00001-of-00002.safetensors"}, "says that tensor 'more' lies in"),
        ({"c": None}, "holds tensor 'c', which model.safetensors.index.json does not name"),
        ({"a": "../a.safetensors"}, "shards must be .safetensors files of the folder itself, got '../a.safetensors'"),
        ({"a": "/etc/a.safetensors"}, "of the folder itself"),
        ({"a": "sub/a.safetensors"}, "of the folder itself"),
        ({"a": "model.bin"}, "must be .safetensors files"),
        ({"a": "a\0.safetensors"}, "of the folder itself"),
        ({"a": "absent.safetensors"}, "shard 'absent.safetensors' is missing"),
        ({"a": 5}, "must be an object that names a file for each tensor"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    folder = write_folder(tmp_path, {}, {name: TENSORS[name] for name in "abc"}, shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] = {name: file for name, file in (index["weight_map"] | change).items() if file is not None}
    path.write_text(json.dumps(index))
    with pytest.raises(ModelFileError) as caught:
        Shards(folder)
    assert words in str(caught.value)


NO_INDEX = ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 5}', "[" * 100_000, '{"weight_map": {"a": NaN}}', " " * (1 << 21)]


@pytest.mark.parametrize("text", NO_INDEX, ids=range(len(NO_INDEX)))
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    folder = write_folder(tmp_path, {}, TENSORS, shards=2)
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"index\.json"):
        Shards(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, TENSORS, shards=2)
    for file in folder.glob("*-of-*.safetensors"):
        file.write_bytes(safetensors_bytes({"a": TENSORS["a"]}))
    with pytest.raises(ModelFileError, match="tensor 'a' lies in both"):
        Shards(folder)


def test_files_are_closed_when_a_later_one_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, TENSORS, shards=3)
    (folder / "model-00003-of-00003.safetensors").write_bytes(b"")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ModelFileError, match="model-00003"):
        Shards(folder)
    assert len(os.listdir("/proc/self/fd")) == before


def test_more_shards_than_files_may_be_open_is_an_error_that_says_so(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, {str(i): TENSORS["a"] for i in range(40)}, shards=40)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))
    try:
        with pytest.raises(ModelFileError, match="Too many open files"):
            Shards(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
