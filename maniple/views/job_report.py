"""What a plan means for one job: its size, where its pods are or go and on which GPUs, who leaves and for whom; or why
it waits, its place in line, and the room that is reserved for it.
"""

import math
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from maniple.api.errors import InputError, nearest
from maniple.api.keys import split_name
from maniple.api.timestamps import parse_timestamp
from maniple.model.job import Job
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.free_gpus import FreeGpus
from maniple.scheduler.framework.make_plan import make_bind
from maniple.scheduler.framework.plan import Bind, Eviction, Plan, QueueShare, ReservedNodes, Waiting

RUNS, STARTS, PROMISED, RESERVED, LEAVES, WAITS = "Runs", "Starts", "Promised", "Reserved", "Leaves", "Waits"
ENDED = "Ended"  # all of its pods have succeeded


class PodReport(msgspec.Struct, frozen=True):
    pod: str
    state: str  # Runs, Starts, Promised, Reserved, Leaves or Waits
    node: str
    domain: str  # at the level that the gang names
    gpus: tuple[str, ...]
    gpu_share: float | UnsetType = msgspec.field(name="gpuShare")
    ring_gbs: float | UnsetType = msgspec.field(name="ringGBs")
    reason: str | UnsetType  # why it leaves
    beneficiary: str | UnsetType = msgspec.field(name="for")  # for whom it leaves
    backfill: str | UnsetType  # the gang in whose reserved room it runs until that gang can start


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
    state: str  # that of its pods which says most: Starts, Leaves, Promised, Reserved, Waits, else Runs; Ended
    queue: QueueShare
    position: int | None  # in the queue's line, 1 is next; None: it is not in line
    line: int  # how many are in that line
    priority: int
    preemptable: bool
    min_member: int = msgspec.field(name="minMember")
    running: int  # pods on nodes
    gated: int  # pods held by scheduling gates
    roles: tuple[RoleReport, ...]  # of an ElasticJob
    cools_down_s: float | None = msgspec.field(name="coolsDownSeconds")  # how long it is not resized
    required: str  # levels of the topology
    preferred: str
    ring_gbs: float | None = msgspec.field(name="ringGBs")  # the slowest of its pods' rings
    pods: tuple[PodReport, ...]
    reservation: ReservationReport | None
    backs_off_s: float | None = msgspec.field(name="backsOffSeconds")  # how long it is not tried
    waiting: Waiting | None
    incomplete: str | None = None  # what a gang lacks that runs below its minimum while nothing of it waits


def report_job(snapshot: Snapshot, plan: Plan, job: Job) -> JobReport:
    pods = tuple(_pods(snapshot, plan, job))
    states = {pod.state for pod in pods} or {WAITS}
    queue = snapshot.queues[job.queue].name
    waiting = plan.explanations.of(job.key, is_thorough=True)
    reserved = _reserved(plan, job)
    return JobReport(
        job=job.name,
        kind=job.key[1],
        state=ENDED if job.succeeded and not pods and not job.strangers else _state(states),
        queue=next(share for share in plan.queues if share.name == queue),
        position=None if waiting is None else waiting.position,
        line=plan.explanations.line(queue),
        priority=job.priority,
        preemptable=job.preemptable,
        min_member=job.min_member,
        running=len(job.placed),
        gated=job.gated,
        roles=tuple(_roles(plan, job)),
        cools_down_s=None if job.elastic is None else _seconds_until(snapshot, job.elastic.cooldown_until),
        required=job.required,
        preferred=job.preferred,
        ring_gbs=min((pod.ring_gbs for pod in pods if pod.ring_gbs is not UNSET), default=None),
        pods=pods,
        reservation=None if reserved is None else _reservation(snapshot, reserved),
        backs_off_s=_seconds_until(snapshot, job.backs_off_until),
        waiting=waiting,
    )


def _state(states: set[str]) -> str:
    return next((state for state in (STARTS, LEAVES, PROMISED, RESERVED, WAITS) if state in states), RUNS)


