"""The promises of the scheduler, each over random clusters, judged by the referee.

A failing example prints the objects as they are: write them to a file and `maniple plan -f` shows the
same plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from properties import plan_adapter
from properties.cluster_facts import gang_of, read_facts
from properties.missed_room import missed_opportunities
from properties.plan_adapter import plan
from properties.random_clusters import (
    contended_ruled_worlds,
    contended_worlds,
    limited_worlds,
    ruled_worlds,
    simple_worlds,
    single_queue_worlds,
    worlds,
)
from properties.raw_objects import Object, key_of, rows, text
from properties.referee import judge, violations
from properties.replay_rounds import Promise, read_state
from properties.topology_clusters import close_worlds, full_close_worlds

KUBE_BATCH = (Path(__file__).parents[2] / "examples" / "policies" / "kube-batch.yaml").read_text()
POLICIES = pytest.mark.parametrize("policy", [None, KUBE_BATCH], ids=["default", "kube-batch"])

promised = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Many rounds a cluster cost more than one.
long_promised = settings(promised, max_examples=40)
longest_promised = settings(promised, max_examples=20)


def broken(objects: list[Object], promise: Promise, policy: str | None = None) -> list[str]:
    """Two rounds: pods that leave during the first make room in the second."""
    found = judge(objects, plan(objects, policy, rounds=2))
    return [breach.sentence for breach in found if breach.promise is promise]


@promised
@given(st.one_of(worlds(), contended_worlds(), close_worlds(), full_close_worlds()))
def test_no_node_is_over_committed(objects: list[Object]) -> None:
    assert broken(objects, Promise.CAPACITY) == []


@promised
@given(ruled_worlds())
def test_a_bind_is_of_a_pending_pod_of_ours_to_a_node_that_may_take_it(objects: list[Object]) -> None:
    assert broken(objects, Promise.BINDS) == []


@promised
@given(st.one_of(worlds(), contended_worlds()))
def test_every_gpu_belongs_to_one_pod(objects: list[Object]) -> None:
    assert broken(objects, Promise.GPUS) == []


@promised
@given(st.one_of(worlds(), contended_worlds(), close_worlds()))
def test_never_part_of_a_gang_below_its_minimum(objects: list[Object]) -> None:
    assert broken(objects, Promise.GANGS) == []


@POLICIES
@promised
@given(objects=st.one_of(contended_worlds(), full_close_worlds()))
def test_no_victim_is_taken_in_vain(policy: str | None, objects: list[Object]) -> None:
    assert broken(objects, Promise.VICTIMS, policy) == []


@POLICIES
@promised
@given(objects=contended_ruled_worlds())
def test_no_victim_is_taken_in_vain_where_pods_have_rules_about_each_other(
    policy: str | None, objects: list[Object]
) -> None:
    assert violations(objects, plan(objects, policy, rounds=3)) == []


@POLICIES
@longest_promised
@given(objects=contended_ruled_worlds())
def test_finite_work_settles_where_pods_have_rules_about_each_other(policy: str | None, objects: list[Object]) -> None:
    """And then it stays settled."""
    pods = len(read_state(read_facts(objects), objects).pods)
    moved = moves(plan(objects, policy, rounds=pods + 2))
    rests = next((index for index, has_moved in enumerate(moved) if index and not has_moved), len(moved))
    assert not any(moved[min(rests, len(moved) - 1) :]), moved


@promised
@given(st.one_of(limited_worlds(), close_worlds()))
def test_no_queue_goes_over_its_limit(objects: list[Object]) -> None:
    assert broken(objects, Promise.LIMITS) == []


@promised
@given(st.one_of(worlds(), contended_worlds(), close_worlds()))
def test_every_waiting_gang_has_a_reason(objects: list[Object]) -> None:
    assert broken(objects, Promise.WAITING) == []


@promised
@given(worlds())
def test_the_output_is_sorted(objects: list[Object]) -> None:
    assert broken(objects, Promise.ORDER) == []


@promised
@given(simple_worlds(), st.integers(1, 2))
def test_a_gang_that_fits_does_not_wait(objects: list[Object], rounds: int) -> None:
    assert missed_opportunities(objects, plan(objects, rounds=rounds)) == []


@promised
@given(contended_worlds())
def test_the_policy_of_kube_batch_keeps_the_promises(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, KUBE_BATCH, rounds=4)) == []


@promised
@given(worlds())
def test_the_policy_of_kube_batch_keeps_the_promises_in_any_cluster(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, KUBE_BATCH, rounds=2)) == []


# The same input gives the same plan.


def printed(planned: Object) -> str:
    return json.dumps({key: value for key, value in planned.items() if key != "timings"})


@promised
@given(st.one_of(worlds(), contended_worlds(), close_worlds()), st.randoms(use_true_random=False))
def test_the_same_objects_in_any_order_give_the_same_plan(objects: list[Object], random: Random) -> None:
    written = json.dumps(objects)
    first = printed(plan(objects, rounds=2))
    assert json.dumps(objects) == written, "planning changed its input"
    assert printed(plan(objects, rounds=2)) == first
    random.shuffle(objects)
    assert printed(plan(objects, rounds=2)) == first


def test_the_same_objects_give_the_same_plan_in_any_process() -> None:
    examples: list[list[Object]] = []

    @settings(promised, max_examples=40, phases=[Phase.generate])
    @given(st.one_of(worlds(), contended_worlds(), close_worlds()))
    def collect(objects: list[Object]) -> None:
        examples.append(objects)

    collect()
    outputs = [
        subprocess.run(
            [sys.executable, str(Path(plan_adapter.__file__))],
            input=json.dumps(examples),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    ]
    plans = [[printed(json.loads(line)) for line in output.splitlines()] for output in outputs]
    assert len(plans[0]) == len(examples)
    assert plans[0] == plans[1] == plans[2]


# A settled cluster stays settled.


def moves(planned: Object) -> list[bool]:
    kinds = ("binds", "evictions", "resizes")
    return [any(rows(done, kind) for kind in kinds) for done in rows(planned, "rounds")]


@POLICIES
@long_promised
@given(objects=st.one_of(worlds(), contended_worlds(), close_worlds(), full_close_worlds()))
def test_a_settled_cluster_stays_settled(policy: str | None, objects: list[Object]) -> None:
    """Pods that end by themselves do so during the first round, so the second may still move pods."""
    moved = moves(plan(objects, policy, rounds=8))
    assert len(moved) == 8
    rests = next((index for index, has_moved in enumerate(moved) if index and not has_moved), len(moved))
    assert not any(moved[rests:]), moved


@POLICIES
@long_promised
@given(objects=st.one_of(worlds(), contended_worlds(), close_worlds(), full_close_worlds()))
def test_finite_work_settles(policy: str | None, objects: list[Object]) -> None:
    pods = len(read_state(read_facts(objects), objects).pods)
    moved = moves(plan(objects, policy, rounds=pods + 2))
    assert not moved[-1], moved


# A gang that does not fit leaves no trace.


def without(objects: list[Object], gang: str) -> list[Object]:
    return [
        item
        for item in objects
        if not (item["kind"] == "Pod" and gang_of(item) == gang)
        and not (item["kind"] in {"PodGroup", "ElasticJob"} and key_of(item) == gang)
    ]


# `fragmentation` learns from waiting pods which pods are typical, so a waiting gang may change where others go.
BUILT_IN = (Path(__file__).parents[2] / "maniple" / "scheduler" / "default_policy.yaml").read_text()
WITHOUT_LEARNING = BUILT_IN[: BUILT_IN.index("  - name: fragmentation")]


@promised
@given(st.one_of(single_queue_worlds(), close_worlds(has_queues=False)))
def test_a_gang_that_does_not_fit_leaves_no_trace(objects: list[Object]) -> None:
    """One queue and one priority: no share depends on the demand of a waiting gang."""
    state = read_state(read_facts(objects), objects)
    present = {state.pods[key].gang for key in state.where}
    (done,) = rows(plan(objects, WITHOUT_LEARNING), "rounds")
    moved = {state.pods[text(entry, "pod")].gang for kind in KINDS for entry in entries(done, kind)}
    losers = [text(entry, "group") for entry in rows(done, "waiting")]
    for gang in [key for key in losers if key not in present | moved][:3]:
        (other,) = rows(plan(without(objects, gang), WITHOUT_LEARNING), "rounds")
        for kind in KINDS:
            assert entries(other, kind) == entries(done, kind), f"without {gang} other {kind} are made"


KINDS = ("binds", "nominations", "evictions", "leaves")


def entries(done: object, kind: str) -> list[object]:
    """`leaves`: the replicas that leave with a resize."""
    if kind != "leaves":
        return rows(done, kind)
    return [leaver for resize in rows(done, "resizes") for leaver in rows(resize, "leaves")]
