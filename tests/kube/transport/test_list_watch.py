"""A stream of watch events: each counts, none stops it, and it can go on from where it was."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kube.transport.scripted_server import OPEN, TOO_OLD, Request, Says, scripted
from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import Live, read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.mirror_feed import Watcher
from maniple.kube.transport.client import ApiError, Backoff
from maniple.kube.transport.list_watch import list_all
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import RESOURCES
from maniple.model.pods_we_schedule import Ours

QUEUES = next(one for one in RESOURCES if one.struct is types.Queue)


def event(kind: str, version: int, spec: dict[str, Any] | None = None, name: str = "q") -> bytes:
    meta = {"name": name, "resourceVersion": str(version), "uid": name}
    return json.dumps({"type": kind, "object": {"metadata": meta, "spec": spec or {}}}).encode()


@pytest.fixture
def watcher() -> Watcher:
    async def made() -> Watcher:
        return Watcher(None, QUEUES, Mirror(SharedCache(Cache(Ours()))), lambda: None, Metrics())  # type: ignore[arg-type]

    return asyncio.run(made())


def names(watcher: Watcher) -> set[str]:
    return {queue.metadata.name for queue in watcher.mirror.objects().queues}


def test_events_are_taken_in_and_the_place_is_kept(watcher: Watcher) -> None:
    watcher.take(event("ADDED", 5))
    watcher.take(event("ADDED", 6, name="r"))
    watcher.take(event("DELETED", 8))
    assert names(watcher) == {"r"}
    assert watcher.version == "8"
    watcher.take(event("BOOKMARK", 20))
    assert watcher.version == "20"


def test_what_cannot_be_read_does_not_stop_the_stream(watcher: Watcher) -> None:
    watcher.take(event("ADDED", 5, {"limit": {"cpu": ["1"]}}))
    watcher.take(event("ADDED", 6, {"weight": "heavy"}, name="r"))
    watcher.take(b"not even json")
    watcher.take(event("ADDED", 7, name="s"))
    assert names(watcher) == {"s"}
    assert len(list(watcher.mirror.rejected)) == 2
    assert watcher.version == "7"


def test_too_old_comes_as_an_event_too(watcher: Watcher) -> None:
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    with pytest.raises(ApiError) as raised:
        watcher.take(json.dumps(status).encode())
    assert raised.value.status == 410


def test_pauses_grow_to_a_bound_and_respect_what_the_server_asks() -> None:
    backoff = Backoff(1.0, 8.0)
    pauses = [backoff.pause_s() for _ in range(10)]
    assert 0.75 <= pauses[0] <= 1.25
    assert all(6 <= pause <= 10 for pause in pauses[5:])
    backoff.reset()
    assert backoff.pause_s(ApiError(503, "", "busy", retry_after_s=20.0)) >= 15


def test_required_kinds_are_kubernetes_own() -> None:
    required = {one.struct for one in RESOURCES if one.is_required}
    assert kubernetes.Pod in required
    assert types.PodGroup not in required


def test_every_metric_is_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serve.md").read_text()
    documented = set(re.findall(r"^\| `(maniple_\w+)` \|", page, re.MULTILINE))
    families = list(Metrics().registry.collect())
    assert documented == {one.name + ("_total" if one.type == "counter" else "") for one in families}


def page(numbers: range, version: int, rest: str = "") -> Says:
    items = [{"metadata": {"name": f"q{number}", "uid": f"q{number}", "resourceVersion": "5"}} for number in numbers]
    return Says(200, {"metadata": {"resourceVersion": str(version), "continue": rest}, "items": items})


def test_a_page_is_read_while_the_next_is_on_its_way() -> None:
    """Whoever is given a page waits here for the server to have been asked for the next."""

    async def test() -> None:
        def answer(request: Request) -> Says:
            return page(range(2, 4), 9) if "continue" in request.query else page(range(2), 9, "more")

        async with scripted(answer) as (server, client):

            async def add(items: list[Live]) -> None:
                given.append([item.head.name for item in items])
                async with asyncio.timeout(10):
                    while len(server.requests) < 2:
                        await asyncio.sleep(0.001)

            given: list[list[str]] = []
            items, version = await list_all(
                client, QUEUES.list_path, lambda raw: read_live(raw, QUEUES.struct), None, add
            )
            assert (given, version) == ([["q0", "q1"], ["q2", "q3"]], "9")
            assert [item.head.name for item in items] == ["q0", "q1", "q2", "q3"]

    asyncio.run(test())


def test_a_list_that_is_too_old_between_pages_is_read_again_and_its_objects_are_kept_once() -> None:
    async def test() -> None:
        def answer(request: Request) -> Says:
            if request.is_watch:
                return OPEN
            if "continue" in request.query:
                return TOO_OLD
            return page(range(2), 9, "more") if "limit" in request.query else page(range(1, 3), 12)

        async with scripted(answer) as (_, client):
            mirror = Mirror(SharedCache(Cache(Ours())))
            watcher = Watcher(client, QUEUES, mirror, lambda: None, Metrics())
            running = asyncio.create_task(watcher.run())
            await watcher.synced.wait()
            assert names(watcher) == {"q1", "q2"}  # q0 went between the two lists
            assert watcher.version == "12"
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(test())
