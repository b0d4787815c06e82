"""When a gang below its minimum gives back what it holds, as its PodGroup says."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.api.incomplete_since import stale_at
from maniple.api.meta import ObjectMeta
from maniple.api.types import PodGroup, PodGroupSpec

SINCE = "2026-01-01T00:00:00Z"
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("since", "seconds", "at"),
    [(SINCE, 600, START + 600), (SINCE, 60, START + 60), (SINCE, 0, inf), ("", 600, inf), ("yesterday", 600, inf)],
)
def test_it_is_so_many_seconds_after_the_annotation(since: str, seconds: int, at: float) -> None:
    annotations = {"maniple.dev/incomplete-since": since} if since else {}
    group = PodGroup(metadata=ObjectMeta(name="g", annotations=annotations), spec=PodGroupSpec(stale_seconds=seconds))
    assert stale_at(group) == at


@pytest.mark.parametrize(
    ("moved", "seconds", "at"),
    [
        ("2026-01-01T00:00:10Z", 60, START + 310),  # places are kept for five minutes
        ("2026-01-01T00:00:10Z", 600, START + 600),
        ("2025-01-01T00:00:00Z", 60, START + 60),
        ("2026-01-01T00:00:10Z", 0, inf),
        ("yesterday", 60, START + 60),
    ],
)
def test_a_gang_that_was_moved_gives_back_nothing_while_places_are_kept_for_it(
    moved: str, seconds: int, at: float
) -> None:
    annotations = {
        "maniple.dev/incomplete-since": SINCE,
        "maniple.dev/moved": f'{{"at":"{moved}","size":2,"places":[{{"node":"n1","pods":1,"requests":{{}}}}]}}',
    }
    group = PodGroup(metadata=ObjectMeta(name="g", annotations=annotations), spec=PodGroupSpec(stale_seconds=seconds))
    assert stale_at(group) == at


def test_ten_minutes_are_the_default() -> None:
    assert PodGroupSpec().stale_seconds == 600


def test_an_annotation_that_is_no_time_is_refused() -> None:
    text = b"""
apiVersion: maniple.dev/v1alpha1
kind: PodGroup
metadata: {name: g, annotations: {maniple.dev/incomplete-since: yesterday}}
"""
    with pytest.raises(InputError, match=r"metadata.annotations\[maniple.dev/incomplete-since\]: expected a time"):
        decode([("g.yaml", text)])
