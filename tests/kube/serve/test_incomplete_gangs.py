"""Since when a gang is below its minimum stands on its PodGroup: written once, and removed when that is over."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from kube.serve.test_nominations import live, node
from kube.transport.scripted_server import Request, Says, scripted
from maniple.api.decode.server_objects import Live
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
from maniple.scheduler import schedule

GROUPS = next(one for one in RESOURCES if one.kind == "PodGroup")
SINCE = "maniple.dev/incomplete-since"
Written = list[tuple[str, str, Any]]


def group(version: int, since: str = "", *, has_started: bool = True, **spec: Any) -> Live:
    condition = {"type": "Scheduled", "status": "True" if has_started else "False", "reason": "Scheduled"}
    annotations = {SINCE: since} if since else {}
    return live(
        GROUPS,
        "g",
        version,
        metadata={"namespace": "ns", "annotations": annotations},
        spec={"minMember": 2, **spec},
        status={"conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    )


def pod(name: str, version: int = 1, **meta: Any) -> Live:
    meta = {"namespace": "ns", "labels": {"maniple.dev/pod-group": "g"}, **meta}
    spec = {"schedulerName": "maniple", "nodeName": "n1", "containers": [{"name": "c"}]}
    return live(PODS, name, version, metadata=meta, spec=spec, status={"phase": "Running"})


def written(*stages: Callable[[Mirror], None]) -> Written:
    """The writes of two cycles after each stage."""
    sent: Written = []

    def accept(request: Request) -> Says:
        sent.append((request.method, request.path.rpartition("/")[2], json.loads(request.body)))
        return Says(201 if request.method == "POST" else 404, {})

    async def run() -> None:
        async with scripted(accept) as (_, client):
            mirror, metrics = Mirror(SharedCache(Cache(Ours()))), Metrics()
            events = Events(client, metrics, "maniple")
            applier = Applier(client, mirror, Gangs(mirror, Ours()), metrics, events, 60.0)
            mirror.put(NODES, node("n1"))
            for stage in stages:
                stage(mirror)
                for _ in range(2):
                    snapshot = await mirror.cache.snapshot(time.time())
                    applier.apply(snapshot, schedule(snapshot, None))
                    await applier.writes.settle()
            await events.flush()

    asyncio.run(run())
    return sent


def annotations(sent: Written) -> list[Any]:
    return [body["metadata"]["annotations"][SINCE] for method, _, body in sent if method == "PATCH"]


def put(*lives: Live) -> Callable[[Mirror], None]:
    def stage(mirror: Mirror) -> None:
        for one in lives:
            mirror.put(GROUPS if one.head.name == "g" else PODS, one)

    return stage


def test_a_gang_that_falls_below_its_minimum_is_annotated_once() -> None:
    whole = put(group(1), pod("a"), pod("b"))
    sent = annotations(written(whole, lambda mirror: mirror.remove(PODS, ("ns", "b"), 9)))
    assert len(sent) == 1
    assert sent[0] <= format_timestamp(time.time())


@pytest.mark.parametrize(
    "gang", [group(1, has_started=False), group(1, staleSeconds=0)], ids=["it has not started", "never"]
)
def test_a_gang_that_never_goes_stale_is_not_annotated(gang: Live) -> None:
    assert annotations(written(put(gang, pod("a")))) == []


def now(seconds: float = 0) -> str:
    return format_timestamp(time.time() + seconds)


def test_the_annotation_goes_when_the_gang_is_whole_or_holds_nothing() -> None:
    assert annotations(written(put(group(1, now()), pod("a"), pod("b")))) == [None]
    assert annotations(written(put(group(1, now())))) == [None]


def test_the_annotation_stays_while_its_pods_leave() -> None:
    """An eviction may yet be refused."""
    leaving = pod("a", deletionTimestamp=now(30))
    assert annotations(written(put(group(1, now(-700)), leaving))) == []


def test_a_gang_that_is_below_its_minimum_for_too_long_is_evicted_whole() -> None:
    sent = written(put(group(1, now(-700), minMember=3), pod("a"), pod("b")))
    assert sorted(path for _, path, body in sent if body.get("kind") == "Eviction") == ["eviction"] * 2
    notes = {body["note"] for _, _, body in sent if body.get("kind") == "Event"}
    assert notes == {"Stale: its gang ns/g stays below its minimum, and gives back what it holds"}
    assert written(put(group(1, now(-500), minMember=3), pod("a"), pod("b"))) == []
