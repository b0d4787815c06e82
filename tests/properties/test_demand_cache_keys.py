"""Remembering what failed for a gang, and skipping equal gangs, changes no plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.model.job import Job, TaskGroup
from maniple.model.plugin_reads import Reads
from maniple.model.resources import BoolArray
from maniple.scheduler.framework.demand_cache_keys import Demands
from maniple.scheduler.framework.hooks import Check, Hooks, Victim, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from properties.elastic_clusters import claimed_worlds, elastic_worlds
from properties.plan_adapter import plan
from properties.random_clusters import contended_worlds, ruled_worlds, worlds
from properties.raw_objects import Object
from properties.test_promises import KUBE_BATCH, promised
from properties.topology_clusters import close_worlds, full_close_worlds

many = settings(promised, max_examples=40)


def number(text: str) -> int:
    """A number for the text, the same in every process."""
    return crc32(text.encode()) % 3


class OddVictims:
    """Names decide which gangs may preempt and which pods may be evicted. It declares nothing."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def open(self, session: Session) -> Hooks:
        del session

        def rule(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
            return [victim for victim in candidates if number(claimant.name + victim.pod.pod)]

        return Hooks(preemptable=rule, reclaimable=rule)


class OddNodes:
    """Names decide the nodes of a pod and the order of jobs. It declares nothing."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def open(self, session: Session) -> Hooks:
        names = session.snapshot.nodes.names

        def predicate(group: TaskGroup) -> list[Check]:
            allowed = [bool(number(group.pods[0] + name)) for name in names]
            return [Check("has an odd name", np.array(allowed, dtype=bool))]

        return Hooks(predicate=predicate, job_order=lambda job: number(job.name))


class Declared(OddNodes):
    """The same, but it declares what it reads."""

    def open(self, session: Session) -> Hooks:
        names = session.snapshot.nodes.names

        def kind(group: TaskGroup) -> int:
            return number(group.pods[0])

        def predicate(group: TaskGroup) -> list[Check]:
            allowed = [(at + kind(group)) % 3 > 0 for at in range(len(names))]
            return [Check("has an odd name", np.array(allowed, dtype=bool))]

        return Hooks(predicate=predicate, group_kind=kind)


class Labelled:
    """A label, which it declares, decides the nodes of a pod, and an annotation the order of jobs."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments
        self.reads = Reads(pod_labels=("app",), job_annotations=("example.com/rank",))

    def open(self, session: Session) -> Hooks:
        names = session.snapshot.nodes.names

        def predicate(group: TaskGroup) -> list[Check]:
            allowed = [bool(number(group.labels.get("app", "") + name)) for name in names]
            return [Check("has another label", np.array(allowed, dtype=bool))]

        def order(job: Job) -> float:
            return number(job.annotations.get("example.com/rank", job.name))

        return Hooks(predicate=predicate, job_order=order, group_kind=nothing_else)


class OddPods:
    """The nodes that took pods in this cycle decide where a pod may go, for ordinary groups too."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def open(self, session: Session) -> Hooks:
        odd = np.array([bool(number(name)) for name in session.snapshot.nodes.names], dtype=bool)

        def pod_predicate(group: TaskGroup, _: bool) -> list[Check]:
            del group
            untouched: BoolArray = np.all(session.free >= session.snapshot.free, axis=0)
            return [Check("took a pod in this cycle", untouched | odd)]

        return Hooks(pod_predicate=pod_predicate, group_kind=nothing_else)


ODD = {
    "odd-victims": OddVictims,
    "odd-nodes": OddNodes,
    "odd-pods": OddPods,
    "declared": Declared,
    "labelled": Labelled,
}


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, plugin in ODD.items():
            patch.setitem(PLUGINS, name, plugin)
        yield


def policy_with(name: str) -> str:
    """The default policy and one more plugin, with all its hooks."""
    return f"""
actions: "allocate, shrink, reclaim, preempt, backfill, grow"
tiers:
- plugins:
  - name: {name}
  - {{name: gang, arguments: {{evict.whole: "true"}}}}
  - name: priority
  - name: conformance
  - name: predicates
  - {{name: proportion, arguments: {{borrow: "true"}}}}
  - name: nodeorder
  - {{name: reservation, arguments: {{patience: "0"}}}}
"""


def rounds_of(objects: list[Object], policy: str | None) -> object:
    """Without their duration."""
    return plan(objects, policy, rounds=2)["rounds"]


def forgetful_rounds(objects: list[Object], policy: str | None) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Demands, "is_shared", False)
        return rounds_of(objects, policy)


policies = st.sampled_from([None, KUBE_BATCH, *map(policy_with, ODD)])


@many
@given(worlds() | contended_worlds() | ruled_worlds(), policies)
def test_remembered_failures_change_no_plan(objects: list[Object], policy: str | None) -> None:
    assert rounds_of(objects, policy) == forgetful_rounds(objects, policy)


@many
@given(close_worlds() | full_close_worlds(), policies)
def test_remembered_failures_change_no_plan_with_topologies(objects: list[Object], policy: str | None) -> None:
    assert rounds_of(objects, policy) == forgetful_rounds(objects, policy)


@many
@given(elastic_worlds() | claimed_worlds(), policies)
def test_remembered_failures_change_no_plan_with_elastic_jobs(objects: list[Object], policy: str | None) -> None:
    assert rounds_of(objects, policy) == forgetful_rounds(objects, policy)
