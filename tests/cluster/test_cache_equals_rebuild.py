"""The Cache, whatever happened to it, has the snapshot that somebody would make from the objects there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties.elastic_clusters import claimed_worlds, elastic_worlds
from properties.random_clusters import contended_worlds, ruled_worlds, worlds
from properties.raw_objects import Object as Raw
from properties.topology_clusters import close_worlds

from cluster.snapshot_oracle import build_from_scratch
from cluster.snapshots import differences, picture
from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object, decode
from maniple.api.errors import InputError
from maniple.api.keys import ObjectKey
from maniple.cluster.cache import Cache
from maniple.cluster.strip_unread_fields import stranger
from maniple.model.building.input_objects import Objects, check_pods
from maniple.model.disruption_budgets import find_budgets
from maniple.model.pods_we_schedule import Ours
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.framework.plan import Bind

NOW = 1_767_300_000.0
GRACE_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
OURS = Ours()
MOVED_ANNOTATION = "maniple.dev/moved"
Gang = types.PodGroup | types.ElasticJob
ROOMS: dict[type, str] = {
    kubernetes.Node: "nodes",
    kubernetes.Pod: "pods",
    kubernetes.PriorityClass: "priority_classes",
    kubernetes.PodDisruptionBudget: "budgets",
    kubernetes.PersistentVolume: "volumes",
    kubernetes.PersistentVolumeClaim: "claims",
    kubernetes.StorageClass: "storage_classes",
    kubernetes.CSINode: "csi_nodes",
    kubernetes.Namespace: "namespaces",
    types.Queue: "queues",
    types.PodGroup: "pod_groups",
    types.ElasticJob: "elastic_jobs",
    types.Topology: "topologies",
}


def read(objects: Sequence[Raw]) -> list[Object]:
    return decode([("world", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))]).objects


def key_of(item: Object) -> ObjectKey:
    return type(item), item.metadata.namespace, item.metadata.name


def name_of(item: Object) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def with_meta(item: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, **fields))


@dataclass
class Model:
    """What the Cache is to know, kept in the simplest way."""

    cache: Cache = field(default_factory=lambda: Cache(OURS))
    there: dict[ObjectKey, Any] = field(default_factory=dict)
    binds: dict[str, Bind] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    evicted_for: dict[str, str] = field(default_factory=dict)
    moves: dict[ObjectKey, str] = field(default_factory=dict)  # gangs, and what is being written to them

    def put(self, item: Any) -> None:
        self.cache.put(item)
        self.see(item)

    def see(self, item: Any) -> None:
        self.there[key_of(item)] = item
        if item.metadata.annotations.get(MOVED_ANNOTATION) == self.moves.get(key_of(item)):
            self.moves.pop(key_of(item), None)
        if isinstance(item, kubernetes.Pod):
            name, is_over = name_of(item), item.status.phase in ("Succeeded", "Failed")
            # The server binds no pod that leaves. Without a node it is forgotten.
            if item.spec.node_name or is_over or item.metadata.deletion_timestamp:
                self.binds.pop(name, None)
            if item.metadata.deletion_timestamp and not item.spec.node_name:
                self.evicted_for.pop(name, None)
            if item.metadata.deletion_timestamp or is_over:
                self.leaving.discard(name)

    def remove(self, key: ObjectKey) -> None:
        self.cache.remove(*key)
        self.lose(key)

    def lose(self, key: ObjectKey) -> None:
        self.there.pop(key, None)
        self.moves.pop(key, None)
        if key[0] is kubernetes.Pod:
            self.binds.pop(f"{key[1]}/{key[2]}", None)
            self.leaving.discard(f"{key[1]}/{key[2]}")
            self.evicted_for.pop(f"{key[1]}/{key[2]}", None)

    def replace(self, kind: type, items: Sequence[Any]) -> None:
        self.cache.replace(kind, items)
        for key in [key for key in self.there if key[0] is kind and key not in {key_of(item) for item in items}]:
            self.lose(key)
        for item in items:
            self.see(item)

    def bind(self, pod: kubernetes.Pod, bind: Bind) -> None:
        self.cache.assume_bind(name_of(pod), bind)
        self.binds[name_of(pod)] = bind

    def evict(self, pod: kubernetes.Pod, gang: str) -> None:
        self.cache.assume_eviction(name_of(pod), gang)
        self.leaving.add(name_of(pod))
        self.evicted_for[name_of(pod)] = gang

    def forget(self, pod: str) -> None:
        self.cache.forget(pod)
        self.binds.pop(pod, None)
        self.leaving.discard(pod)
        self.evicted_for.pop(pod, None)

    def move(self, gang: Gang, annotation: str) -> None:
        self.cache.assume_move(type(gang), name_of(gang), annotation)
        self.moves[key_of(gang)] = annotation
        self.see(gang)  # which may say it already

    def forget_move(self, key: ObjectKey) -> None:
        self.cache.forget_move(key[0], f"{key[1]}/{key[2]}")
        self.moves.pop(key)

    def objects(self, set_aside: Collection[ObjectKey] = ()) -> Objects:
        """All there are, in order, with what is assumed. Of what is set aside only pods on nodes are there."""
        made = Objects()
        for key in sorted(self.there, key=lambda key: (key[1], key[2])):
            item = self.assumed(self.there[key]) if key[0] is kubernetes.Pod else self.there[key]
            if key in self.moves:
                item = with_meta(item, annotations=item.metadata.annotations | {MOVED_ANNOTATION: self.moves[key]})
            if key not in set_aside:
                getattr(made, ROOMS[key[0]]).append(item)
            elif key[0] is kubernetes.Pod and item.spec.node_name:
                made.pods.append(stranger(item))
        return made

    def assumed(self, pod: kubernetes.Pod) -> kubernetes.Pod:
        bind = self.binds.get(name_of(pod))
        if bind is not None:
            gpus = {"maniple.dev/gpus": ",".join(bind.gpus)} if bind.gpus else {}
            pod = with_meta(pod, annotations={**pod.metadata.annotations, **gpus})
            pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=bind.node))
        if name_of(pod) in self.evicted_for:
            gang = {"maniple.dev/evicted-for": self.evicted_for[name_of(pod)]}
            pod = with_meta(pod, annotations={**pod.metadata.annotations, **gang})
        if name_of(pod) in self.leaving and pod.metadata.deletion_timestamp is None:
            pod = with_meta(pod, deletion_timestamp=GRACE_UNKNOWN)
        return pod

    def check(self, now: float = NOW) -> None:
        wrong = self.cache.problems()
        if wrong:
            with pytest.raises(InputError):
                from_scratch(self.objects(), now)
        everything = self.objects()
        # A budget counts who is there, set aside or not.
        budgets = find_budgets(everything.budgets, everything.pods)
        expected = replace(from_scratch(self.objects(wrong), now), budgets=budgets)
        found = self.cache.snapshot(now)
        assert differences(picture(expected), picture(found)) == []
        assert schedule(found) == schedule(expected)
        assert not self.cache.changed()


def from_scratch(objects: Objects, now: float) -> Snapshot:
    check_pods(objects)
    return build_from_scratch(objects, OURS, now)


ANY_WORLD = st.one_of(worlds(), ruled_worlds(), contended_worlds(), close_worlds(), elastic_worlds(), claimed_worlds())
tried = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@tried
@given(first=ANY_WORLD, second=ANY_WORLD, data=st.data())
def test_its_snapshot_is_the_one_made_from_scratch(first: list[Raw], second: list[Raw], data: st.DataObject) -> None:
    """Two worlds have objects of the same names: those of the second are what becomes of those of the first."""
    live_through(first, second, data, HAPPENINGS)


@tried
@given(first=elastic_worlds(), second=elastic_worlds(), data=st.data())
def test_pods_that_contradict_their_job_are_set_aside(first: list[Raw], second: list[Raw], data: st.DataObject) -> None:
    live_through(first, second, data, ["put", "bind", "finish", "lose", "evict", *["join"] * 5])


@tried
@given(first=elastic_worlds(), second=elastic_worlds(), data=st.data())
def test_moves_that_are_being_written_count(first: list[Raw], second: list[Raw], data: st.DataObject) -> None:
    live_through(first, second, data, ["put", "replace", "evict", "lose", "forget move", *["move"] * 5])


def live_through(first: list[Raw], second: list[Raw], data: st.DataObject, happenings: list[str]) -> None:
    pool = [*read(first), *read(second)]
    pool += [loosened(item) for item in pool if isinstance(item, types.PodGroup)]
    model = Model()
    for item in pool[: data.draw(st.integers(0, len(pool)))]:
        model.put(item)
    seen = []
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(1, 4))):
            change(model, pool, data, happenings)
        now = NOW + data.draw(st.sampled_from(PASSED_S))  # clocks are set back, too
        model.check(now)
        snapshot = model.cache.snapshot(now)
        seen.append((snapshot, picture(snapshot)))
    for snapshot, before in seen:
        assert differences(before, picture(snapshot)) == []


def loosened(group: types.PodGroup) -> types.PodGroup:
    """The group as upstream has it without a gang policy: each of its pods is on its own."""
    return msgspec.structs.replace(group, spec=types.PodGroupSpec(min_member=0, queue=group.spec.queue))


FAILED = {"maniple.dev/bind-failures": "1", "maniple.dev/last-bind-failure": "2026-01-01T00:00:00Z"}
PLACES = '[{"node":"n0","pods":1,"requests":{"nvidia.com/gpu":"1","cpu":"100m"}}]'
MOVES = [
    f'{{"at":"2026-01-01T{hour}:00:00Z","size":{size},"places":{PLACES}}}' for hour, size in (("00", 2), ("18", 1))
]
# Graces end 30 s before NOW, at NOW, or long before: pods become stuck by time alone.
PASSED_S = (-3600, 0, 29, 30, 31, 60, 61)
HAPPENINGS = [
    "delete",
    "delete",
    "put",
    "put",
    "remove",
    "replace",
    "bind",
    "evict",
    "forget",
    "finish",
    "lose",
    "fail",
    "join",
    "move",
    "move",
    "forget move",
]


def change(model: Model, pool: list[Object], data: st.DataObject, happenings: list[str]) -> None:
    """Something that happens in a cluster."""
    pods = [item for key, item in sorted(model.there.items(), key=str) if key[0] is kubernetes.Pod]
    nodes = [key[2] for key in sorted(model.there, key=str) if key[0] is kubernetes.Node]
    # Nobody binds another scheduler's pods, and the Cache does not even know those that wait.
    waiting = [pod for pod in pods if not pod.spec.node_name and pod.status.phase == "Pending" and OURS.claims(pod)]
    waiting = [pod for pod in waiting if pod.metadata.deletion_timestamp is None]
    alive = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    jobs = [item for key, item in sorted(model.there.items(), key=str) if key[0] is types.ElasticJob]
    what = data.draw(st.sampled_from(happenings))
    if what == "put":
        model.put(data.draw(st.sampled_from(pool)))
    elif what == "remove" and model.there:
        model.remove(data.draw(st.sampled_from(sorted(model.there, key=str))))
    elif what == "replace":
        kind: type = data.draw(
            st.sampled_from(
                [kubernetes.Pod, kubernetes.Pod, types.PodGroup, kubernetes.Node, kubernetes.PersistentVolume]
            )
        )
        items = {key_of(item): item for item in pool if type(item) is kind and data.draw(st.booleans())}
        model.replace(kind, list(items.values()))
    elif what == "bind" and waiting and nodes:
        pod, node = data.draw(st.sampled_from(waiting)), data.draw(st.sampled_from([*nodes, "n9"]))
        model.bind(pod, Bind(name_of(pod), node, data.draw(st.sampled_from([(), ("0",), ("1", "0")]))))
    elif what == "evict" and (staying := [pod for pod in alive if pod.metadata.deletion_timestamp is None]):
        model.evict(data.draw(st.sampled_from(staying)), data.draw(st.sampled_from(["default/g0", "default/p"])))
    elif what == "delete" and alive:
        ends = datetime.fromtimestamp(NOW + data.draw(st.sampled_from([-30, 0])), UTC)
        model.put(with_meta(data.draw(st.sampled_from(alive)), deletion_timestamp=ends))
    elif what == "forget" and (model.binds or model.leaving):
        model.forget(data.draw(st.sampled_from(sorted({*model.binds, *model.leaving}))))
    elif what == "finish" and pods:
        pod = data.draw(st.sampled_from(pods))
        phase = data.draw(st.sampled_from(["Succeeded", "Failed", "Running"]))
        model.put(msgspec.structs.replace(pod, status=kubernetes.PodStatus(phase=phase)))
    elif what == "lose" and pods:
        pod = data.draw(st.sampled_from(pods))
        labels = {key: value for key, value in pod.metadata.labels.items() if data.draw(st.booleans())}
        model.put(with_meta(pod, labels=labels))
    elif what == "fail" and waiting:
        model.put(with_meta(data.draw(st.sampled_from(waiting)), annotations=FAILED))
    elif what == "move" and (gangs := [item for item in model.there.values() if isinstance(item, Gang)]):
        gang = data.draw(st.sampled_from(sorted(gangs, key=lambda item: str(key_of(item)))))
        annotation = data.draw(st.sampled_from(MOVES))
        if data.draw(st.booleans()):
            model.put(with_meta(gang, annotations={MOVED_ANNOTATION: annotation}))
        else:
            model.move(gang, annotation)
    elif what == "forget move" and model.moves:
        model.forget_move(data.draw(st.sampled_from(sorted(model.moves, key=str))))
    elif what == "join" and pods and jobs:
        pod, job = data.draw(st.sampled_from(pods)), data.draw(st.sampled_from(jobs))
        role = data.draw(st.sampled_from([*(role.name for role in job.spec.roles), "none"]))
        said = {"job": job.metadata.name, "role": role, "index": data.draw(st.sampled_from(["0", "1", "7", "first"]))}
        labels = pod.metadata.labels | {f"maniple.dev/{key}": value for key, value in said.items()}
        model.put(with_meta(pod, namespace=job.metadata.namespace, labels=labels))
