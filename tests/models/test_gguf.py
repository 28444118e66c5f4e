"""The reader against the gguf package, and against files that lie."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_bytes import ARRAY, BOOL, F32, STRING, U32, GGUFBytes, pair, strings, tensor, text, u32, u64
from swiftsure.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.gguf_header import TENSOR_TYPES, StringArray, parse_header
from tiny_models import MATRIX_TYPES, TinyModel, spec_of_type


def written(tmp_path: Path, data: bytes, name: str = "model.gguf") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def assert_same_as_oracle(path: Path) -> None:
    oracle = gguf.GGUFReader(path)
    with GGUFFile(path) as file:
        assert list(file.names()) == [t.name for t in oracle.tensors]
        for expected in oracle.tensors:
            info = file.info(expected.name)
            assert (info.type, info.nbytes) == (expected.tensor_type.name, expected.n_bytes)
            assert info.shape == tuple(int(n) for n in reversed(expected.shape))
            assert np.array_equal(file.read(expected.name), expected.data.view(np.uint8).reshape(-1))
        keys = [key for key in oracle.fields if not key.startswith("GGUF.")]
        assert list(file.metadata) == keys
        for key in keys:
            found, expected_value = file.metadata.get(key), oracle.fields[key].contents()
            if isinstance(found, StringArray | np.ndarray):
                assert found.tolist() == expected_value, key
            else:
                assert found == expected_value, key
                assert type(found) is type(expected_value), key


@pytest.mark.parametrize("kind", MATRIX_TYPES)
def test_reads_what_the_gguf_package_reads(tmp_path: Path, kind: str) -> None:
    assert_same_as_oracle(TinyModel(spec_of_type(kind, tied=kind != "Q8_0")).write_gguf(tmp_path / "tiny.gguf"))


@pytest.mark.model
def test_reads_the_pinned_model_as_the_gguf_package_does(smollm2_path: Path) -> None:
    assert_same_as_oracle(smollm2_path)


@pytest.mark.alone
@pytest.mark.model
def test_opens_the_pinned_model_in_time(smollm2_path: Path) -> None:
    """49,152 tokens and 48,900 merges. The best of five, as the machine may be busy."""
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        GGUFFile(smollm2_path).close()
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.15


def test_knows_the_block_sizes_of_the_gguf_package() -> None:
    for type_id, (name, block, nbytes) in TENSOR_TYPES.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)] == (block, nbytes), name


def test_reads_every_kind_of_metadata_value(tmp_path: Path) -> None:
    path = tmp_path / "kinds.gguf"
    writer = gguf.GGUFWriter(path, "none")
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 1e300)
    writer.add_bool("yes", True)
    writer.add_string("text", "ünï")
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, 2.0])
    writer.add_array("bools", [True, False])
    writer.add_array("strings", ["a", "", "ß"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_same_as_oracle(path)


def test_reads_version_2_alike(tmp_path: Path) -> None:
    with GGUFFile(written(tmp_path, GGUFBytes(version=2).build())) as file:
        assert file.version == 2
        assert file.metadata.integer("n") == 7
        assert file.read("t").tolist() == list(range(64))


def test_reads_nested_arrays(tmp_path: Path) -> None:
    inner = u32(U32) + u64(2) + u32(5) + u32(6)
    outer = pair("nested", ARRAY, u32(ARRAY) + u64(2) + inner + inner)
    with GGUFFile(written(tmp_path, GGUFBytes(pairs=[outer]).build())) as file:
        assert [a.tolist() for a in file.metadata.get("nested")] == [[5, 6], [5, 6]]  # type: ignore[union-attr]


def test_string_array_is_a_sequence(tmp_path: Path) -> None:
    with GGUFFile(written(tmp_path, GGUFBytes(pairs=[strings("s", ["a", "bc", "", "ß"])]).build())) as file:
        array = file.metadata.strings("s")
        assert (len(array), array[1], array[-1], array[1:3], list(array)) == (4, "bc", "ß", ["bc", ""], ["a", "bc", "", "ß"])
        with pytest.raises(IndexError):
            array[4]


def test_tensor_bytes_outlive_close(tmp_path: Path) -> None:
    file = GGUFFile(written(tmp_path, GGUFBytes().build()))
    held = file.read("t")
    file.close()
    file.close()
    assert held.tolist() == list(range(64))
    with pytest.raises(ModelFileError, match="closed"):
        file.read("t")


def test_file_cut_short_after_it_was_opened_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = written(tmp_path, GGUFBytes().build())
    with GGUFFile(path) as file:
        os.truncate(path, file.size - 10)
        with pytest.raises(ModelFileError, match=r"tensor 't' ends at byte \d+, but the file now at \d+: it was cut short"):
            file.read("t")
        with pytest.raises(ModelFileError, match="changed while it was being loaded"):
            file.check_unchanged()


def test_rewrite_with_size_and_time_put_back_is_a_change(tmp_path: Path) -> None:
    path = written(tmp_path, GGUFBytes().build())
    with GGUFFile(path) as file:
        file.check_unchanged()
        before = path.stat()
        time.sleep(0.02)  # longer than the clock of file times ticks
        with path.open("r+b") as out:
            out.write(b"GGUF")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(ModelFileError, match="changed while it was being loaded"):
            file.check_unchanged()


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    with GGUFFile(written(tmp_path, GGUFBytes().build())) as file, pytest.raises(ModelFileError, match="tensor 'x' is missing"):
        file.info("x")


SOUND = GGUFBytes().build()
HUGE = 2**64 - 1
NESTED_BOMB = pair("k", ARRAY, b"".join(u32(ARRAY) + u64(1) for _ in range(200)))

LIES: dict[str, tuple[GGUFBytes, str]] = {
    "other magic": (GGUFBytes(magic=b"GGML"), "magic bytes"),
    "metadata count beyond the file": (GGUFBytes(pair_count=HUGE), "metadata count is 18446744073709551615"),
    "metadata count one too many": (GGUFBytes(pair_count=3), "tensor 1 of 1: name must be 1 to 65535 bytes long"),
    "tensor count beyond the file": (GGUFBytes(tensor_count=2**40), "tensor count is 1099511627776"),
    "tensor count one too many": (GGUFBytes(tensor_count=2), "tensor 2 of 2"),
    "key longer than the file": (GGUFBytes(pairs=[text("k", length=HUGE)], pair_count=1), "key must be 1 to 65535 bytes"),
    "empty key": (GGUFBytes(pairs=[pair("", U32, u32(0))]), "key must be 1 to"),
    "key that is not UTF-8": (GGUFBytes(pairs=[pair(b"\xff\xfe", U32, u32(0))]), "key is not UTF-8"),
    "key twice": (GGUFBytes(pairs=[pair("k", U32, u32(0))] * 2), "key 'k': the key appears twice"),
    "unknown value type": (GGUFBytes(pairs=[pair("k", 13, u32(0))]), "value type 13"),
    "boolean of 2": (GGUFBytes(pairs=[pair("k", BOOL, b"\x02")]), "must be 0 or 1, got 2"),
    "string longer than the file": (
        GGUFBytes(pairs=[pair("k", STRING, text("v", length=2**63))]),
        "string needs 9223372036854775808 bytes",
    ),
    "string that is not UTF-8": (GGUFBytes(pairs=[pair("k", STRING, text(b"\xc3"))]), "string is not UTF-8"),
    "array longer than the file": (GGUFBytes(pairs=[pair("k", ARRAY, u32(F32) + u64(2**61))]), "array of 2305843009213693952 values"),
    "string array longer than the file": (GGUFBytes(pairs=[strings("k", ["a"], count=2**61)]), "array of 2305843009213693952 strings"),
    "string of an array longer than the file": (
        GGUFBytes(pairs=[pair("k", ARRAY, u32(STRING) + u64(1) + text("abc", length=2**62))]),
        "string 0 of 1 is 4611686018427387904 bytes long",
    ),
    "array of unknown type": (GGUFBytes(pairs=[pair("k", ARRAY, u32(99) + u64(1))]), "array type 99"),
    "array of too many arrays": (GGUFBytes(pairs=[pair("k", ARRAY, u32(ARRAY) + u64(2**40))]), "array of 1099511627776 arrays"),
    "deeply nested arrays": (GGUFBytes(pairs=[NESTED_BOMB]), "nested more than"),
    "alignment of zero": (GGUFBytes(pairs=[pair("general.alignment", U32, u32(0))]), "general.alignment.*got 0"),
    "alignment of 12": (GGUFBytes(pairs=[pair("general.alignment", U32, u32(12))]), "general.alignment.*got 12"),
    "alignment as text": (GGUFBytes(pairs=[pair("general.alignment", STRING, text("32"))]), "general.alignment"),
    "tensor name twice": (GGUFBytes(tensors=[tensor("t", (8,)), tensor("t", (8,), offset=32)]), "tensor 't': the name appears twice"),
    "no dimensions": (GGUFBytes(tensors=[tensor("t", (), n_dims=0)]), "1 to 4 dimensions, got 0"),
    "five dimensions": (GGUFBytes(tensors=[tensor("t", (1, 1, 1, 1, 1))]), "1 to 4 dimensions, got 5"),
    "dimension of zero": (GGUFBytes(tensors=[tensor("t", (8, 0))]), r"shape \[0, 8\] is impossible"),
    "product that wraps to zero": (GGUFBytes(tensors=[tensor("t", (2**32, 2**32))]), "impossible: more than"),
    "product that wraps to the right size": (GGUFBytes(tensors=[tensor("t", (2**63 + 8, 2))]), "impossible: more than"),
    "row that is no multiple of the block": (GGUFBytes(tensors=[tensor("t", (16,), kind=3)]), "multiple of 32"),
    "tensor longer than the data": (GGUFBytes(tensors=[tensor("t", (8, 3))]), "end past the file"),
    "offset past the file": (GGUFBytes(tensors=[tensor("t", (8,), offset=2**50)]), "end past the file"),
    "offset that wraps": (GGUFBytes(tensors=[tensor("t", (8,), offset=2**64 - 32)]), "end past the file"),
    "misaligned offset": (GGUFBytes(tensors=[tensor("t", (8,), offset=4)]), "offset 4 is not a multiple of the alignment 32"),
    "overlap": (GGUFBytes(tensors=[tensor("a", (16,)), tensor("b", (8,), offset=32)]), "'a' and 'b' overlap"),
    "same place": (GGUFBytes(tensors=[tensor("a", (8,)), tensor("b", (8,))]), "overlap"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_file_is_refused_with_the_fault_named(tmp_path: Path, lie: str) -> None:
    parts, message = LIES[lie]
    path = written(tmp_path, parts.build())
    with pytest.raises(ModelFileError, match=message) as caught:
        GGUFFile(path)
    assert str(caught.value).startswith(str(path))


def test_lengths_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    paths = [written(tmp_path, parts.build(), f"{i}.gguf") for i, (parts, _) in enumerate(LIES.values())]
    tracemalloc.start()
    try:
        for path in paths:
            with pytest.raises(ModelFileError):
                GGUFFile(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_file_cut_anywhere_is_refused() -> None:
    for end in range(len(SOUND)):
        with pytest.raises(ModelFileError):
            parse_header(memoryview(SOUND[:end]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GGUFBytes(version=1).build(), "version 1 is not supported; supported: 2, 3"),
        (GGUFBytes(version=4).build(), "version 4 is not supported"),
        (GGUFBytes(version=3 << 24).build(), "big-endian"),
        (GGUFBytes(tensors=[tensor("t", (8,), kind=77)]).build(), "tensor 't': has type id 77"),
    ],
    ids=["version 1", "version 4", "big-endian", "tensor type of the future"],
)
def test_sound_file_of_another_kind_is_unsupported_not_damaged(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        GGUFFile(written(tmp_path, data))


@pytest.mark.parametrize(
    ("name", "data", "kind", "message"),
    [
        ("model.bin", b"x" * 100, UnsupportedModelError, "pickles, which can run code"),
        ("model.pt", b"x" * 100, UnsupportedModelError, "pickles, which can run code"),
        ("model.gguf", b"PK\x03\x04" + b"x" * 100, UnsupportedModelError, "pickle"),
        ("model.safetensors", b"x" * 100, UnsupportedModelError, "safetensors"),
        ("model.gguf", b"", ModelFileError, "at least 24 bytes, this one 0"),
        ("model.gguf", b"GGUF", ModelFileError, "at least 24 bytes, this one 4"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, name: str, data: bytes, kind: type[ModelError], message: str) -> None:
    with pytest.raises(kind, match=message):
        GGUFFile(written(tmp_path, data, name))


def test_missing_file_and_folder_are_not_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.gguf"):
        with pytest.raises(ModelNotFoundError, match=str(path)):
            GGUFFile(path)


def test_mutated_header_parses_or_is_refused(full: bool) -> None:
    @settings(max_examples=20_000 if full else 400, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 40))
    def check(changes: list[tuple[int, int]], cut: int) -> None:
        data = bytearray(SOUND)
        for position, value in changes:
            data[position] = value
        view = memoryview(bytes(data[: len(data) - cut]))
        try:
            header = parse_header(view)
        except ModelError:
            return
        for entry in header.tensors.values():
            assert 0 <= entry.offset <= entry.offset + entry.nbytes <= len(view)

    check()
