"""The float64 twin of the sampler: from logits to the token, slow and readable. The order of the steps stands in ``sampling.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swiftsure.kernels.reference import Float64, gumbel, softmax

Words = NDArray[np.uint32]

_NOISE_DOMAIN = 0x47554D42  # fourth counter word of all Gumbel noise


def philox4x32(counter: ArrayLike, key: tuple[int, int]) -> Words:
    """Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011). counter: (..., 4) words; returns (..., 4)."""
    c = [np.asarray(counter, dtype=np.uint64)[..., i] for i in range(4)]
    k0, k1 = key
    for _ in range(10):
        product0, product1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low = np.uint64(0xFFFFFFFF)
        shift = np.uint64(32)
        c = [(product1 >> shift) ^ c[1] ^ np.uint64(k0), product1 & low, (product0 >> shift) ^ c[3] ^ np.uint64(k1), product0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=-1).astype(np.uint32)


def noise_words(vocab_size: int, *, seed: int, choice: int, position: int) -> Words:
    """The random word of every token: token 64 b + 16 w + l has word w of counter (16 b + l, position, choice, constant)."""
    token = np.arange(vocab_size)
    counter = np.empty((vocab_size, 4), dtype=np.uint64)
    counter[:, 0] = token // 64 * 16 + token % 16
    counter[:, 1:] = position, choice, _NOISE_DOMAIN
    return philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))[token, token // 16 % 4]


def noise_of_words(words: Words) -> Float64:
    """Gumbel noise of u = 1 - (word + 1/2) / 2^32, which is never 0 or 1."""
    return gumbel(1.0 - (words.astype(np.float64) + 0.5) / 2.0**32)


def process(
    logits: ArrayLike,
    *,
    temperature: float,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> Float64:
    """Steps 1 to 7: x of the tokens left, -infinity for the others; at temperature 0 the logits after bias and penalties. (vocab,)"""
    x = np.asarray(logits, dtype=np.float64).copy()
    for token, bias in (logit_bias or {}).items():
        x[token] += bias
    for token in {*prompt, *output}:
        x[token] = x[token] / repetition_penalty if x[token] > 0 else x[token] * repetition_penalty
    for token in set(output):
        x[token] -= list(output).count(token) * frequency_penalty + presence_penalty
    if temperature == 0:
        return x
    x = (x - x.max()) / temperature
    if top_k:
        x[_descending(x)[top_k:]] = -np.inf
    if top_p < 1:
        order = _descending(x)
        before = np.cumsum(softmax(x)[order]) - softmax(x)[order]
        x[order[before >= top_p]] = -np.inf
    if min_p > 0:
        p = softmax(x)
        x[p < min_p * p.max()] = -np.inf
    return np.asarray(x)


def _descending(x: Float64) -> NDArray[np.intp]:
    """Token ids by value descending, then id ascending."""
    return np.lexsort((np.arange(x.size), -x))
