"""A plugin is asked about every gang, also about one whose equal was asked about before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from maniple.model.job import Job, TaskGroup
from maniple.scheduler.framework.hooks import Check, Hooks, Victim
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from scheduler.small_clusters import Object, binds, node, plan, pod


class Picky:
    """Only the pod named by `preemptor` may preempt, and only the pod named by `pod` may go to node `node`."""

    def __init__(self, arguments: Arguments) -> None:
        self.preemptor = "".join(arguments.words("preemptor", ()))
        self.pod = "".join(arguments.words("pod", ()))
        self.node = "".join(arguments.words("node", ()))

    def open(self, session: Session) -> Hooks:
        names = np.array(session.snapshot.nodes.names)

        def preemptable(claimant: Job, candidates: Sequence[Victim]) -> Sequence[Victim]:
            return candidates if claimant.name == f"default/{self.preemptor}" else []

        def predicate(group: TaskGroup) -> list[Check]:
            is_chosen = group.pods == (f"default/{self.pod}",)
            return [Check("is kept for another", (names != self.node) | is_chosen)]

        return Hooks(
            preemptable=preemptable if self.preemptor else None,
            predicate=predicate if self.node else None,
        )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "picky", Picky)


def policy(**arguments: str) -> Object:
    plugins = ("gang", "priority", "predicates", "nodeorder")
    picky = {"name": "picky", "arguments": arguments}
    return {
        "actions": "allocate, preempt, backfill",
        "tiers": [{"plugins": [picky, *({"name": name} for name in plugins)]}],
    }


def test_a_rule_on_victims_is_asked_about_a_gang_behind_its_equal() -> None:
    held = [pod(f"low-{index}", nodeName="n1", priority=-1) for index in range(4)]
    waiting = [pod(name, priority=5) for name in ("a", "b", "c")]
    evictions = plan([node("n1"), *held, *waiting], policy(preemptor="b"))["evictions"]
    assert [eviction["for"] for eviction in evictions] == ["default/b"]


def test_a_predicate_is_asked_about_a_pod_behind_its_equal() -> None:
    waiting = [pod(name, "4") for name in ("a", "b", "c")]
    assert binds([node("n1"), *waiting], policy(pod="b", node="n1")) == {"b": "n1"}


def test_each_gang_that_waits_is_explained_by_what_plugins_say_of_it() -> None:
    waiting = [pod(name, "8") for name in ("a", "b")]
    explained = plan([node("n1"), *waiting], policy(pod="b", node="n1"))["waiting"]
    counts = {entry["group"]: [count["reason"] for count in entry["nodes"]] for entry in explained}
    assert counts["default/a"] == ["is kept for another"]
    assert counts["default/b"] != counts["default/a"]
