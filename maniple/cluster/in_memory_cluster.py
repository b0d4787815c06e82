"""A cluster in memory that plans are applied to at once. `maniple plan` and the tests use it.

Applying a plan is idealised: bound pods run, evicted pods are pending again, terminating pods are gone unless they are
stuck, and jobs have their new size. A round takes one second in which nothing else happens. With a `step_s`, a round
takes that long, and objects also arrive and end (simulated_arrivals_and_ends.py).
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import numpy as np

from maniple.api import kubernetes, types
from maniple.api.errors import InputError
from maniple.api.keys import key_of, name_of
from maniple.api.labels import BACKFILL_ANNOTATION, GPUS_ANNOTATION, HAS_EVICTED_ANNOTATION, JOB_LABEL
from maniple.api.moves import without_places
from maniple.api.phases import FINISHED
from maniple.api.timestamps import LAST_YEAR
from maniple.cluster.assumed_writes import Gang as MovableGang
from maniple.cluster.assumed_writes import marked, move_annotation, nominated, with_bind, with_move, with_sizes
from maniple.cluster.simulated_arrivals_and_ends import Arrivals
from maniple.model.building.from_scratch import build_snapshot, gangs_with_pods
from maniple.model.building.implied_pods import beyond_their_size, implied_pods
from maniple.model.building.input_objects import Objects
from maniple.model.building.workload_pods import owner_names
from maniple.model.incomplete_gangs import incomplete_gangs
from maniple.model.plugin_reads import Reads
from maniple.model.pod_identity import JobKey, may_wait, named_gangs
from maniple.model.pods_we_schedule import Ours, how_to_plan, pending_elsewhere, scheduler_of
from maniple.model.snapshot import Snapshot
from maniple.model.stuck_pods import stuck_after
from maniple.scheduler import Plan, Policy, schedule
from maniple.scheduler.framework.plan import MOVED, Bind, Resize

ROUND_S = 1.0
_MOST_UNCOLLECTED = 200_000  # objects that a run of rounds may leave behind before they are looked through
_END_S = datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp()


class MemoryCluster:
    def __init__(
        self,
        objects: Objects,
        ours: Ours | None = None,
        now: float | None = None,
        step_s: float | None = None,
        reads: Reads | None = None,
    ) -> None:
        """`step_s`: the length of a round. `reads`: the labels and annotations that the policy's plugins declare."""
        self._objects = objects
        self._ours = ours or Ours()
        self._reads = reads
        self._now = now
        self._step_s = ROUND_S if step_s is None else step_s
        self._holders: set[str] = set()  # gangs with a reservation
        self._had_pods: set[JobKey] = set()  # gangs that had pods in some round
        self._arrivals: Arrivals | None = None
        self._first: Snapshot | None = None  # the next snapshot, if it was built already
        if step_s is not None:
            self._arrivals = Arrivals(objects, np.inf if now is None else now)
            self._add_implied_pods([])

    def snapshot(self) -> Snapshot:
        if self._first is not None:
            snapshot, self._first = self._first, None
            return snapshot
        self._had_pods |= gangs_with_pods(self._objects)
        given = self._objects, self._ours, self._now, self._reads, self._had_pods
        snapshot = build_snapshot(*given, has_all_shapes=True)
        self._now = snapshot.now
        return snapshot

    def notes(self, *, is_released: bool = True) -> list[str]:
        """Notes about the objects. Those that contradict others are found by building the first snapshot.

        `is_released`: whether the policy evicts gangs that stay below their minimum.
        """
        first = self._first = self.snapshot()
        self._objects.note_set_aside()
        for node, pods in sorted(first.stuck.items()):
            for pod in pods:
                self._objects.notes.add("stuck", f"{pod.on(first.nodes.names[node])}: its room is promised to nobody")
        for gang, words in self.incomplete_gangs(first, is_released=is_released).items():
            self._objects.notes.add("incomplete", f"PodGroup {gang}: {words}")
        return self._objects.notes.lines()

    def incomplete_gangs(self, snapshot: Snapshot, *, is_released: bool) -> dict[str, str]:
        """PodGroups that run below their minimum while nothing of them waits, in words."""
        return incomplete_gangs(snapshot, self._objects.pod_groups, is_released=is_released)

    def pending_elsewhere(self) -> dict[str, int]:
        """Other schedulers with pending pods, and how many."""
        return pending_elsewhere(self._objects.pods, self._ours)

    def owned_by(self, name: str) -> set[str]:
        """The pods of a workload `ns/name`, such as a Deployment or a Volcano Job."""
        return {name_of(pod.metadata) for pod in self._objects.pods if name in owner_names(pod.metadata)}

    def check_end(self, rounds: int) -> None:
        """Raises InputError if so many rounds would last beyond the last year."""
        left_s = _END_S - (self._now or 0.0)
        if self._step_s and (rounds - 1) * self._step_s > left_s:
            left = int(left_s // self._step_s)
            then = f"round {left + 2} would be in the year {LAST_YEAR} or later"
            less = f"expected at most --rounds {left + 1}, or a shorter --step"
            raise InputError([f"--rounds: with {self._step_s:g} seconds a round, {then}; {less}"])

    def why_at_rest(self, job: str) -> str:
        """Why the scheduler decides nothing for an ElasticJob: `Succeeded`, `Failed` or `Suspended`. Else empty."""
        for elastic_job in self._objects.elastic_jobs:
            if name_of(elastic_job.metadata) == job:
                if elastic_job.status.phase in FINISHED:
                    return elastic_job.status.phase
                return "Suspended" if elastic_job.spec.suspend else ""
        return ""

    def why_not_planned(self, pod: str) -> str:
        """Why a pod of the input is no job, nor part of one; empty if there is no such pod, nor a gang of that name."""
        item = next((item for item in self._objects.pods if name_of(item.metadata) == pod), None)
        if item is None:
            schedulers = self.schedulers_of((pod, "PodGroup"))
            if not schedulers:
                return ""
            return f"its pods belong to scheduler {' and '.join(schedulers)}: {how_to_plan(schedulers[0])}"
        if item.status.phase in FINISHED:
            return f"the pod has {item.status.phase.lower()}, and waits for nothing"
        if not self._ours.claims(item):
            scheduler, node = scheduler_of(item), item.spec.node_name
            where = f"runs on node {node}" if node else "waits for a node"
            return f"the pod {where} and belongs to scheduler {scheduler}: {how_to_plan(scheduler)}"
        return "the pod is being deleted, and waits for nothing" if item.metadata.deletion_timestamp else ""

    def is_leaving(self, gang: JobKey) -> bool:
        """Whether pods of the gang are on nodes and are being deleted."""
        return any(
            pod.metadata.deletion_timestamp is not None and pod.spec.node_name and pod.status.phase not in FINISHED
            for pod in self._objects.pods
            if gang in (*named_gangs(pod), (name_of(pod.metadata), "Pod"))
        )

    def schedulers_of(self, gang: JobKey) -> list[str]:
        """The schedulers of a gang's pods that wait."""
        pods = (pod for pod in self._objects.pods if gang in named_gangs(pod) and not pod.spec.node_name)
        return sorted({scheduler_of(pod) for pod in pods if may_wait(pod)})

    def apply(self, plan: Plan) -> None:
        now = datetime.fromtimestamp(self._now or 0.0, UTC)
        binds = {bind.pod: bind for bind in plan.binds}
        leaving = {eviction.pod for eviction in plan.leaving()}
        nodes = {nomination.pod: nomination.node for nomination in plan.nominations}
        claimants = frozenset(plan.claimants)
        self._note_moves(plan)
        pods = []
        for pod in self._objects.pods:
            name = name_of(pod.metadata)
            if name in binds:
                pods.append(_bound(pod, binds[name], now))
            elif name in leaving:
                pods.append(_replacement(pod, now))
            elif pod.metadata.deletion_timestamp is None:
                pods.append(nominated(pod, nodes.get(name, ""), has_evicted=name in claimants))
            elif self._is_stuck(pod):
                pods.append(pod)
        implied = {name_of(pod.metadata): pod for pod in self._objects.implied}
        pods += [_bound(pod, binds[name], now) for name, pod in implied.items() if name in binds]
        still_implied = [
            nominated(pod, nodes.get(name, ""), has_evicted=name in claimants)
            for name, pod in implied.items()
            if name not in binds
        ]
        jobs = _resized(self._objects.elastic_jobs, plan.resizes, now)
        if plan.resizes:
            surplus = beyond_their_size(jobs, [*pods, *still_implied])
            pods = [pod for pod in pods if name_of(pod.metadata) not in surplus]
            still_implied = [pod for pod in still_implied if name_of(pod.metadata) not in surplus]
        self._objects.pods, self._objects.elastic_jobs = pods, jobs
        self._mark_holders(plan)
        self._now = (self._now or 0.0) + self._step_s
        if self._arrivals is not None:
            self._arrivals.pass_to(self._now)
        self._add_implied_pods(still_implied)

    def _is_stuck(self, pod: kubernetes.Pod) -> bool:
        return stuck_after(pod.metadata) < (self._now or 0.0)

    def _mark_holders(self, plan: Plan) -> None:
        """Annotates the gangs that hold a reservation."""
        objects, holders = self._objects, {reservation.group for reservation in plan.reservations}
        if holders or self._holders:
            objects.pod_groups = [marked(item, holders) for item in objects.pod_groups]
            objects.elastic_jobs = [marked(item, holders) for item in objects.elastic_jobs]
            objects.pods = [marked(item, holders) for item in objects.pods]
        self._holders = holders

    def _note_moves(self, plan: Plan) -> None:
        """Annotates gangs of which pods are moved. Those of which pods leave for another reason lose their places."""
        objects, now = self._objects, self._now or 0.0
        moved = {(entry.group, entry.kind): entry for entry in plan.moved_gangs}
        evicted = {eviction.pod for eviction in plan.leaving() if eviction.reason != MOVED}
        ended = set(plan.ended_moves)
        for pod in objects.pods if evicted else ():
            if name_of(pod.metadata) in evicted:
                ended.update(named_gangs(pod))
        if moved or ended:

            def noted(item: MovableGang, kind: str) -> MovableGang:
                gang = name_of(item.metadata), kind
                if gang in moved:
                    return with_move(item, move_annotation(moved[gang], now, self._step_s))
                annotation = without_places(item.metadata.annotations, now) if gang in ended else None
                return item if annotation is None else with_move(item, annotation)

            objects.pod_groups = [noted(item, "PodGroup") for item in objects.pod_groups]
            objects.elastic_jobs = [noted(item, "ElasticJob") for item in objects.elastic_jobs]

    def _add_implied_pods(self, implied: list[kubernetes.Pod]) -> None:
        """Adds the pods that jobs have yet to create. `implied`: those that were added before."""
        objects = self._objects
        finished = {key_of(job.metadata) for job in objects.elastic_jobs if job.status.phase in FINISHED}
        implied = [pod for pod in implied if (pod.metadata.namespace, pod.metadata.labels[JOB_LABEL]) not in finished]
        # A job whose last pods have just left has no pods again.
        new = implied_pods(objects.elastic_jobs, [*objects.pods, *implied], scheduler_name=self._ours.scheduler_name)
        objects.implied = [*implied, *new]


def _resized(jobs: list[types.ElasticJob], resizes: Sequence[Resize], now: datetime) -> list[types.ElasticJob]:
    """The jobs, with the new sizes of those that are resized."""
    sizes: dict[str, dict[str, int]] = {}
    for resize in resizes:
        sizes.setdefault(resize.job, {})[resize.role] = resize.to_size
    return [
        with_sizes(job, sizes[name_of(job.metadata)], now) if name_of(job.metadata) in sizes else job for job in jobs
    ]


def _bound(pod: kubernetes.Pod, bind: Bind, now: datetime) -> kubernetes.Pod:
    bound = with_bind(pod, bind)
    return kubernetes.Pod(bound.metadata, bound.spec, kubernetes.PodStatus(phase="Running", start_time=now))


def _replacement(pod: kubernetes.Pod, now: datetime) -> kubernetes.Pod:
    """The pending pod that its controller creates in place of an evicted one."""
    ours = (GPUS_ANNOTATION, BACKFILL_ANNOTATION, HAS_EVICTED_ANNOTATION)
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key not in ours}
    metadata = msgspec.structs.replace(
        pod.metadata, annotations=annotations, uid="", creation_timestamp=now, deletion_timestamp=None
    )
    return kubernetes.Pod(metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


class Gang(NamedTuple):
    """The gang of a pod, by name, and its queue."""

    name: str
    queue: str


@dataclass
class Round:
    """What is kept of a round. Its snapshot is not: a run may have a hundred thousand rounds."""

    now: float
    plan: Plan
    gangs: dict[str, Gang]  # of the pods that are bound or nominated

    @classmethod
    def of(cls, snapshot: Snapshot, plan: Plan, last: Plan | None = None) -> "Round":
        """`last`: the plan of the round before. What both have in common is kept once."""
        plan.explanations.all()  # without them it keeps the whole cycle
        named = {bind.pod for bind in plan.binds} | {nomination.pod for nomination in plan.nominations}
        gangs = {
            pod: Gang(job.name, snapshot.queues[job.queue].name)
            for job in (snapshot.waiting if named else ())
            for group in job.groups
            for pod in group.pods
            if pod in named
        }
        return cls(snapshot.now, plan if last is None else _shared(plan, last), gangs)


def _shared(plan: Plan, last: Plan) -> Plan:
    """The plan, with the parts of `last` that are equal."""
    own = ((field.name, getattr(plan, field.name)) for field in fields(Plan))
    same = {name: before for name, value in own if value == (before := getattr(last, name)) and value is not before}
    return replace(plan, **same) if same else plan


@dataclass
class Outcome:
    """The rounds of a planning run and how long each took."""

    rounds: list[Round] = field(default_factory=list)
    load_s: float = 0.0
    schedule_s: list[float] = field(default_factory=list)

    @property
    def settled_after(self) -> int | None:
        """The number of the last round that decided or said anything new; None if that is the last one."""
        plans = [round_.plan for round_ in self.rounds]
        last = len(plans) - 1
        while last > 0 and not plans[last].decides and plans[last].waits == plans[last - 1].waits:
            last -= 1
        return last + 1 if last < len(plans) - 1 else None

    def to_json(self) -> dict[str, object]:
        """The documented JSON form of a plan, as plain values in a stable order."""
        return {
            "rounds": [
                {
                    "binds": _plain(round_.plan.binds),
                    "evictions": _plain(round_.plan.evictions),
                    "nominations": _plain(round_.plan.nominations),
                    "moves": _plain(round_.plan.moves),
                    "resizes": _plain(round_.plan.resizes),
                    "reservations": _plain(round_.plan.reservations),
                    "waiting": _plain(round_.plan.waiting),
                }
                for round_ in self.rounds
            ],
            "settledAfter": self.settled_after,
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
    outcome, last = Outcome(), None
    for number in range(rounds):
        start = time.perf_counter()
        snapshot = cluster.snapshot()
        built = time.perf_counter()
        plan = schedule(snapshot, policy)
        outcome.schedule_s.append(time.perf_counter() - built)
        if number == 0:
            outcome.load_s = built - start
            cluster.check_end(rounds)
        outcome.rounds.append(Round.of(snapshot, plan, last))
        last = outcome.rounds[-1].plan
        cluster.apply(plan)
        del snapshot, plan
        if gc.get_count()[0] > _MOST_UNCOLLECTED:
            gc.collect()  # `maniple plan` turns automatic collection off, and snapshots have cycles
        if progress:
            progress(number + 1)
    return outcome
