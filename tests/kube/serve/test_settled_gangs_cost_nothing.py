"""Applying a plan that changes nothing is no work for gangs that are whole, however many there are."""

import asyncio
import time

from scheduler.counted_work import work_of

from kube.serve.test_nominations import live, node
from kube.transport.scripted_server import Request, Says, scripted
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import NODES, PODS, RESOURCES
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import Plan, schedule

GROUPS = next(one for one in RESOURCES if one.kind == "PodGroup")


def refuse(request: Request) -> Says:
    raise AssertionError(f"nothing is to be written, yet {request.method} {request.path}")


def apply(gangs: int) -> int:
    """The work of applying the plan of a cycle in which nothing happens."""

    async def run() -> int:
        async with scripted(refuse) as (_, client):
            mirror, metrics = Mirror(SharedCache(Cache(Ours()))), Metrics()
            applier = Applier(client, mirror, Gangs(mirror, Ours()), metrics, Events(client, metrics, "maniple"), 60.0)
            mirror.put(NODES, node("n1"))
            for number in range(gangs):
                name = f"g{number}"
                mirror.put(GROUPS, live(GROUPS, name, 1, metadata={"namespace": "ns"}, spec={"minMember": 1}))
                meta = {"namespace": "ns", "labels": {"maniple.dev/pod-group": name}}
                spec = {"schedulerName": "maniple", "nodeName": "n1", "containers": [{"name": "c"}]}
                mirror.put(PODS, live(PODS, f"{name}-0", 1, metadata=meta, spec=spec, status={"phase": "Running"}))
            snapshot = await mirror.cache.snapshot(time.time())
            assert len(snapshot.jobs) == gangs
            plan = schedule(snapshot)
            applier.apply(snapshot, plan)
            return work_of(lambda: applier.apply(snapshot, plan))

    return asyncio.run(run())


def test_twice_as_many_whole_gangs_are_no_more_work_for_the_applier() -> None:
    assert apply(20) == apply(10)


def bind_one(waiting: int) -> int:
    """The work of binding one pod while other gangs wait that fit nowhere."""

    async def run() -> int:
        async with scripted(lambda _: Says(201, {"kind": "Status"})) as (_, client):
            mirror, metrics = Mirror(SharedCache(Cache(Ours()))), Metrics()
            applier = Applier(client, mirror, Gangs(mirror, Ours()), metrics, Events(client, metrics, "maniple"), 60.0)
            mirror.put(NODES, node("n1"))
            for number in range(waiting + 1):
                gpus = str(64 if number else 0)
                container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
                spec = {"schedulerName": "maniple", "containers": [container]}
                mirror.put(PODS, live(PODS, f"p{number}", 1, metadata={"namespace": "ns"}, spec=spec))
            snapshot = await mirror.cache.snapshot(time.time())
            assert len(snapshot.waiting) == waiting + 1
            plan = schedule(snapshot)
            assert [bind.pod for bind in plan.binds] == ["ns/p0"]
            applier.apply(snapshot, Plan())  # the first of a run learns what is annotated
            work = work_of(lambda: applier.apply(snapshot, plan))
            await applier.writes.settle()
            return work

    return asyncio.run(run())


def test_a_bind_is_no_more_work_while_twice_as_many_gangs_wait() -> None:
    assert bind_one(20) == bind_one(10)
