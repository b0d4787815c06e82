"""An index of the mirror by gang: the pods of each gang, which gangs have changed, and whether a gang was ever whole.

Whether a gang was whole is read from its own status, so that a restart knows it too.
"""

from collections.abc import Iterator

from maniple.api import kubernetes, types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, join_key, split_name
from maniple.api.labels import RESERVED_ANNOTATION
from maniple.api.meta import Struct
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.model.job import Job
from maniple.model.ownership import Ours
from maniple.model.pod_identity import named_gangs
from maniple.model.snapshot import Snapshot

SCHEDULED = "Scheduled"  # the condition of a gang
SCHEDULED_NOW = "maniple.dev/Scheduled"  # the same, of an upstream PodGroup
_STARTED = ("Running", "Scheduled", "Unknown", "Finished", "Completed")  # phases of other systems' PodGroups


class Gangs:
    """Keys of pods by the key of their gang. The pods themselves are in the mirror."""

    def __init__(self, mirror: Mirror, ours: Ours) -> None:
        self._mirror = mirror
        self._ours = ours
        self._members: dict[Key, dict[Key, None]] = {}  # in order of arrival
        self._gang_of: dict[Key, Key] = {}
        self.touched: set[Key] = set()  # gangs that have changed
        self.nominated: set[str] = set()  # namespace/name of our waiting pods that have a nominated node
        self.reserved: set[Key] = set()  # gangs that are annotated as having nodes reserved
        mirror.listen(self._hear)

    def members(self, key: Key) -> list[kubernetes.Pod]:
        pods = self._mirror.seen(PODS)
        items = (pods[pod].item for pod in self._members.get(key, ()))
        return [item for item in items if isinstance(item, kubernetes.Pod)]

    def runs(self, job: types.ElasticJob) -> bool:
        return self._ours.runs(job)

    def is_ours(self, key: Key) -> bool:
        """Whether any of its pods is. The status of another scheduler's gang is not ours to write."""
        return any(map(self._ours.claims, self.members(key)))

    def _hear(self, resource: Resource, key: Key, item: Object | None) -> None:
        if item is not None and item.metadata.annotations.get(RESERVED_ANNOTATION) == "true":
            self.reserved.add(key)
        if resource.read_as in (types.PodGroup, types.ElasticJob):
            self.touched.add(key)
        elif resource is PODS:
            self._hear_of_pod(key, item if isinstance(item, kubernetes.Pod) else None)

    def _hear_of_pod(self, key: Key, pod: kubernetes.Pod | None) -> None:
        is_nominated = pod is not None and pod.status.nominated_node_name and not pod.spec.node_name
        if pod is not None and is_nominated and self._ours.claims(pod):
            self.nominated.add(join_key(key))
        else:
            self.nominated.discard(join_key(key))
        gang, before = None if pod is None else gang_of(pod), self._gang_of.get(key)
        if before is not None and before != gang:
            del self._gang_of[key]
            del self._members[before][key]
            if not self._members[before]:
                del self._members[before]
            self.touched.add(before)
        if gang is not None:
            self._gang_of[key] = gang
            self._members.setdefault(gang, {})[key] = None
            self.touched.add(gang)

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
            conditions = seen.item.status.conditions
            return any(condition.type == SCHEDULED and condition.status == "True" for condition in conditions)
        return True

    def halves(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Gangs of which some pods are bound, but never enough so far."""
        for job in jobs:
            if job.min_member > 1 and job.placed and not is_whole(job) and not self.was_whole(job):
                yield job


def has_started(source: Struct) -> bool:
    """Whether another system's PodGroup says of itself that it was whole."""
    if isinstance(source, UpstreamPodGroup):
        return source.has(SCHEDULED_NOW)
    status: dict[str, object] = getattr(source, "status", {})
    return status.get("phase") in _STARTED


def gang_of(pod: kubernetes.Pod) -> Key | None:
    gangs = named_gangs(pod)
    return split_name(gangs[0][0]) if gangs else None


def is_whole(job: Job) -> bool:
    """Whether its whole minimum is bound or has succeeded."""
    if len(job.placed) + job.succeeded < job.min_member:
        return False
    there, done = job.placed_by_role, job.succeeded_by_role
    return all(there.get(role, 0) + done.get(role, 0) >= least for role, least in job.role_min.items())


def jobs_by_queue(snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int]]:
    """How many jobs of each queue have no pod on a node yet, and how many have some."""
    pending: dict[str, int] = {}
    running: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.placed or job.groups or job.gated:
            counts, name = running if job.placed else pending, snapshot.queues[job.queue].name
            counts[name] = counts.get(name, 0) + 1
    return pending, running
