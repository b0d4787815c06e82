"""What a plan means for one job: how large it is, where its pods are or go, on which GPUs and how fast those work
together, who leaves and for whom; or why it waits, its place in line, and the room that is kept for it.
"""

import math
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from maniple.api.errors import InputError, nearest
from maniple.api.timestamps import parse_timestamp
from maniple.model.job import Job, PlacedPod
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.free_gpus import FreeGpus
from maniple.scheduler.framework.make_plan import named_gpus
from maniple.scheduler.framework.plan import Bind, Eviction, Plan, QueueShare, ReservedNodes, Waiting

RUNS, STARTS, PROMISED, RESERVED, LEAVES, WAITS = "Runs", "Starts", "Promised", "Reserved", "Leaves", "Waits"


class PodReport(msgspec.Struct, frozen=True):
    pod: str
    state: str  # Runs, Starts, Promised, Reserved, Leaves or Waits
    node: str = ""
    domain: str = ""  # at the level that the gang names
    gpus: tuple[str, ...] = ()
    gpu_share: float | UnsetType = msgspec.field(default=UNSET, name="gpuShare")
    ring_gbs: float | UnsetType = msgspec.field(default=UNSET, name="ringGBs")
    reason: str | UnsetType = UNSET  # why it leaves
    beneficiary: str | UnsetType = msgspec.field(default=UNSET, name="for")  # for whom it leaves
    backfill: str | UnsetType = UNSET  # the gang in whose reserved room it runs until that gang can start


class RoleReport(msgspec.Struct, frozen=True):
    """The size of a role of an ElasticJob."""

    role: str
    size: int
    min: int
    max: int
    step: int
    running: int
    resize: int | None  # the size that this plan gives it, if it changes


class ReservationReport(msgspec.Struct, frozen=True):
    nodes: dict[str, int]
    expected: str
    in_s: float = msgspec.field(name="inSeconds")


class JobReport(msgspec.Struct, frozen=True):
    job: str
    kind: str  # PodGroup, ElasticJob or Pod
    state: str  # that of its pods which says most: Starts, Leaves, Promised, Reserved, Waits, else Runs
    queue: QueueShare
    position: int | None  # in the queue's line, 1 is next; None: it is not in line
    line: int  # how many are in that line
    priority: int
    preemptable: bool
    min_member: int = msgspec.field(name="minMember")
    running: int  # pods on nodes
    gated: int  # pods held by scheduling gates
    roles: tuple[RoleReport, ...]  # of an ElasticJob
    cools_down_s: float | None = msgspec.field(name="coolsDownSeconds")  # so long it is not resized
    required: str  # levels of the topology
    preferred: str
    ring_gbs: float | None = msgspec.field(name="ringGBs")  # the slowest of its pods' rings
    pods: tuple[PodReport, ...]
    reservation: ReservationReport | None
    backs_off_s: float | None = msgspec.field(name="backsOffSeconds")  # so long it is not tried
    waiting: Waiting | None


def report_job(snapshot: Snapshot, plan: Plan, job: Job) -> JobReport:
    pods = tuple(_pods(snapshot, plan, job))
    rings = [pod.ring_gbs for pod in pods if not isinstance(pod.ring_gbs, UnsetType)]
    states = [pod.state for pod in pods]
    queue = snapshot.queues[job.queue].name
    waiting = next((entry for entry in plan.waiting if (entry.group, entry.kind) == job.key), None)
    backs_off = job.backs_off_until - snapshot.now
    return JobReport(
        job=job.name,
        kind=job.key[1],
        state=next(
            (state for state in (STARTS, LEAVES, PROMISED, RESERVED, WAITS) if state in states),
            RUNS if states else WAITS,
        ),
        queue=next(share for share in plan.queues if share.name == queue),
        position=None if waiting is None else waiting.position,
        line=sum(entry.queue == queue and entry.position is not None for entry in plan.waiting),
        priority=job.priority,
        preemptable=job.preemptable,
        min_member=job.min_member,
        running=len(job.placed),
        gated=job.gated,
        roles=tuple(_roles(plan, job)),
        cools_down_s=_seconds(job.elastic.cooldown_until - snapshot.now) if job.elastic is not None else None,
        required=job.required,
        preferred=job.preferred,
        ring_gbs=min(rings, default=None),
        pods=pods,
        reservation=_reservation(snapshot, plan, job),
        backs_off_s=_seconds(backs_off),
        waiting=waiting,
    )


