"""A cluster in memory that plans are applied to at once. `maniple plan` and the tests run on it.

Applying is idealised: bound pods run, evicted pods come back as pending, pods that were leaving are gone, and jobs have
the size that was decided. A round takes one second in which nothing else happens. With a step of its own length, pods
also arrive and end as the calendar says (arrivals.py).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np

from maniple.api import kubernetes, types
from maniple.api.keys import key_of, name_of
from maniple.api.labels import BACKFILL_ANNOTATION, GPUS_ANNOTATION, JOB_LABEL
from maniple.api.phases import FINISHED
from maniple.cluster.arrivals import Arrivals
from maniple.cluster.assumed import marked, with_bind, with_sizes
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects, beyond_their_size, implied_pods
from maniple.model.ownership import Ours
from maniple.model.reads import Reads
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, schedule
from maniple.scheduler.framework.plan import Bind, Resize

ROUND_S = 1.0


class MemoryCluster:
    def __init__(
        self,
        objects: Objects,
        ours: Ours | None = None,
        now: float | None = None,
        step_s: float | None = None,
        reads: Reads | None = None,
    ) -> None:
        """`reads`: labels and annotations that the policy's plugins declare to read."""
        self._objects = objects
        self._ours = ours or Ours()
        self._reads = reads
        self._now = now
        self._step_s = ROUND_S if step_s is None else step_s
        self._holders: set[str] = set()  # gangs with a reservation
        self._arrivals: Arrivals | None = None
        if step_s is not None:
            self._arrivals = Arrivals(objects, np.inf if now is None else now)
            self._imply([])

    def snapshot(self) -> Snapshot:
        snapshot = build_snapshot(self._objects, self._ours, self._now, self._reads)
        self._now = snapshot.now
        return snapshot

    def why_at_rest(self, job: str) -> str:
        """`Succeeded`, `Failed` or `Suspended` if the ElasticJob of this name is: nothing is decided for it."""
        for item in self._objects.elastic_jobs:
            if name_of(item.metadata) == job:
                return item.status.phase if item.status.phase in FINISHED else "Suspended" * item.spec.suspend
        return ""

    def apply(self, plan: Plan) -> None:
        now = datetime.fromtimestamp(self._now or 0.0, UTC)
        binds = {bind.pod: bind for bind in plan.binds}
        leaving = {eviction.pod for eviction in plan.leaving()}
        promised = {nomination.pod: nomination.node for nomination in plan.nominations}
        after = []
        for pod in self._objects.pods:
            name = name_of(pod.metadata)
            if name in binds:
                after.append(_bound(pod, binds[name], now))
            elif name in leaving:
                after.append(_replacement(pod, now))
            elif pod.metadata.deletion_timestamp is None:
                after.append(_nominated(pod, promised.get(name, "")))
        implied = {name_of(pod.metadata): pod for pod in self._objects.implied}
        after += [_bound(pod, binds[name], now) for name, pod in implied.items() if name in binds]
        kept = [_nominated(pod, promised.get(name, "")) for name, pod in implied.items() if name not in binds]
        jobs = _resized(self._objects.elastic_jobs, plan.resizes, now)
        gone = beyond_their_size(jobs, [*after, *kept]) if plan.resizes else set()
        after, kept = ([pod for pod in pods if name_of(pod.metadata) not in gone] for pods in (after, kept))
        self._objects.pods, self._objects.elastic_jobs = after, jobs
        self._mark(plan)
        self._now = (self._now or 0.0) + self._step_s
        if self._arrivals is not None:
            self._arrivals.pass_to(self._now)
        self._imply(kept)

    def _mark(self, plan: Plan) -> None:
        """Annotates the gangs that nodes are reserved for."""
        objects, holders = self._objects, {entry.group for entry in plan.reservations}
        if holders or self._holders:
            objects.pod_groups = [marked(item, holders) for item in objects.pod_groups]
            objects.elastic_jobs = [marked(item, holders) for item in objects.elastic_jobs]
            objects.pods = [marked(item, holders) for item in objects.pods]
        self._holders = holders

    def _imply(self, kept: list[kubernetes.Pod]) -> None:
        """Adds the pods that jobs have yet to create; `kept` are those implied before."""
        objects = self._objects
        over = {key_of(job.metadata) for job in objects.elastic_jobs if job.status.phase in FINISHED}
        kept = [pod for pod in kept if (pod.metadata.namespace, pod.metadata.labels[JOB_LABEL]) not in over]
        more = implied_pods(objects.elastic_jobs, [*objects.pods, *kept], scheduler_name=self._ours.scheduler_name)
        # A job whose last pods have just left is one without pods again.
        objects.implied = [*kept, *more]


def _resized(jobs: list[types.ElasticJob], resizes: Sequence[Resize], now: datetime) -> list[types.ElasticJob]:
    """The jobs with the sizes that were decided."""
    decided: dict[str, dict[str, int]] = {}
    for resize in resizes:
        decided.setdefault(resize.job, {})[resize.role] = resize.to_size

    sizes = [decided.get(name_of(job.metadata)) for job in jobs]
    return [job if new is None else with_sizes(job, new, now) for job, new in zip(jobs, sizes, strict=True)]


def _bound(pod: kubernetes.Pod, bind: Bind, now: datetime) -> kubernetes.Pod:
    bound = with_bind(pod, bind)
    return kubernetes.Pod(bound.metadata, bound.spec, kubernetes.PodStatus(phase="Running", start_time=now))


def _nominated(pod: kubernetes.Pod, node: str) -> kubernetes.Pod:
    if pod.status.nominated_node_name == node:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def _replacement(pod: kubernetes.Pod, now: datetime) -> kubernetes.Pod:
    """The pending pod that its controller creates in place of an evicted one."""
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
