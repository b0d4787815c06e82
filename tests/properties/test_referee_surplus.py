"""The referee on surplus that takes surplus: for each promise a plan that breaks it, and one that keeps it."""

from __future__ import annotations

import pytest

from properties.raw_objects import Object
from properties.referee import violations
from properties.surplus_verdicts import started_only_to_leave
from properties.test_referee import bind, group, node, nominate, plan_of, pod, queue, round_of, wait

CLASSES: list[Object] = [
    {"kind": "PriorityClass", "metadata": {"name": name}, "value": value} for name, value in (("low", 0), ("high", 9))
]


def cluster(loser: Object, **winner: object) -> list[Object]:
    """Two GPUs: a pod of `win` and surplus of `lose` run, a pod of `win` waits."""
    return [
        *CLASSES,
        node("n1", gpus=3),
        queue("q"),
        loser,
        group("win", 1, **{"priorityClassName": "high"} | winner),
        *(pod(f"lose-{index}", on="n1", group="lose", ids=str(index)) for index in range(2)),
        pod("win-0", on="n1", group="win", ids="2"),
        pod("win-1", group="win"),
    ]


def lose(**spec: object) -> Object:
    return group("lose", 1, **{"priorityClassName": "low"} | spec)


def shrink(name: str = "lose-1", reason: str = "Shrunk") -> list[Object]:
    return [{"pod": f"default/{name}", "reason": reason, "for": "default/win"}]


WAITS = [wait("lose")]
TAKEN = round_of(evictions=shrink(), nominations=[nominate("win-1", "n1")])
STARTS = round_of(binds=[bind("win-1", "n1", "1")], waiting=WAITS)


def test_surplus_takes_surplus_of_lower_priority_only_if_the_policy_says_so() -> None:
    assert violations(cluster(lose()), plan_of(TAKEN, STARTS), surplus_preempts=True) == []
    (found,) = violations(cluster(lose()), plan_of(TAKEN, STARTS))
    assert "which has its minimum" in found


@pytest.mark.parametrize(
    ("objects", "round_", "said"),
    [
        (cluster(lose(priorityClassName="high")), TAKEN, "no higher priority"),
        (cluster(lose(queue="q")), TAKEN, "of queue q leaves for surplus of queue default"),
        (cluster(lose()), round_of(evictions=shrink(), waiting=[wait("win")]), "of which no pod is nominated"),
        (
            cluster(lose()),
            round_of(evictions=shrink(reason="Preempted"), nominations=[nominate("win-1", "n1")]),
            "and not because its job shrinks",
        ),
    ],
)
def test_surplus_that_is_taken_wrongly_is_caught(objects: list[Object], round_: Object, said: str) -> None:
    found = violations(objects, plan_of(round_), surplus_preempts=True)
    assert any(said in sentence for sentence in found), found


def test_surplus_that_left_in_vain_is_caught() -> None:
    idle = round_of(waiting=[*WAITS, wait("win")])
    found = violations(cluster(lose()), plan_of(TAKEN, idle), surplus_preempts=True)
    assert any("in vain: it has 1 pods and not 2" in sentence for sentence in found), found


def test_surplus_that_starts_only_to_leave_for_surplus_that_waited_is_caught() -> None:
    """`lose-1` waits, and is started in the room that `win-1` then takes."""
    waits = [item for item in cluster(lose()) if item["metadata"]["name"] != "lose-1"]  # type: ignore[index]
    waits.append(pod("lose-1", group="lose"))
    start = round_of(binds=[bind("lose-1", "n1", "1")], waiting=[wait("win")])
    (found,) = started_only_to_leave(waits, plan_of(start, TAKEN))
    assert "default/lose-1 had just started, and leaves for surplus of default/win" in found
    assert started_only_to_leave(waits, plan_of(start, round_of(waiting=[wait("win")]), TAKEN)) == []
    assert started_only_to_leave(cluster(lose()), plan_of(TAKEN, STARTS)) == []
