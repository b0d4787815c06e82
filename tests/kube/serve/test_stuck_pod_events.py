"""A pod that is stuck on its node has an event that says so, once, and another only if another pod is stuck there."""

import asyncio
import json
import time
from typing import Any

from kube.transport.scripted_server import Request, Says, scripted
from maniple.api.decode.server_objects import Live, read_live
from maniple.api.timestamps import format_timestamp
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.stuck_pod_events import StuckPodEvents
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import NODES, PODS
from maniple.model.pods_we_schedule import Ours


def node(name: str) -> Live:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return read_live(json.dumps({"metadata": meta, "status": status}).encode(), NODES.struct)


def leaving(uid: str, version: int, ended_s_ago: float, scheduler: str = "maniple") -> Live:
    meta = {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    meta["deletionTimestamp"] = format_timestamp(time.time() - ended_s_ago)
    spec = {"schedulerName": scheduler, "nodeName": "n1", "containers": [{"name": "c"}]}
    return read_live(json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}).encode(), PODS.struct)


def events_of(*pods: Live) -> list[dict[str, Any]]:
    """What is written in three cycles after each of these reports."""
    written: list[dict[str, Any]] = []

    def accept(request: Request) -> Says:
        written.append(json.loads(request.body))
        return Says(201, {})

    async def run() -> None:
        async with scripted(accept) as (_, client):
            mirror, events = Mirror(SharedCache(Cache(Ours()))), Events(client, Metrics(), "maniple")
            stuck = StuckPodEvents(mirror, events)
            mirror.put(NODES, node("n1"))
            for pod in pods:
                mirror.put(PODS, pod)
                for _ in range(3):
                    stuck.write(await mirror.cache.snapshot(time.time()))
            await events.flush()

    asyncio.run(run())
    return written


def test_a_stuck_pod_has_one_event_that_names_pod_and_node() -> None:
    (event,) = events_of(leaving("a", 1, ended_s_ago=90))
    assert (event["reason"], event["type"]) == ("Stuck", "Warning")
    assert (event["regarding"]["kind"], event["regarding"]["name"], event["regarding"]["uid"]) == ("Pod", "p", "a")
    assert event["note"].startswith("pod ns/p, stuck on node n1 since ")


def test_a_pod_within_its_grace_and_a_minute_has_none() -> None:
    assert events_of(leaving("a", 1, ended_s_ago=30), leaving("a", 2, ended_s_ago=-30)) == []


def test_the_next_pod_of_that_name_has_its_own_whoever_schedules_it() -> None:
    pods = leaving("a", 1, ended_s_ago=90), leaving("a", 2, ended_s_ago=91), leaving("b", 3, 90, "other")
    assert [event["regarding"]["uid"] for event in events_of(*pods)] == ["a", "b"]
