"""The fingerprint of a row: its twin's bytes on every instruction set, and no change of the row goes unseen."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.errors import UsageError
from swiftsure.kernels import digest_reference, hash_row, supported_isas

LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 255, 1000, 4099)


def row_of(length: int, seed: int = 0) -> NDArray[np.float32]:
    """Any bits at all: NaNs, infinities and denormals too."""
    return np.random.default_rng(seed).integers(0, 2**32, length, np.uint32).view(np.float32)


rows = hnp.arrays(np.uint32, st.integers(1, 140)).map(lambda bits: bits.view(np.float32))


@pytest.mark.parametrize("isa", supported_isas())
def test_every_instruction_set_gives_the_bytes_of_the_twin(isa: str) -> None:
    for length in LENGTHS:
        assert hash_row(row_of(length, length), isa=isa) == digest_reference.hash_row(row_of(length, length)), length


def test_the_scheme_stands_as_it_was_published() -> None:
    row = np.arange(100, dtype=np.float32) / 8 - 6
    assert hash_row(row).hex() == "0837acbcf2c3a23be5903a49f202303d"


def test_every_single_bit_counts() -> None:
    """All bits of a row that ends within a stripe. Each must change at least a quarter of the fingerprint's bits, or mixing is poor."""
    row = row_of(75).view(np.uint32)
    seen = {before := hash_row(row.view(np.float32))}
    for at in range(len(row)):
        for bit in range(32):
            row[at] ^= np.uint32(1 << bit)
            seen.add(after := hash_row(row.view(np.float32)))
            row[at] ^= np.uint32(1 << bit)
            changed = int.from_bytes(before, "big") ^ int.from_bytes(after, "big")
            assert changed.bit_count() >= 32
    assert len(seen) == 1 + 75 * 32


@settings(max_examples=300, deadline=None)
@given(row=rows, data=st.data())
def test_elements_that_change_places_are_seen(row: NDArray[np.float32], data: st.DataObject) -> None:
    one, other = (data.draw(st.integers(0, len(row) - 1)) for _ in range(2))
    assume(row[one].tobytes() != row[other].tobytes())
    swapped = row.copy()
    swapped[[one, other]] = swapped[[other, one]]
    assert hash_row(swapped) != hash_row(row)


@settings(max_examples=300, deadline=None)
@given(row=rows, other=rows)
def test_different_rows_have_different_fingerprints(row: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    assert (hash_row(row) == hash_row(other)) == (row.tobytes() == other.tobytes())


@settings(max_examples=100, deadline=None)
@given(row=rows, more=st.integers(1, 40))
def test_zeros_behind_a_row_make_it_another(row: NDArray[np.float32], more: int) -> None:
    assert hash_row(np.concatenate([row, np.zeros(more, np.float32)])) != hash_row(row)


def test_negative_zero_is_not_zero_and_nans_have_their_bits() -> None:
    values = [np.zeros(40, np.float32) for _ in range(4)]
    values[1][7] = -0.0
    values[2][7] = np.array(0x7FC00000, np.uint32).view(np.float32)
    values[3][7] = np.array(0x7FC00001, np.uint32).view(np.float32)
    assert len({hash_row(row) for row in values}) == 4


@pytest.mark.parametrize("bad", [np.zeros(4), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2], [0.0]])
def test_what_is_no_row_is_refused(bad: object) -> None:
    with pytest.raises(UsageError, match="a row must be a contiguous float32 array of one dimension"):
        hash_row(bad)  # type: ignore[arg-type]
