"""The objects of the API server as last reported, by kind, and the problems of those that cannot be read.

Every change goes on into the Cache. Several systems may have a PodGroup of the same name: one of them counts.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from maniple.api import kubernetes
from maniple.api.decode.decode import Object
from maniple.api.decode.server_objects import Live, read_live
from maniple.api.keys import Key, join_key
from maniple.api.meta import Struct
from maniple.api.replica_pods import ReplicaFacts
from maniple.cluster.shared_cache import SharedCache
from maniple.cluster.strip_unread_fields import stripped
from maniple.kube.transport.resource_kinds import RESOURCES, ObjectRef, Resource
from maniple.model.building.input_objects import Objects
from maniple.model.plugin_reads import Reads

_PART = 1000
_MOST_GONE = 10_000  # deleted objects that are remembered: an answer that comes late is late by seconds


class Seen(NamedTuple):
    """An object as it was last reported."""

    version: int  # its position in the order of all writes
    uid: str
    item: Object | None
    source: Struct | None
    wrong: tuple[str, ...]
    notes: tuple[str, ...]
    replica: ReplicaFacts | None
    spec: bytes
    resource: Resource
    key: Key

    @property
    def ref(self) -> ObjectRef:
        return self.resource, self.key


Listener = Callable[[Resource, Key, Seen | None, Seen | None], None]


class Mirror:
    def __init__(self, cache: SharedCache) -> None:
        self.cache = cache
        self.changes = 0
        self._seen: dict[Resource, dict[Key, Seen]] = {resource: {} for resource in RESOURCES}
        self.rejected: dict[ObjectRef, tuple[str, ...]] = {}  # objects that cannot be read, and why
        self._gone: dict[str, int] = {}  # uid of a deleted object -> the version of its deletion, latest last
        self._rivals: dict[type, list[Resource]] = {}
        for resource in RESOURCES:
            self._rivals.setdefault(resource.read_as, []).append(resource)
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """`listener` is called with every object that changes, as it was and as it is; None: it was or is not there."""
        self._listeners.append(listener)

    def seen(self, resource: Resource) -> dict[Key, Seen]:
        return self._seen[resource]

    def rivals(self, kind: type) -> list[Resource]:
        """All resources that are read as this kind, ours first."""
        return self._rivals[kind]

    def find(self, kind: type, key: Key) -> Seen | None:
        """The object that counts under this name. Its item is never None."""
        for resource in self._rivals[kind]:
            seen = self._seen[resource].get(key)
            if seen is not None and seen.item is not None:
                return seen
        return None

    def waits(self, pod: Key) -> bool:
        """Whether the pod is there and is not bound, neither as reported nor by a bind that is on its way."""
        seen = self.find(kubernetes.Pod, pod)
        if seen is None or not isinstance(seen.item, kubernetes.Pod) or seen.item.spec.node_name:
            return False
        return not self.cache.is_assumed_bound(join_key(pod))

    def put(self, resource: Resource, live: Live) -> bool:
        """An object that is new or has changed. A version older than the known one changes nothing.

        The answer to a write of ours may arrive after the watch has reported the deletion: the object stays gone.
        """
        seen = _read(resource, live, self.cache.reads)
        key = seen.key
        if seen.version <= self._gone.get(seen.uid, -1):
            return False
        before = self._seen[resource].get(key)
        if before is not None and (seen.version < before.version or seen[:2] == before[:2]):
            return False
        self._seen[resource][key] = seen
        # Most changes do not concern us: heartbeats of nodes, the state of containers.
        if before is None or before.uid != seen.uid or before.item != seen.item or before[3:] != seen[3:]:
            self._tell(resource, key, before, seen)
        return True

    def put_answer(self, resource: Resource, answer: bytes) -> None:
        """The object as the server answers a write of ours with it."""
        self.put(resource, read_live(answer, resource.struct))

    def remove(self, resource: Resource, key: Key, version: int) -> None:
        before = self._seen[resource].get(key)
        if before is None or before.version > version:
            return
        del self._seen[resource][key]
        self._gone[before.uid] = version
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._tell(resource, key, before, None)

    async def replace(self, resource: Resource, lives: Sequence[Live], version: int) -> None:
        """A full list, as of `version`. What we have written since stays as we know it."""
        await self.add(resource, lives)
        self.keep(resource, lives, version)

    async def add(self, resource: Resource, lives: Sequence[Live]) -> None:
        """Some objects of a list. They are read in parts, so that other tasks can run in between."""
        for start in range(0, len(lives), _PART):
            for live in lives[start : start + _PART]:
                self.put(resource, live)
            await asyncio.sleep(0)

    def keep(self, resource: Resource, lives: Iterable[Live], version: int) -> None:
        """What is not in this full list, as of `version`, is gone."""
        listed = {(live.head.namespace, live.head.name) for live in lives}
        for key in [key for key in self._seen[resource] if key not in listed]:
            self.remove(resource, key, version)

    def clear(self, resource: Resource) -> None:
        """Its CRD is gone, and all objects with it. If the server was wrong, they come back as they were."""
        for key in list(self._seen[resource]):
            self._tell(resource, key, self._seen[resource].pop(key), None)

    def objects(self) -> Objects:
        """All objects that count, sorted by kind."""
        objects = Objects()
        by_kind = objects.by_kind()
        for kind, rivals in self._rivals.items():
            items: dict[Key, Object] = {}
            for resource in reversed(rivals):
                items |= {key: seen.item for key, seen in self._seen[resource].items() if seen.item is not None}
            by_kind[kind].extend(items.values())
        return objects

    def _tell(self, resource: Resource, key: Key, before: Seen | None, seen: Seen | None) -> None:
        kind = resource.read_as
        counts = self.find(kind, key)
        if counts is None:
            self.cache.remove(kind, *key)
        elif counts.item is not None:
            self.cache.put(counts.item)
        self.changes += 1
        if seen is not None and seen.wrong:
            self.rejected[resource, key] = seen.wrong
        else:
            self.rejected.pop((resource, key), None)
        for listener in self._listeners:
            listener(resource, key, before, seen)


class PodsByOwner:
    """An index of the mirror: the keys of pods by the key of their gang or job, in order of arrival."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[Key, None]] = {}

    def pods(self, owner: Key) -> Iterable[Key]:
        return self._pods.get(owner, ())

    def count(self, owner: Key) -> int:
        return len(self._pods.get(owner, ()))

    def move(self, pod: Key, before: Key | None, owner: Key | None) -> None:
        """`before` and `owner` are None where the pod has none."""
        if before == owner:
            return
        if before is not None:
            del self._pods[before][pod]
            if not self._pods[before]:
                del self._pods[before]
        if owner is not None:
            self._pods.setdefault(owner, {})[pod] = None


def _read(resource: Resource, live: Live, reads: Reads) -> Seen:
    head, item = live.head, live.item
    if isinstance(item, kubernetes.Pod | kubernetes.Node):  # there are many, with up to a megabyte of annotations
        item = stripped(item, reads)
    return Seen(
        as_number(head.resource_version), head.uid, item, *live[2:], resource=resource, key=(head.namespace, head.name)
    )


def as_number(version: str) -> int:
    """Resource versions grow with every write. A version that is no number counts as the oldest."""
    return int(version) if version.isdigit() else 0
