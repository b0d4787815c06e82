"""Victims go in units that make sense: whole devices come free, and gangs go whole."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from cluster.planning import plan_objects
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.resources import IntArray
from maniple.scheduler import load_policy
from maniple.scheduler.eviction.supposed_gone import SupposedGone
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit, offered_units
from maniple.scheduler.framework.session import Session
from scheduler.small_clusters import Object, group, member, node, plan, pod, queue

GPU = "nvidia.com/gpu"
KUBE_BATCH = Path(__file__).resolve().parents[3].joinpath("examples/policies/kube-batch.yaml").read_text()
WHOLE = KUBE_BATCH.replace("- name: gang", '- name: gang\n    arguments: {evict.whole: "true"}')


def gpus(count: int) -> Object:
    return node("n1", allocatable={"cpu": 32, "memory": "64Gi", GPU: count})


def one_gpu(name: str, *, of: str = "", annotations: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "main", "resources": {"limits": {GPU: 1}}}]
    labels = member(of) if of else {}
    return pod(name, labels=labels, metadata={"annotations": annotations or {}}, containers=containers, **spec)


def evicted(objects: list[Object], policy: str) -> list[str]:
    return [eviction["pod"].removeprefix("default/") for eviction in plan(objects, policy)["evictions"]]


def test_shares_that_add_up_to_a_gpu_on_two_devices_are_not_one() -> None:
    shares = [
        one_gpu(
            f"s{index}",
            annotations={"maniple.dev/gpu-fraction": "0.5", "maniple.dev/gpus": str(index % 2)},
            nodeName="n1",
        )
        for index in range(4)
    ]
    assert evicted([gpus(2), *shares, one_gpu("urgent", priority=9)], KUBE_BATCH) in (["s0", "s2"], ["s1", "s3"])


def test_a_gang_goes_down_to_its_minimum_or_whole() -> None:
    """Two GPUs are wanted; of three pods only one is surplus."""
    held = [group("g", 2), *(one_gpu(f"g-{index}", of="g", nodeName="n1") for index in range(3))]
    urgent = [group("u", 2), *(one_gpu(f"u-{index}", of="u", priority=9) for index in range(2))]
    assert evicted([gpus(3), *held, *urgent], KUBE_BATCH) == []
    assert evicted([gpus(3), *held, *urgent], WHOLE) == ["g-0", "g-1", "g-2"]
    assert evicted([gpus(4), *held, *urgent], WHOLE) == ["g-2"]


# The table of units, and supposing that some of them are gone.


def session_of(objects: list[Object], policy: str = WHOLE) -> Session:
    decoded = decode([("objects", json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())])
    snapshot = build_snapshot(sort_objects(decoded, scheduler_name="maniple"))
    return load_policy(policy.encode(), "policy").session(snapshot)


def table_of(session: Session) -> UnitTable:
    return UnitTable(session, (unit for job in session.snapshot.jobs for unit in offered_units(session, job)))


def named(table: UnitTable, units: IntArray) -> list[str]:
    """The pods of the units, unit by unit."""
    return [" ".join(pod.pod.removeprefix("default/") for pod in table.units[unit].pods) for unit in units.tolist()]


def elastic_job(name: str, least: int, size: int, step: int = 1) -> list[Object]:
    replica = {"containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]}
    role = {"name": "worker", "min": least, "max": size, "step": step, "template": {"spec": replica}}
    job = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
    labels = {"maniple.dev/job": name, "maniple.dev/role": "worker"}
    pods = [
        pod(
            f"{name}-worker-{index}",
            labels={**labels, "maniple.dev/index": str(index)},
            containers=replica["containers"],
            nodeName="n1",
        )
        for index in range(size)
    ]
    return [{**job, "spec": {"roles": [role]}}, *pods]


def test_a_step_of_an_elastic_job_stands_behind_those_above_it_and_the_rest_behind_all() -> None:
    table = table_of(session_of([gpus(8), *elastic_job("j", 2, 6, step=2)]))
    everything = np.ones(len(table), dtype=bool)
    steps = ["j-worker-5 j-worker-4", "j-worker-3 j-worker-2"]
    assert [sorted(names.split()) for names in named(table, np.arange(3))] == [
        ["j-worker-4", "j-worker-5"],
        ["j-worker-2", "j-worker-3"],
        ["j-worker-0", "j-worker-1"],
    ]
    # The lower step first, then the whole: both pull in what they need gone.
    assert named(table, table.ordered(np.array([1]), everything)) == steps
    assert len(table.ordered(np.array([2]), everything)) == 3
    assert table.dragged(everything).tolist() == [2, 4, 6]
    assert table.with_dependents(np.array([0])).all()
    assert table.is_needed(0, np.array([False, True, False]))
    assert not table.is_needed(1, np.array([True, True, False]))


def test_surplus_pods_of_a_gang_go_in_any_order_and_the_gang_after_them() -> None:
    held = [group("g", 1, priorityClassName=""), *(one_gpu(f"g-{index}", of="g", nodeName="n1") for index in range(3))]
    table = table_of(session_of([gpus(3), *held]))
    everything = np.ones(len(table), dtype=bool)
    assert named(table, np.arange(len(table))) == ["g-2", "g-1", "g-0"]
    assert named(table, table.ordered(np.array([1]), everything)) == ["g-1"]


def test_units_that_share_pods_are_told_apart() -> None:
    """Whoever offers a gang whole beside its surplus need not take the surplus out of it."""
    session = session_of(
        [gpus(2), group("g", 1), *(one_gpu(f"g-{index}", of="g", nodeName="n1") for index in range(2))]
    )
    job = session.snapshot.jobs[0]
    first, second = sorted(job.placed, key=lambda placed: placed.pod, reverse=True)
    units = [Unit(job, (first,), False, (0,), 0), Unit(job, (second, first), True, (1,), 0)]
    assert [unit.pods for unit in UnitTable(session, units).units] == [(first,), (second,)]


shares = st.lists(st.tuples(st.sampled_from(["0", "1", "2"]), st.sampled_from(["0.25", "0.5", "1"])), max_size=6)


@settings(max_examples=60, deadline=None)
@given(held=shares, order=st.randoms(use_true_random=False))
def test_what_was_supposed_to_be_gone_is_there_again_as_it_was(held: list[tuple[str, str]], order: Random) -> None:
    left = {"0": 1.0, "1": 1.0, "2": 1.0}
    pods = []
    for index, (device, part) in enumerate(held):
        if left[device] >= float(part):
            left[device] -= float(part)
            notes = {"maniple.dev/gpus": device, **({} if part == "1" else {"maniple.dev/gpu-fraction": part})}
            pods.append(one_gpu(f"p{index}", annotations=notes, nodeName="n1"))
    session = session_of([gpus(3), queue("default", limit={GPU: 3}), *pods])
    table = table_of(session)
    before = [part.copy() for part in (session.future, session.queue_allocated, *session.gpus.future.values())]
    with SupposedGone(session, table, as_neighbours=True) as gone:
        everybody = list(range(len(table)))
        order.shuffle(everybody)
        for unit in everybody:
            gone.add(np.array([unit]))
        if pods:
            assert (session.future == session.snapshot.nodes.allocatable).all()
            assert not session.queue_allocated.any()
        for unit in everybody[: len(everybody) // 2]:
            gone.remove(np.array([unit]))
    after = [session.future, session.queue_allocated, *session.gpus.future.values()]
    assert all((array == other).all() for array, other in zip(before, after, strict=True))


def test_a_unit_that_does_not_go_uses_up_nothing_of_a_disruption_budget() -> None:
    """The critical one comes first and is refused: the one voluntary disruption is left to the other."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one"},
        "spec": {"selector": {}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": 1},
    }
    young = {"creationTimestamp": "2026-01-02T00:00:00Z", "annotations": {}}
    critical = pod("critical", metadata=young, priorityClassName="system-node-critical", nodeName="n1")
    critical["spec"]["containers"] = one_gpu("x")["spec"]["containers"]
    critical["spec"]["priority"] = 0
    objects = [gpus(2), budget, critical, one_gpu("plain", nodeName="n1"), one_gpu("urgent", priority=9)]
    assert evicted(objects, KUBE_BATCH) == ["plain"]


