"""The gangs of pods that the server has: who belongs to which, and whether all of its minimum is there.

What a gang was, whole or not yet, stands in its own status, so that a restart knows it too.
"""

from collections.abc import Iterator

from maniple.api import kubernetes, types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.decode.decode import Object
from maniple.api.keys import split_name
from maniple.api.labels import RESERVED_ANNOTATION
from maniple.api.meta import Struct
from maniple.kube.transport.mirror import Key, Mirror, Seen
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.model.job import Job
from maniple.model.ownership import Ours
from maniple.model.pod_identity import named_gangs
from maniple.model.snapshot import Snapshot

SCHEDULED = "Scheduled"  # the condition of a gang
SCHEDULED_NOW = "maniple.dev/Scheduled"  # the same, of a PodGroup of upstream's
_STARTED = ("Running", "Scheduled", "Unknown", "Finished", "Completed")  # phases of other systems' PodGroups


class Gangs:
    """Keeps the pods of every gang, by the gang's namespace and name; `touched` are those that have changed."""

    def __init__(self, mirror: Mirror, ours: Ours) -> None:
        self._mirror = mirror
        self._ours = ours
        self._members: dict[Key, dict[str, kubernetes.Pod]] = {}
        self._gang_of: dict[Key, Key] = {}
        self.touched: set[Key] = set()
        self.nominated: set[str] = set()  # ns/name of our waiting pods that say they are promised a node
        self.reserved: set[Key] = set()  # gangs that say that nodes are kept for them
        mirror.listen(self._hear)

    def members(self, key: Key) -> list[kubernetes.Pod]:
        return list(self._members.get(key, {}).values())

    def runs(self, job: types.ElasticJob) -> bool:
        return self._ours.runs(job)

    def is_ours(self, key: Key) -> bool:
        """Whether any of its pods is. One of another scheduler's pods is that scheduler's to speak of."""
        return any(map(self._ours.claims, self._members.get(key, {}).values()))

    def _hear(self, resource: Resource, key: Key, item: Object | None) -> None:
        if item is not None and item.metadata.annotations.get(RESERVED_ANNOTATION) == "true":
            self.reserved.add(key)
        if resource.read_as in (types.PodGroup, types.ElasticJob):
            self.touched.add(key)
        elif resource is PODS:
            self._hear_of_pod(key, item if isinstance(item, kubernetes.Pod) else None)

    def _hear_of_pod(self, key: Key, pod: kubernetes.Pod | None) -> None:
        name = "/".join(key)
        is_promised = pod is not None and pod.status.nominated_node_name and not pod.spec.node_name
        if pod is not None and is_promised and self._ours.claims(pod):
            self.nominated.add(name)
        else:
            self.nominated.discard(name)
        gang = None if pod is None else gang_of(pod)
        before = self._gang_of.get(key)
        if before is not None and before != gang:
            self._leave(key, before)
        if pod is not None and gang is not None:
            self._gang_of[key] = gang
            self._members.setdefault(gang, {})[key[1]] = pod
            self.touched.add(gang)

    def _leave(self, key: Key, gang: Key) -> None:
        del self._gang_of[key]
        members = self._members[gang]
        del members[key[1]]
        if not members:
            del self._members[gang]
        self.touched.add(gang)

    def find(self, key: Key) -> tuple[Resource, Seen] | None:
        """The object that a gang of this name is."""
        return self._mirror.find(types.ElasticJob, key) or self._mirror.find(types.PodGroup, key)

    def was_whole(self, job: Job) -> bool:
        """Whether all of its minimum has been there at once since it last had nobody."""
        found = self.find(key_of(job))
        if found is None:
            return True
        _, seen = found
        if seen.source is not None:
            return has_started(seen.source)
        if isinstance(seen.item, types.PodGroup | types.ElasticJob):
            return any(one.type == SCHEDULED and one.status == "True" for one in seen.item.status.conditions)
        return True

    def halves(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Gangs of which some pods are bound, and never yet enough."""
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


def key_of(job: Job) -> Key:
    return split_name(job.name)


def is_whole(job: Job) -> bool:
    """Whether all of its minimum is bound, or done."""
    if len(job.placed) + job.succeeded < job.min_member:
        return False
    there, done = job.placed_by_role, job.succeeded_by_role
    return all(there.get(role, 0) + done.get(role, 0) >= least for role, least in job.role_min.items())


def jobs_by_queue(snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int]]:
    """How many jobs of each queue wait with all of their pods, and how many have some that run."""
    pending: dict[str, int] = {}
    running: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.placed:
            name = snapshot.queues[job.queue].name
            running[name] = running.get(name, 0) + 1
        elif job.groups or job.gated:
            name = snapshot.queues[job.queue].name
            pending[name] = pending.get(name, 0) + 1
    return pending, running
