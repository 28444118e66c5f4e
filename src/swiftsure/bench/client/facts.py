"""What the client says of itself after a load, and when its figures are no measurement of the endpoint."""

from __future__ import annotations

from collections.abc import Sequence

from swiftsure.bench.client.messages import ProcessFacts
from swiftsure.bench.exchange import LONGEST_STOP_S, ClientFacts

LARGEST_LAG_P50_S = 0.002  # half of all stamps would be off by more than what figures are held to
LARGEST_LAG_P99_S = 0.1  # medians bear a late stamp in a hundred; ITL's upper percentiles are no finer than the lag's
LARGEST_CPU_SHARE = 0.9
SMALLEST_USERS_SHARE = 0.9
LARGEST_LATE_P99_S = 0.05
_JUDGED_FROM_S = 1.0  # shorter loads are their own start


def facts_of(processes: Sequence[ProcessFacts], *, users: int | None) -> ClientFacts:
    """``mean_in_flight`` is over ``wall_s``, so that Little's law can be checked with both; lags are of the worst process."""
    wall_s = max(one.wall_s for one in processes)
    return ClientFacts(
        wall_s=wall_s,
        processes=len(processes),
        wanted_users=users,
        mean_in_flight=sum(one.in_flight_area_s for one in processes) / wall_s,
        lag_p50_s=max(one.lag_p50_s for one in processes),
        lag_p99_s=max(one.lag_p99_s for one in processes),
        lag_max_s=max(one.lag_max_s for one in processes),
        cpu_share=max(one.cpu_share for one in processes),
        saturated=_why_saturated(processes, users, wall_s),
    )


def _why_saturated(processes: Sequence[ProcessFacts], users: int | None, wall_s: float) -> str | None:
    lacking = next((one.ran_out for one in processes if one.ran_out is not None), None)
    if lacking is not None:
        return f"the client ran out of what connections need: {lacking}"
    lag_max = max(one.lag_max_s for one in processes)
    if lag_max > LONGEST_STOP_S:
        return f"the client stood still for {lag_max:.1f} s: its machine was stopped, or busy with something else"
    for one in processes:
        late = one.lag_p50_s > LARGEST_LAG_P50_S or one.lag_p99_s > LARGEST_LAG_P99_S
        if (one.cpu_share > LARGEST_CPU_SHARE or late) and one.wall_s >= _JUDGED_FROM_S:
            lags = f"its event loop came {1e3 * one.lag_p50_s:.1f} ms late at the median and {1e3 * one.lag_p99_s:.1f} ms at p99"
            cure = "use more processes" if one.cpu_share > 0.5 else "its machine is busy with something else"
            return f"the client was too slow to stamp in time: {lags}, using {one.cpu_share:.0%} of a processor; {cure}"
        if one.late_p99_s is not None and one.late_p99_s > LARGEST_LATE_P99_S:
            return f"the client fell behind its schedule by {1e3 * one.late_p99_s:.0f} ms at p99; use more processes"
    full_s = min(one.full_s for one in processes)
    if users is not None and full_s >= _JUDGED_FROM_S:
        kept = sum(one.users_area_s / one.full_s for one in processes)
        if kept < SMALLEST_USERS_SHARE * users:
            return f"the client kept only {kept:.1f} of {users} users busy; use more processes"
    return None
