"""Cycles take half of the time at most while changes keep coming, and never make somebody wait who could start."""

from hypothesis import given
from hypothesis import strategies as st

from maniple.kube.serve.pace import _MOST_SAVED_S, _SHARE, URGENT_S, Pace

SECONDS = st.floats(0.0, 10.0, allow_nan=False)


@given(st.lists(SECONDS, max_size=50))
def test_cycles_that_follow_each_other_take_half_of_the_time(cycles: list[float]) -> None:
    now = 0.0
    pace = Pace(now)
    for seconds in cycles:
        now += pace.pause_s(now, is_urgent=False) + seconds
        pace.took(now, seconds)
    now += pace.pause_s(now, is_urgent=False)
    assert sum(cycles) <= _SHARE * now + _MOST_SAVED_S + 1e-6


@given(st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=50))
def test_a_pause_is_never_longer_than_the_last_cycle_and_short_if_somebody_could_start(
    cycles: list[tuple[float, float, bool]],
) -> None:
    now = 0.0
    pace = Pace(now)
    for rest_s, seconds, is_urgent in cycles:
        now += rest_s + seconds
        pace.took(now, seconds)
        assert pace.pause_s(now, is_urgent=False) <= seconds + 1e-9
        assert pace.pause_s(now, is_urgent=True) <= URGENT_S
        now += pace.pause_s(now, is_urgent=is_urgent)


@given(SECONDS)
def test_after_a_rest_as_long_as_the_last_cycle_there_is_no_pause(seconds: float) -> None:
    pace = Pace(0.0)
    pace.took(seconds, seconds)
    assert pace.pause_s(2 * seconds + 1e-6, is_urgent=False) <= 1e-6
