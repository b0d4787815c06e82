"""A cluster in memory: objects in, plans applied to them at once. What `maniple plan` and the tests run on.

Applying is idealised: bound pods run, evicted pods go and come back as pending, whoever was leaving has left, and jobs
have the size that was decided. A round takes one second, in which nothing else happens; or as long as one says, and
then those who are to come arrive, and those who are to end do (calendar.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np

from maniple.api import kubernetes, types
from maniple.api.decode.decode import decode
from maniple.api.labels import BACKFILL_ANNOTATION, GPUS_ANNOTATION, JOB_LABEL
from maniple.cluster.arrivals import Calendar
from maniple.cluster.assumed import marked, with_bind
from maniple.model.building.from_scratch import Ours, build_snapshot
from maniple.model.building.input_objects import Objects, beyond_their_size, implied_pods, sort_objects
from maniple.model.reads import Reads
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, load_policy, schedule
from maniple.scheduler.framework.plan import Bind, Resize

ROUND_S = 1.0
OVER = ("Succeeded", "Failed")


class MemoryCluster:
    def __init__(
        self,
        objects: Objects,
        ours: Ours | None = None,
        now: float | None = None,
        step_s: float | None = None,
        reads: Reads | None = None,
    ) -> None:
        """`reads`: labels and annotations that plugins declare to read."""
        self._reads = reads
        self._objects = objects
        self._ours = ours or Ours()
        self._now = now
        self._step_s = ROUND_S if step_s is None else step_s
        self._holders: set[str] = set()  # gangs with a reservation
        self._calendar: Calendar | None = None
        if step_s is not None:
            self._calendar = Calendar(objects, np.inf if now is None else now)
            self._imply([])

    def snapshot(self) -> Snapshot:
        made = build_snapshot(self._objects, self._ours, self._now, self._reads)
        self._now = made.now
        return made

    def why_at_rest(self, job: str) -> str:
        """`Succeeded`, `Failed` or `Suspended`, if the ElasticJob of this name is so: nothing is decided for it."""
        for one in self._objects.elastic_jobs:
            if f"{one.metadata.namespace}/{one.metadata.name}" == job:
                return one.status.phase if one.status.phase in OVER else "Suspended" * one.spec.suspend
        return ""

    def apply(self, plan: Plan) -> None:
        now = datetime.fromtimestamp(self._now or 0.0, UTC)
        binds = {bind.pod: bind for bind in plan.binds}
        evicted = {eviction.pod for eviction in plan.evictions}
        promised = {nomination.pod: nomination.node for nomination in plan.nominations}
        after = []
        for pod in self._objects.pods:
            name = _name(pod)
            if name in binds:
                after.append(_bound(pod, binds[name], now))
            elif name in evicted:
                after.append(_replacement(pod, now))
            elif pod.metadata.deletion_timestamp is None:
                after.append(_nominated(pod, promised.get(name, "")))
        implied = self._objects.implied
        after += [_bound(pod, binds[_name(pod)], now) for pod in implied if _name(pod) in binds]
        kept = [_nominated(pod, promised.get(_name(pod), "")) for pod in implied if _name(pod) not in binds]
        jobs = _resized(self._objects.elastic_jobs, plan.resizes, now)
        gone = beyond_their_size(jobs, [*after, *kept]) if plan.resizes else set()
        after, kept = ([pod for pod in pods if _name(pod) not in gone] for pods in (after, kept))
        self._objects.pods, self._objects.elastic_jobs = after, jobs
        self._mark(plan)
        self._now = (self._now or 0.0) + self._step_s
        if self._calendar is not None:
            self._calendar.pass_to(self._now)
        self._imply(kept)

    def _mark(self, plan: Plan) -> None:
        """Gangs say of themselves whether nodes are kept for them."""
        objects, holders = self._objects, {entry.group for entry in plan.reservations}
        if holders or self._holders:
            objects.pod_groups = [marked(item, holders) for item in objects.pod_groups]
            objects.elastic_jobs = [marked(item, holders) for item in objects.elastic_jobs]
            objects.pods = [marked(item, holders) for item in objects.pods]
        self._holders = holders

    def _imply(self, kept: list[kubernetes.Pod]) -> None:
        """The pods that jobs are still to create; `kept` of them were there before."""
        objects = self._objects
        over = {(job.metadata.namespace, job.metadata.name) for job in objects.elastic_jobs if job.status.phase in OVER}
        kept = [pod for pod in kept if (pod.metadata.namespace, pod.metadata.labels[JOB_LABEL]) not in over]
        more = implied_pods(objects.elastic_jobs, [*objects.pods, *kept], scheduler_name=self._ours.scheduler_name)
        # A job whose last pods have just left is one without pods again.
        objects.implied = [*kept, *more]


def _resized(jobs: list[types.ElasticJob], resizes: Sequence[Resize], now: datetime) -> list[types.ElasticJob]:
    """The jobs with the sizes that were decided."""
    decided: dict[str, dict[str, int]] = {}
    for resize in resizes:
        decided.setdefault(resize.job, {})[resize.role] = resize.to_size

    def after(job: types.ElasticJob) -> types.ElasticJob:
        sizes = decided.get(f"{job.metadata.namespace}/{job.metadata.name}")
        if sizes is None:
            return job
        target = {one.role: one.replicas for one in job.status.target} | sizes
        status = msgspec.structs.replace(
            job.status,
            target=tuple(types.RoleTarget(role, replicas) for role, replicas in target.items()),
            last_resize_time=now,
            resizes=job.status.resizes + 1,
        )
        return msgspec.structs.replace(job, status=status)

    return [after(job) for job in jobs]


def _name(pod: kubernetes.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _bound(pod: kubernetes.Pod, bind: Bind, now: datetime) -> kubernetes.Pod:
    bound = with_bind(pod, bind)
    return kubernetes.Pod(bound.metadata, bound.spec, kubernetes.PodStatus(phase="Running", start_time=now))


def _nominated(pod: kubernetes.Pod, node: str) -> kubernetes.Pod:
    if pod.status.nominated_node_name == node:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def _replacement(pod: kubernetes.Pod, now: datetime) -> kubernetes.Pod:
    """What its controller creates in the place of an evicted pod: the same, pending and new."""
    of_bind = (GPUS_ANNOTATION, BACKFILL_ANNOTATION)
    kept = {key: value for key, value in pod.metadata.annotations.items() if key not in of_bind}
    metadata = msgspec.structs.replace(
        pod.metadata, annotations=kept, uid="", creation_timestamp=now, deletion_timestamp=None
    )
    return kubernetes.Pod(metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


@dataclass
class Round:
    snapshot: Snapshot
    plan: Plan


@dataclass
class Outcome:
    """The rounds of a planning run and how long each took."""

    rounds: list[Round] = field(default_factory=list)
    load_s: float = 0.0
    schedule_s: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """The documented JSON form, as plain values with a stable order."""
        return {
            "rounds": [
                {
                    "binds": _plain(round_.plan.binds),
                    "evictions": _plain(round_.plan.evictions),
                    "nominations": _plain(round_.plan.nominations),
                    "resizes": _plain(round_.plan.resizes),
                    "reservations": _plain(round_.plan.reservations),
                    "waiting": _plain(round_.plan.waiting),
                }
                for round_ in self.rounds
            ],
            "queues": _plain(self.rounds[-1].plan.queues) if self.rounds else [],
            "timings": {
                "load_s": round(self.load_s, 6),
                "schedule_s": [round(s, 6) for s in self.schedule_s],
            },
        }


def _plain(values: Sequence[object]) -> object:
    return msgspec.to_builtins(values)


def run_rounds(
    cluster: MemoryCluster, policy: Policy | None, rounds: int, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Plans, applies and plans again, `rounds` times."""
    outcome = Outcome()
    for number in range(rounds):
        start = time.perf_counter()
        snapshot = cluster.snapshot()
        built = time.perf_counter()
        plan = schedule(snapshot, policy)
        outcome.schedule_s.append(time.perf_counter() - built)
        if number == 0:
            outcome.load_s = built - start
        outcome.rounds.append(Round(snapshot, plan))
        cluster.apply(plan)
        if progress:
            progress(number + 1)
    return outcome


def plan_objects(
    objects: Sequence[Mapping[str, object]],
    policy: str | None = None,
    rounds: int = 1,
    ours: Ours | None = None,
) -> dict[str, object]:
    """`maniple plan` as a function: plain Kubernetes objects in, the documented JSON form out."""
    ours = ours or Ours()
    decoded = decode([("objects", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    chosen = None if policy is None else load_policy(policy.encode(), "policy")
    reads = None if chosen is None else chosen.reads
    cluster = MemoryCluster(sort_objects(decoded, scheduler_name=ours.scheduler_name), ours, reads=reads)
    return run_rounds(cluster, chosen, rounds).to_json()
