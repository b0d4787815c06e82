"""gpu.speeds: queues and jobs share GPUs by their speed; counted exactly, and only where the policy says so."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
import yaml
from cluster.planning import plan_objects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties.random_clusters import contended_worlds
from properties.topology_clusters import close_worlds, full_close_worlds

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import load_policy
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import Accounting, SpeedAccounting, speed_of
from scheduler.small_clusters import Object, group, member, node, plan, pod, queue

H100, T4 = "NVIDIA-H100-80GB-HBM3", "Tesla-T4"
GPU = "nvidia.com/gpu"
UNLIKE = "H100=3, A100-SXM4=1.7, A100=1.5, P100=0.25, *=0.3"
NOTE = " (GPUs count by their speed)"

examples = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(examples, max_examples=40)


def policy(speeds: str | None, actions: str = "reclaim, allocate, backfill, preempt", drf: str | None = None) -> str:
    """kube-batch's, with speeds for proportion, and for drf the same or others."""
    given_: Object = {} if speeds is None else {"gpu.speeds": speeds}
    tiers = [
        {"plugins": [{"name": name} for name in ("priority", "gang", "conformance")]},
        {
            "plugins": [
                {"name": "drf", "arguments": given_ if drf is None else {"gpu.speeds": drf}},
                {"name": "predicates"},
                {"name": "proportion", "arguments": given_},
                {"name": "nodeorder"},
            ]
        },
    ]
    return yaml.safe_dump({"actions": actions, "tiers": tiers})


def gpu_node(name: str, product: str, count: int = 4, **more: Any) -> Object:
    allocatable = {"cpu": "64", "memory": "64Gi", GPU: str(count)}
    return node(name, labels={"nvidia.com/gpu.product": product}, allocatable=allocatable, **more)


