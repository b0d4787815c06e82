"""What queues are guaranteed, as rules about evictions read it: no plan shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from maniple.model.job import Queue
from maniple.scheduler.framework.due_rules import Due
from maniple.scheduler.framework.share_accounting import Accounting
from maniple.scheduler.plugins.proportion import find_dues

UNIT = 1000.0  # thousandths of a GPU


def dues(gpus: float, is_whole: bool = True, **queues: dict[str, Any]) -> Due:
    """One resource. Of each queue: parent, guaranteed, limit, asks."""
    names = list(queues)
    tree = [
        Queue(
            name=name,
            index=index,
            parent=names.index(spec["parent"]) if "parent" in spec else -1,
            children=tuple(number for number, child in enumerate(names) if queues[child].get("parent") == name),
            weights=np.array([float(spec.get("weight", 1))]),
            guaranteed=np.array([spec.get("guaranteed", 0) * UNIT]),
            limit=np.array([spec.get("limit", np.inf) * UNIT]),
            reclaimable=True,
            priority=0,
        )
        for index, (name, spec) in enumerate(queues.items())
    ]
    asked = np.array([[spec.get("asks", 0) * UNIT] for spec in queues.values()])
    accounting = SimpleNamespace(
        queues=tree, total=np.array([gpus * UNIT]), indivisible=np.array([is_whole]), queue_held=np.zeros_like(asked)
    )
    return find_dues(cast(Accounting, accounting), asked)


def guaranteed(due: Due) -> list[float]:
    return list(due.guaranteed[:, 0] / UNIT)


def deserved(due: Due) -> list[float]:
    return list(due.deserved[:, 0] / UNIT)


def test_a_queue_is_guaranteed_what_it_asks_for_at_most() -> None:
    due = dues(8, a={"guaranteed": 4, "asks": 3}, b={"guaranteed": 4, "asks": 9}, c={"guaranteed": 2})
    assert guaranteed(due) == [3, 4, 0]


@pytest.mark.parametrize(
    ("parent", "expected"),
    [({}, 5), ({"guaranteed": 3}, 5), ({"guaranteed": 7}, 7), ({"guaranteed": 20}, 9), ({"limit": 4}, 4)],
)
def test_a_parent_is_guaranteed_what_its_children_are(parent: dict[str, Any], expected: float) -> None:
    below: dict[str, Any] = {"guaranteed": 4, "asks": 8, "parent": "p"}
    due = dues(100, top={}, p=parent | {"parent": "top"}, a=below, b={**below, "asks": 1})
    assert guaranteed(due) == [expected, expected, 4, 1]


def test_a_guarantee_may_be_more_than_there_is_and_a_due_may_not() -> None:
    due = dues(5, a={"guaranteed": 4, "asks": 9}, b={"guaranteed": 4, "asks": 9})
    assert guaranteed(due) == [4, 4]
    assert deserved(due) == [3, 2]


def test_a_part_of_a_unit_is_guaranteed_only_of_what_can_be_divided() -> None:
    queue = {"guaranteed": 1.5, "asks": 9}
    assert guaranteed(dues(8, a=queue)) == [1]
    assert guaranteed(dues(8, is_whole=False, a=queue)) == [1.5]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_due_is_at_least_the_guarantee_where_there_is_enough(is_whole: bool) -> None:
    """In whole units too: the rounding takes nothing from a guarantee, at no level."""
    below = {"parent": "p", "asks": 9}
    due = dues(
        11, is_whole, p={}, a=below | {"guaranteed": 3}, b=below | {"guaranteed": 2}, c={"weight": 90, "asks": 9}
    )
    assert (due.deserved >= due.guaranteed).all()
    assert guaranteed(due) == [5, 3, 2, 0]
