"""The gangs of the mirror: their pods, which of them have changed, and whether a gang was ever whole.

Whether a gang was whole is read from its own status, so that a restart knows it too.
"""

from collections.abc import Iterator

from maniple.api import kubernetes, types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, join_key, split_name
from maniple.api.labels import RESERVED_ANNOTATION
from maniple.api.meta import Struct
from maniple.api.phases import FINISHED
from maniple.api.queue_names import queue_that_counts
from maniple.elastic.conditions import is_true
from maniple.kube.transport.mirror import Mirror, PodsByOwner, Seen
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.model.building.queue_choice import has_same_queue
from maniple.model.job import Job
from maniple.model.pod_identity import named_gangs
from maniple.model.pods_we_schedule import Ours
from maniple.model.snapshot import Snapshot

SCHEDULED = "Scheduled"  # the condition of a gang
SCHEDULED_NOW = "maniple.dev/Scheduled"  # the same, of an upstream PodGroup
_STARTED = ("Running", "Scheduled", "Unknown", "Finished", "Completed")  # phases of other systems' PodGroups


class Gangs:
    def __init__(self, mirror: Mirror, ours: Ours) -> None:
        self._mirror = mirror
        self.ours = ours
        self._index = PodsByOwner()
        self.touched: set[Key] = set()  # gangs that have changed
        self._moved: set[str] = set()  # namespaces whose queue has changed
        self.nominated: set[str] = set()  # namespace/name of our waiting pods that have a nominated node
        self.reserved: set[Key] = set()  # gangs that are annotated as having nodes reserved
        mirror.listen(self._on_change)

    def members(self, key: Key) -> list[kubernetes.Pod]:
        pods = self._mirror.seen(PODS)
        items = (pods[pod].item for pod in self._index.pods(key))
        return [item for item in items if isinstance(item, kubernetes.Pod)]

    def has_enough_pods(self, key: Key) -> bool:
        """Whether there are as many pods as the gang needs to start, bound or not. Of ElasticJobs it is not known."""
        gang = self.find(key)
        if gang is None:
            return False
        return not isinstance(gang.item, types.PodGroup) or self._index.count(key) >= gang.item.spec.min_member

    def take_touched(self) -> set[Key]:
        """Gangs that have changed since the last call, and those whose namespace got another queue."""
        touched, self.touched = self.touched, set()
        moved, self._moved = self._moved, set()
        if moved:
            resources = (*self._mirror.rivals(types.PodGroup), *self._mirror.rivals(types.ElasticJob))
            touched |= {key for resource in resources for key in self._mirror.seen(resource) if key[0] in moved}
        return touched

    def queue_of(self, gang: types.PodGroup | types.ElasticJob) -> str:
        """The queue that it is in, or would be if there were such a queue."""
        namespace = self._mirror.find(kubernetes.Namespace, ("", gang.metadata.namespace))
        meta = None if namespace is None or namespace.item is None else namespace.item.metadata
        return queue_that_counts(gang.spec.queue, gang.metadata, meta)

    def holds(self, key: Key) -> bool:
        """Whether any of its pods is on a node and has not finished, leaving pods included."""
        return any(pod.spec.node_name and pod.status.phase not in FINISHED for pod in self.members(key))

    def is_ours(self, key: Key) -> bool:
        """Whether any of its pods is. The status of another scheduler's gang is not ours to write."""
        return any(map(self.ours.claims, self.members(key)))

    def _on_change(self, resource: Resource, key: Key, before: Seen | None, seen: Seen | None) -> None:
        item = None if seen is None else seen.item
        if item is not None and item.metadata.annotations.get(RESERVED_ANNOTATION) == "true":
            self.reserved.add(key)
        if resource.read_as in (types.PodGroup, types.ElasticJob):
            self.touched.add(key)
        elif resource is PODS:
            self._on_pod(key, None if before is None else before.item, item)
        elif resource.read_as is kubernetes.Namespace:
            self._on_namespace(key[1], None if before is None else before.item, item)

    def _on_pod(self, key: Key, before: Object | None, pod: Object | None) -> None:
        self.nominated.discard(join_key(key))
        if (
            isinstance(pod, kubernetes.Pod)
            and pod.status.nominated_node_name
            and not pod.spec.node_name
            and self.ours.claims(pod)
        ):
            self.nominated.add(join_key(key))
        old, gang = gang_of(before), gang_of(pod)
        self._index.move(key, old, gang)
        if gang is not None:
            self.touched.add(gang)
        if old is not None and old != gang:
            self.touched.add(old)

    def _on_namespace(self, name: str, before: Object | None, after: Object | None) -> None:
        old, new = (item if isinstance(item, kubernetes.Namespace) else None for item in (before, after))
        if not has_same_queue(old, new):
            self._moved.add(name)

    def find(self, key: Key) -> Seen | None:
        """The ElasticJob or PodGroup of this name."""
        return self._mirror.find(types.ElasticJob, key) or self._mirror.find(types.PodGroup, key)

    def was_whole(self, job: Job) -> bool:
        """Whether its whole minimum has been bound at once since it last had no pods."""
        seen = self.find(split_name(job.name))
        if seen is None:
            return True
        if seen.source is not None:
            return has_started(seen.source)
        if isinstance(seen.item, types.PodGroup | types.ElasticJob):
            return is_true(seen.item.status.conditions, SCHEDULED)
        return True

    def halves(self, snapshot: Snapshot) -> Iterator[Job]:
        """Gangs of which some pods are bound, but never enough so far."""
        for job in snapshot.incomplete:
            if job.min_member > 1 and job.placed and not job.is_whole and not self.was_whole(job):
                yield job


def has_started(source: Struct) -> bool:
    """Whether another system's PodGroup says of itself that it was whole."""
    if isinstance(source, UpstreamPodGroup):
        return source.has(SCHEDULED_NOW)
    status: dict[str, object] = getattr(source, "status", {})
    return status.get("phase") in _STARTED


def gang_of(pod: Object | None) -> Key | None:
    gangs = named_gangs(pod) if isinstance(pod, kubernetes.Pod) else ()
    return split_name(gangs[0][0]) if gangs else None


def jobs_by_queue(snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int]]:
    """How many jobs of each queue have no pod on a node yet, and how many have some."""
    pending: dict[str, int] = {}
    running: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.placed or job.groups or job.gated:
            counts, name = running if job.placed else pending, snapshot.queues[job.queue].name
            counts[name] = counts.get(name, 0) + 1
    return pending, running
