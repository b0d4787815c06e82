"""The Cache: a cluster as its API server reports it, kept up to date, and the Snapshot of it.

It holds three things: objects as reported; what was decided and written but not yet reported back (assumed_writes.py);
and the snapshot builder, which gets every object with its assumptions applied. It does no I/O and reads no clock: its
caller watches the API server. A wrong object is set aside and does not hold up the rest; `problems` says why.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, ObjectKey, join_key, key_of, name_of, split_name
from maniple.api.labels import EVICTED_FOR_ANNOTATION, MOVED_ANNOTATION, RESERVED_ANNOTATION
from maniple.api.validate.ours import problems
from maniple.cluster.assumed_writes import (
    Assumed,
    AssumedSize,
    Gang,
    Marked,
    applied,
    marked,
    nominated,
    with_move,
    with_sizes,
)
from maniple.cluster.strip_unread_fields import countable, stripped
from maniple.model.building.incremental import SnapshotBuilder, key_of_object
from maniple.model.building.input_objects import Objects, describe
from maniple.model.job import Job
from maniple.model.plugin_reads import Reads
from maniple.model.pods_we_schedule import Ours, matters
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import Bind

replace = msgspec.structs.replace


class Cache:
    def __init__(self, ours: Ours | None = None, reads: Reads | None = None) -> None:
        """`reads`: labels and annotations that plugins declare to read."""
        self._ours = ours or Ours()
        self.reads = reads or Reads()
        self._builder = SnapshotBuilder(self._ours, self.reads)
        self._held: dict[type, dict[Key, Any]] = {}  # as reported, stripped
        self._wrong: dict[ObjectKey, list[str]] = {}  # objects that are wrong in themselves
        self._assumed: dict[str, Assumed] = {}
        self._sizes: dict[str, AssumedSize] = {}
        self._moves: dict[ObjectKey, str] = {}  # gang -> the annotation that is being written to it
        self._evicted_for: dict[str, tuple[str, str]] = {}  # pod -> its uid, and the gang
        # What the last plan reserved and promised; None: what the objects say counts.
        self._holders: frozenset[str] | None = None
        self._promised: Mapping[str, str] | None = None
        self._claimants: frozenset[str] = frozenset()

    # -- what is reported

    def put(self, item: Object) -> None:
        """Adds or replaces an object. A report older than an assumption does not undo the assumption."""
        item = stripped(item, self.reads)
        key = key_of_object(item)
        held = self._held.setdefault(key[0], {})
        if held.get(key[1:]) == item:
            return
        is_irrelevant = isinstance(item, kubernetes.Pod) and not matters(item, self._ours)
        if is_irrelevant or (isinstance(item, types.ElasticJob) and not self._ours.runs(item)):
            self.remove(*key)
            return
        if isinstance(item, kubernetes.Pod) and self._was_assumed(item, held.get(key[1:])):
            held[key[1:]] = item
            return
        held[key[1:]] = item
        self._wrong.pop(key, None)
        wrong = problems(item)
        if wrong:
            self._wrong[key] = [str(problem) for problem in wrong]
        self._tell(key)

    def _was_assumed(self, pod: kubernetes.Pod, before: kubernetes.Pod | None) -> bool:
        """Whether a pod is reported just as it was assumed. If so, the assumption ends and nothing has changed."""
        name = name_of(pod.metadata)
        assumed = self._assumed.get(name)
        if assumed is None or before is None or assumed.is_leaving or self._holders or self._promised:
            return False
        if key_of_object(pod) in self._wrong or applied(before, assumed) != pod:
            return False
        del self._assumed[name]
        return True

    def remove(self, kind: type, namespace: str, name: str) -> None:
        """Removes an object and what was assumed of it."""
        key = (kind, namespace, name)
        if self._held.get(kind, {}).pop((namespace, name), None) is None:
            return
        self._wrong.pop(key, None)
        self._moves.pop(key, None)
        if kind is kubernetes.Pod:
            self._assumed.pop(join_key(key[1:]), None)
            self._evicted_for.pop(join_key(key[1:]), None)
        elif kind is types.ElasticJob:
            self._sizes.pop(join_key(key[1:]), None)
        self._builder.remove(key)

    def replace(self, kind: type, items: Iterable[Object]) -> None:
        """Replaces all objects of a kind by a fresh list. What is in flight stays assumed."""
        listed = set()
        for item in items:
            listed.add(key_of(item.metadata))
            self.put(item)
        for namespace, name in self._held.get(kind, {}).keys() - listed:
            self.remove(kind, namespace, name)

    def _tell(self, key: ObjectKey) -> None:
        """Gives an object to the builder, with its assumptions applied."""
        item = self._held.get(key[0], {}).get(key[1:])
        if item is None:
            return
        if isinstance(item, kubernetes.Pod):
            item = self._with_assumptions(join_key(key[1:]), item)
        if key in self._wrong:
            if not isinstance(item, kubernetes.Pod) or not item.spec.node_name:
                self._builder.remove(key)
                return
            item = countable(item)
        if isinstance(item, types.ElasticJob):
            name = join_key(key[1:])
            if name in self._sizes and self._sizes[name].is_seen(item):
                del self._sizes[name]
            size = self._sizes.get(name)
            item = self._with_move(self._marked(item if size is None else with_sizes(item, size.sizes, size.moment)))
        elif isinstance(item, types.PodGroup):
            item = self._with_move(self._marked(item))
        self._builder.put(item)

    # -- what is assumed

    def assume_bind(self, pod: str, bind: Bind) -> None:
        """From now on the pod counts as bound. A pod that is gone, or bound already, is left alone."""
        held = self.pod(pod)
        if held is not None:
            before = self._assumed.get(pod)
            self._assume(pod, Assumed(held.metadata.uid, bind, before is not None and before.is_leaving))

    def assume_eviction(self, pod: str, gang: str) -> None:
        """From now on the pod counts as leaving for the gang ("namespace/name")."""
        held = self.pod(pod)
        if held is not None:
            before = self._assumed.get(pod)
            self._evicted_for[pod] = (held.metadata.uid, gang)
            self._assume(pod, Assumed(held.metadata.uid, before.bind if before is not None else None, True))

    def _assume(self, pod: str, assumed: Assumed) -> None:
        self._assumed[pod] = assumed
        self._tell_pod(pod)

    def forget(self, pod: str) -> None:
        """Drops what was assumed of the pod, because it could not be written."""
        self._evicted_for.pop(pod, None)
        if self._assumed.pop(pod, None) is not None:
            self._tell_pod(pod)

    def assumed(self) -> Collection[str]:
        """Pods with an assumption that has not been reported yet."""
        return self._assumed.keys()

    def is_assumed_bound(self, pod: str) -> bool:
        assumed = self._assumed.get(pod)
        return assumed is not None and assumed.bind is not None

    def assume_size(self, job: str, sizes: Mapping[str, int], now: float) -> None:
        """From now on the roles of an ElasticJob count as resized."""
        key = (types.ElasticJob, *split_name(job))
        if key[1:] in self._held.get(types.ElasticJob, {}):
            before = self._sizes.get(job)
            moment = datetime.fromtimestamp(now, UTC)
            self._sizes[job] = AssumedSize({**(before.sizes if before else {}), **sizes}, moment)
            self._tell(key)

    def forget_size(self, job: str) -> None:
        if self._sizes.pop(job, None) is not None:
            self._tell((types.ElasticJob, *split_name(job)))

    def assume_move(self, kind: type, gang: str, annotation: str) -> None:
        """From now on places are kept for pods of the gang ("namespace/name"), until the gang says so itself."""
        key = (kind, *split_name(gang))
        if key[1:] in self._held.get(kind, {}):
            self._moves[key] = annotation
            self._tell(key)

    def forget_move(self, kind: type, gang: str) -> None:
        """What the gang says counts again, because its move is written or could not be."""
        key = (kind, *split_name(gang))
        if self._moves.pop(key, None) is not None:
            self._tell(key)

    def mark_reserved(self, holders: Iterable[str] | None) -> None:
        """The gangs ("namespace/name") that the last plan reserves nodes for; None: the objects' annotations count."""
        new = None if holders is None else frozenset(holders)
        if new == self._holders:
            return
        touched = (new or frozenset()) ^ (self._holders or frozenset())
        if new is None or self._holders is None:
            touched |= self._annotated_reserved() | (new or frozenset()) | (self._holders or frozenset())
        self._holders = new
        for name in touched:
            for kind in (types.PodGroup, types.ElasticJob, kubernetes.Pod):
                self._tell((kind, *split_name(name)))

    def promise(self, nominations: Mapping[str, str] | None, claimants: Iterable[str] = ()) -> None:
        """The nodes that the last plan promises to pods; None: the pods' nominatedNodeName counts.

        `claimants`: those of the pods for whose gang pods were evicted.
        """
        before, self._promised = self._promised, nominations
        had_evicted, self._claimants = self._claimants, frozenset(claimants)
        changed = set(had_evicted ^ self._claimants) | {
            pod
            for pod in (before or {}).keys() | (nominations or {}).keys()
            if (before or {}).get(pod) != (nominations or {}).get(pod)
        }
        if before is None or nominations is None:
            pods = self._held.get(kubernetes.Pod, {}).values()
            changed.update(name_of(pod.metadata) for pod in pods if pod.status.nominated_node_name)
        for pod in changed:
            self._tell_pod(pod)

    def _tell_pod(self, pod: str) -> None:
        self._tell((kubernetes.Pod, *split_name(pod)))

    def _with_assumptions(self, name: str, pod: kubernetes.Pod) -> kubernetes.Pod:
        assumed = self._assumed.get(name)
        if assumed is not None:
            assumed = assumed.against(pod)
            if assumed is None:
                del self._assumed[name]
            else:
                self._assumed[name] = assumed
        if self._promised is not None and not pod.spec.node_name:
            node = self._promised.get(name, "")
            pod = nominated(pod, node, has_evicted=name in self._claimants)
        uid, gang = self._evicted_for.get(name, ("", ""))
        if gang and uid == pod.metadata.uid:
            annotations = {**pod.metadata.annotations, EVICTED_FOR_ANNOTATION: gang}
            pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        return applied(self._marked(pod), assumed)

    def _with_move(self, item: Gang) -> Gang:
        key = key_of_object(item)
        if self._moves.get(key) == item.metadata.annotations.get(MOVED_ANNOTATION):
            self._moves.pop(key, None)
        return with_move(item, self._moves[key]) if key in self._moves else item

    def _marked(self, item: Marked) -> Marked:
        return item if self._holders is None else marked(item, self._holders)

    def _annotated_reserved(self) -> frozenset[str]:
        kinds = (types.PodGroup, types.ElasticJob, kubernetes.Pod)
        items = (item for kind in kinds for item in self._held.get(kind, {}).values())
        return frozenset(name_of(item.metadata) for item in items if RESERVED_ANNOTATION in item.metadata.annotations)

    # -- what is known

    def snapshot(self, now: float) -> Snapshot:
        """The cluster at `now`. It costs as much as has changed since the last one, and copies of arrays."""
        return self._builder.snapshot(now)

    def changed(self) -> bool:
        """Whether anything that a decision depends on has changed since the last snapshot."""
        return self._builder.is_changed

    def problems(self) -> Mapping[ObjectKey, list[str]]:
        """Objects that are set aside, and what is wrong with them. A pod on a node still uses its resources."""
        self._builder.update()
        return {**self._wrong, **self._builder.wrong}

    def drift(self, fresh: Objects) -> list[str]:
        """Replaces all objects by fresh lists and returns the differences."""
        differences = []
        for kind, items in fresh.by_kind().items():
            before = dict(self._held.get(kind, {}))
            self.replace(kind, items)
            after = self._held.get(kind, {})
            for key in sorted(before.keys() | after.keys()):
                if key not in after:
                    differences.append(f"{describe(before[key])}: was held, but is gone")
                elif key not in before:
                    differences.append(f"{describe(after[key])}: is there, but was not held")
                elif before[key] != after[key]:
                    differences.append(f"{describe(after[key])}: was held as it used to be")
        return differences

    def pod(self, name: str) -> kubernetes.Pod | None:
        """A pod as last reported, stripped; None if no decision depends on it."""
        pod: kubernetes.Pod | None = self._held.get(kubernetes.Pod, {}).get(split_name(name))
        return pod

    def job_of(self, pod: str) -> Job | None:
        """The gang of a pod, as of the last snapshot."""
        return self._builder.job_of(pod)

    def pods_of(self, gang: str) -> list[kubernetes.Pod]:
        """Pods that name the gang ("namespace/name"), with their assumptions, by name."""
        return list(self._builder.index.members(gang))