def find_job(snapshot: Snapshot, name: str) -> Job:
    """The job `ns/name` or `Kind/ns/name`; InputError if there is none, or several with that name."""
    full = name if "/" in name else f"default/{name}"
    jobs = [job for job in snapshot.jobs if full in (job.name, f"{job.key[1]}/{job.name}")]
    if len(jobs) > 1:
        names = " or ".join(f"{job.key[1]}/{job.name}" for job in jobs)
        raise InputError([f"{full}: several gangs have that name; write {names}"])
    if not jobs:
        # The name of a pod stands for its gang.
        jobs = [job for job in snapshot.jobs if full in _names(job)]
    if not jobs:
        known = nearest(full, {job.name for job in snapshot.jobs}) or "; there are none"
        raise InputError([f"{full}: no such job: neither PodGroup, ElasticJob nor pod of ours{known}"])
    return jobs[0]


def _names(job: Job) -> Iterator[str]:
    yield from (pod.pod for pod in job.placed)
    for group in job.groups:
        yield from group.pods


def _seconds(left: float) -> float | None:
    return math.ceil(left) if left > 0 else None


def _roles(plan: Plan, job: Job) -> Iterator[RoleReport]:
    if job.elastic is None:
        return
    resized = {resize.role: resize.to_size for resize in plan.resizes if resize.job == job.name}
    for name, role in job.elastic.roles.items():
        there = job.placed_by_role.get(name, 0)
        yield RoleReport(name, role.size, role.min, role.max, role.step, there, resized.get(name))


def _reservation(snapshot: Snapshot, plan: Plan, job: Job) -> ReservationReport | None:
    reservation = _kept(plan, job)
    if reservation is None:
        return None
    left = parse_timestamp(reservation.expected).timestamp() - snapshot.now
    return ReservationReport(reservation.nodes, reservation.expected, max(0.0, float(math.ceil(left))))


def _kept(plan: Plan, job: Job) -> ReservedNodes | None:
    """What is reserved for it. Another kind of gang may have its name, but not its pods."""
    reservation = next((entry for entry in plan.reservations if entry.group == job.name), None)
    pods = {pod for group in job.groups for pod in group.pods} if reservation is not None else set()
    return reservation if any(nomination.pod in pods for nomination in plan.nominations) else None


def _pods(snapshot: Snapshot, plan: Plan, job: Job) -> Iterator[PodReport]:
    room = FreeGpus(snapshot)
    leaving = {eviction.pod: eviction for eviction in plan.leaving()}
    binds = {bind.pod: bind for bind in plan.binds}
    promised = {nomination.pod: nomination.node for nomination in plan.nominations}
    kept = PROMISED if _kept(plan, job) is None else RESERVED
    for pod in sorted(job.placed, key=lambda pod: pod.order):
        yield _placed(snapshot, room, job, pod, leaving.get(pod.pod))
    for name in (name for group in job.groups for name in group.pods):
        if name in binds:
            yield _bound(snapshot, job, binds[name])
        elif name in promised:
            yield PodReport(name, kept, promised[name], _domain(snapshot, job, promised[name]))
        else:
            yield PodReport(name, WAITS)
    if job.gated and job.key[1] == "Pod":
        yield PodReport(job.name, WAITS)


def _placed(snapshot: Snapshot, room: FreeGpus, job: Job, pod: PlacedPod, eviction: Eviction | None) -> PodReport:
    gone = (UNSET, UNSET) if eviction is None else (eviction.reason, eviction.beneficiary)
    state = RUNS if eviction is None else LEAVES
    way = pod.makes_way_for or UNSET
    if pod.node < 0:
        return PodReport(pod.pod, state, reason=gone[0], beneficiary=gone[1], backfill=way)
    node = snapshot.nodes.names[pod.node]
    gpus = named_gpus(room, pod.node, pod.gpus)
    domain = _domain(snapshot, job, node)
    return PodReport(pod.pod, state, node, domain, *gpus, reason=gone[0], beneficiary=gone[1], backfill=way)


def _bound(snapshot: Snapshot, job: Job, bind: Bind) -> PodReport:
    return PodReport(
        pod=bind.pod,
        state=STARTS,
        node=bind.node,
        domain=_domain(snapshot, job, bind.node),
        gpus=bind.gpus,
        gpu_share=bind.gpu_share,
        ring_gbs=bind.ring_gbs,
        backfill=bind.backfill,
    )


def _domain(snapshot: Snapshot, job: Job, node: str) -> str:
    level = snapshot.domains.levels.get(job.required or job.preferred)
    index = snapshot.nodes.index.get(node, -1)
    if level is None or index < 0 or level.codes[index] < 0:
        return ""
    return level.names[int(level.codes[index])]
