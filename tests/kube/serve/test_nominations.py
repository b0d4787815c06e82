"""What a pod without a node is told is not written to a pod that has one, or is about to get one."""

import asyncio
import json
import time
from typing import Any

from kube.transport.scripted_server import Request, Says, scripted
from maniple.api.decode.server_objects import Live, read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.object_patches import Patches
from maniple.kube.transport.client import Client
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import NODES, PODS, Resource
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import schedule
from maniple.scheduler.framework.plan import Bind


def live(resource: Resource, name: str, version: int, **rest: Any) -> Live:
    meta = {"name": name, "uid": name, "resourceVersion": str(version), **rest.pop("metadata", {})}
    return read_live(json.dumps({"metadata": meta, **rest}).encode(), resource.struct)


def pod(name: str, version: int = 1, nominated: str = "", node: str = "") -> Live:
    spec = {"schedulerName": "maniple", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    spec |= {"nodeName": node} if node else {}
    status = {"nominatedNodeName": nominated} if nominated else {}
    return live(PODS, name, version, metadata={"namespace": "ns"}, spec=spec, status=status)


def node(name: str) -> Live:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = [{"type": "Ready", "status": "True"}]
    return live(NODES, name, 1, status={"allocatable": amounts, "capacity": amounts, "conditions": ready})


def accept(request: Request) -> Says:
    return Says(201 if request.method == "POST" else 404, {})


def test_the_nomination_of_a_pod_that_is_being_bound_is_not_cleared() -> None:
    """The watch has not reported the bind when the next cycle runs."""

    async def run() -> None:
        async with scripted(accept) as (server, client):
            mirror = Mirror(SharedCache(Cache(Ours())))
            gangs = Gangs(mirror, Ours())
            metrics = Metrics()
            applier = Applier(client, mirror, gangs, metrics, Events(client, metrics, "maniple"), 60.0)
            mirror.put(NODES, node("n1"))
            mirror.put(PODS, pod("a", nominated="n1"))
            for _ in range(3):
                snapshot = await mirror.cache.snapshot(time.time())
                applier.apply(snapshot, schedule(snapshot, None))
                await applier.writes.settle()
            sent = [(request.method, request.path) for _, request in server.requests]
            assert sent == [("POST", "/api/v1/namespaces/ns/pods/a/binding")]

    asyncio.run(run())


def test_what_waits_for_its_turn_is_dropped_if_the_pod_is_bound_meanwhile() -> None:
    async def patch(client: Client, mirror: Mirror) -> bool:
        for _ in range(8):
            await client.statuses.acquire()
        body = {"status": {"nominatedNodeName": "n1"}}
        writing = asyncio.create_task(Patches(client, mirror, Metrics()).write(PODS, ("ns", "a"), body, "status"))
        await asyncio.sleep(0)
        mirror.cache.assume_bind("ns/a", Bind("ns/a", "n1"))
        client.statuses.release()
        return await writing

    async def run() -> None:
        async with scripted(accept) as (server, client):
            mirror = Mirror(SharedCache(Cache(Ours())))
            mirror.put(PODS, pod("a"))
            assert not await patch(client, mirror)
            assert server.requests == []

    asyncio.run(run())


def test_a_pod_waits_until_its_bind_is_decided() -> None:
    mirror = Mirror(SharedCache(Cache(Ours())))
    assert not mirror.waits(("ns", "a"))
    mirror.put(PODS, pod("a"))
    assert mirror.waits(("ns", "a"))
    mirror.cache.assume_bind("ns/a", Bind("ns/a", "n1"))
    assert not mirror.waits(("ns", "a"))
    mirror.cache.forget("ns/a")
    assert mirror.waits(("ns", "a"))
    mirror.put(PODS, pod("a", 2, node="n1"))
    assert not mirror.waits(("ns", "a"))
