"""The best nodes that are known from before are those that a look at all nodes finds: after every single placement."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler.small_clusters import group, member, node, pod, queue

from maniple.model.job import TaskGroup
from maniple.scheduler.framework.best_nodes import BestNodes
from maniple.scheduler.framework.node_rankings import NodeRankings
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Spot
from maniple.scheduler.placement import placement_search
from maniple.scheduler.placement.domains_and_models import ANYWHERE, Scope
from maniple.scheduler.placement.placement_search import find_spot
from properties.elastic_clusters import elastic_worlds
from properties.guarantee_clusters import guarantee_worlds
from properties.plan_adapter import plan
from properties.random_clusters import contended_worlds, ruled_worlds, worlds
from properties.raw_objects import Object
from properties.test_promises import KUBE_BATCH, promised
from properties.topology_clusters import close_worlds

many = settings(promised, max_examples=40)
policies = st.sampled_from([None, KUBE_BATCH])


@contextmanager
def compared() -> Iterator[None]:
    """Every answer is compared with that of a look at all nodes."""
    with pytest.MonkeyPatch.context() as patch:
        room, best_spot = NodeRankings.room, placement_search._best_spot

        def checked_room(
            rankings: NodeRankings, group: TaskGroup, *, later: bool, model: int | None = None
        ) -> float | None:
            known = room(rankings, group, later=later, model=model)
            if known is not None:
                assert known == rankings._session.room_for(group, later=later, model=model).sum()
            return known

        def checked_spot(session: Session, group: TaskGroup, wanted: int, ranked: BestNodes) -> Spot | None:
            spot = best_spot(session, group, wanted, ranked)
            models = [None, *(range(len(session.gpus.models)) if group.shape.gpus else ())]
            later, model = next(
                (later, model)
                for later in (False, True)
                for model in models
                if session.rankings.best(group, later=later, model=model) is ranked
            )
            scope = ANYWHERE if model is None else Scope(models={group.shape.constraint.gpu_models: model})
            with pytest.MonkeyPatch.context() as blind:
                blind.setattr(NodeRankings, "best", lambda *_, **__: None)
                expected = find_spot(session, group, wanted, scope, later=later)
            assert (spot is None) == (expected is None)
            if spot is not None and expected is not None:
                assert np.array_equal(spot.nodes, expected.nodes)
                assert np.array_equal(spot.counts, expected.counts)
            return spot

        patch.setattr(NodeRankings, "room", checked_room)
        patch.setattr(placement_search, "_best_spot", checked_spot)
        yield


def blind_rounds(objects: list[Object], policy: str | None, rounds: int = 2) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeRankings, "room", lambda *_, **__: None)
        patch.setattr(NodeRankings, "best", lambda *_, **__: None)
        return plan(objects, policy, rounds=rounds)["rounds"]


@many
@given(worlds() | contended_worlds() | ruled_worlds() | close_worlds(), policies)
def test_known_places_are_those_that_a_look_at_all_nodes_finds(objects: list[Object], policy: str | None) -> None:
    with compared():
        rounds = plan(objects, policy, rounds=2)["rounds"]
    assert rounds == blind_rounds(objects, policy)


@many
@given(elastic_worlds() | guarantee_worlds(), policies)
def test_also_with_elastic_jobs_and_guarantees(objects: list[Object], policy: str | None) -> None:
    with compared():
        rounds = plan(objects, policy, rounds=2)["rounds"]
    assert rounds == blind_rounds(objects, policy)


GPU = "nvidia.com/gpu"
# The first gang of a queue that does not fit gets a reservation.
IMPATIENT = """
actions: "allocate, shrink, reclaim, preempt, backfill, grow"
tiers:
- plugins:
  - name: gang
  - name: priority
  - name: conformance
- plugins:
  - name: predicates
  - {name: proportion, arguments: {borrow: "true"}}
  - name: nodeorder
  - name: fragmentation
  - name: topology
  - {name: reservation, arguments: {patience: "0"}}
"""


def plain_cluster(seed: int) -> list[Object]:
    """Pods without rules about others: shares of GPUs and whole ones, of one or two models, some of them running."""
    draw = random.Random(seed)
    objects: list[Object] = [queue(name) for name in "ab"]
    count = draw.randint(2, 40)
    for number in range(count):
        labels = {"nvidia.com/gpu.product": f"model-{number % draw.choice((1, 1, 2))}"}
        there = draw.choice(("0", "4", "8"))
        objects.append(node(f"n{number:02d}", labels, allocatable={"cpu": "16", "memory": "64Gi", GPU: there}))
    for number in range(draw.randint(4, 30)):
        size, gpus, cpu = draw.choice((1, 1, 2, 3, 6)), draw.choice((0, 1, 1, 2, 4, 8)), str(draw.choice((1, 2, 5)))
        is_running, share = draw.random() < 0.4, {"maniple.dev/gpu-fraction": draw.choice(("0.3", "0.5"))}
        objects.append(group(f"g{number}", size, queue=draw.choice("ab")))
        for nth in range(size + draw.choice((0, 0, 2))):
            metadata: Object = {"annotations": share if gpus == 1 and number % 2 else {}}
            where = {"nodeName": f"n{draw.randrange(count):02d}"} if is_running else {}
            made = pod(f"g{number}-{nth}", cpu, member(f"g{number}"), metadata, **where)
            if gpus:
                made["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(gpus)}
            objects.append(made)
    return objects


@pytest.mark.parametrize("policy", [None, IMPATIENT])
@pytest.mark.parametrize("seed", range(40))
def test_also_beside_reservations_and_promises(seed: int, policy: str | None) -> None:
    objects = plain_cluster(seed)
    with compared():
        rounds = plan(objects, policy, rounds=3)["rounds"]
    assert rounds == blind_rounds(objects, policy, 3)
