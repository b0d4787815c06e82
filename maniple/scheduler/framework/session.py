"""The working state of one cycle: a copy of the snapshot's sums, and the plugins' callbacks, combined.

A Session tells actions which job is next, whether it may start and where it fits, by kube-batch's rules for combining
plugins. It must never change its sums itself: only Statement and Supposition do, and both can undo it. Actions leave
notes in it: why a job is blocked, which jobs were put aside.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from maniple.model.disruption_budgets import BudgetCover
from maniple.model.job import Job, PlacedPod, Queue, TaskGroup
from maniple.model.plugin_reads import Reads
from maniple.model.pod_identity import JobKey, pod_order
from maniple.model.resources import FloatArray
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.action import Ability, Action, abilities_of
from maniple.scheduler.framework.changed_nodes import ChangedNodes
from maniple.scheduler.framework.demand_cache_keys import Demands
from maniple.scheduler.framework.free_gpus import FreeGpus
from maniple.scheduler.framework.hooks import (
    CLAIMS,
    Check,
    Hooks,
    Key,
    Need,
    Reason,
    VictimRule,
    check_claims,
    no_other_group,
)
from maniple.scheduler.framework.job_state import JobState, Step
from maniple.scheduler.framework.kept_places import KeptPlaces
from maniple.scheduler.framework.neighbours import Neighbours
from maniple.scheduler.framework.next_needs import NextNeeds
from maniple.scheduler.framework.node_capacity import NodeCapacity
from maniple.scheduler.framework.node_rankings import NodeRankings
from maniple.scheduler.framework.pod_terms import PodTerms
from maniple.scheduler.framework.promised_pods import PromisedPods
from maniple.scheduler.framework.promised_room import PromisedRoom
from maniple.scheduler.framework.queue_turns import QueueTurns
from maniple.scheduler.framework.reserved_room import without_reserved
from maniple.scheduler.framework.share_accounting import Accounting, SpeedAccounting, Speeds
from maniple.scheduler.framework.waiting_gangs import Place, WaitingGangs
from maniple.scheduler.reservation.reservation_book import ReservationBook

if TYPE_CHECKING:
    from maniple.scheduler.eviction.queue_claims import QueueClaims
    from maniple.scheduler.explain.tried import Note
    from maniple.scheduler.framework.due_rules import Due
    from maniple.scheduler.framework.policy import PluginChoice
    from maniple.scheduler.framework.statement import Evicted, Placed
    from maniple.scheduler.growth.resize_value import Sizing
    from maniple.scheduler.moving.move_value import Moving


class Session:
    def __init__(
        self,
        snapshot: Snapshot,
        tiers: "Sequence[Sequence[PluginChoice]]",
        actions: Sequence[tuple[str, Action]] = (),
        reads: Reads | None = None,
    ) -> None:
        """`tiers`: the policy's plugins; `actions`: its actions in order. The caller runs them."""
        self.snapshot = snapshot
        self.actions = tuple(name for name, _ in actions)
        self.abilities = [abilities_of(action) for _, action in actions]
        self.free = snapshot.free.copy()
        # What will be free when all leaving pods have left and all promised pods have started.
        self.future = snapshot.free + snapshot.releasing
        self.gpus = FreeGpus(snapshot)
        self.budget_cover = BudgetCover(snapshot.budgets)
        # A queue and its ancestors: all of them are charged for what its jobs hold.
        self.queue_paths = [_path(snapshot.queues, queue) for queue in snapshot.queues]
        self.queue_allocated = _with_queues_below(snapshot.queue_allocated, self.queue_paths)  # [Q, R]
        self.states: dict[JobKey, JobState] = {}
        self.reserved = ReservationBook(self.gpus, self.free.shape, self.job_key, ChangedNodes(len(snapshot.nodes)))
        self.reservations = self.reserved.by_job  # job -> its reservation
        self.blocked: dict[JobKey, Reason] = {}  # by actions, for explanations
        self.checked: set[JobKey] = set()  # gangs that actions have asked job_valid about
        self.action = ""  # the name of the running one
        self.notes: dict[str, dict[JobKey | None, Note]] = {}  # by name of the action
        self.could_be_whole: set[JobKey] = set()  # gangs below their minimum that fitted before anybody was given room
        self.not_released: dict[JobKey, str] = {}  # gangs that stay below their minimum -> why they may keep their pods
        # By allocate, for backfill: jobs that gave way to a blocked gang; from a place on all that are alike.
        self.put_aside: list[Job | Place] = []
        self.placed: list[Placed] = []  # committed, in order
        self.evicted: list[Evicted] = []
        self.moved: list[Placed] = []  # the places of pods that are evicted because they have them
        self.resized: dict[tuple[JobKey, str], int] = {}  # (job, role) -> new size
        self.surplus_steps: dict[JobKey, tuple[Job, Sequence[Step]]] = {}  # see eviction/units.py
        self.neighbours = Neighbours(snapshot)
        self.promised_pods = PromisedPods(self)
        self.promised_room = PromisedRoom(self)
        self.kept_places = KeptPlaces(self)
        self.pod_terms = PodTerms(snapshot)
        self.owners: dict[str, dict[int, int]] = {owner: dict(nodes) for owner, nodes in snapshot.owners.items()}
        self._failed: dict[tuple[object, ...], int] = {}  # demand -> a count of pods that does not fit
        self.times_forgotten = 0  # how often these were cleared
        self.by_speed: dict[Speeds, SpeedAccounting] = {}  # requested by plugins, updated by statements
        self.due: Due | None = None
        self.tiers = [[plugin.open(self) for plugin in tier] for tier in tiers]
        self.hooks = [hooks for tier in self.tiers for hooks in tier]
        self._plugin_names = [plugin.name for tier in tiers for plugin in tier]
        check_claims(self._plugin_names, self.hooks)
        # By name: the callbacks that plugins have, in the policy's order.
        self._callbacks: dict[str, list[Any]] = {
            field.name: [callback for hooks in self.hooks if (callback := getattr(hooks, field.name)) is not None]
            for field in fields(Hooks)
        }
        claims = {name: next(iter(self._callbacks[name]), None) for name in CLAIMS}
        self.due = claims["due"]
        self.queue_claims: QueueClaims | None = None  # made by claims_of
        self.sizing: Sizing | None = claims["sizing"]
        self.moving: Moving | None = claims["moving"]
        # How long the first gang of a queue waits for a reservation; None: for ever.
        self.patience_s: float | None = claims["patience_s"]
        self.gpus.worth = None if claims["device_worth"] is None else claims["device_worth"].tolist()
        self._job_need: Callable[[Job], Need] | None = claims["job_need"]
        self.demands = Demands(self, self.hooks, reads or Reads())
        self.capacity = NodeCapacity(
            self.free, self.future, self.promised_room, self.gpus, self.hooks, self.demands, self.reserved.changed
        )

    # -- state

    def state(self, job: Job) -> JobState:
        state = self.states.get(job.key)
        if state is None:
            state = self.states[job.key] = JobState(job, np.zeros(len(self.snapshot.axis)))
            if job.placed and self.remembers_members(job):
                for pod in job.placed:
                    state.note(pod.node, pod.gpu_models, pod.gpus, self.gpus, 1)
        return state

    def remembers_members(self, job: Job) -> bool:
        """Whether the places of some pods of the job decide where its others may go."""
        return bool(job.required or job.preferred) or self.gpus.is_mixed

    def is_promised(self, job: Job) -> bool:
        state = self.states.get(job.key)
        return state is not None and state.promised_count > 0

    def queue_of(self, job: Job) -> Queue:
        return self.snapshot.queues[job.queue]

    def has_action(self, ability: Ability) -> bool:
        """Whether an action of the policy has the ability."""
        return any(ability in abilities for abilities in self.abilities)

    def abilities_between(self, first: Ability, last: Ability) -> frozenset[Ability]:
        """The abilities of the actions between the first one with `first` and the next one with `last`."""
        between: frozenset[Ability] | None = None
        for abilities in self.abilities:
            if between is None:
                between = frozenset() if first in abilities else None
            elif last in abilities:
                return between
            else:
                between |= abilities
        return frozenset()

    @cached_property
    def _anything_releasing(self) -> bool:
        return bool(self.snapshot.releasing.any())

    @property
    def anything_leaving(self) -> bool:
        return bool(self.evicted) or self._anything_releasing

    # Free resources only shrink during a cycle, so pods of a shape that did not fit once do not fit later. Evictions
    # free resources and so clear these failures. Failures are not cached for groups that depend on other pods, nor for
    # gangs that must stay near their placed pods.

    def known_not_to_fit(self, job: Job, group: TaskGroup, count: int, *, later: bool) -> bool:
        known = self._failed.get((self.demands.of_group(group), later, job.required, job.mixed_models))
        return known is not None and count >= known and not self.depends_on_pods(group)

    def remember_not_to_fit(self, job: Job, group: TaskGroup, count: int, *, later: bool) -> None:
        key = (self.demands.of_group(group), later, job.required, job.mixed_models)
        if not self.depends_on_pods(group) and not self.state(job).nodes:
            self._failed[key] = min(count, self._failed.get(key, count))

    def forget_failures(self) -> None:
        self._failed.clear()
        self.times_forgotten += 1

    @cached_property
    def queue_turns(self) -> QueueTurns:
        return QueueTurns(self)

    @cached_property
    def are_alike_in_line(self) -> bool:
        """Whether all plugins declare that gangs which are alike are equally valid, and in line by age and name."""
        return all(
            hooks.is_alike_in_line
            for hooks in self.hooks
            if hooks.job_order or hooks.job_valid or hooks.task_order or hooks.job_need
        )

    @cached_property
    def waiting(self) -> WaitingGangs:
        return WaitingGangs(self)

    def why_blocked(self, job: Job) -> Reason | None:
        """What an action has found out about the job, or about a gang that is like it."""
        gangs = self.waiting.untouched_like(job)
        return self.blocked.get(job.key) or (None if gangs is None else gangs.blocked)

    def was_checked(self, job: Job) -> bool:
        """Whether an action has asked job_valid about the job."""
        gangs = self.waiting.untouched_like(job)
        return job.key in self.checked or (gangs is not None and gangs.was_tried)

    def leave_note(self, note: "Note", job: JobKey | None = None) -> None:
        """Stores what the running action looks at, for one gang or (None) for all others."""
        self.notes.setdefault(self.action, {})[job] = note

    # -- plugins, combined

    def job_key(self, job: Job) -> tuple[Key, ...]:
        keys = [order(job) for order in self._callbacks["job_order"]]
        return (*keys, job.created, *job.key)  # the tie-breakers close the tuple

    @property
    def has_standings(self) -> bool:
        return bool(self._callbacks["queue_standing"])

    def queue_key(self, queue: Queue, need: FloatArray | None = None) -> tuple[tuple[Key, ...], ...]:
        """Keys from the top of the tree down: ancestors are compared first. `need`: of the queue's next job."""
        path = self.queue_paths[queue.index]
        standings = self._callbacks["queue_standing"] if need is not None else ()
        orders = self._callbacks["queue_order"]
        return tuple(
            (
                *(stand(path[: height + 1], need) for stand in standings),
                *(order(self.snapshot.queues[path[height]]) for order in orders),
                float(path[height]),
            )
            for height in reversed(range(len(path)))
        )

    def groups(self, job: Job) -> list[TaskGroup]:
        """The job's groups in task order. Groups with pod affinity come last: they may need pods of the gang."""

        def key(group: TaskGroup) -> tuple[object, ...]:
            orders = (order(group) for order in self._callbacks["task_order"])
            return (*orders, bool(group.pod_affinity and group.pod_affinity.affinity), pod_order(group.pods[0], {}))

        return sorted(job.groups, key=key) if len(job.groups) > 1 else job.groups

    def job_valid(self, job: Job) -> Reason | None:
        reason = self._first("job_valid", job)
        # No action tries an invalid job, so it is not in line.
        return replace(reason, is_in_line=False) if reason is not None and reason.is_in_line else reason

    def job_ready(self, job: Job) -> bool:
        return all(is_ready(job) for is_ready in self._callbacks["job_ready"])

    def job_pipelined(self, job: Job) -> bool:
        return all(is_pipelined(job) for is_pipelined in self._callbacks["job_pipelined"])

    def refusal(self, job: Job, callback: str) -> str:
        """Says which plugin does not let the job start: the first whose callback of this name returns False."""
        for name, hooks in zip(self._plugin_names, self.hooks, strict=True):
            if (check := getattr(hooks, callback)) is not None and not check(job):
                return f"plugin {name!r} does not let it start ({callback})"
        return ""

    def job_need(self, job: Job) -> Need:
        """What the job needs before it may start; without a gang plugin any pod may start alone."""
        return self._job_need(job) if self._job_need else Need({}, 0 if self.state(job).placed_count else 1)

    def needed_resources(self, job: Job) -> FloatArray:
        """The requests of the pods that the job still needs to start, taken in task order."""
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

    @cached_property
    def rankings(self) -> NodeRankings:
        return NodeRankings(self)

    @cached_property
    def next_needs(self) -> NextNeeds:
        return NextNeeds(self)

    def asked(self, job: Job) -> FloatArray:
        """The requests of all its waiting pods."""
        return np.zeros(len(self.snapshot.axis)) if job.pending is None else job.pending

    def overused(self, queue: Queue, asked: FloatArray) -> Reason | None:
        return self._first("overused", queue, asked)

    def admissible(self, queue: Queue, more: FloatArray, *, is_charged: bool = False) -> Reason | None:
        return self._first("admissible", queue, more, is_charged)

    def startable(self, job: Job, more: FloatArray) -> Reason | None:
        """Why the gang may not start with `more`, whoever leaves for it."""
        return self._first("startable", job, more)

    def _first(self, callback: str, *arguments: object) -> Reason | None:
        """The first reason that a plugin gives."""
        for refuse in self._callbacks[callback]:
            reason: Reason | None = refuse(*arguments)
            if reason is not None:
                return reason
        return None

    def may_start(self, queue: Queue, job: Job, more: FloatArray, *, is_charged: bool = False) -> Reason | None:
        """Why neither the limits nor any other rule about starts let the gang start with `more`; None if all do."""
        limit = self.admissible(queue, more, is_charged=is_charged)
        reason = self.startable(job, more)
        if limit is None or reason is None:
            return limit or reason
        return replace(limit, would_start_if=f"{limit.cure} and {reason.cure}")

    def accounting(self, speeds: Speeds) -> Accounting:
        """What queues and jobs hold, with GPUs counted by these speeds; (): as they are."""
        if not speeds:
            return Accounting(self)
        return self.by_speed.get(speeds) or self.by_speed.setdefault(speeds, SpeedAccounting(self, speeds))

    def is_placed_singly(self, group: TaskGroup) -> bool:
        """Whether the pods of the group are placed one by one."""
        return self.is_coupled(group) or any(is_singly(group) for is_singly in self._callbacks["is_placed_singly"])

    def is_coupled(self, group: TaskGroup) -> bool:
        """Whether placing a pod of the group can change where the next may go, other than by using up resources."""
        return group.is_coupled or (bool(self._wide_predicates) and self._is_in_wide_predicate(group))

    def depends_on_pods(self, group: TaskGroup) -> bool:
        """Whether pods on a node can open or close it for the group, other than by their resources, ports and disks."""
        affinity = group.pod_affinity
        if affinity is not None and (affinity.has_required_terms or self.pod_terms.may_repel(affinity)):
            return True
        return bool(self._wide_predicates) and self._is_in_wide_predicate(group)

    @cached_property
    def _wide_predicates(self) -> list[Hooks]:
        """Those whose pod predicate may be about any group; none is built in."""
        with_predicate = (hooks for hooks in self.hooks if hooks.pod_predicate)
        return [hooks for hooks in with_predicate if hooks.pod_predicate_groups is not no_other_group]

    def _is_in_wide_predicate(self, group: TaskGroup) -> bool:
        return not all(_excludes(hooks, group) for hooks in self._wide_predicates)

    def room_for(self, group: TaskGroup, *, later: bool, model: int | None = None, is_next: bool = False) -> FloatArray:
        """How many pods of the group fit on each node, now or when all leaving pods have left.

        Each placed pod of a coupled group can change the answers of pod predicates, so they count only for the next pod
        (`is_next`).
        """
        fits = self.capacity.fits(group, later=later)
        if model is not None:
            fits = np.where(self.gpus.has_model(group.shape, model), fits, 0.0)
            if self.gpus.has_mixed_nodes:
                free = self.future if later else self.free
                fits = np.minimum(fits, self.gpus.fits(group.shape, None, free, later=later, model=model))
        fits = without_reserved(self, group, fits, later=later, model=model)
        if not group.shape.exclusives and not self.depends_on_pods(group):
            return fits
        for check in self.pod_checks(group, later=later) if is_next or not self.is_coupled(group) else ():
            fits = np.where(check.passes, fits, 0.0)
        return np.minimum(fits, 1.0) if group.shape.is_one_per_node else fits

    def pod_checks(self, group: TaskGroup, *, later: bool) -> list[Check]:
        """The answers of the pod predicates that are about the group, for every node: now, or when all leaving pods
        have left.
        """
        is_ordinary = group.pod_affinity is None and not group.shape.exclusives
        checks: list[Check] = []
        for hooks in self.hooks:
            if hooks.pod_predicate and not (is_ordinary and _excludes(hooks, group)):
                checks.extend(hooks.pod_predicate(group, later))
        return checks

    @property
    def evicts_whole(self) -> bool:
        return any(self._callbacks["evicts_whole"])

    def is_protected(self, pod: PlacedPod) -> bool:
        return any(protects(pod) for protects in self._callbacks["protects"])

    def victim_rules(self, kind: str) -> list[VictimRule]:
        """kube-batch's rule: the first tier with such a callback decides, and all plugins of that tier must agree."""
        by_tier = ([rule for hooks in tier if (rule := getattr(hooks, kind))] for tier in self.tiers)
        return next((rules for rules in by_tier if rules), [])


def _with_queues_below(held: FloatArray, paths: Sequence[Sequence[int]]) -> FloatArray:
    total = held.copy()
    for queue, path in enumerate(paths):
        total[path[1:]] += held[queue]
    return total


def _path(queues: Sequence[Queue], queue: Queue) -> list[int]:
    """The queue and its ancestors, from below. The tree's depth is limited (model/queues.py)."""
    path = [queue.index]
    while queue.parent >= 0:
        queue = queues[queue.parent]
        path.append(queue.index)
    return path


def _excludes(hooks: Hooks, group: TaskGroup) -> bool:
    """Whether the plugin declares that its pod_predicate is not about the group."""
    return hooks.pod_predicate_groups is not None and not hooks.pod_predicate_groups(group)
