"""The status of a gang has the queue that it is in. What the server drops or refuses is not written in every cycle."""

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from kube.transport.scripted_server import FORBIDDEN, Request, Says, scripted
from maniple.api import types
from maniple.api.decode.server_objects import Live, read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.object_patches import Patches
from maniple.kube.serve.status_writer import Statuses
from maniple.kube.transport.client import Client
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import RESOURCES
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import schedule

GROUPS, NAMESPACES = (next(one for one in RESOURCES if one.kind == kind) for kind in ("PodGroup", "Namespace"))


def group(version: int, status: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "g", "namespace": "ns", "uid": "g", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"minMember": 1}, "status": status}


def namespace(version: int, queue: str) -> Live:
    meta = {"name": "ns", "uid": "ns", "resourceVersion": str(version), "labels": {"maniple.dev/queue": queue}}
    return read_live(json.dumps({"metadata": meta}).encode(), NAMESPACES.struct)


async def cycle(mirror: Mirror, statuses: Statuses) -> None:
    snapshot = await mirror.cache.snapshot(time.time())
    plan = schedule(snapshot, None)
    statuses.reasons.renew(plan.explanations)
    statuses.write(snapshot, plan.queues, {})
    await statuses.writes.settle()


def made(client: Client) -> tuple[Mirror, Statuses]:
    mirror, metrics = Mirror(SharedCache(Cache(Ours()))), Metrics()
    statuses = Statuses(
        Patches(client, mirror, metrics), mirror, Gangs(mirror, Ours()), Events(client, metrics, "maniple")
    )
    mirror.put(GROUPS, read_live(json.dumps(group(1, {})).encode(), GROUPS.struct))
    return mirror, statuses


def test_a_gang_follows_the_queue_of_its_namespace() -> None:
    queues: list[str] = []

    def answer(request: Request) -> Says:
        status = json.loads(request.body)["status"]
        queues.append(status["queue"])
        return Says(200, group(10 + len(queues), status))

    async def run() -> None:
        async with scripted(answer) as (_, client):
            mirror, statuses = made(client)
            for version, queue in ((2, ""), (3, "research"), (4, "research"), (5, "sales")):
                if queue:
                    mirror.put(NAMESPACES, namespace(version, queue))
                await cycle(mirror, statuses)
            assert queues == ["default", "research", "sales"]

    asyncio.run(run())


def test_a_crd_without_the_field_is_named_once_and_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """The server drops what its CRD does not know, and answers as if it had been written."""

    def answer(request: Request) -> Says:
        status = json.loads(request.body)["status"]
        status.pop("queue", None)
        return Says(200, group(11, status))

    async def run() -> None:
        async with scripted(answer) as (server, client):
            mirror, statuses = made(client)
            for queue in ("research", "sales", "research"):
                mirror.put(NAMESPACES, namespace(2 + len(server.requests), queue))
                await cycle(mirror, statuses)
            seen = mirror.find(types.PodGroup, ("ns", "g"))
            assert seen is not None
            assert isinstance(seen.item, types.PodGroup)
            assert seen.item.status.phase == "Pending"
            assert len(server.requests) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["the CRD has no status.queue: renew it"]


def test_a_refused_status_is_not_sent_again_in_every_cycle(caplog: pytest.LogCaptureFixture) -> None:
    """Without the right to patch the status every gang would be refused once a cycle, for ever."""

    async def run() -> None:
        async with scripted(lambda _: FORBIDDEN) as (server, client):
            mirror, statuses = made(client)
            for _ in range(3):
                await cycle(mirror, statuses)
            assert len(server.requests) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["patch refused"]
