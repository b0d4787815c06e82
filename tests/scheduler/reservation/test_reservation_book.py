"""Reserved room as sums: what others may use of it, whom it binds, and that trying something changes none of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.building.input_objects import sort_objects
from maniple.model.job import Job
from maniple.scheduler import default_policy
from maniple.scheduler.actions.allocate import Allocate
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.placement_search import place_gang
from scheduler.small_clusters import Object, group, member, node, queue

GPU = "nvidia.com/gpu"
NOW = 1767225600.0  # 2026-01-01
OLD, NEW = "2025-12-31T00:00:00Z", "2025-12-31T23:59:59Z"


def gpu_pod(name: str, gpus: int, *, of: str = "", created: str = NEW, share: str = "", **spec: Any) -> Object:
    metadata: Object = {"name": name, "creationTimestamp": created, "labels": member(of) if of else {}}
    if share:
        metadata["annotations"] = {"maniple.dev/gpu-fraction": share}
    containers = [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}]
    status = {"phase": "Running", "startTime": OLD} if "nodeName" in spec else {"phase": "Pending"}
    spec = {"schedulerName": "maniple", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def gpu_node(name: str, gpus: int) -> Object:
    return node(name, allocatable={"cpu": "64", "memory": "64Gi", "pods": "110", GPU: str(gpus)})


def firm(name: str) -> Object:
    gang = group(name, 1, preemptable=False)
    gang["metadata"]["creationTimestamp"] = NEW
    return gang


def open_session(objects: list[Object], *, run: tuple[str, ...] = ("allocate",)) -> Session:
    """A session of the built-in policy in which these actions have run."""
    # No gang with `preemptable: false` waits for a guarantee.
    guaranteed = queue("default", guaranteed={"nvidia.com/gpu": 100})
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [guaranteed, *objects]}).encode()
    cluster = MemoryCluster(sort_objects(decode([("objects", items)]), scheduler_name="maniple"), now=NOW)
    policy = default_policy()
    session = policy.session(cluster.snapshot())
    for name, action in policy.actions:
        if name in run:
            action.execute(session)
    return session


def job_of(session: Session, name: str) -> Job:
    return next(job for job in session.snapshot.jobs if job.name == f"default/{name}")


# 6 GPUs, 3 in use for another 600 s; `large` will need 4 of them, and leaves 2.
RESERVED = [
    gpu_node("n1", 6),
    gpu_pod("busy", 3, nodeName="n1", activeDeadlineSeconds=86400 + 600),
    gpu_pod("large", 4, created=OLD),
]


def room(session: Session, name: str, *, later: bool = False) -> int:
    (task_group,) = job_of(session, name).groups
    return int(session.room_for(task_group, later=later).sum())


def test_others_have_what_the_gang_leaves() -> None:
    session = open_session([*RESERVED, firm("s"), *(gpu_pod(f"s-{index}", 1, of="s") for index in range(3))], run=())
    assert room(session, "s") == 3
    session = open_session([*RESERVED, firm("s"), gpu_pod("s-0", 3, of="s")])
    assert list(session.reservations) == [("default/large", "Pod")]
    assert room(session, "s") == 0
    assert room(session, "s", later=True) == 0
    with session.reserved.lifted(session.reservations.values()):
        assert room(session, "s") == 1


def test_a_pod_that_asks_by_memory_fits_zero_times_where_guests_use_more_than_the_gang_leaves() -> None:
    share = gpu_pod("s-0", 1, of="s")
    share["metadata"]["annotations"] = {"maniple.dev/gpu-memory": "8Gi"}
    large = gpu_node("n1", 6)
    large["metadata"]["labels"] = {"nvidia.com/gpu.memory": "16384"}
    session = open_session([large, *RESERVED[1:], firm("s"), share])
    assert session.reserved.spare is not None
    assert room(session, "s") > 0
    session.reserved.spare[:, 0] = -1000.0  # guests that make way later use more
    assert room(session, "s") == 0


def test_an_attempt_that_is_rolled_back_leaves_the_sums_as_they_were() -> None:
    session = open_session([*RESERVED, firm("s"), gpu_pod("s-0", 3, of="s")])
    (reservation,) = session.reservations.values()
    spare, devices = session.reserved.spare, session.gpus.spare
    assert spare is not None
    before = spare.copy(), {row: array.copy() for row, array in devices.items()}
    with session.reserved.lifted([reservation]), Statement(session) as statement:
        assert place_gang(session, statement, job_of(session, "s"), later=False)
        assert (spare[:, 0] < before[0][:, 0]).any()
    busy = job_of(session, "busy")
    with Statement(session) as statement:
        statement.evict(busy, busy.placed[0], "Preempted", "default/s")
    assert np.array_equal(spare, before[0])
    assert all(np.array_equal(devices[row], array) for row, array in before[1].items())


def test_room_of_those_whom_the_gang_waits_for_is_not_given_away_when_they_leave() -> None:
    """`busy` is counted on, `long` is not: evicting the one brings others nothing, evicting the other does."""
    objects = [*RESERVED, gpu_pod("long", 1, nodeName="n1", activeDeadlineSeconds=10 * 86400)]
    objects += [firm("s"), gpu_pod("s-0", 1, of="s"), gpu_pod("s-1", 1, of="s")]
    session = open_session(objects)
    (reservation,) = session.reservations.values()
    assert reservation.leaving == {"default/busy"}
    before = room(session, "s", later=True)
    for name, more in (("busy", 0), ("long", 1)):
        job = job_of(session, name)
        with Statement(session) as statement:
            statement.evict(job, job.placed[0], "Preempted", "default/s")
            assert room(session, "s", later=True) == before + more


def test_the_owner_is_not_bound() -> None:
    session = open_session(RESERVED)
    owner = job_of(session, "large")
    busy = job_of(session, "busy")
    with Statement(session) as statement:
        statement.evict(busy, busy.placed[0], "Displaced", owner.name)
        with Statement(session) as gang:
            assert place_gang(session, gang, owner, later=True)


def test_a_reservation_ends_when_its_gang_has_room() -> None:
    session = open_session(RESERVED)
    owner, busy = job_of(session, "large"), job_of(session, "busy")
    with Statement(session) as statement:
        statement.evict(busy, busy.placed[0], "Preempted", owner.name)
        assert place_gang(session, statement, owner, later=True)
        statement.commit()
    assert not session.reservations
    assert session.reserved.mask is None
    assert session.reserved.spare is not None
    assert np.isinf(session.reserved.spare).all()


def test_the_gang_is_taken_to_have_gpus_that_are_in_use_now() -> None:
    """So that others may use those that are free, as far as it leaves any; where GPUs are shared it matters which."""
    tenth = gpu_pod("tenth", 1, share="0.1", nodeName="n1", activeDeadlineSeconds=10 * 86400)
    tenth["metadata"]["annotations"]["maniple.dev/gpus"] = "5"
    busy = gpu_pod("busy", 3, nodeName="n1", activeDeadlineSeconds=86400 + 600)
    busy["metadata"]["annotations"] = {"maniple.dev/gpus": "0,1,2"}
    objects = [gpu_node("n1", 6), tenth, busy, gpu_pod("large", 3, created=OLD), firm("s"), gpu_pod("s-0", 2, of="s")]
    session = open_session(objects)
    (reservation,) = session.reservations.values()
    (devices,) = reservation.devices.values()
    assert devices.tolist() == [[0, 0, 0, 1000, 1000, 900]]
    (placed,) = session.placed
    assert [granted.device for granted in placed.grants[0]] == [3, 4]


def test_patience_is_that_of_the_policy_and_nothing_is_reserved_without_it() -> None:
    session = open_session(RESERVED)
    assert session.patience_s == 300.0
    bare = Session(session.snapshot, [], [("allocate", Allocate())])
    assert bare.patience_s is None
