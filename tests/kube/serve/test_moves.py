"""A gang is told where places are kept for its moved pods before any of them is evicted, and the places are kept."""

import asyncio
import json
import time
from typing import Any

from kube.serve.test_nominations import live, node
from kube.transport.scripted_server import Request, Says, scripted
from maniple.api import types
from maniple.api.decode.server_objects import Live
from maniple.api.labels import INCOMPLETE_SINCE_ANNOTATION, MOVED_ANNOTATION, POD_GROUP_LABEL
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import NODES, PODS, RESOURCES
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import Plan, load_policy, schedule

POD_GROUPS = next(resource for resource in RESOURCES if resource.struct is types.PodGroup)
POLICY = b"""
actions: "allocate, consolidate, backfill"
tiers: [{plugins: [{name: gang}, {name: predicates}, {name: consolidation}]}]
"""
EVICTION = ("POST", "/api/v1/namespaces/ns/pods/x-0/eviction")
GROUP = "/apis/maniple.dev/v1alpha1/namespaces/ns/podgroups/x"


def group(version: int = 1, **metadata: Any) -> Live:
    return live(
        POD_GROUPS, "x", version, metadata={"namespace": "ns", **metadata}, spec={"minMember": 1, "movable": True}
    )


def pod(name: str, cpu: str, node: str = "", gang: str = "", **metadata: Any) -> Live:
    resources = {"requests": {"cpu": cpu}}
    spec: dict[str, Any] = {"schedulerName": "maniple", "containers": [{"name": "c", "resources": resources}]}
    spec |= {"nodeName": node} if node else {}
    labels = {POD_GROUP_LABEL: gang} if gang else {}
    status = {"phase": "Running" if node else "Pending"}
    return live(PODS, name, 1, metadata={"namespace": "ns", "labels": labels, **metadata}, spec=spec, status=status)


class Story:
    """Two nodes of 4 CPUs, each half full: `x` may move, `y` may not, and `large` needs a whole node."""

    def __init__(self, applier: Applier, mirror: Mirror) -> None:
        self.applier, self.mirror = applier, mirror
        for name in ("n1", "n2"):
            mirror.put(NODES, node(name))
        mirror.put(POD_GROUPS, group())
        for item in (pod("x-0", "2", "n1", "x"), pod("y", "2", "n2"), pod("large", "4")):
            mirror.put(PODS, item)

    async def cycle(self) -> Plan:
        snapshot = await self.mirror.cache.snapshot(time.time())
        plan = schedule(snapshot, load_policy(POLICY, "policy"))
        self.applier.apply(snapshot, plan)
        await self.applier.writes.settle()
        return plan


async def story(says: Any, tell: Any) -> None:
    async with scripted(says) as (server, client):
        mirror = Mirror(SharedCache(Cache(Ours())))
        metrics = Metrics()
        applier = Applier(client, mirror, Gangs(mirror, Ours()), metrics, Events(client, metrics, "maniple"), 60.0)
        await tell(server, Story(applier, mirror))


def accept(request: Request) -> Says:
    if request.method != "PATCH" or request.path != GROUP:
        return Says(201 if request.method == "POST" else 404, {})
    body = json.loads(request.body)["metadata"]["annotations"]
    written = {"name": "x", "namespace": "ns", "uid": "x", "resourceVersion": "2", "annotations": body}
    spec = {"minMember": 1, "movable": True}
    return Says(200, {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": written, "spec": spec})


def sent(server: Any) -> list[tuple[str, str]]:
    return [(request.method, request.path) for _, request in server.requests]


def test_nobody_is_evicted_before_its_place_is_written() -> None:
    async def tell(server: Any, cluster: Story) -> None:
        plan = await cluster.cycle()
        assert [(move.pod, move.from_node, move.to_node) for move in plan.moves] == [("ns/x-0", "n1", "n2")]
        found = sent(server)
        assert found.index(("PATCH", GROUP)) < found.index(EVICTION)

    asyncio.run(story(accept, tell))


def test_nobody_is_evicted_if_its_place_cannot_be_written() -> None:
    def refuse(request: Request) -> Says:
        return Says(403, {}) if request.path == GROUP else accept(request)

    async def tell(server: Any, cluster: Story) -> None:
        await cluster.cycle()
        assert ("PATCH", GROUP) in sent(server)
        assert EVICTION not in sent(server)

    asyncio.run(story(refuse, tell))


def test_the_place_is_kept_until_a_pod_comes_in_the_place_of_the_moved_one() -> None:
    """It has another name, and comes when the old one is gone. Meanwhile others wait for the place in vain."""

    async def tell(server: Any, cluster: Story) -> None:
        del server
        await cluster.cycle()
        cluster.mirror.remove(PODS, ("ns", "x-0"), 2)
        cluster.mirror.put(PODS, pod("late", "2"))
        plan = await cluster.cycle()
        assert [(bind.pod, bind.node) for bind in plan.binds] == [("ns/large", "n1")]
        cluster.mirror.put(PODS, pod("x-new", "2", gang="x"))
        plan = await cluster.cycle()
        assert [(bind.pod, bind.node) for bind in plan.binds] == [("ns/x-new", "n2")]

    asyncio.run(story(accept, tell))


def test_another_annotation_of_the_gang_waits_until_its_places_are_written() -> None:
    """The gang is whole again, so a mark that it was not is to go. The places are not to be forgotten over that."""
    since = {INCOMPLETE_SINCE_ANNOTATION: "2026-01-01T00:00:00Z"}

    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(POD_GROUPS, group(2, annotations=since))
        snapshot = await cluster.mirror.cache.snapshot(time.time())
        cluster.applier.apply(snapshot, schedule(snapshot, load_policy(POLICY, "policy")))
        meanwhile = await cluster.mirror.cache.snapshot(time.time())
        assert [job.name for job in meanwhile.moved] == ["ns/x"]
        await cluster.applier.writes.settle()
        written = [json.loads(request.body) for _, request in server.requests if request.path == GROUP]
        assert [[*body["metadata"]["annotations"]] for body in written] == [[MOVED_ANNOTATION]]

    asyncio.run(story(accept, tell))
