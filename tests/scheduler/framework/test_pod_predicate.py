"""A plugin's pod_predicate is asked about every group, and before every placement, unless the plugin says otherwise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray
from maniple.scheduler.framework.hooks import Check, Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from scheduler.small_clusters import Object, binds, group, member, node, plan, pod


class Lonely:
    """A node takes one pod in a cycle, and the node `closed` none; `about` names the only pod that this holds for."""

    asked: ClassVar[list[str]] = []

    def __init__(self, arguments: Arguments) -> None:
        self.about = "".join(arguments.words("about", ()))
        self.closed = "".join(arguments.words("closed", ()))

    def open(self, session: Session) -> Hooks:
        def pod_predicate(group: TaskGroup, _: bool) -> list[Check]:
            self.asked.append(group.pods[0])
            untouched: BoolArray = np.all(session.free >= session.snapshot.free, axis=0)
            is_open = np.array(session.snapshot.nodes.names) != self.closed
            return [Check("took a pod in this cycle", untouched), Check("is closed", is_open)]

        def is_about(group: TaskGroup) -> bool:
            return group.pods[0] == f"default/{self.about}"

        return Hooks(pod_predicate=pod_predicate, pod_predicate_groups=is_about if self.about else None)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "lonely", Lonely)
    monkeypatch.setattr(Lonely, "asked", [])


def policy(actions: str = "allocate, backfill", **arguments: str) -> Object:
    plugins = ("gang", "priority", "predicates", "nodeorder")
    lonely = {"name": "lonely", "arguments": arguments}
    return {"actions": actions, "tiers": [{"plugins": [lonely, *({"name": name} for name in plugins)]}]}


def gang(name: str, size: int) -> list[Object]:
    return [group(name, size), *(pod(f"{name}-{index}", labels=member(name)) for index in range(size))]


def test_it_is_asked_about_ordinary_pods() -> None:
    assert len(binds([node("n1"), pod("a"), pod("b")], policy())) == 1


def test_it_sees_each_pod_of_a_gang_placed_before_it_is_asked_about_the_next() -> None:
    nodes = [node("n1"), node("n2"), node("n3")]
    assert sorted(binds([*nodes, *gang("g", 3)], policy()).values()) == ["n1", "n2", "n3"]
    assert binds([*nodes, *gang("g", 4)], policy()) == {}


def test_it_is_asked_before_others_are_evicted() -> None:
    victims = [pod(f"low-{name}", "4", nodeName=name, priority=-1) for name in ("n1", "n2")]
    cluster = [node("n1"), node("n2"), *victims, pod("high", "4", priority=5)]
    for closed, victim in (("n1", "default/low-n2"), ("n2", "default/low-n1")):
        evictions = plan(cluster, policy("allocate, preempt", closed=closed))["evictions"]
        assert [eviction["pod"] for eviction in evictions] == [victim]


def test_what_it_objects_to_is_explained() -> None:
    waiting = plan([node("n1"), pod("a"), pod("b")], policy())["waiting"]
    assert [[count["reason"] for count in entry["nodes"]] for entry in waiting] == [["took a pod in this cycle"]]


def test_a_gang_that_it_keeps_apart_is_explained() -> None:
    (entry,) = plan([node("n1"), *gang("g", 2)], policy())["waiting"]
    assert "each finds a node, but not all together: plugin rule (pod_predicate) stands" in entry["message"]


def test_it_is_asked_only_about_the_groups_that_the_plugin_names() -> None:
    bound = binds([node("n1"), pod("a"), pod("b"), pod("c")], policy(about="b"))
    assert bound == {"a": "n1", "c": "n1"}
    assert set(Lonely.asked) == {"default/b"}
