"""What keys and values take, as the compiled core's cache holds them (``csrc/kv_cache.h``)."""

from __future__ import annotations

from swiftsure.models.schedule import Schedule

KV_BITS = 16  # of a key or value, unless a mode says less
SMALL_KV_BITS = 8
_SMALL_KEY_GROUP = 32  # dimensions of an int8 key that share a scale
_SCALE_BYTES = 4  # one float32 per head vector; of int8 keys, per group


def kv_bytes_per_position(schedule: Schedule, kv_bits: int = KV_BITS) -> int:
    """Keys and values of one position over all layers, with their scales."""
    return schedule.layers * schedule.kv_heads * key_value_bytes(schedule.head_dim, kv_bits)


def key_value_bytes(head_dim: int, kv_bits: int) -> int:
    """One key and one value vector of ``kv_bits`` bits a number, with their scales."""
    key_scales = -(-head_dim // _SMALL_KEY_GROUP) if kv_bits == SMALL_KV_BITS else 1
    return 2 * head_dim * kv_bits // 8 + (key_scales + 1) * _SCALE_BYTES
