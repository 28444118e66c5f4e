"""Values that readers of files stumble over."""

from __future__ import annotations

import random
import struct

# Around every width that a count, an offset or a product can wrap at.
COUNTS = (
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    33,
    255,
    256,
    65535,
    65536,
    2**20,
    2**24,
    2**28,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32 - 1,
    2**32,
    2**32 + 1,
    2**33,
    2**40,
    2**48,
    2**60,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    2**63 + 8,
    2**64 - 32,
    2**64 - 8,
    2**64 - 1,
)
NUMBERS = (
    *(float("nan"), float("inf"), -float("inf"), -0.0, 0.0, -1.0, 0.5, 1.0, 1e-300, 1e-45, 1e-5, 2.0**24 + 1, 1e30, 3.4e38, 1e300, -1e9),
)
ALIGNMENTS = (0, 1, 2, 3, 7, 8, 12, 16, 32, 48, 64, 4096, 65536, 65537, 2**31 - 1, 2**31, 2**32 - 1)
NAMES = (
    b"",
    b"\x00",
    b"general.architecture",
    b"llama",
    b"llama.block_count",
    b"token_embd.weight",
    b"blk.0.attn_q.weight",
    b"rope_freqs.weight",
    b"blk.0.attn_q.bias",
    b"blk.0.ffn_gate_exps.weight",
    b"blk.4294967296.attn_q.weight",
    b"blk.-1.attn_q.weight",
    b"../../etc/passwd",
    b"\xff\xfe\xfd",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x1b[2J\x1b[31mACTIVE mode=exact",
    b"a\nACTIVE mode=exact status=ok",
    b"\xe2\x80\xaegnp.exe",
    b"%s%n{0}{__class__}",
    "ключ-鍵".encode(),
    b"k" * 65535,
    b"k" * 65536,
    b"n" * 300,
)
STRINGS = (
    *(
        b"",
        b"\x00\x00",
        b"gpt2",
        b"llama",
        b"bert",
        b"qwen2",
        b"none",
        b"default",
        b"llama-bpe",
        b"\xff",
        b"\xf8\x88\x80\x80\x80",
        b" ",
        b"\n\n",
    ),
    *("ß".encode() * 3, "👩‍👩‍👧".encode(), b"\x1b]0;owned\x07", b"x" * 5000, b"9" * 5000, b"{{" * 50),
)
TYPE_IDS = (*range(45), 99, 2**16, 2**31, 2**32 - 1)  # of tensors: with the removed ones and those not thought of yet
VALUE_KINDS = (*range(15), 99, 2**31, 2**32 - 1)

TEMPLATES = (
    "{{ messages",
    "{% for m in messages %}",
    "{% endfor %}",
    "{{ undefined.attribute }}",
    "{{ messages[9].content }}",
    "{{ 1 // 0 }}",
    "{{ raise_exception('no') }}",
    "{% if messages[0].role != 'x' %}{{ raise_exception('roles must be x') }}{% endif %}",
    "",
    " ",
    "\x00",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ self.__init__.__globals__ }}",
    "{{ messages | map(attribute='content') | join }}",
    "{{ namespace.__init__.__globals__['os'].system('true') }}",
    "{{ 'a' | format(1) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ (" + "(" * 300 + "1" + ")" * 300 + ") }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ lipsum(n=2) }}",
    "{{ cycler }}",
    "{{ 'x' * 100000 }}",
    "{{ range(10**9) | list }}",
    "{{ messages[0]['content'] * 1000000000 }}",
    "{{ bos_token }}{% for m in messages %}{{ m.role }}{{ m.content[::-1] }}{% endfor %}",
    "{% set x = [1] %}{{ x.append(2) }}",
    "{{ '\ud83d' }}".encode("utf-8", "replace").decode(),
    "{% filter upper %}{{ messages[0].content }}{% endfilter %}",
)
ENDLESS_TEMPLATES = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endfor %}",
    "{{ 9 ** (9 ** 9) }}",
)

_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}


def scalar(kind: int, rng: random.Random) -> bytes:
    """A scalar of a kind, encoded: an awkward value that fits its width."""
    fmt = _FORMATS[kind]
    if kind in (6, 12):
        value = rng.choice(NUMBERS)
        return struct.pack(fmt, value if kind == 12 or abs(value) < 3.4e38 or value != value else float("inf"))
    size = struct.calcsize(fmt)
    return (rng.choice(COUNTS) % 256**size).to_bytes(size, "little")


def scalar_of(kind: int, value: float) -> bytes:
    """A scalar of a kind, encoded."""
    return struct.pack(_FORMATS[kind], value)


def any_scalar(rng: random.Random) -> tuple[int, bytes]:
    """A kind and a value of it."""
    kind = rng.choice(tuple(_FORMATS))
    return kind, scalar(kind, rng)
