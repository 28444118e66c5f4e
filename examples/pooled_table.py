"""Reproduces a published task check from counts: 1,925 model-target pairs, pooled over settings, and one setting alone.

The publication gives shares: 54.8 % acceptable by default, 55.0 % in mode exact, 54.5 % in fast, 54.2 % in big; and one setting of big
that loses 3.5 points, with a 95 % interval of -7.7 to 0.0. It does not give flips (pairs that only one side gets right), and without them
no paired interval can be computed: the flips here are assumptions, chosen so that one pair in 24 flips, and so that the setting shows its
interval.

python examples/pooled_table.py
"""

import sys

from swiftsure.records.paired import PairedComparison, compare_counts

MARGIN = 0.03  # what may be lost, decided before
PAIRS, DEFAULT_RIGHT, FLIPS = 1925, 1055, 80


def pooled(right: int) -> PairedComparison:
    """A mode with so many right answers, when so many pairs flip either way."""
    gained = (FLIPS + right - DEFAULT_RIGHT) // 2
    lost = gained - (right - DEFAULT_RIGHT)
    return compare_counts(
        both=DEFAULT_RIGHT - lost, lost=lost, gained=gained, neither=PAIRS - DEFAULT_RIGHT - gained, margin=MARGIN, interval="bootstrap"
    )


rows = {"exact": pooled(1059), "fast": pooled(1049), "big": pooled(1043)}
# 143 pairs, of which the default gets 78 right: the smallest setting in which 3.5 points and both bounds are whole numbers of pairs.
rows["one setting of big"] = compare_counts(both=72, lost=6, gained=1, neither=64, margin=MARGIN, interval="bootstrap")

print(f"default {DEFAULT_RIGHT / PAIRS:.1%} of {PAIRS:,} pairs; margin {MARGIN:.0%}")
for name, found in rows.items():
    bounds = f"{100 * (found.low or 0):+.1f} to {100 * (found.high or 0):+.1f}"
    needed = f", about {found.items_to_decide:,} pairs would decide" if found.items_to_decide else ""
    print(f"{name}: {found.candidate:.1%}, change {100 * found.difference:+.1f} points (95 % {bounds}): {found.decision}{needed}")

# Every interval contains 0. For the pooled rows that goes with "not worse by the margin"; for the setting it does not: it is undecided.
shares = [round(100 * found.candidate, 1) for found in rows.values()][:3]
one = rows["one setting of big"]
as_published = shares == [55.0, 54.5, 54.2] and [round(100 * x, 1) for x in (one.difference, one.low or 0, one.high or 0)] == [
    -3.5,
    -7.7,
    0.0,
]
decisions = [found.decision for found in rows.values()] == ["non_inferior"] * 3 + ["undecided"]
sys.exit(0 if as_published and decisions else 1)
