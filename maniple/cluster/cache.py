"""A simple Cache, rebuilt for every snapshot."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from maniple.api import core, types
from maniple.api.decode import Object
from maniple.api.errors import InputError
from maniple.model.build import Ours, build_snapshot
from maniple.model.objects import Objects, describe
from maniple.model.snapshot import Snapshot
from maniple.scheduler.plan import Bind

_ROOMS: dict[type, str] = {
    core.Node: "nodes",
    core.Pod: "pods",
    core.PriorityClass: "priority_classes",
    core.PodDisruptionBudget: "budgets",
    core.PersistentVolume: "volumes",
    core.PersistentVolumeClaim: "claims",
    core.Namespace: "namespaces",
    types.Queue: "queues",
    types.PodGroup: "pod_groups",
    types.ElasticJob: "elastic_jobs",
    types.Topology: "topologies",
}


class Cache:
    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self._items: dict[type, dict[tuple[str, str], Any]] = {kind: {} for kind in _ROOMS}
        self._binds: dict[str, Bind] = {}
        self._evictions: set[str] = set()
        self._changed = False
        self._problems: dict[tuple[type, str, str], list[str]] = {}

    def put(self, item: Object) -> None:
        self._items[type(item)][item.metadata.namespace, item.metadata.name] = item
        if isinstance(item, core.Pod):
            name = f"{item.metadata.namespace}/{item.metadata.name}"
            if item.spec.node_name:
                self._binds.pop(name, None)
            if item.metadata.deletion_timestamp:
                self._evictions.discard(name)
        self._changed = True

    def remove(self, kind: type, namespace: str, name: str) -> None:
        self._items[kind].pop((namespace, name), None)
        if kind is core.Pod:
            self._binds.pop(f"{namespace}/{name}", None)
            self._evictions.discard(f"{namespace}/{name}")
        self._changed = True

    def replace(self, kind: type, items: Iterable[Object]) -> None:
        items = list(items)
        there = {(item.metadata.namespace, item.metadata.name) for item in items}
        for namespace, name in [key for key in self._items[kind] if key not in there]:
            self.remove(kind, namespace, name)
        for item in items:
            self.put(item)
        self._changed = True

    def assume_bind(self, pod: str, bind: Bind) -> None:
        self._binds[pod] = bind
        self._changed = True

    def assume_eviction(self, pod: str) -> None:
        self._evictions.add(pod)
        self._changed = True

    def forget(self, pod: str) -> None:
        self._binds.pop(pod, None)
        self._evictions.discard(pod)
        self._changed = True

    def snapshot(self, now: float) -> Snapshot:
        self._changed = False
        aside: dict[tuple[type, str, str], list[str]] = {}
        while True:
            try:
                made = build_snapshot(self._objects(aside), self._ours, now)
            except InputError as error:
                before = len(aside)
                for kind, room in self._items.items():
                    for key, item in room.items():
                        said = [m for m in error.messages if m.startswith(f"{describe(item)}: ")]
                        if said:
                            aside[kind, *key] = said
                if len(aside) == before:
                    raise
                continue
            self._problems = aside
            return made

    def _objects(self, aside: Mapping[tuple[type, str, str], list[str]]) -> Objects:
        objects = Objects()
        for kind, room in _ROOMS.items():
            found = [item for key, item in self._items[kind].items() if (kind, *key) not in aside]
            setattr(objects, room, [self._assumed(item) for item in found] if kind is core.Pod else found)
        return objects

    def _assumed(self, pod: core.Pod) -> core.Pod:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        bind = self._binds.get(name)
        if bind is not None:
            annotations = dict(pod.metadata.annotations)
            if bind.gpus:
                annotations[types.GPUS_ANNOTATION] = ",".join(bind.gpus)
            if bind.backfill is not msgspec.UNSET:
                annotations[types.BACKFILL_ANNOTATION] = bind.backfill
            pod = msgspec.structs.replace(
                pod,
                spec=msgspec.structs.replace(pod.spec, node_name=bind.node),
                metadata=msgspec.structs.replace(pod.metadata, annotations=annotations),
            )
        if name in self._evictions and pod.metadata.deletion_timestamp is None:
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=pod.metadata.creation_timestamp)
            pod = msgspec.structs.replace(pod, metadata=metadata)
        return pod

    def changed(self) -> bool:
        return self._changed

    def problems(self) -> Mapping[tuple[type, str, str], list[str]]:
        return self._problems

    def drift(self, fresh: Objects) -> list[str]:
        wrong = []
        for kind, room in _ROOMS.items():
            there = {(item.metadata.namespace, item.metadata.name): item for item in getattr(fresh, room)}
            here = self._items[kind]
            wrong += [f"{kind.__name__} {'/'.join(key)}" for key in {*there, *here} if there.get(key) != here.get(key)]
        return wrong