def gpu_pod(name: str, count: int = 1, of: str = "", devices: str = "", **spec: Any) -> Object:
    pod_object = pod(name, "1", labels=member(of) if of else {}, **spec)
    pod_object["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(count)}
    pod_object["metadata"]["annotations"] = {"maniple.dev/gpus": devices} if devices else {}
    return pod_object


CLUSTER = [gpu_node("h", H100), gpu_node("t", T4), queue("a"), queue("b")]


def shares(objects: list[Object], text: str) -> dict[str, tuple[str, str, float]]:
    """Queue -> GPUs deserved and allocated, and its share."""
    rows: Any = plan_objects(objects, policy=text)["queues"]
    return {row["name"]: (row["deserved"].get(GPU, "0"), row["allocated"].get(GPU, "0"), row["share"]) for row in rows}


def snapshot_of(objects: list[Object]) -> Snapshot:
    files = [("objects.yaml", yaml.safe_dump_all(objects).encode())]
    return MemoryCluster(sort_objects(decode(files), scheduler_name="maniple")).snapshot()


def opened(objects: list[Object], text: str) -> Session:
    return load_policy(text.encode(), "p.yaml").session(snapshot_of(objects))


def only_accounting(session: Session) -> SpeedAccounting:
    (accounting,) = session.by_speed.values()
    return accounting


# What is shared.


@pytest.mark.parametrize(
    ("changed", "total"),
    [
        ([], 16),
        # A node that takes no pods: what is held there counts, what is free does not.
        ([gpu_node("h", H100, spec={"unschedulable": True}), gpu_pod("p", 2, nodeName="h")], 10),
        # Pods of other schedulers are nobody's share.
        ([gpu_pod("p", 3, nodeName="h", schedulerName="other")], 7),
        ([gpu_pod("p", 3, nodeName="t", schedulerName="other")], 13),
        # Who is leaving leaves it to the others.
        ([gpu_pod("p", 3, nodeName="h") | {"leaves": True}], 16),
        # A pod whose node is gone holds something, but nothing that there is.
        ([gpu_pod("p", 3, nodeName="gone")], 16),
    ],
)
def test_what_is_shared_is_the_speed_of_the_gpus_that_can_be_had(changed: list[Object], total: float) -> None:
    objects = {item["metadata"]["name"]: item for item in CLUSTER}
    for item in changed:
        if item.pop("leaves", False):
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        objects[item["metadata"]["name"]] = item
    session = opened([*objects.values(), gpu_pod("waits")], policy("H100=3"))
    row = session.snapshot.axis.index[GPU]
    assert only_accounting(session).total[row] == total * 1000


@pytest.mark.parametrize(
    ("devices", "owner", "total"), [("0", "other", 5), ("2", "other", 7), ("0", "maniple", 8), ("2", "maniple", 8)]
)
def test_of_a_node_with_unlike_gpus_each_counts_for_itself(devices: str, owner: str, total: float) -> None:
    mixed = gpu_node("m", "")
    listed = [{"id": str(index), "model": H100 if index < 2 else T4} for index in range(4)]
    mixed["metadata"]["annotations"] = {"maniple.dev/gpu-topology": json.dumps({"version": 1, "devices": listed})}
    session = opened([mixed, gpu_pod("p", devices=devices, nodeName="m", schedulerName=owner)], policy("H100=3"))
    row = session.snapshot.axis.index[GPU]
    assert only_accounting(session).total[row] == total * 1000
    held = only_accounting(session).queue_held[:, row].sum()
    assert held == (0 if owner == "other" else 3000 if devices == "0" else 1000)


def test_dues_add_up_and_who_holds_two_fast_gpus_has_had_more() -> None:
    objects = [
        *CLUSTER,
        group("ga", 2, queue="a"),
        *(gpu_pod(f"a{index}", of="ga", nodeName="h") for index in range(2)),
        group("gb", 4, queue="b"),
        *(gpu_pod(f"b{index}", of="gb", nodeName="t") for index in range(4)),
        group("wa", 8, queue="a"),
        *(gpu_pod(f"wa{index}", of="wa") for index in range(8)),
        group("wb", 8, queue="b"),
        *(gpu_pod(f"wb{index}", of="wb") for index in range(8)),
    ]
    assert shares(objects, policy("H100=3, T4=1")) == {
        "a": ("8", "2", 0.75),
        "b": ("8", "4", 0.5),
        "default": ("0", "0", 0.0),
    }
    assert shares(objects, policy(None))["a"] == ("4", "2", 0.5)


def test_drf_and_proportion_may_have_speeds_of_their_own() -> None:
    session = opened([*CLUSTER, gpu_pod("p", 2, nodeName="h")], policy("H100=3", drf="H100=5"))
    row = session.snapshot.axis.index[GPU]
    assert sorted(accounting.total[row] for accounting in session.by_speed.values()) == [16000, 24000]
    assert len(opened(CLUSTER, policy("H100=3", drf="H100=3")).by_speed) == 1


# Counted exactly, whatever has been tried and undone.


@examples
@given(st.one_of(close_worlds(), full_close_worlds()))
def test_after_a_cycle_every_holder_is_charged_what_its_gpus_are(objects: list[Object]) -> None:
    chosen = load_policy(policy(UNLIKE).encode(), "p.yaml")
    session = chosen.session(snapshot_of(objects))
    for _, action in chosen.actions:
        action.execute(session)
    accounting, snapshot = only_accounting(session), session.snapshot
    (speeds,) = session.by_speed
    jobs: dict[tuple[tuple[str, str], int], Fraction] = {}
    evicted = {done.pod.pod for done in session.evicted}
    hands = [(job, held.node, held.gpus) for job in snapshot.jobs for held in job.placed if held.pod not in evicted] + [
        (done.job, index, hand) for done in session.placed for index, hand in done.slots()
    ]
    for job, index, hand in hands:
        for granted in hand:
            table = snapshot.gpus.tables[granted.row]
            if not table.there[index, granted.device]:
                return  # how fast a GPU was that is lost nobody knows
            speed = speed_of(speeds, snapshot.gpus.models[table.model[index, granted.device]])
            key = (job.key, granted.row)
            jobs[key] = jobs.get(key, Fraction(0)) + Fraction(granted.milli * speed, 1000)
    queues: dict[tuple[int, int], Fraction] = {}
    for job in snapshot.jobs:
        held = accounting.job_held(job)
        for row in snapshot.gpus.tables:
            mine = jobs.get((job.key, row), Fraction(0))
            assert (0.0 if held is None else held[row]) == float(mine), job.key
            for index in session.queue_paths[job.queue]:
                queues[index, row] = queues.get((index, row), Fraction(0)) + mine
    for (index, row), amount in queues.items():
        assert accounting.queue_held[index, row] == float(amount), snapshot.queues[index].name


# Where GPUs are alike, and where nothing is said, nothing changes.


def test_without_the_argument_the_sessions_own_arrays_are_read() -> None:
    session = opened([*CLUSTER, gpu_pod("p", 2, nodeName="h")], policy(None))
    assert not session.by_speed
    accounting = session.accounting(())
    assert type(accounting) is Accounting
    assert accounting.total is session.snapshot.total
    assert accounting.queue_held is session.queue_allocated
    assert accounting.queues is session.snapshot.queues
    amount = session.snapshot.total
    assert accounting.asked(amount) is amount


@examples
@given(st.one_of(close_worlds(), full_close_worlds(), contended_worlds()))
def test_speeds_of_one_are_as_none_to_the_last_byte(objects: list[Object]) -> None:
    plans = [plan_objects(objects, policy=policy(speeds), rounds=2) for speeds in (None, "H100=1, *=1")]
    for planned in plans:
        planned.pop("timings")
    assert json.dumps(plans[1]).replace(NOTE, "") == json.dumps(plans[0])


@few
@given(st.one_of(close_worlds(), full_close_worlds()))
def test_one_speed_for_all_moves_nothing(objects: list[Object]) -> None:
    plain, doubled = (plan(objects, policy(speeds)) for speeds in (None, "*=2"))
    for kind in ("binds", "evictions", "nominations"):
        assert plain[kind] == doubled[kind]


# What holds for every policy.


@few
@given(st.one_of(close_worlds(), full_close_worlds()))
def test_finite_work_settles_and_stays_settled(objects: list[Object]) -> None:
    pods = sum(item["kind"] == "Pod" for item in objects)
    planned: Any = plan_objects(objects, policy=policy(UNLIKE), rounds=pods + 4)
    moved = [any(done[kind] for kind in ("binds", "evictions")) for done in planned["rounds"]]
    rests = next((index for index, moves in enumerate(moved) if index and not moves), None)
    assert rests is not None, moved
    assert not any(moved[rests:]), moved


# The argument.


@pytest.mark.parametrize("name", ["proportion", "drf"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H100=fast", "H100: expected a relative speed above 0, such as H100=1.5, found 'fast'"),
        ("H100=0", "H100: expected a relative speed above 0, such as H100=1.5, found '0'"),
        ("A100=2000", "A100: expected a speed between 0.001 and 1000 in steps of 0.001, found 2000"),
        ("A100=0.0005", "A100: expected a speed between 0.001 and 1000 in steps of 0.001, found 0.0005"),
        ("T4=1.0001", "T4: expected a speed between 0.001 and 1000 in steps of 0.001, found 1.0001"),
        ("H100=3, h100=2", "expected each model once, found 'h100' a second time"),
        *(
            (
                text,
                "expected models with commas between them, each with its relative speed or without, "
                f"such as H100=3, A100, found {text!r}",
            )
            for text in ("", "H100=3,", "=3")
        ),
    ],
)
def test_what_is_wrong_with_the_speeds_is_said(name: str, text: str, message: str) -> None:
    assert errors(name, {"gpu.speeds": text}) == [
        f"p.yaml: tiers[0].plugins[0]: plugin {name}: argument gpu.speeds: {message}"
    ]


@pytest.mark.parametrize("name", ["proportion", "drf"])
def test_a_name_that_is_nearly_right_is_recognised(name: str) -> None:
    assert errors(name, {"gpu.speed": "H100=3"}) == [
        f"p.yaml: tiers[0].plugins[0]: plugin {name}: unknown argument 'gpu.speed'; did you mean 'gpu.speeds'?"
    ]


def errors(name: str, arguments: Object) -> list[str]:
    text = yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": [{"name": name, "arguments": arguments}]}]})
    with pytest.raises(InputError) as error:
        load_policy(text.encode(), "p.yaml")
    return error.value.messages