# Rest.


@st.composite
def rivals(draw: st.DrawFn) -> list[Object]:
    """More gangs than there is room for, of mixed sizes and priorities and in several queues; some of them run."""
    nodes, size = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, 6]))
    names = [f"q{index}" for index in range(draw(st.integers(1, 3)))]
    objects = [node(f"n{index}", allocatable={"cpu": 64, "memory": "256Gi", GPU: size}) for index in range(nodes)]
    objects += [queue(name, weight=draw(st.integers(1, 3))) for name in names]
    free = dict.fromkeys((f"n{index}" for index in range(nodes)), size)
    for number in range(draw(st.integers(4, 12))):
        name, least = f"g{number}", draw(st.sampled_from([1, 1, 2, 3, 4, 5]))
        rank = draw(st.sampled_from([-10, 0, 5, 10]))
        objects.append(group(name, least, queue=draw(st.sampled_from(names)), preemptable=draw(st.integers(0, 9)) > 0))
        count = least + draw(st.sampled_from([0, 0, 0, 2]))
        places = [name for name, room in free.items() for _ in range(room)][:count] if draw(st.booleans()) else []
        for index in range(count):
            where: Object = {"nodeName": places[index]} if len(places) >= least and index < len(places) else {}
            if where:
                free[places[index]] -= 1
            objects.append(one_gpu(f"{name}-{index}", of=name, priority=rank, **where))
    return objects


@pytest.mark.parametrize("policy", [None, KUBE_BATCH, WHOLE], ids=["built-in", "kube-batch", "evict.whole"])
@settings(max_examples=16, deadline=None)
@given(objects=rivals())
def test_nobody_is_evicted_twice_for_the_same_gang_and_evictions_end(policy: str | None, objects: list[Object]) -> None:
    rounds = plan_objects(objects, policy=policy, rounds=20)["rounds"]
    pairs = [(gone["pod"], gone["for"]) for planned in rounds for gone in planned["evictions"]]
    assert sorted(pairs) == sorted(set(pairs))
    assert not any(planned["evictions"] for planned in rounds[10:])
