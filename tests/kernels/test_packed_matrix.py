"""Packing: every row comes back as the file says it is, and nothing is written where it does not belong."""

from __future__ import annotations

from itertools import pairwise

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from weight_bytes import QUANTIZED, TYPES, columns, weight_bytes

from swiftsure.kernels import PackedMatrix, WeightArena, _core, supported_isas


def unpacked(matrix: PackedMatrix, isa: str = "portable") -> NDArray[np.float32]:
    return np.stack([_core.unpack_row(isa, matrix, row) for row in range(matrix.n)])


def dequantized(tensor_type: str, data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[tensor_type])
    return np.asarray(values, dtype=np.float32).reshape(n, k)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@given(tensor_type=st.sampled_from(TYPES), n=st.integers(1, 50), groups=st.integers(1, 6), seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(max_examples=80, deadline=None)
def test_rows_packed_in_pieces_unpack_to_what_gguf_dequantizes(
    tensor_type: str, n: int, groups: int, seed: int, data: st.DataObject
) -> None:
    k = columns(tensor_type, groups)
    file_bytes = weight_bytes(tensor_type, n, k, np.random.default_rng(seed))
    matrix = PackedMatrix(tensor_type, n, k)
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))})
    row_bytes = file_bytes.size // n
    for begin, end in pairwise(cuts):
        matrix.pack_rows(begin, end - begin, file_bytes[begin * row_bytes : end * row_bytes])
    expected = dequantized(tensor_type, file_bytes, n, k)
    for isa in supported_isas():
        assert same_bits(unpacked(matrix, isa), expected), isa


@pytest.mark.parametrize("tensor_type", TYPES)
def test_special_scales_unpack_to_the_same_bits_everywhere(tensor_type: str) -> None:
    k = columns(tensor_type, 3)
    matrix = PackedMatrix(tensor_type, 37, k)
    file_bytes = weight_bytes(tensor_type, 37, k, np.random.default_rng(1), extreme_integers=True, extreme_floats=True)
    matrix.pack_rows(0, 37, file_bytes)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = dequantized(tensor_type, file_bytes, 37, k)
    portable = unpacked(matrix)
    np.testing.assert_array_equal(portable, expected)
    for isa in supported_isas():
        assert same_bits(unpacked(matrix, isa), portable), isa


@pytest.mark.parametrize("tensor_type", TYPES)
def test_rows_that_were_not_packed_stay_zero(tensor_type: str) -> None:
    k = columns(tensor_type, 2)
    matrix = PackedMatrix(tensor_type, 40, k)
    file_bytes = weight_bytes(tensor_type, 3, k, np.random.default_rng(2))
    matrix.pack_rows(15, 3, file_bytes)
    values = unpacked(matrix)
    assert np.all(values[:15] == 0)
    assert same_bits(values[15:18], dequantized(tensor_type, file_bytes, 3, k))
    assert np.all(values[18:] == 0)


def test_matrices_of_an_arena_keep_to_themselves() -> None:
    arena = WeightArena()
    rng = np.random.default_rng(3)
    shapes = [("Q4_1", 30, 64), ("F32", 5, 7), ("Q8_0", 17, 32), ("BF16", 33, 100), ("Q4_0", 16, 96)]
    shapes += [("Q6_K", 30, 256), ("Q5_0", 5, 32), ("Q4_K", 17, 512)]
    files = [weight_bytes(t, n, k, rng) for t, n, k in shapes]
    matrices = [PackedMatrix(t, n, k, arena) for t, n, k in shapes]
    for matrix, file_bytes in zip(matrices, files, strict=True):
        matrix.pack_rows(0, matrix.n, file_bytes)
    for matrix, file_bytes in zip(matrices, files, strict=True):
        assert same_bits(unpacked(matrix), dequantized(matrix.type, file_bytes, matrix.n, matrix.k))
    assert arena.used_bytes >= sum(matrix.nbytes for matrix in matrices)


