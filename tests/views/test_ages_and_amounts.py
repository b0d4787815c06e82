"""Ages, counts and amounts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from maniple.views.ages_and_amounts import age, counted, number
from views.objects import NOW


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (90000, "1d"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_numbers_have_no_trailing_zeros() -> None:
    assert [number(value) for value in (4.0, 0.25, 0.5, 100.0)] == ["4", "0.25", "0.5", "100"]


def test_one_replica_is_singular() -> None:
    assert [counted(amount, "replica") for amount in (0, 1, 2)] == ["0 replicas", "1 replica", "2 replicas"]
