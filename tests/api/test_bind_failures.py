"""Annotations about failed binds: which are valid, what is wrong with others, and how long a gang waits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maniple.api import kubernetes, types
from maniple.api.bind_failures import read_bind_failures
from maniple.api.meta import Struct
from maniple.api.validate.ours import problems

COUNT, LAST = "maniple.dev/bind-failures", "maniple.dev/last-bind-failure"
TIME = "2026-01-31T12:00:00Z"
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}
SPECS: dict[type[Struct], dict[str, Any]] = {
    types.PodGroup: {},
    types.ElasticJob: {"roles": [{"name": "worker", "min": 1, "max": 1, "template": TEMPLATE}]},
    kubernetes.Pod: {"containers": [{"name": "main"}]},
}

WRONG: list[tuple[dict[str, str], str, str]] = [
    ({COUNT: "-1", LAST: TIME}, COUNT, "expected a whole number of 0 or more, such as 3, found '-1'"),
    ({COUNT: "1.5", LAST: TIME}, COUNT, "expected a whole number of 0 or more, such as 3, found '1.5'"),
    ({COUNT: "٣", LAST: TIME}, COUNT, "expected a whole number of 0 or more, such as 3, found '٣'"),
    ({COUNT: "9999999999", LAST: TIME}, COUNT, "expected a whole number of at most 9 digits, found '9999999999'"),
    ({COUNT: "3"}, COUNT, f"expected {LAST} beside it, found none"),
    ({LAST: TIME}, LAST, f"expected {COUNT} beside it, found none"),
    ({COUNT: "3", LAST: "noon"}, LAST, "expected a time such as 2026-01-31T12:00:00Z, found 'noon'"),
    ({COUNT: "3", LAST: "9999-12-31T23:59:59Z"}, LAST, f"expected a time such as {TIME}, found '9999-12-31T23:59:59Z'"),
]


def problems_of(kind: type[Struct], annotations: dict[str, str]) -> list[tuple[str, str]]:
    written = {"metadata": {"name": "x", "annotations": annotations}, "spec": SPECS[kind]}
    return [(problem.field, problem.message) for problem in problems(msgspec.convert(written, kind))]


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize(("annotations", "field", "message"), WRONG)
def test_invalid_annotations_are_reported(
    kind: type[Struct], annotations: dict[str, str], field: str, message: str
) -> None:
    assert problems_of(kind, annotations) == [(f"metadata.annotations[{field}]", message)]
    assert read_bind_failures(annotations) is None


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("annotations", [{}, {COUNT: "0"}, {COUNT: "3", LAST: TIME}, {COUNT: "0", LAST: TIME}])
def test_valid_annotations_have_no_problems(kind: type[Struct], annotations: dict[str, str]) -> None:
    assert problems_of(kind, annotations) == []


@pytest.mark.parametrize(
    ("count", "pause_s"), [("1", 10), ("2", 20), ("5", 160), ("6", 300), ("20", 300), ("999999999", 300)]
)
def test_a_gang_waits_twice_as_long_after_every_failure_but_no_longer_than_five_minutes(
    count: str, pause_s: float
) -> None:
    failures = read_bind_failures({COUNT: count, LAST: TIME})
    assert failures is not None
    assert failures.pause_s == pause_s
    assert failures.last.isoformat() == "2026-01-31T12:00:00+00:00"
