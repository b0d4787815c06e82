"""A gang is told where places are kept for its moved pods before any of them is evicted, and the places are kept."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kube.serve.test_nominations import live, node
from kube.transport.scripted_server import Request, Says, scripted
from maniple.api import types
from maniple.api.decode.server_objects import Live
from maniple.api.labels import INCOMPLETE_SINCE_ANNOTATION, MOVED_ANNOTATION, POD_GROUP_LABEL
from maniple.api.moves import KEPT_S, Place, format_move
from maniple.api.timestamps import format_timestamp
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
from maniple.scheduler.framework.plan import Eviction

POD_GROUPS = next(resource for resource in RESOURCES if resource.struct is types.PodGroup)
POLICY = b"""
actions: "allocate, consolidate, backfill"
tiers: [{plugins: [{name: gang, arguments: {evict.whole: "true"}}, {name: predicates}, {name: consolidation}]}]
"""
PODS_PATH = "/api/v1/namespaces/ns/pods"
TRIAL, EVICTION = f"{PODS_PATH}/x-0/eviction?dryRun=All", f"{PODS_PATH}/x-0/eviction"
GROUP = "/apis/maniple.dev/v1alpha1/namespaces/ns/podgroups/x"


def group(version: int = 1, name: str = "x", minimum: int = 1, **metadata: Any) -> Live:
    metadata = {"namespace": "ns", **metadata}
    return live(POD_GROUPS, name, version, metadata=metadata, spec={"minMember": minimum, "movable": True})


def moved(seconds_ago: float, pods: int = 1) -> dict[str, str]:
    """That so many pods with two CPUs in all are moved to n2."""
    place = Place("n2", pods, {"cpu": str(2 // pods), "pods": "1"})
    return {MOVED_ANNOTATION: format_move(time.time() - seconds_ago, pods, [place])}


def pod(name: str, cpu: str, node: str = "", gang: str = "", started_s_ago: float = 600, **metadata: Any) -> Live:
    resources = {"requests": {"cpu": cpu}}
    spec: dict[str, Any] = {"schedulerName": "maniple", "containers": [{"name": "c", "resources": resources}]}
    spec |= {"nodeName": node} if node else {}
    labels = {POD_GROUP_LABEL: gang} if gang else {}
    status = {"phase": "Running", "startTime": format_timestamp(time.time() - started_s_ago)} if node else {}
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

    def add_pair(self) -> None:
        """Instead of one pod of two CPUs two of one, which move together."""
        self.mirror.put(POD_GROUPS, group(2, minimum=2))
        self.mirror.remove(PODS, ("ns", "x-0"), 2)
        for name in ("x-1", "x-2"):
            self.mirror.put(PODS, pod(name, "1", "n1", "x"))

    async def begin(self) -> Plan:
        snapshot = await self.mirror.cache.snapshot(time.time())
        plan = schedule(snapshot, load_policy(POLICY, "policy"))
        self.applier.apply(snapshot, plan)
        return plan

    async def cycle(self) -> Plan:
        plan = await self.begin()
        await self.applier.writes.settle()
        return plan

    async def apply(self, plan: Plan) -> None:
        self.applier.apply(await self.mirror.cache.snapshot(time.time()), plan)
        await self.applier.writes.settle()

    async def moved(self) -> list[str]:
        """The gangs for which places are kept."""
        return [job.name for job in (await self.mirror.cache.snapshot(time.time())).moved]


Tell = Callable[[Any, Story], Awaitable[None]]


def story(says: Callable[[Request], Says], tell: Tell) -> None:
    async def run() -> None:
        async with scripted(says) as (server, client):
            mirror = Mirror(SharedCache(Cache(Ours())))
            metrics = Metrics()
            applier = Applier(client, mirror, Gangs(mirror, Ours()), metrics, Events(client, metrics, "maniple"), 60.0)
            await tell(server, Story(applier, mirror))

    asyncio.run(run())


def accept(request: Request) -> Says:
    """Every write. A PodGroup is answered as it is then; other objects are not."""
    if request.method != "PATCH" or "/podgroups/" not in request.path:
        return Says(201 if request.method == "POST" else 404, {})
    name, annotations = request.path.rpartition("/")[2], json.loads(request.body)["metadata"]["annotations"]
    there = {key: value for key, value in annotations.items() if value is not None}
    written = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "5", "annotations": there}
    spec = {"minMember": 1, "movable": True}
    return Says(200, {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": written, "spec": spec})


def sent(server: Any) -> list[tuple[str, str]]:
    return [
        (request.method, request.path + ("?dryRun=All" if request.query.get("dryRun") == "All" else ""))
        for _, request in server.requests
    ]


def evicted(server: Any) -> list[str]:
    """The pods that were evicted, each as often as it was."""
    return [path.split("/")[-2] for method, path in sent(server) if method == "POST" and path.endswith("/eviction")]


def annotated(server: Any, name: str = "x") -> list[str | None]:
    """What was written to the gang about a move."""
    bodies = [json.loads(request.body) for _, request in server.requests if request.path.endswith(f"/podgroups/{name}")]
    written = [body["metadata"]["annotations"] for body in bodies]
    return [annotations[MOVED_ANNOTATION] for annotations in written if MOVED_ANNOTATION in annotations]


def test_nobody_is_evicted_before_the_server_allows_all_of_it_and_its_place_is_written() -> None:
    async def tell(server: Any, cluster: Story) -> None:
        plan = await cluster.cycle()
        assert [(move.pod, move.from_node, move.to_node) for move in plan.moves] == [("ns/x-0", "n1", "n2")]
        steps = [("POST", TRIAL), ("PATCH", GROUP), ("POST", EVICTION)]
        assert [request for request in sent(server) if request in steps] == steps

    story(accept, tell)


@pytest.mark.parametrize("status", [403, 404, 409])
def test_nobody_is_evicted_if_its_place_cannot_be_written(status: int) -> None:
    """The scheduler has no right to, or the gang is gone, or another of its name has come."""

    async def tell(server: Any, cluster: Story) -> None:
        await cluster.cycle()
        assert json.loads(next(one.body for _, one in server.requests if one.path == GROUP))["metadata"]["uid"] == "x"
        assert evicted(server) == await cluster.moved() == []

    story(lambda request: Says(status, {}) if request.path == GROUP else accept(request), tell)


def test_a_budget_that_refuses_one_pod_leaves_nobody_half_moved() -> None:
    """It is not asked again in every cycle, and no places are kept meanwhile."""

    def refuse(request: Request) -> Says:
        return Says(429, {"message": "budget"}) if request.path.endswith("/x-2/eviction") else accept(request)

    async def tell(server: Any, cluster: Story) -> None:
        cluster.add_pair()
        for _ in range(3):
            plan = await cluster.cycle()
            assert sorted(move.pod for move in plan.moves) == ["ns/x-1", "ns/x-2"]
        assert evicted(server) == annotated(server) == await cluster.moved() == []
        assert len([path for _, path in sent(server) if path.endswith("/x-2/eviction?dryRun=All")]) == 1

    story(refuse, tell)


def test_if_one_of_two_gangs_cannot_be_told_neither_is_moved() -> None:
    """What was written to the other is taken back."""

    def refuse(request: Request) -> Says:
        return Says(403, {}) if request.path.endswith("/podgroups/z") else accept(request)

    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(NODES, node("n3"))
        cluster.mirror.put(PODS, pod("w", "2", "n3"))
        cluster.mirror.put(POD_GROUPS, group(1, "z"))
        for name, gang in (("x-0", "x"), ("z-0", "z")):
            cluster.mirror.remove(PODS, ("ns", name), 2)
            cluster.mirror.put(PODS, pod(f"{gang}-1", "1", "n1", gang))
        plan = await cluster.cycle()
        assert [gang.group for gang in plan.moved_gangs] == ["ns/x", "ns/z"]
        assert [what is None for what in annotated(server)] == [False, True]
        assert evicted(server) == await cluster.moved() == []

    story(refuse, tell)


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

    story(accept, tell)


def test_a_report_of_the_gang_while_its_places_are_being_written_does_not_forget_them() -> None:
    """Somebody has labelled it, and the report does not have the places yet."""

    async def tell(server: Any, cluster: Story) -> None:
        await cluster.begin()
        cluster.mirror.put(POD_GROUPS, group(2, labels={"team": "a"}))
        assert await cluster.moved() == ["ns/x"]
        await cluster.applier.writes.settle()
        assert len(annotated(server)) == 1
        assert await cluster.moved() == ["ns/x"]

    story(accept, tell)


def test_another_annotation_of_the_gang_does_not_forget_its_places() -> None:
    """The gang is whole again, so a mark that it was not is removed."""
    since = {INCOMPLETE_SINCE_ANNOTATION: "2026-01-01T00:00:00Z"}

    async def tell(server: Any, cluster: Story) -> None:
        del server
        cluster.mirror.put(POD_GROUPS, group(2, annotations=since))
        await cluster.begin()
        assert await cluster.moved() == ["ns/x"]

    story(accept, tell)


def test_a_scheduler_that_is_asked_to_end_finishes_the_moves_that_it_has_begun() -> None:
    """It waits for the writes that are on their way when it is asked."""

    async def tell(server: Any, cluster: Story) -> None:
        await cluster.begin()
        await asyncio.wait([*cluster.applier.writes.tasks])
        assert evicted(server) == ["x-0"]

    story(accept, tell)


# -- the end of a move


def is_ended(written: str | None) -> bool:
    return written is not None and json.loads(written)["places"] == []


def test_when_the_moved_pods_are_back_their_places_are_given_up_and_the_time_stays() -> None:
    """It is written once."""

    async def tell(server: Any, cluster: Story) -> None:
        annotations = moved(seconds_ago=5)
        cluster.mirror.remove(PODS, ("ns", "x-0"), 2)
        cluster.mirror.put(POD_GROUPS, group(2, annotations=annotations))
        await cluster.cycle()
        assert annotated(server) == []
        cluster.mirror.put(PODS, pod("x-new", "2", "n2", "x", started_s_ago=1))
        await cluster.cycle()
        await cluster.cycle()
        (written,) = annotated(server)
        assert is_ended(written)
        assert json.loads(written or "")["at"] == json.loads(annotations[MOVED_ANNOTATION])["at"]

    story(accept, tell)


def take(name: str, reason: str = "Preempted") -> Plan:
    """The pod is evicted, and not moved."""
    return Plan(evictions=(Eviction(f"ns/{name}", reason, "ns/large"),))


def test_the_places_of_a_gang_are_given_up_before_a_pod_of_it_is_evicted_for_another_reason() -> None:
    """Whether the pod has come back, or has never left. Otherwise what comes in its place would start before others."""

    async def tell(server: Any, cluster: Story) -> None:
        cluster.add_pair()
        cluster.mirror.put(POD_GROUPS, group(3, minimum=1, annotations=moved(5, pods=3)))
        await cluster.apply(take("x-1"))
        steps = [("PATCH", GROUP), ("POST", f"{PODS_PATH}/x-1/eviction")]
        assert [request for request in sent(server) if request in steps] == steps
        assert is_ended(*annotated(server))
        cluster.mirror.put(POD_GROUPS, group(6, minimum=1))
        await cluster.apply(take("x-2"))
        assert evicted(server) == ["x-1", "x-2"]
        assert len(annotated(server)) == 1  # it has no places any more

    story(accept, tell)


def test_a_move_that_was_announced_and_not_begun_leaves_no_places_to_pods_that_others_evict() -> None:
    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(POD_GROUPS, group(2, annotations=moved(seconds_ago=5)))
        assert await cluster.moved() == []
        await cluster.apply(take("x-0"))
        assert is_ended(*annotated(server))
        assert evicted(server) == ["x-0"]

    story(accept, tell)


def test_nobody_is_evicted_while_its_gang_keeps_its_places() -> None:
    """They cannot be taken out. The pod does not count as leaving, and the next cycle plans anew."""

    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(POD_GROUPS, group(2, annotations=moved(seconds_ago=5)))
        await cluster.apply(take("x-0"))
        assert evicted(server) == []
        snapshot = await cluster.mirror.cache.snapshot(time.time())
        assert "ns/x-0" in {placed.pod for job in snapshot.jobs for placed in job.placed}

    story(lambda request: Says(403, {}) if request.path == GROUP else accept(request), tell)


def test_a_pod_whose_gang_is_being_moved_is_evicted_when_that_is_written() -> None:
    """Two writes to one gang at a time could be made in the wrong order."""

    async def tell(server: Any, cluster: Story) -> None:
        snapshot = await cluster.mirror.cache.snapshot(time.time())
        cluster.mirror.put(PODS, pod("x-1", "1", "n2", "x"))
        cluster.applier.apply(snapshot, schedule(snapshot, load_policy(POLICY, "policy")))
        cluster.applier.apply(snapshot, take("x-1"))  # nothing is written yet
        await cluster.applier.writes.settle()
        assert evicted(server) == ["x-0"]
        await cluster.apply(take("x-1"))
        assert evicted(server) == ["x-0", "x-1"]
        assert [is_ended(written) for written in annotated(server)] == [False, True]

    story(accept, tell)


def test_a_pod_of_a_gang_that_was_moved_long_ago_is_evicted_at_once() -> None:
    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(POD_GROUPS, group(2, annotations=moved(seconds_ago=KEPT_S + 1)))
        await cluster.apply(take("x-0"))
        assert (evicted(server), annotated(server)) == (["x-0"], [])

    story(accept, tell)


# -- what a scheduler finds that was killed in between, or its successor


def test_a_move_that_was_announced_and_not_begun_is_made() -> None:
    async def tell(server: Any, cluster: Story) -> None:
        cluster.mirror.put(POD_GROUPS, group(2, annotations=moved(seconds_ago=5)))
        await cluster.cycle()
        assert evicted(server) == ["x-0"]
        assert len(annotated(server)) == 1

    story(accept, tell)


def test_a_move_that_was_half_made_is_not_made_again() -> None:
    """The pod that was not evicted stays, and the other's successor starts in the place that is kept for it."""

    async def tell(server: Any, cluster: Story) -> None:
        cluster.add_pair()
        cluster.mirror.put(POD_GROUPS, group(3, minimum=2, annotations=moved(5, pods=2)))
        cluster.mirror.remove(PODS, ("ns", "x-1"), 2)
        cluster.mirror.put(PODS, pod("late", "2"))
        plan = await cluster.cycle()
        assert [(bind.pod, bind.node) for bind in plan.binds] == [("ns/late", "n1")]
        cluster.mirror.put(PODS, pod("x-new", "1", gang="x"))
        plan = await cluster.cycle()
        assert [(bind.pod, bind.node) for bind in plan.binds] == [("ns/x-new", "n2")]
        assert evicted(server) == []

    story(accept, tell)
