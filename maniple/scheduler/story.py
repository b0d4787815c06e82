"""What a plan means for one job: where its pods are or go, on which GPUs and how fast those work together, or why it
waits.
"""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from maniple.api.errors import InputError, nearest
from maniple.model.job import Job, PlacedPod
from maniple.model.snapshot import Snapshot
from maniple.scheduler.gpus import GpuRoom
from maniple.scheduler.plan import Bind, Plan, QueueShare, Waiting
from maniple.scheduler.report import named_gpus

RUNS, STARTS, PROMISED, LEAVES, WAITS = "Runs", "Starts", "Promised", "Leaves", "Waits"


class PodStory(msgspec.Struct, frozen=True):
    pod: str
    state: str  # Runs, Starts, Promised, Leaves or Waits
    node: str = ""
    domain: str = ""  # at the level that the gang names
    gpus: tuple[str, ...] = ()
    gpu_share: float | UnsetType = msgspec.field(default=UNSET, name="gpuShare")
    ring_gbs: float | UnsetType = msgspec.field(default=UNSET, name="ringGBs")


class Story(msgspec.Struct, frozen=True):
    job: str
    kind: str  # PodGroup, ElasticJob or Pod
    state: str  # that of its pods which says most: Starts, Leaves, Promised, Waits, else Runs
    queue: QueueShare
    priority: int
    min_member: int = msgspec.field(name="minMember")
    required: str  # levels of the topology
    preferred: str
    ring_gbs: float | None = msgspec.field(name="ringGBs")  # the slowest of its pods' rings
    pods: tuple[PodStory, ...]
    waiting: Waiting | None


def tell(snapshot: Snapshot, plan: Plan, name: str) -> Story:
    """The story of the job `ns/name`; InputError that names the nearest if there is no such job."""
    job = _find(snapshot, name)
    pods = tuple(_pods(snapshot, plan, job))
    rings = [pod.ring_gbs for pod in pods if not isinstance(pod.ring_gbs, UnsetType)]
    states = [pod.state for pod in pods]
    return Story(
        job=job.name,
        kind=job.key[1],
        state=next(
            (state for state in (STARTS, LEAVES, PROMISED, WAITS) if state in states), RUNS if states else WAITS
        ),
        queue=next(share for share in plan.queues if share.name == snapshot.queues[job.queue].name),
        priority=job.priority,
        min_member=job.min_member,
        required=job.required,
        preferred=job.preferred,
        ring_gbs=min(rings, default=None),
        pods=pods,
        waiting=next((entry for entry in plan.waiting if entry.group == job.name), None),
    )


def _find(snapshot: Snapshot, name: str) -> Job:
    full = name if "/" in name else f"default/{name}"
    found = [job for job in snapshot.jobs if job.name == full]
    if not found:
        # A pod of a gang stands for its gang.
        found = [job for job in snapshot.jobs if full in _names(job)]
    if not found:
        known = nearest(full, {job.name for job in snapshot.jobs}) or "; there are none"
        raise InputError([f"{full}: no such job: neither PodGroup, ElasticJob nor pod of ours{known}"])
    return found[0]


def _names(job: Job) -> Iterator[str]:
    yield from (pod.pod for pod in job.placed)
    for group in job.groups:
        yield from group.pods


def _pods(snapshot: Snapshot, plan: Plan, job: Job) -> Iterator[PodStory]:
    room = GpuRoom(snapshot)
    leaving = {eviction.pod for eviction in plan.evictions}
    binds = {bind.pod: bind for bind in plan.binds}
    promised = {nomination.pod: nomination.node for nomination in plan.nominations}
    for pod in sorted(job.placed, key=lambda pod: pod.order):
        yield _placed(snapshot, room, job, pod, LEAVES if pod.pod in leaving else RUNS)
    for name in (name for group in job.groups for name in group.pods):
        if name in binds:
            yield _bound(snapshot, job, binds[name])
        elif name in promised:
            yield PodStory(name, PROMISED, promised[name], _domain(snapshot, job, promised[name]))
        else:
            yield PodStory(name, WAITS)


def _placed(snapshot: Snapshot, room: GpuRoom, job: Job, pod: PlacedPod, state: str) -> PodStory:
    if pod.node < 0:
        return PodStory(pod.pod, state)
    node = snapshot.nodes.names[pod.node]
    return PodStory(pod.pod, state, node, _domain(snapshot, job, node), *named_gpus(room, pod.node, pod.gpus))


def _bound(snapshot: Snapshot, job: Job, bind: Bind) -> PodStory:
    domain = _domain(snapshot, job, bind.node)
    return PodStory(bind.pod, STARTS, bind.node, domain, bind.gpus, bind.gpu_share, bind.ring_gbs)


def _domain(snapshot: Snapshot, job: Job, node: str) -> str:
    level = snapshot.domains.levels.get(job.required or job.preferred)
    at = snapshot.nodes.index.get(node, -1)
    if level is None or at < 0 or level.codes[at] < 0:
        return ""
    return level.names[int(level.codes[at])]
