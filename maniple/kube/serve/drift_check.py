"""Compares what we know with fresh lists from time to time, repairs what differs, and counts it.

A server, a proxy or a mistake of ours may lose events. Without this, such an error would stay until a restart.
"""

import asyncio
import logging
import time

from maniple.api.keys import Key
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.mirror_feed import Feed, list_resource
from maniple.kube.transport.client import ApiError, Client, UnansweredError
from maniple.kube.transport.mirror import Mirror, as_number
from maniple.kube.transport.resource_kinds import Resource

log = logging.getLogger("maniple.drift")

_CATCH_UP_S = 5.0  # a watch may lag behind a list by this much


async def check_for_ever(client: Client, feed: Feed, mirror: Mirror, metrics: Metrics, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await check_once(client, feed, mirror, metrics)
        except (ApiError, UnansweredError) as error:
            log.info("drift not checked", extra={"error": str(error)})


async def check_once(client: Client, feed: Feed, mirror: Mirror, metrics: Metrics) -> int:
    """Returns how many objects were not as the server has them. They are repaired."""
    repaired = 0
    for resource, watcher in feed.watchers.items():
        if not watcher.is_served or not watcher.synced.is_set():
            continue
        lives, version = await list_resource(client, resource)
        heads = [live.head for live in lives]
        versions = {(head.namespace, head.name): as_number(head.resource_version) for head in heads}
        if not _differing(mirror, resource, versions, version):
            continue
        await asyncio.sleep(_CATCH_UP_S)
        differing = _differing(mirror, resource, versions, version)
        for key in differing:
            log.error("drift", extra={"object": resource.describe(key)})
        metrics.drift.labels(resource.kind).inc(len(differing))
        repaired += len(differing)
        if differing:
            await watcher.relist(time.monotonic())
    wrong = await mirror.cache.drift(mirror.objects)
    for name in wrong:
        log.error("drift of the cache", extra={"object": name})
    metrics.drift.labels("Cache").inc(len(wrong))
    metrics.drift_checks.inc()
    return repaired + len(wrong)


def _differing(mirror: Mirror, resource: Resource, versions: dict[Key, int], version: int) -> list[Key]:
    """Objects of which we have an older version than the list, or none, or one that the list does not have."""
    seen = mirror.seen(resource)
    older = [key for key, listed in versions.items() if key in seen and seen[key].version < listed]
    missing = [key for key in versions if key not in seen]
    ghosts = [key for key, entry in seen.items() if key not in versions and entry.version <= version]
    return [*older, *missing, *ghosts]
