"""A stream of watch events: each counts, none stops it, and it can go on from where it was."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from maniple.api import kubernetes, types
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.mirror_feed import Watcher
from maniple.kube.transport.client import ApiError, Backoff
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
