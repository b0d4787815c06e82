"""The Cache: what is known of a cluster, kept up to date by what its API server reports, and the Snapshot of that.

It holds three things: objects as reported; what has been decided and written but not been reported back (assumed.py);
and the ledger, which is told of every object as it is with assumptions. It does no I/O and reads no clock: whoever
watches an API server tells it what happens. One object that is wrong stops nobody: it is set aside, and `problems` says
why.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.labels import RESERVED_ANNOTATION
from maniple.api.validate.ours import problems
from maniple.cluster.assumed import Assumed, AssumedSize, Marked, applied, marked, with_size
from maniple.cluster.strip import countable, trimmed
from maniple.model.building.cluster_tables import matters
from maniple.model.building.from_scratch import Ours
from maniple.model.building.incremental import Key, Ledger, key_of_object
from maniple.model.building.input_objects import Objects, describe
from maniple.model.job import Job
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import Bind

__all__ = ["Cache", "Key"]

replace = msgspec.structs.replace


class Cache:
    def __init__(self, ours: Ours | None = None) -> None:
        self._ours = ours or Ours()
        self._ledger = Ledger(self._ours)
        self._held: dict[type, dict[tuple[str, str], Any]] = {}  # as reported, without what makes no difference
        self._wrong: dict[Key, list[str]] = {}  # wrong in themselves, whatever else there is
        self._assumed: dict[str, Assumed] = {}
        self._sizes: dict[str, AssumedSize] = {}
        # Whom the last plan kept room for, and whom it promised it; None: what objects say counts.
        self._holders: frozenset[str] | None = None
        self._promised: Mapping[str, str] | None = None

    # -- what is reported

    def put(self, item: Object) -> None:
        """An object was added or has changed. One older than what is assumed of it does not undo the assumption."""
        item = trimmed(item)
        key = key_of_object(item)
        held = self._held.setdefault(key[0], {})
        if held.get(key[1:]) == item:
            return
        is_nothing = isinstance(item, kubernetes.Pod) and not matters(item, self._ours)
        if is_nothing or (isinstance(item, types.ElasticJob) and not self._ours.runs(item)):
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
        """Whether a pod is reported just as it was assumed to be: it is assumed no longer, and nothing has changed."""
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        assumed = self._assumed.get(name)
        if assumed is None or before is None or assumed.is_leaving or self._holders or self._promised:
            return False
        if (kubernetes.Pod, pod.metadata.namespace, pod.metadata.name) in self._wrong or applied(
            before, assumed
        ) != pod:
            return False
        del self._assumed[name]
        return True

    def remove(self, kind: type, namespace: str, name: str) -> None:
        """An object is gone, and with it what was assumed of it."""
        key = (kind, namespace, name)
        if self._held.get(kind, {}).pop((namespace, name), None) is None:
            return
        self._wrong.pop(key, None)
        if kind is kubernetes.Pod:
            self._assumed.pop(f"{namespace}/{name}", None)
        elif kind is types.ElasticJob:
            self._sizes.pop(f"{namespace}/{name}", None)
        self._ledger.remove(key)

    def replace(self, kind: type, items: Iterable[Object]) -> None:
        """All objects of a kind, as a fresh list has them. What is in flight stays assumed."""
        there = set()
        for item in items:
            there.add((item.metadata.namespace, item.metadata.name))
            self.put(item)
        for namespace, name in self._held.get(kind, {}).keys() - there:
            self.remove(kind, namespace, name)

    def _tell(self, key: Key) -> None:
        """Tells the ledger how an object is, with all that is assumed of it."""
        item = self._held.get(key[0], {}).get(key[1:])
        if item is None:
            return
        if isinstance(item, kubernetes.Pod):
            item = self._with_assumptions(f"{key[1]}/{key[2]}", item)
        if key in self._wrong:
            if not isinstance(item, kubernetes.Pod) or not item.spec.node_name:
                self._ledger.remove(key)
                return
            item = countable(item)
        if isinstance(item, types.ElasticJob):
            name = f"{key[1]}/{key[2]}"
            if name in self._sizes and self._sizes[name].is_seen(item):
                del self._sizes[name]
            item = self._marked(with_size(item, self._sizes.get(name)))
        elif isinstance(item, types.PodGroup):
            item = self._marked(item)
        self._ledger.put(item)

    # -- what is assumed

    def assume_bind(self, pod: str, bind: Bind) -> None:
        """The pod counts as bound from now on. A pod that is gone meanwhile, or bound, is left alone."""
        held = self.pod(pod)
        if held is not None:
            before = self._assumed.get(pod)
            self._assume(pod, Assumed(held.metadata.uid, bind, before is not None and before.is_leaving))

    def assume_eviction(self, pod: str) -> None:
        """The pod counts as leaving from now on."""
        held = self.pod(pod)
        if held is not None:
            before = self._assumed.get(pod)
            self._assume(pod, Assumed(held.metadata.uid, before.bind if before is not None else None, True))

    def _assume(self, pod: str, assumed: Assumed) -> None:
        self._assumed[pod] = assumed
        self._tell_pod(pod)

    def forget(self, pod: str) -> None:
        """What was assumed of the pod could not be written: it is as it is reported."""
        if self._assumed.pop(pod, None) is not None:
            self._tell_pod(pod)

    def assumed(self) -> Collection[str]:
        """Pods of which something is assumed that has not been reported yet."""
        return self._assumed.keys()

    def assume_size(self, job: str, sizes: Mapping[str, int], now: float) -> None:
        """The roles of an ElasticJob count as resized from now on."""
        key = (types.ElasticJob, *_split(job))
        if key[1:] in self._held.get(types.ElasticJob, {}):
            before = self._sizes.get(job)
            moment = datetime.fromtimestamp(now, UTC)
            self._sizes[job] = AssumedSize({**(before.sizes if before else {}), **sizes}, moment)
            self._tell(key)

    def forget_size(self, job: str) -> None:
        if self._sizes.pop(job, None) is not None:
            self._tell((types.ElasticJob, *_split(job)))

    def mark_reserved(self, holders: Iterable[str] | None) -> None:
        """For these gangs (ns/name) the last plan keeps nodes, and for no others; None: the objects know."""
        new = None if holders is None else frozenset(holders)
        if new == self._holders:
            return
        touched = (new or frozenset()) ^ (self._holders or frozenset())
        if new is None or self._holders is None:
            touched |= self._annotated_reserved() | (new or frozenset()) | (self._holders or frozenset())
        self._holders = new
        for name in touched:
            for kind in (types.PodGroup, types.ElasticJob, kubernetes.Pod):
                self._tell((kind, *_split(name)))

    def promise(self, nominations: Mapping[str, str] | None) -> None:
        """The last plan promises these pods these nodes, and no others any; None: the objects know."""
        before, self._promised = self._promised, nominations
        changed = {
            pod
            for pod in (before or {}).keys() | (nominations or {}).keys()
            if (before or {}).get(pod) != (nominations or {}).get(pod)
        }
        if before is None or nominations is None:
            pods = self._held.get(kubernetes.Pod, {}).values()
            changed.update(_name(pod) for pod in pods if pod.status.nominated_node_name)
        for pod in changed:
            self._tell_pod(pod)

    def _tell_pod(self, pod: str) -> None:
        self._tell((kubernetes.Pod, *_split(pod)))

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
            if node != pod.status.nominated_node_name:
                pod = replace(pod, status=replace(pod.status, nominated_node_name=node))
        return applied(self._marked(pod), assumed)

    def _marked(self, item: Marked) -> Marked:
        return item if self._holders is None else marked(item, self._holders)

    def _annotated_reserved(self) -> frozenset[str]:
        kinds = (types.PodGroup, types.ElasticJob, kubernetes.Pod)
        items = (item for kind in kinds for item in self._held.get(kind, {}).values())
        return frozenset(_name(item) for item in items if RESERVED_ANNOTATION in item.metadata.annotations)

    # -- what is known

    def snapshot(self, now: float) -> Snapshot:
        """The cluster at the moment `now`. It costs what has changed since the last one, and copies of arrays."""
        return self._ledger.snapshot(now)

    def changed(self) -> bool:
        """Whether anything that matters for a decision has changed since the last snapshot."""
        return self._ledger.is_changed

    def problems(self) -> Mapping[Key, list[str]]:
        """Objects that are set aside because something is wrong with them, and what.

        Of a pod on a node the resources count all the same: they are in use.
        """
        self._ledger.update()
        return {**self._wrong, **self._ledger.wrong}

    def drift(self, fresh: Objects) -> list[str]:
        """What was held otherwise than a fresh list of everything has it; it is held as the list has it now."""
        found = []
        for kind, items in fresh.by_kind().items():
            before = dict(self._held.get(kind, {}))
            self.replace(kind, items)
            after = self._held.get(kind, {})
            for key in sorted(before.keys() | after.keys()):
                if key not in after:
                    found.append(f"{describe(before[key])}: was held, but is gone")
                elif key not in before:
                    found.append(f"{describe(after[key])}: is there, but was not held")
                elif before[key] != after[key]:
                    found.append(f"{describe(after[key])}: was held as it used to be")
        return found

    def pod(self, name: str) -> kubernetes.Pod | None:
        """A pod as it was reported last, without annotations that make no difference; None if it does not matter."""
        found: kubernetes.Pod | None = self._held.get(kubernetes.Pod, {}).get(_split(name))
        return found

    def job_of(self, pod: str) -> Job | None:
        """The gang of a pod, as of the last snapshot."""
        return self._ledger.job(pod)

    def pods_of(self, gang: str) -> list[kubernetes.Pod]:
        """Pods that name the gang (ns/name), with what is assumed of them, in the order of their names."""
        return list(self._ledger.census.members(gang))


def _split(name: str) -> tuple[str, str]:
    namespace, _, own = name.partition("/")
    return namespace, own


def _name(item: Object) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
