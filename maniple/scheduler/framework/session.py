"""One cycle's working state: the snapshot's sums, copied, and what the plugins say, combined.

A Session answers the questions that actions ask (which job is next, may it start, where could it go) by combining the
plugins' callbacks with kube-batch's rules. It never changes its sums itself: Statement and Supposition do, and can undo
it. Actions leave notes in it: why a job is blocked, which jobs were put aside.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from maniple.api.errors import InputError
from maniple.api.types import GpuModel
from maniple.model.job import Job, PlacedPod, Queue, TaskGroup
from maniple.model.pod_affinity import AffinityCounts
from maniple.model.pod_identity import pod_order
from maniple.model.reads import Reads
from maniple.model.resources import FloatArray, IntArray
from maniple.model.shape import Exclusive
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.accounting import BySpeed, Measure, Speeds
from maniple.scheduler.framework.action import Ability, Action, abilities_of
from maniple.scheduler.framework.capacity import Rooms, capacity
from maniple.scheduler.framework.demand import Demand, Demands
from maniple.scheduler.framework.gpus import GpuRoom, Grants
from maniple.scheduler.framework.hooks import Check, Hooks, Key, Need, Reason, VictimRule
from maniple.scheduler.reservation.book import Reserved

if TYPE_CHECKING:
    from maniple.scheduler.explain.tried import Note
    from maniple.scheduler.framework.queue_dues import Due
    from maniple.scheduler.framework.statement import Evicted, Placed


# What one plugin of a policy may say at most.
_CLAIMS = {
    "due": "what queues deserve",
    "patience_s": "how long a gang waits for a reservation",
    "sizing": "what sizes of elastic jobs are worth",
    "device_worth": "what a GPU is worth to others",
    "job_need": "what a gang needs to start",
}


class Opener(Protocol):
    """A plugin of the policy."""

    @property
    def name(self) -> str: ...

    def open(self, session: "Session") -> Hooks: ...


class JobState:
    """What this cycle has done to a job so far, on top of what the snapshot says."""

    __slots__ = ("allocated", "cursor", "dropped", "evicted", "job", "models", "nodes", "placed", "promised")

    def __init__(self, job: Job, zero: FloatArray) -> None:
        self.job = job
        self.placed = dict(job.placed_by_role)
        self.promised: dict[str, int] = {}
        self.cursor: dict[int, int] = {}  # group number -> how many of its pods are placed or promised
        self.dropped: dict[int, int] = {}  # group number -> how many of its last pods are not wanted any more
        self.evicted: set[str] = set()
        self.allocated = zero.copy() if job.allocated is None else job.allocated.copy()
        # Where its pods are and on which models; kept only where somebody asks (Session.remembers_members).
        self.nodes: Counter[int] = Counter()
        self.models: dict[tuple[GpuModel, ...], Counter[int]] = {}

    def note(self, group: TaskGroup, slots: Iterable[tuple[int, Grants]], gpus: GpuRoom, sign: int) -> None:
        """Pods of the group have come to these places, or (-1) have not after all."""
        for node, grants in slots:
            self._note(node, group.shape.constraint.gpu_models, grants, gpus, sign)

    def note_placed(self, pod: PlacedPod, gpus: GpuRoom, sign: int) -> None:
        self._note(pod.node, pod.gpu_models, pod.gpus, gpus, sign)

    def _note(self, node: int, models: tuple[GpuModel, ...], grants: Grants, gpus: GpuRoom, sign: int) -> None:
        self.nodes[node] += sign
        if grants:
            self.models.setdefault(models, Counter())[gpus.model_of(node, grants)] += sign

    def resize(self, role: str, size: int | None) -> None:
        """Pods of the role with a higher index than `size` (None: the size it had) wait no longer."""
        for group in self.job.groups:
            if group.role == role:
                beyond = [pod for pod in group.pods if size is not None and pod_order(pod, {})[1] >= size]
                self.dropped[group.number] = len(beyond)

    def left(self, group: TaskGroup) -> int:
        return len(group.pods) - self.cursor.get(group.number, 0) - self.dropped.get(group.number, 0)

    @property
    def placed_count(self) -> int:
        return sum(self.placed.values())

    @property
    def promised_count(self) -> int:
        return sum(self.promised.values())


class Session:
    def __init__(
        self,
        snapshot: Snapshot,
        tiers: Sequence[Sequence[Opener]],
        actions: Sequence[tuple[str, Action]] = (),
        reads: Reads | None = None,
    ) -> None:
        """`tiers`: the policy's plugins; `actions`: all that it has, in their order, whoever runs them."""
        self.snapshot = snapshot
        self.actions = tuple(name for name, _ in actions)
        self._abilities = [abilities_of(action) for _, action in actions]
        self.free = snapshot.free.copy()
        # What will be free when all who are leaving have left and all promises are kept.
        self.future = snapshot.free + snapshot.releasing
        self.gpus = GpuRoom(snapshot)
        self._releasing = bool(snapshot.releasing.any())
        self.queue_allocated = snapshot.queue_allocated.copy()  # [Q, R] with the queues below
        # A queue and those above it: what its jobs take is charged to all of them.
        self.queue_paths = [[queue.index, *self.ancestors(queue)] for queue in snapshot.queues]
        for queue in snapshot.queues:
            for above in self.queue_paths[queue.index][1:]:
                self.queue_allocated[above] += snapshot.queue_allocated[queue.index]
        self.states: dict[tuple[str, str], JobState] = {}
        self.reserved = Reserved(self.gpus, self.free.shape, self.job_key)
        self.reservations = self.reserved.by_job  # job -> what is kept for it
        self.blocked: dict[tuple[str, str], Reason] = {}  # said by an action, for explanations
        self.checked: set[tuple[str, str]] = set()  # gangs that actions have asked job_valid about
        self.action = ""  # the name of the one that runs
        self.notes: dict[str, dict[Demand | None, Note]] = {}  # that actions left, by their names
        self.put_aside: list[Job] = []  # by allocate, for backfill: who stood back for a gang that was blocked
        self.placed: list[Placed] = []  # committed, in order
        self.evicted: list[Evicted] = []
        self.resized: dict[tuple[tuple[str, str], str], int] = {}  # (job, role of it) -> its new size
        self.exclusives: dict[int, list[Exclusive]] = {node: list(held) for node, held in snapshot.exclusives.items()}
        self.owners: dict[str, dict[int, int]] = {owner: dict(nodes) for owner, nodes in snapshot.owners.items()}
        self._failed: dict[tuple[object, ...], int] = {}  # what is asked for -> a count of pods that does not fit
        self._affinity_counts: AffinityCounts | None = None
        self.by_speed: dict[Speeds, BySpeed] = {}  # what plugins asked for, kept up to date by statements
        self.due: Due | None = None
        self.tiers = [[plugin.open(self) for plugin in tier] for tier in tiers]
        self.hooks = [hooks for tier in self.tiers for hooks in tier]
        _check_claims([plugin.name for tier in tiers for plugin in tier], self.hooks)
        self.due = next((hooks.due for hooks in self.hooks if hooks.due is not None), None)
        self.sizing = next((hooks.sizing for hooks in self.hooks if hooks.sizing is not None), None)
        # How long the first of a queue waits before room is kept for it; None: for ever.
        self.patience_s = next((hooks.patience_s for hooks in self.hooks if hooks.patience_s is not None), None)
        worth = next((hooks.device_worth for hooks in self.hooks if hooks.device_worth is not None), None)
        self.gpus.worth = None if worth is None else worth.tolist()
        self.demands = Demands(self, self.hooks, reads or Reads())
        self.rooms = Rooms(self._room, self._later, self.gpus, len(snapshot.nodes), self.hooks, self.demands)

    # -- the world

    def _room(self, nodes: IntArray) -> tuple[FloatArray, FloatArray]:
        """(what a pod may use now, what is free): promises are kept, so the lower of now and later counts."""
        whole = len(nodes) == len(self.snapshot.nodes)
        free, future = (self.free, self.future) if whole else (self.free[:, nodes], self.future[:, nodes])
        return np.minimum(free, future), free

    def _later(self, nodes: IntArray) -> FloatArray:
        """What will be free when all who are leaving have left and all promises are kept."""
        return self.future if len(nodes) == len(self.snapshot.nodes) else self.future[:, nodes]

    @property
    def affinity_counts(self) -> AffinityCounts:
        if self._affinity_counts is None:
            self._affinity_counts = AffinityCounts(self.snapshot.nodes, self.snapshot.pod_affinity)
        return self._affinity_counts

    def state(self, job: Job) -> JobState:
        found = self.states.get(job.key)
        if found is None:
            found = self.states[job.key] = JobState(job, np.zeros(len(self.snapshot.axis)))
            if job.placed and self.remembers_members(job):
                for pod in job.placed:
                    found.note_placed(pod, self.gpus, 1)
        return found

    def remembers_members(self, job: Job) -> bool:
        """Whether where some pods of the job are says where others may go."""
        return bool(job.required or job.preferred) or self.gpus.is_mixed

    def is_promised(self, job: Job) -> bool:
        state = self.states.get(job.key)
        return state is not None and state.promised_count > 0

    def queue_of(self, job: Job) -> Queue:
        return self.snapshot.queues[job.queue]

    def ancestors(self, queue: Queue) -> list[int]:
        """Indices of the queues above, nearest first."""
        above = []
        while queue.parent >= 0:
            above.append(queue.parent)
            queue = self.snapshot.queues[queue.parent]
        return above

    def has_action(self, ability: Ability) -> bool:
        """Whether an action of the policy does that."""
        return any(ability in abilities for abilities in self._abilities)

    def abilities_between(self, first: Ability, last: Ability) -> frozenset[Ability]:
        """What actions do between the first action that does `first` and the next one that does `last`."""
        found: frozenset[Ability] | None = None
        for abilities in self._abilities:
            if found is None:
                found = frozenset() if first in abilities else None
            elif last in abilities:
                return found
            else:
                found |= abilities
        return frozenset()

    @property
    def anything_leaving(self) -> bool:
        return self._releasing or bool(self.evicted)

    # Room only shrinks while a cycle hands it out: so many pods of a shape that did not fit once do not fit later.
    # Evictions give room back, and so forget all this; where pods mind each other nothing is remembered, nor what was
    # found out for a gang that must stay where some of its pods are.

    def known_not_to_fit(self, job: Job, group: TaskGroup, count: int, *, later: bool) -> bool:
        known = self._failed.get((self.demands.of_group(group), later, job.required, job.mixed_models))
        return known is not None and count >= known and group.pod_affinity is None

    def remember_not_to_fit(self, job: Job, group: TaskGroup, count: int, *, later: bool) -> None:
        key = (self.demands.of_group(group), later, job.required, job.mixed_models)
        if group.pod_affinity is None and not self.state(job).nodes:
            self._failed[key] = min(count, self._failed.get(key, count))

    def forget_failures(self) -> None:
        self._failed.clear()

    def leave_note(self, note: "Note", demand: Demand | None = None) -> None:
        """The action that runs says what it looks at, for gangs of one Demand or (None) for all others."""
        self.notes.setdefault(self.action, {})[demand] = note

    # -- what plugins say, combined

    def job_key(self, job: Job) -> tuple[Key, ...]:
        keys = tuple(hooks.job_order(job) for hooks in self.hooks if hooks.job_order)
        return (*keys, job.created, *job.key)  # type: ignore[arg-type]  # the tie-breakers close the tuple

    def queue_key(self, queue: Queue) -> tuple[tuple[Key, ...], ...]:
        """Keys from the top of the tree down: a queue's turn is first of all its ancestors' turn."""
        path = self.queue_paths[queue.index][::-1]
        return tuple(
            (
                *(hooks.queue_order(self.snapshot.queues[at]) for hooks in self.hooks if hooks.queue_order),
                float(at),
            )
            for at in path
        )

    def groups(self, job: Job) -> list[TaskGroup]:
        """The job's groups in task order. Groups with affinity to others come last: those others may be in the gang."""

        def key(group: TaskGroup) -> tuple[object, ...]:
            orders = (hooks.task_order(group) for hooks in self.hooks if hooks.task_order)
            return (*orders, bool(group.pod_affinity and group.pod_affinity.affinity), pod_order(group.pods[0], {}))

        return sorted(job.groups, key=key) if len(job.groups) > 1 else job.groups

    def job_valid(self, job: Job) -> Reason | None:
        reason = _first(hooks.job_valid(job) for hooks in self.hooks if hooks.job_valid)
        # No action tries a job that is not valid, so it cannot be in line.
        return replace(reason, is_in_line=False) if reason is not None and reason.is_in_line else reason

    def job_ready(self, job: Job) -> bool:
        return all(hooks.job_ready(job) for hooks in self.hooks if hooks.job_ready)

    def job_pipelined(self, job: Job) -> bool:
        return all(hooks.job_pipelined(job) for hooks in self.hooks if hooks.job_pipelined)

    def job_need(self, job: Job) -> Need:
        """What is missing before the job may start; without a gang plugin any pod may start alone."""
        for hooks in self.hooks:
            if hooks.job_need:
                return hooks.job_need(job)
        return Need({}, 0 if self.state(job).placed_count else 1)

    def needed_resources(self, job: Job) -> FloatArray:
        """What the pods that the job still needs to start ask for, taken in task order."""
        need = self.job_need(job)
        by_role, missing = dict(need.by_role), need.total
        spare = missing - sum(by_role.values())
        total = np.zeros(len(self.snapshot.axis))
        for group in self.groups(job):
            own = min(by_role.get(group.role, 0), self.state(job).left(group))
            more = min(spare, self.state(job).left(group) - own)
            by_role[group.role] = by_role.get(group.role, 0) - own
            spare -= more
            total += group.shape.requests * (own + more)
        return total

    def asked(self, job: Job) -> FloatArray:
        """What all of its waiting pods ask for."""
        return np.zeros(len(self.snapshot.axis)) if job.pending is None else job.pending

    def overused(self, queue: Queue, asked: FloatArray) -> Reason | None:
        return _first(hooks.overused(queue, asked) for hooks in self.hooks if hooks.overused)

    def admissible(self, queue: Queue, more: FloatArray, *, is_charged: bool = False) -> Reason | None:
        return _first(hooks.admissible(queue, more, is_charged) for hooks in self.hooks if hooks.admissible)

    def measure(self, speeds: Speeds) -> Measure:
        """What queues and jobs hold, counted with such speeds of GPUs; () counts everything as it is."""
        if not speeds:
            return Measure(self)
        return self.by_speed.get(speeds) or self.by_speed.setdefault(speeds, BySpeed(self, speeds))

    def is_placed_singly(self, group: TaskGroup) -> bool:
        return any(hooks.is_placed_singly(group) for hooks in self.hooks if hooks.is_placed_singly)

    def room_for(self, group: TaskGroup, *, later: bool, model: int | None = None, is_next: bool = False) -> FloatArray:
        """How many pods of the group fit on each node, now or when those who are leaving have left.

        Pods that mind each other change that with every one that is placed: what they object to now counts only if
        it is about the very next one.
        """
        fits = self.rooms.fits(group, later=later)
        if model is not None:
            fits = np.where(self.gpus.has_model(group.shape, model), fits, 0.0)
            if self.gpus.has_mixed_nodes:
                free = self.future if later else self.free
                fits = np.minimum(fits, self.gpus.fits(group.shape, None, free, later=later, model=model))
        fits = self._within_reservations(group, fits, later=later, model=model)
        if not group.shape.exclusives and group.pod_affinity is None:
            return fits
        for check in self.pod_checks(group) if is_next or not group.is_coupled else ():
            fits = np.where(check.passes, fits, 0.0)
        return np.minimum(fits, 1.0) if group.shape.is_one_per_node else fits

    def _within_reservations(self, group: TaskGroup, fits: FloatArray, *, later: bool, model: int | None) -> FloatArray:
        """`fits` without what is kept for others."""
        mask, spare = self.reserved.mask, self.reserved.spare
        if mask is not None and spare is not None:
            nodes = np.flatnonzero(mask)
            nodes = nodes[fits[nodes] > 0]
            if len(nodes):
                left = spare[:, nodes]
                room = capacity(group.shape.requests, left)
                if group.shape.gpus:
                    devices = self.gpus.fits(group.shape, nodes, left, later=later, model=model, reserved=mask)
                    room = np.minimum(room, devices)
                fits = fits.copy()
                fits[nodes] = np.minimum(fits[nodes], room)
        most = self.reserved.most
        return fits if most is None else np.minimum(fits, most)

    def pod_checks(self, group: TaskGroup) -> list[Check]:
        return [check for hooks in self.hooks if hooks.pod_predicate for check in hooks.pod_predicate(group)]

    @property
    def evicts_whole(self) -> bool:
        return any(hooks.evicts_whole for hooks in self.hooks)

    def is_protected(self, pod: PlacedPod) -> bool:
        return any(hooks.protects(pod) for hooks in self.hooks if hooks.protects)

    def victim_rules(self, kind: str) -> list[VictimRule]:
        """kube-batch's rule: the plugins of a tier must agree, and the first tier that has an opinion decides."""
        for tier in self.tiers:
            said = [hooks.preemptable if kind == "preemptable" else hooks.reclaimable for hooks in tier]
            rules = [rule for rule in said if rule]
            if rules:
                return rules
        return []


def _check_claims(names: Sequence[str], hooks: Sequence[Hooks]) -> None:
    """Some answers can come from one plugin only: to take the first would ignore the other in silence."""
    wrong = []
    for claim, meaning in _CLAIMS.items():
        claimants = [name for name, hook in zip(names, hooks, strict=True) if getattr(hook, claim) is not None]
        if len(claimants) > 1:
            both = " and ".join(map(repr, claimants))
            wrong.append(f"plugins {both} both say {meaning} ({claim}); remove one of them")
    if wrong:
        raise InputError(wrong)


def _first(reasons: Iterable[Reason | None]) -> Reason | None:
    return next((reason for reason in reasons if reason is not None), None)
