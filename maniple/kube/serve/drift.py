"""Whether what we know is what the server has: looked up from time to time, repaired, counted.

Events may be lost by a server, a proxy, or a mistake of ours; without this, an error would stay until a restart.
"""

import asyncio
import logging

from maniple.kube.serve.feed import Feed, list_resource
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Client, UnansweredError
from maniple.kube.transport.mirror import Key, Mirror, as_number
from maniple.kube.transport.resource_kinds import Resource

log = logging.getLogger("maniple.drift")

_CATCH_UP_S = 5.0  # so far a watch may lag behind a list


async def check_for_ever(client: Client, feed: Feed, mirror: Mirror, metrics: Metrics, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await check_once(client, feed, mirror, metrics)
        except (ApiError, UnansweredError) as error:
            log.info("drift not checked", extra={"error": str(error)})


async def check_once(client: Client, feed: Feed, mirror: Mirror, metrics: Metrics) -> int:
    """How many objects were not as the server has them; they are now."""
    found = 0
    for resource, watcher in feed.watchers.items():
        if not watcher.is_served or not watcher.synced.is_set():
            continue
        lives, version = await list_resource(client, resource)
        there = {(live.head.namespace, live.head.name): live for live in lives}
        versions = {key: as_number(live.head.resource_version) for key, live in there.items()}
        if not _differing(mirror, resource, versions, version):
            continue
        await asyncio.sleep(_CATCH_UP_S)
        differing = _differing(mirror, resource, versions, version)
        for key in differing:
            log.error("drift", extra={"object": f"{resource.kind} {'/'.join(filter(None, key))}"})
        metrics.drift.labels(resource.kind).inc(len(differing))
        found += len(differing)
        if differing:
            await watcher.relist()
    wrong = await mirror.cache.drift(mirror.objects)
    for name in wrong:
        log.error("drift of the cache", extra={"object": name})
    metrics.drift.labels("Cache").inc(len(wrong))
    metrics.drift_checks.inc()
    return found + len(wrong)


def _differing(mirror: Mirror, resource: Resource, versions: dict[Key, int], version: int) -> list[Key]:
    """Objects that we know less of than the list did, and those that we know and the list did not."""
    seen = mirror.seen(resource)
    older = [key for key, at in versions.items() if key in seen and seen[key].version < at]
    missing = [key for key in versions if key not in seen]
    ghosts = [key for key, entry in seen.items() if key not in versions and entry.version <= version]
    return [*older, *missing, *ghosts]
