"""False explanations are caught, on a full node of lower-priority work with surplus and two waiting gangs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from properties.explanation_verdicts import false_hopes, untrue
from properties.plan_adapter import plan
from properties.raw_objects import Object, rows

DEFAULT_ACTIONS = ["allocate", "shrink", "reclaim", "preempt", "backfill", "grow"]


def crowd() -> list[Object]:
    def pod(name: str, group: str, node: str = "") -> Object:
        containers = [{"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"maniple.dev/pod-group": group}},
            "spec": {"schedulerName": "maniple", "containers": containers, **({"nodeName": node} if node else {})},
            "status": {"phase": "Running" if node else "Pending"},
        }

    def group(name: str, least: int, priority: str) -> Object:
        meta = {"name": name, "namespace": "default"}
        spec = {"minMember": least, "priorityClassName": priority}
        return {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": spec}

    classes: list[Object] = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 2))
    ]
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    node["status"] = {"allocatable": {"cpu": "8", "nvidia.com/gpu": "2", "pods": "10"}}
    return [
        *classes,
        node,
        *(group("runs", 1, "low"), pod("runs-0", "runs", "n1"), pod("runs-1", "runs", "n1")),
        *(group("first", 3, "high"), *(pod(f"first-{index}", "first") for index in range(3))),
        *(group("next", 3, "low"), *(pod(f"next-{index}", "next") for index in range(3))),
    ]


def set_why(entry: Any, action: str, why: str) -> None:
    next(row for row in entry["tried"] if row["action"] == action)["why"] = why


LIES: dict[str, Callable[[Any, Any], object]] = {
    "lower": lambda first, _: set_why(first, "preempt", "nothing of lower priority runs in queue 'default'"),
    "surplus": lambda first, _: set_why(first, "shrink", "no job has surplus"),
    "many": lambda first, _: set_why(first, "preempt", "taking all that may be taken (9 pods of default/runs) is vain"),
    "empty": lambda _, second: set_why(second, "reclaim", " "),
    "silent": lambda _, second: second["tried"].pop(),
    "would": lambda _, second: second.update(wouldStartIf=""),
    "line": lambda _, second: second.update(position=3),
    "order": lambda first, second: (first.update(position=2), second.update(position=1)),
    "absent": lambda _, second: second.update(position=None),
    "place": lambda _, second: second["nearest"].update(place="node n7"),
    "fits": lambda _, second: second["nearest"].update(fits=3),
    "holder": lambda _, second: second["nearest"]["heldBy"][0].update(job="default/nobody"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
def test_a_false_explanation_is_caught(lie: Callable[[Any, Any], object]) -> None:
    objects = crowd()
    made: Any = plan(objects)
    assert untrue(objects, made, DEFAULT_ACTIONS) == []
    doctored = copy.deepcopy(made)
    lie(*(entry for entry in doctored["rounds"][0]["waiting"]))
    assert untrue(objects, doctored, DEFAULT_ACTIONS) != []


def settled(*, sentence: Object | None = None, **last: object) -> Object:
    """Two rounds in which nothing moves, with a gang that waits."""
    entry: Object = {"group": "default/g", "message": "no room", "wouldStartIf": "some came free", "tried": []}
    quiet: Object = {"binds": [], "evictions": [], "resizes": [], "nominations": [], "waiting": [entry]}
    return {"rounds": [quiet, {**quiet, "waiting": [{**entry, **(sentence or {})}], **last}]}


@pytest.mark.parametrize(
    "hope",
    [
        {"message": "there is room by the end of this cycle, and there was none when its turn came"},
        {"wouldStartIf": "the next cycle came"},
        {"tried": [{"action": "reclaim", "why": "would make room: it is tried again in the next one"}]},
    ],
)
def test_a_hope_that_no_cycle_fulfils_is_caught(hope: Object) -> None:
    (sentence,) = false_hopes(settled(sentence=hope))
    assert sentence.startswith("default/g waits in a settled cluster")
    assert not false_hopes(settled(sentence=hope, binds=[{"pod": "default/p-0", "node": "n1"}]))
    assert not false_hopes(settled(sentence=hope, nominations=[{"pod": "default/p-0", "node": "n1"}]))
    assert not false_hopes({"rounds": rows(settled(sentence=hope), "rounds")[1:]}), "one round shows nothing"
    assert not false_hopes(settled())
