"""Only pods that a victim rule was given and names are evicted, whatever else the rule returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from maniple.model.job import Job
from maniple.scheduler.framework.hooks import Hooks, Victim
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from scheduler.small_clusters import node, plan, pod

OBJECTS = [
    node("n1"),
    *(pod(name, "2", nodeName="n1", priority=0) for name in ("first", "second")),
    pod("claimant", "4", priority=10),
]


def evicted(monkeypatch: pytest.MonkeyPatch, rule: Callable[[Sequence[Victim]], list[Any]]) -> set[str]:
    """The pods that are evicted for a claimant that needs all of the node."""

    class Rule:
        def __init__(self, arguments: Arguments) -> None:
            del arguments

        def open(self, session: Session) -> Hooks:
            del session

            def preemptable(claimant: Job, victims: Sequence[Victim]) -> list[Any]:
                del claimant
                return rule(victims)

            return Hooks(preemptable=preemptable)

    monkeypatch.setitem(PLUGINS, "rule", Rule)
    tiers = [{"plugins": [{"name": name} for name in ("rule", "predicates")]}, {"plugins": [{"name": "gang"}]}]
    return {entry["pod"] for entry in plan(OBJECTS, {"actions": "allocate, preempt", "tiers": tiers})["evictions"]}


def test_what_a_rule_allows_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert evicted(monkeypatch, list) == {"default/first", "default/second"}
    assert evicted(monkeypatch, lambda victims: list(victims)[::-1]) == {"default/first", "default/second"}


def test_a_pod_named_twice_does_not_stand_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_second(victims: Sequence[Victim]) -> list[Victim]:
        return [victim for victim in victims if victim.pod.pod == "default/second"] * 2

    assert evicted(monkeypatch, only_second) == set()


@pytest.mark.parametrize("rule", [lambda _: [1, 2], lambda victims: [victim.pod for victim in victims]])
def test_anything_but_candidates_is_an_error(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[[Sequence[Victim]], list[Any]]
) -> None:
    with pytest.raises(TypeError, match="which is not one of the candidates"):
        evicted(monkeypatch, rule)