def find_job(snapshot: Snapshot, name: str) -> Job:
    """The job `ns/name` or `Kind/ns/name`, or that of such a pod; InputError if there is none, or there are several."""
    kind, _, after_kind = name.partition("/")
    jobs = [
        job
        for job in snapshot.jobs
        if name == job.name or (after_kind == job.name and kind.lower() == job.key[1].lower())
    ]
    if len(jobs) > 1:
        names = " or ".join(f"{job.key[1]}/{job.name}" for job in jobs)
        raise InputError([f"{name}: several gangs have that name; write {names}"])
    if not jobs:
        jobs = [job for job in snapshot.jobs if name in pods_of(job)]
    if not jobs:
        label = after_kind if "/" in after_kind else name
        namespace, own_name = split_name(label)
        known_names = {job.name for job in snapshot.jobs}
        # A job or pod of that name elsewhere is probably meant; else the jobs of the namespace are of interest.
        all_names = known_names.union(*map(pods_of, snapshot.jobs))
        near = {other for other in all_names if split_name(other)[1] == own_name}
        near = near or {other for other in known_names if split_name(other)[0] == namespace} or known_names
        known = nearest(label, near) or "; there are none"
        raise InputError([f"{name}: no such job: neither PodGroup, ElasticJob nor pod of ours{known}"])
    return jobs[0]


def pods_of(job: Job) -> set[str]:
    return {*(pod.pod for pod in job.placed), *_waiting_pods(job)}


def _waiting_pods(job: Job) -> list[str]:
    return [pod for group in job.groups for pod in group.pods]


def _seconds_until(snapshot: Snapshot, moment: float) -> float | None:
    return math.ceil(moment - snapshot.now) if moment > snapshot.now else None


def _roles(plan: Plan, job: Job) -> Iterator[RoleReport]:
    resized = {resize.role: resize.to_size for resize in plan.resizes if resize.job == job.name}
    for name, role in job.elastic.roles.items() if job.elastic is not None else ():
        running = job.placed_by_role.get(name, 0)
        yield RoleReport(name, role.size, role.min, role.max, role.step, running, resized.get(name))


def _reserved(plan: Plan, job: Job) -> ReservedNodes | None:
    """What is reserved for it. Another kind of gang may have its name, but not its pods."""
    nominated = {nomination.pod for nomination in plan.nominations}
    if nominated.isdisjoint(_waiting_pods(job)):
        return None
    return next((entry for entry in plan.reservations if entry.group == job.name), None)


def _reservation(snapshot: Snapshot, reserved: ReservedNodes) -> ReservationReport:
    left = parse_timestamp(reserved.expected).timestamp() - snapshot.now
    return ReservationReport(reserved.nodes, reserved.expected, max(0.0, float(math.ceil(left))))


def _pods(snapshot: Snapshot, plan: Plan, job: Job) -> Iterator[PodReport]:
    level = snapshot.domains.levels.get(job.required or job.preferred)

    def report(state: str, bind: Bind, eviction: Eviction | None = None) -> PodReport:
        code = level.codes[snapshot.nodes.index[bind.node]] if level is not None and bind.node else -1
        return PodReport(
            pod=bind.pod,
            state=state,
            node=bind.node,
            domain=level.names[int(code)] if level is not None and code >= 0 else "",
            gpus=bind.gpus,
            gpu_share=bind.gpu_share,
            ring_gbs=bind.ring_gbs,
            reason=UNSET if eviction is None else eviction.reason,
            beneficiary=UNSET if eviction is None else eviction.beneficiary,
            backfill=bind.backfill,
        )

    room = FreeGpus(snapshot)
    leaving = {eviction.pod: eviction for eviction in plan.leaving()}
    binds = {bind.pod: bind for bind in plan.binds}
    promised = {nomination.pod: nomination.node for nomination in plan.nominations}
    nominated = PROMISED if _reserved(plan, job) is None else RESERVED
    for pod in sorted(job.placed, key=lambda pod: pod.order):
        bind = Bind(pod.pod, "", backfill=pod.makes_way_for or UNSET)
        if pod.node >= 0:
            # A pod may hold more GPUs than its node has now, such as after a failed driver: those have no name.
            gpus = tuple(gpu for gpu in pod.gpus if gpu.device < len(room.tables[gpu.row].ids[pod.node]))
            bind = make_bind(snapshot, room, pod.pod, pod.node, gpus, pod.makes_way_for)
        yield report(LEAVES if pod.pod in leaving else RUNS, bind, leaving.get(pod.pod))
    for name in _waiting_pods(job):
        if name in binds:
            yield report(STARTS, binds[name])
        elif name in promised:
            yield report(nominated, Bind(name, promised[name]))
        else:
            yield report(WAITS, Bind(name, ""))
    if job.gated and job.key[1] == "Pod":
        yield report(WAITS, Bind(job.name, ""))
