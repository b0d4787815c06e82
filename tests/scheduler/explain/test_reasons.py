"""In a large cluster a plan says less about what was tried, and `maniple explain` still says all."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.explain import verdict as verdict_module
from maniple.scheduler.framework.plan import Waiting
from scheduler.small_clusters import Object, group, member, node, pod


def crowded() -> Snapshot:
    """Two pods want all of a node that is full of four pods which matter less; one of these may not go."""
    objects: list[Object] = [
        node("n1"),
        group("kept", 1, preemptable=False),
        *(pod(f"low{number}", nodeName="n1", priority=-1) for number in range(3)),
        pod("kept-0", nodeName="n1", priority=-1, labels=member("kept")),
        *(pod(f"want{number}", cpu="4") for number in range(2)),
    ]
    written = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    return build_snapshot(sort_objects(decode([("objects", written)]), scheduler_name="maniple"))


def told(snapshot: Snapshot) -> dict[str, str]:
    """What is said of preempt to everybody who waits."""
    return _of_preempt(schedule(snapshot).waiting)


def _of_preempt(entries: Iterable[Waiting]) -> dict[str, str]:
    return {entry.group: tried.why for entry in entries for tried in entry.tried if tried.action == "preempt"}


FULL = (
    "taking all that may be taken (3 pods of default/low0, default/low1 and default/low2) would still not make room; "
    "may not be taken: 1 of jobs with preemptable: false"
)
SHORT = "4 pods of lower priority in queue 'default': taking what may be taken of that did not make room"


def test_what_was_tried_is_told_in_full() -> None:
    assert told(crowded()) == {"default/want0": FULL, "default/want1": FULL}


def test_where_there_is_too_much_to_look_at_it_is_told_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_module, "MOST_LOOKED_AT", 3)
    assert told(crowded()) == {"default/want0": SHORT, "default/want1": SHORT}


def test_the_job_that_is_asked_for_is_told_in_full_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_module, "MOST_LOOKED_AT", 3)
    explanations = schedule(crowded()).explanations
    one = explanations.of(("default/want1", "Pod"), is_thorough=True)
    assert one is not None
    assert _of_preempt([one]) == {"default/want1": FULL}
    assert _of_preempt(explanations.all()) == {"default/want0": SHORT, "default/want1": SHORT}


def test_explaining_changes_nothing() -> None:
    """Pods that might have been taken are taken in thought only, and are there for the next who asks."""
    snapshot = crowded()
    first, again = schedule(snapshot), schedule(snapshot)
    assert again.explanations.of(("default/want0", "Pod"), is_thorough=True) in first.waiting
    assert first == again
    assert first.evictions == ()
