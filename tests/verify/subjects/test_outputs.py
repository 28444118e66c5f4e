from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from swiftsure.verify.compare.elements import BFLOAT16, as_float64
from swiftsure.verify.subjects.outputs import OutputError, OutputLimits, read_outputs


class Poison:
    """An object whose pickle would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("/tmp/poisoned-by-pickle",))


def tensors(entries: dict[str, Any], data: bytes, **more: Any) -> bytes:
    header = json.dumps(entries | more).encode()
    return struct.pack("<Q", len(header)) + header + data


def refusal(path: Path, **limits: int) -> str:
    with pytest.raises(OutputError) as caught:
        read_outputs(path, OutputLimits(**limits))
    return str(caught.value)


def test_a_folder_gives_its_files_by_name_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("hello")
    (tmp_path / "a.json").write_text('{"x": [1, 2.5, null]}')
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "sub" / "c.npy", np.float32([1, 2]))
    np.savez_compressed(tmp_path / "d.npz", y=np.arange(2), x=np.zeros(()))
    (tmp_path / "e.jsonl").write_text('{"a": 1}\n\n[2]\n')
    (tmp_path / "f.csv").write_text("id,score,name\n1,0.5,x\n2,1e3,\n")
    (tmp_path / "g.pdb").write_bytes(b"ATOM\xff")
    (tmp_path / "phases.json").write_text("{}")
    found = read_outputs(tmp_path)
    assert list(found) == ["a", "b", "d/y", "d/x", "e", "f/id", "f/score", "f/name", "g.pdb", "sub/c"]
    assert found["a"] == {"x": [1, 2.5, None]}
    assert found["e"] == [{"a": 1}, [2]]
    assert np.asarray(found["f/id"]).dtype == np.int64
    assert np.array_equal(found["f/score"], [0.5, 1000.0])
    assert found["f/name"] == ["x", ""]
    assert np.asarray(found["g.pdb"]).shape == (5,)


@pytest.mark.parametrize("name", ["output", "output.npy", "x.dat.npy"])
def test_a_single_array_is_the_output(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        np.save(file, np.arange(3))
    assert np.array_equal(read_outputs(tmp_path / name)["output"], [0, 1, 2])


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"a": 1}', {"a": 1}), (b" [1]", [1]), (b"plain text", "plain text"), (b"", "")],
)
def test_a_file_without_suffix_is_known_by_its_content(tmp_path: Path, content: bytes, expected: Any) -> None:
    (tmp_path / "output").write_bytes(content)
    assert read_outputs(tmp_path / "output") == {"output": expected}


def test_a_single_archive_gives_its_members(tmp_path: Path) -> None:
    np.savez(tmp_path / "output.npz", b=np.ones(2), a=np.asfortranarray(np.arange(6).reshape(2, 3)))
    found = read_outputs(tmp_path / "output.npz")
    assert list(found) == ["b", "a"]
    assert np.array_equal(found["a"], np.arange(6).reshape(2, 3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    st_np.arrays(
        st_np.boolean_dtypes() | st_np.integer_dtypes() | st_np.floating_dtypes() | st_np.unicode_string_dtypes(max_len=4),
        st_np.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    st.booleans(),
)
def test_every_array_comes_back_to_the_bit(tmp_path: Path, array: Any, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    np.save(tmp_path / "output.npy", array)
    np.savez(tmp_path / "output.npz", x=array)
    for found in (read_outputs(tmp_path / "output.npy")["output"], read_outputs(tmp_path / "output.npz")["x"]):
        back: Any = found
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert back.tobytes() == array.tobytes()


def test_pickled_arrays_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Poison()], object), allow_pickle=True)
    assert "pickle is never read" in refusal(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", x=np.array([Poison()], object))
    assert "pickle is never read" in refusal(tmp_path / "b.npz")
    assert not Path("/tmp/poisoned-by-pickle").exists()


def test_a_pickle_under_another_name_stays_bytes(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Poison()))
    assert list(read_outputs(tmp_path)) == ["model.pkl"]
    assert not Path("/tmp/poisoned-by-pickle").exists()


def test_truncated_arrays_are_damaged(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(100))
    whole = (tmp_path / "a.npy").read_bytes()
    for cut in (0, 5, 9, 60, len(whole) - 1):
        (tmp_path / "b.npy").write_bytes(whole[:cut])
        assert refusal(tmp_path / "b.npy").startswith("b.npy: ")
    (tmp_path / "b.npy").write_bytes(whole + b"x")
    assert "states 800 bytes of data and it holds 801" in refusal(tmp_path / "b.npy")


def test_a_header_that_states_more_than_there_is_allocates_nothing(tmp_path: Path) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    (tmp_path / "a.npy").write_bytes(buffer.getvalue())
    assert "states 8,796,093,022,208 bytes" in refusal(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", buffer.getvalue())
    assert "states 8,796,093,022,208 bytes" in refusal(tmp_path / "b.npz")


def test_a_negative_length_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (-1, -1)})
    (tmp_path / "a.npy").write_bytes(buffer.getvalue() + bytes(8))
    assert "lengths must be at least 0" in refusal(tmp_path / "a.npy")


def test_types_without_one_meaning_are_refused_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2, np.longdouble))
    assert "elements of type float128 are not read" in refusal(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros(2, [("a", "f4"), ("b", "i4")]))
    assert "are not read" in refusal(tmp_path / "b.npy")


def test_truncated_and_damaged_archives_fail(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=1000))
    whole = (tmp_path / "a.npz").read_bytes()
    for cut in (4, 100, len(whole) // 2, len(whole) - 3):
        (tmp_path / "b.npz").write_bytes(whole[:cut])
        assert "damaged" in refusal(tmp_path / "b.npz")
    (tmp_path / "b.npz").write_bytes(whole[:500] + bytes(20) + whole[520:])
    assert "damaged" in refusal(tmp_path / "b.npz")


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(64 << 20))
    assert (tmp_path / "a.npz").stat().st_size < 1 << 20
    assert "must be at most 1,048,576 bytes when unpacked" in refusal(tmp_path / "a.npz", unpacked_bytes=1 << 20)


def test_an_archive_that_lies_about_its_size_gives_no_more_than_it_states(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(1 << 20))
    raw = (tmp_path / "a.npz").read_bytes().replace(struct.pack("<I", 1 << 20), struct.pack("<I", 64))
    (tmp_path / "a.npz").write_bytes(raw)
    assert "a.npz: " in refusal(tmp_path / "a.npz", unpacked_bytes=1024)


def test_members_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("../../x.txt", "hi")
    assert "member '../../x.txt' is not an array" in refusal(tmp_path / "a.npz")


def test_huge_json_and_text_are_refused_by_size(tmp_path: Path) -> None:
    for name in ("a.json", "a.txt", "a.csv", "a.jsonl"):
        (tmp_path / name).write_text("[" + "1," * 1000 + "1]")
        assert "a text must be at most 1,000 bytes" in refusal(tmp_path / name, text_bytes=1000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 200_000, "a.json: nested deeper than can be read"),
        (b'{"a": ', "a.json: damaged"),
        (b"\xff\xfe", "a.json: not UTF-8"),
        (b"1" * 10_000, "a.json: damaged"),
    ],
)
def test_damaged_json_says_so(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert words in refusal(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "it has no row"), ("a,a\n1,2\n", "must name every column once"), ("a,b\n1\n", "row 2 has 1 fields"), ('a\n"x\n', "damaged")],
)
def test_damaged_csv_says_so(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert words in refusal(tmp_path / "a.csv")


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    output = tmp_path / "output"
    output.mkdir()
    (output / "a.txt").symlink_to(secret)
    assert refusal(output) == "a.txt leads out of the output folder"
    (output / "a.txt").unlink()
    (output / "folder").symlink_to(tmp_path)
    assert refusal(output) == "folder leads out of the output folder"


def test_an_output_that_is_itself_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "output").symlink_to(tmp_path / "secret.txt")
    assert "is a link" in refusal(tmp_path / "output")


def test_a_loop_of_links_and_a_name_that_is_no_text_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "a.txt").symlink_to("a.txt")
    assert "loop" in refusal(output).lower() or "levels of symbolic links" in refusal(output)
    (output / "a.txt").unlink()
    Path(os.fsdecode(os.fsencode(output) + b"/\xff\xfe.txt")).write_text("1")
    assert refusal(output) == "the name of an output must be printable UTF-8, got '\\udcff\\udcfe.txt'"


def test_links_inside_the_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.txt").symlink_to("a.txt")
    assert read_outputs(tmp_path) == {"a": "x", "b": "x"}


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    assert refusal(tmp_path) == "a.txt is not a regular file"


def test_too_many_files_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("0123456789")
    assert refusal(tmp_path, files=3) == "outputs must be at most 3 files"
    assert refusal(tmp_path, total_bytes=25) == "outputs must be at most 25 bytes in all"


def test_names_that_meet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.json").write_text("[]")
    assert refusal(tmp_path) == "two outputs are named 'a'"


def test_an_empty_folder_is_no_output(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "the output folder holds no file"


def test_safetensors_are_read_to_the_bit_with_bfloat16(tmp_path: Path) -> None:
    data = np.float32([1, -0.0]).tobytes() + struct.pack("<HHH", 0x3F80, 0xBF80, 0x7F80)
    entries = {
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "e": {"dtype": "I64", "shape": [0, 4], "data_offsets": [14, 14]},
    }
    (tmp_path / "x.safetensors").write_bytes(tensors(entries, data, __metadata__={"format": "np"}))
    found = read_outputs(tmp_path / "x.safetensors")
    assert list(found) == ["a", "b", "e"]
    a: Any = found["a"]
    b: Any = found["b"]
    assert a.tobytes() == np.float32([[1], [-0.0]]).tobytes()
    assert b.dtype == BFLOAT16
    assert np.array_equal(as_float64(b), [1.0, -1.0, np.inf])


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the header's length is 0 bytes in a file of 0"),
        (b"\xff" * 8, "the header's length is 18,446,744,073,709,551,615 bytes"),
        (tensors(entry("F8_E4M3", (8,)), bytes(8)), "has type 'F8_E4M3'; read are BOOL"),
        (tensors(entry(["F32"]), bytes(8)), "has type"),
        (tensors(entry(shape=(1 << 62, 4)), bytes(8)), "cannot lie at bytes 0 to 8"),
        (tensors(entry(shape=(-2,)), bytes(8)), "whole numbers of at least 0"),
        (tensors(entry(offsets=(8, 0)), bytes(8)), "cannot lie"),
        (tensors(entry(offsets=(4, 12)), bytes(12)), "belong to no tensor"),
        (tensors(entry(), bytes(4)), "ends at byte"),
        (tensors(entry(), bytes(12)), "the tensors end at byte"),
        (tensors({"x": 5}, b""), "must state dtype, shape and data_offsets"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 2) + b"{x", "damaged"),
    ],
)
def test_safetensors_that_lie_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    assert words in refusal(tmp_path / "x.safetensors")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.sampled_from(["npy", "npz", "safetensors", "json", "csv"]), st.data())
def test_no_flipped_byte_raises_anything_but_an_output_error(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, np.arange(6.0))
    elif kind == "npz":
        np.savez_compressed(path, x=np.arange(6.0), y=np.zeros(3))
    elif kind == "safetensors":
        path.write_bytes(tensors(entry(), bytes(8)))
    else:
        path.write_text('{"a": [1, 2, {"b": "c"}]}' if kind == "json" else "a,b\n1,x\n")
    raw = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=3)):
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    with contextlib.suppress(OutputError):
        read_outputs(path, OutputLimits(unpacked_bytes=1 << 20))


def test_compressed_garbage_with_a_sound_directory_is_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY" + bytes(500))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    body = zlib.compress(b"x")[2:5]
    raw[35 : 35 + len(body)] = bytes(len(body))
    (tmp_path / "a.npz").write_bytes(raw)
    assert "a.npz: " in refusal(tmp_path / "a.npz")
