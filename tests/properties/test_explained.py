"""Whoever waits is told its place in line, what was tried and what would help; all of it, and nothing but the truth."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .adapter import plan
from .close_worlds import close_worlds, full_close_worlds
from .cures import alone, cured
from .elastic_worlds import claimed_worlds, elastic_worlds, growing_worlds
from .explained import untrue
from .raw import Object, rows, text
from .test_promises import KUBE_BATCH, promised
from .worlds import contended_worlds, limited_worlds, simple_worlds, worlds

DEFAULT_ACTIONS = ["allocate", "shrink", "reclaim", "preempt", "backfill", "grow"]
KUBE_BATCH_ACTIONS = ["reclaim", "allocate", "backfill", "preempt"]

many = settings(promised, max_examples=200)
some = settings(promised, max_examples=150)


@many
@given(st.one_of(elastic_worlds(), claimed_worlds(), growing_worlds(), worlds(), limited_worlds()))
def test_whoever_waits_is_told_all_of_it_and_the_truth(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, rounds=3), DEFAULT_ACTIONS) == []


@many
@given(st.one_of(close_worlds(), full_close_worlds(), contended_worlds()))
def test_whoever_waits_for_a_domain_or_a_model_is_told_the_truth(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, rounds=2), DEFAULT_ACTIONS) == []


@many
@given(st.one_of(contended_worlds(), elastic_worlds(), limited_worlds()))
def test_whoever_waits_is_told_the_truth_with_the_policy_of_kube_batch(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, KUBE_BATCH, rounds=3), KUBE_BATCH_ACTIONS) == []


@some
@given(
    st.one_of(simple_worlds(), limited_worlds(), contended_worlds(), elastic_worlds(limits_one_in=2), claimed_worlds())
)
def test_doing_what_would_start_a_gang_starts_it(objects: list[Object]) -> None:
    """Nobody else waits: whose turn it is when the room is there is another matter."""
    (first,) = rows(plan(objects), "rounds")
    for group in [text(entry, "group") for entry in rows(first, "waiting")][:4]:
        world = alone(objects, group)
        reason, would, before = told(world, group)
        changed = cured(world, group, would) if reason not in ("", "Promised") else None
        if changed is not None:
            now, left, after = told(changed, group)
            starts = now in ("", "Promised") or (now == "SurplusWaiting" and reason != now) or after > before
            assert starts, f"{group} would start if {would}; and then if {left}"


def told(objects: list[Object], group: str) -> tuple[str, str, int]:
    """Why the gang waits (empty: it does not), what would start it, and how many pods are bound."""
    (done,) = rows(plan(objects), "rounds")
    waiting = [entry for entry in rows(done, "waiting") if text(entry, "group") == group]
    bound = len(rows(done, "binds"))
    return (text(waiting[0], "reason"), text(waiting[0], "wouldStartIf"), bound) if waiting else ("", "", bound)


# The judge sees what is wrong: a node full of work that matters less and has surplus, and two gangs that wait for it.


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
def test_the_judge_notices_what_is_wrong(lie: Callable[[Any, Any], object]) -> None:
    objects = crowd()
    made: Any = plan(objects)
    assert untrue(objects, made, DEFAULT_ACTIONS) == []
    doctored = copy.deepcopy(made)
    lie(*(entry for entry in doctored["rounds"][0]["waiting"]))
    assert untrue(objects, doctored, DEFAULT_ACTIONS) != []
