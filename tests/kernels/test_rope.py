"""Rotary position embedding against the float64 twin, far out in the context too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.kernels import _core, reference, supported_isas
from swiftsure.models.schedule import RopeStyle

isas = pytest.mark.parametrize("isa", supported_isas())
STYLES: tuple[RopeStyle, ...] = ("interleaved", "halves")
styles = pytest.mark.parametrize("style", STYLES)


@isas
@styles
@given(
    seed=st.integers(0, 2**32 - 1),
    pairs=st.integers(1, 64),
    beyond=st.integers(0, 40),
    position=st.one_of(st.integers(0, 300), st.sampled_from([8191, 32767])),
    theta=st.sampled_from([1.0, 500.0, 10000.0, 100000.0, 1e6]),
    scaled=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_rotation_gives_portable_bits_close_to_the_twin(
    isa: str, style: RopeStyle, seed: int, pairs: int, beyond: int, position: int, theta: float, scaled: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(2 * pairs + beyond).astype(np.float32)
    factors = rng.uniform(1, 40, pairs).tolist() if scaled else []
    out = _core.rope(isa, x, position, 2 * pairs, theta, style, factors)
    assert out.tobytes() == _core.rope("portable", x, position, 2 * pairs, theta, style, factors).tobytes()
    vectors = x.astype(np.float64)[None, None]
    truth = reference.rope(vectors, [position], rotary_dim=2 * pairs, theta=theta, style=style, factors=factors)[0, 0]
    np.testing.assert_allclose(out, truth, rtol=0, atol=3e-7 * float(np.abs(x).max()) + 1e-10)
    np.testing.assert_array_equal(out[2 * pairs :], x[2 * pairs :])


def test_a_factor_slows_its_pair_down_as_fewer_positions_would() -> None:
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    slowed = _core.rope("portable", x, 96, 64, 10000.0, "halves", [4.0] * 32)
    np.testing.assert_array_equal(slowed, _core.rope("portable", x, 24, 64, 10000.0, "halves"))
    one = _core.rope("portable", x, 96, 64, 10000.0, "halves", [1.0] * 31 + [3.0])
    plain = _core.rope("portable", x, 96, 64, 10000.0, "halves")
    assert np.flatnonzero(one != plain).tolist() == [31, 63]


@pytest.mark.parametrize("factors", [[1.0] * 31, [0.5] * 32, [float("nan")] * 32, [float("inf")] * 32])
def test_impossible_factors_are_refused(factors: list[float]) -> None:
    with pytest.raises(ValueError, match=r"rope needs a factor for each of 32 pairs, got 31|rope factors must be from 1 to 1e9, got"):
        _core.rope("portable", np.zeros(64, dtype=np.float32), 1, 64, 10000.0, "halves", factors)


@pytest.mark.parametrize("theta", [10000.0, 100000.0, 5e5])
def test_cosines_and_sines_are_the_rounded_doubles(theta: float) -> None:
    """The unit vector of each pair comes back as (cos, sin), so this reads the table itself: half an ulp of float32 and no more."""
    x = np.zeros(128, dtype=np.float32)
    x[::2] = 1.0
    for position in (0, 1, 2, 3, 255, 256, 4095, 8191, 60001):
        out = _core.rope("portable", x, position, 128, theta, "interleaved").astype(np.float64)
        angles = reference.rope_angles([position], 128, theta)[0]
        np.testing.assert_allclose(out[::2], np.cos(angles), rtol=6.1e-8, atol=2e-11)
        np.testing.assert_allclose(out[1::2], np.sin(angles), rtol=6.1e-8, atol=2e-11)


@pytest.mark.parametrize(
    ("rotary_dim", "style", "position", "message"),
    [
        (3, "halves", 0, "rotary_dim must be even"),
        (66, "halves", 0, r"in \[2, 64\], got 66"),
        (64, "quarters", 0, "style must be interleaved or halves, got 'quarters'"),
        (64, "halves", -1, "position must be"),
    ],
)
def test_impossible_rotations_are_refused(rotary_dim: int, style: str, position: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.rope("portable", np.zeros(64, dtype=np.float32), position, rotary_dim, 10000.0, style)