def test_a_matrix_outlives_the_name_of_its_arena() -> None:
    matrix = PackedMatrix("F32", 1, 4, WeightArena())
    matrix.pack_rows(0, 1, np.arange(4, dtype=np.float32).view(np.uint8))
    assert unpacked(matrix).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("tensor_type", "block_bytes"),
    [
        ("Q4_0", 288),
        ("Q4_1", 320),
        ("Q8_0", 544),
        ("F32", 2048),
        ("F16", 1024),
        ("BF16", 1024),
        ("Q5_0", 352),
        ("Q5_1", 384),
        ("Q4_K", 2368),
        ("Q5_K", 2880),
        ("Q6_K", 3360),
    ],
)
def test_packed_size_counts_whole_strips_of_sixteen_rows(tensor_type: str, block_bytes: int) -> None:
    k = 2 * columns(tensor_type, 1)
    matrix = PackedMatrix(tensor_type, 33, k)
    assert (matrix.type, matrix.n, matrix.k, matrix.strips) == (tensor_type, 33, k, 3)
    assert matrix.nbytes == 3 * 2 * block_bytes


@pytest.mark.parametrize("tensor_type", TYPES)
def test_whole_strips_take_hardly_more_than_the_file_holds(tensor_type: str) -> None:
    file_bytes = weight_bytes(tensor_type, 32, 512, np.random.default_rng(6))
    assert file_bytes.size <= PackedMatrix(tensor_type, 32, 512).nbytes <= 1.03 * file_bytes.size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("Q3_K", 16, 256),
            r'tensor type must be one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, R8, R4, got "Q3_K"',
        ),
        (("Q4_1", 0, 32), r"n at least 1.*got Q4_1 of shape \(0, 32\)"),
        (("Q4_1", 16, 48), r"k a positive multiple of 32.*got Q4_1 of shape \(16, 48\)"),
        (("Q5_0", 16, 48), r"k a positive multiple of 32.*got Q5_0 of shape \(16, 48\)"),
        (("Q6_K", 16, 320), r"k a positive multiple of 256.*got Q6_K of shape \(16, 320\)"),
        (("F32", 16, -1), r"n and k at least 1.*got F32 of shape \(16, -1\)"),
        (("F32", 2**40, 2**40), r"less than 2\^63 bytes"),
        (("Q8_0", 2**62, 32), r"less than 2\^63 bytes"),
        (("F16", 2**63 - 1, 1), r"less than 2\^63 bytes"),
    ],
)
def test_impossible_shapes_are_refused_by_rule_and_value(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackedMatrix(*arguments)


def test_a_shape_beyond_the_memory_of_any_machine_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        PackedMatrix("F32", 2**32, 2**26)


@pytest.mark.parametrize(("first_row", "rows"), [(-1, 2), (0, 0), (0, 21), (19, 2), (2**63 - 1, 1), (1, 2**63 - 1)])
def test_rows_outside_the_matrix_are_refused(first_row: int, rows: int) -> None:
    matrix = PackedMatrix("Q8_0", 20, 32)
    with pytest.raises(ValueError, match=f"first_row \\+ rows at most 20, got {first_row} and {rows}"):
        matrix.pack_rows(first_row, rows, np.zeros(34, np.uint8))


@pytest.mark.parametrize("tensor_type", QUANTIZED)
def test_a_wrong_number_of_bytes_is_refused(tensor_type: str) -> None:
    k = columns(tensor_type, 1)
    matrix = PackedMatrix(tensor_type, 20, k)
    right = weight_bytes(tensor_type, 2, k, np.random.default_rng(4))
    for wrong in (right[:-1], np.append(right, np.uint8(0)), right[:0]):
        with pytest.raises(ValueError, match=f"takes {right.size} bytes, got {wrong.size}"):
            matrix.pack_rows(0, 2, wrong)


def test_bytes_must_be_a_contiguous_row_of_uint8() -> None:
    matrix = PackedMatrix("Q8_0", 1, 32)
    for wrong in (np.zeros(34, np.int8), np.zeros((1, 34), np.uint8), np.zeros(68, np.uint8)[::2], None):
        with pytest.raises(TypeError):
            matrix.pack_rows(0, 1, wrong)


def test_a_read_only_file_view_packs() -> None:
    file_bytes = weight_bytes("Q4_0", 1, 32, np.random.default_rng(5))
    file_bytes.flags.writeable = False
    matrix = PackedMatrix("Q4_0", 1, 32)
    matrix.pack_rows(0, 1, file_bytes)
    assert same_bits(unpacked(matrix), dequantized("Q4_0", file_bytes, 1, 32))


def test_unpacking_names_the_rows_there_are() -> None:
    matrix = PackedMatrix("F32", 3, 4)
    for row in (-1, 3):
        with pytest.raises(ValueError, match=rf"row must be in \[0, 3\), got {row}"):
            _core.unpack_row("portable", matrix, row)
