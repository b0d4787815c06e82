"""The idle pass: while nothing waits, running jobs move so that gangs are closer together and whole nodes come free.

In one cycle it gathers one gang, or empties one node of GPU work. Every such step lowers the measure (disorder.py), has
places for all that move in the same plan, and gains more than it loses. Steps are rare: there is an interval between
them, and they share the moves of an hour with those for gangs that wait.

It must cost little when there is nothing to do. If nothing has changed since it last found nothing, it does not look
again before a job may be moved that could not be. Else it reads the pods of movable jobs once, and tries a few
candidates: which few changes from interval to interval, so that all have their turn.
"""

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TypeVar

import numpy as np

from maniple.api.moves import HOUR_S
from maniple.model.gpu.devices import MIXED
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.eviction.victim_consent import allowed_units
from maniple.scheduler.framework.plan import MOVED
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.growth.resize_value import gpus_of
from maniple.scheduler.moving.disorder import MILLI, Disorder
from maniple.scheduler.moving.movable_units import movable_units, why_unmovable
from maniple.scheduler.moving.move_value import Moving, moves_of_the_last_hour
from maniple.scheduler.moving.new_places import place_close

T = TypeVar("T")

_MOST_TRIED = 16  # gangs, and nodes, in one cycle


class IdlePass:
    """Remembers the state of the cluster in which it found nothing. The plan is the same with or without that."""

    def __init__(self) -> None:
        self._settled: weakref.ref[FloatArray] | None = None  # an array of the snapshot: each state has its own
        self._since, self._until = math.inf, -math.inf

    def run(self, session: Session, moving: Moving) -> None:
        snapshot = session.snapshot
        is_settled = self._settled is not None and self._settled() is snapshot.free
        if is_settled and self._since <= snapshot.now < self._until:
            return
        is_early = snapshot.now < moving.last_move_s(session) + moving.idle_interval_s
        if is_early or not moving.moves_left(session) or _is_busy(session):
            return
        search = _Search(session, moving)
        if not search.tidy():
            self._settled = weakref.ref(snapshot.free)
            self._since, self._until = snapshot.now, search.settled_until


def _is_busy(session: Session) -> bool:
    """Whether anything starts, leaves or waits for room. What waits for a limit or for pods of its own could not use
    the room.
    """
    snapshot = session.snapshot
    if session.anything_leaving or session.placed or session.moved or session.resized or session.reservations:
        return True
    if any(session.kept_places.of(job) for job in snapshot.moved):
        return True
    return any(
        job.exists and not job.is_suspended and session.why_blocked(job) is None and job.groups
        for job in snapshot.waiting
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """Units that would move, job by job, and the nodes to which they may go."""

    purpose: str  # such as "emptying n3"
    units: Sequence[tuple[Job, Sequence[Unit]]]
    within: BoolArray  # [N]
    is_gathering: bool = False


class _Search:
    def __init__(self, session: Session, moving: Moving) -> None:
        self._session, self._moving = session, moving
        self._disorder = Disorder(session)
        self._movable = [job for job in session.snapshot.running if job.is_movable]
        self._offered: dict[tuple[str, str], list[Unit]] = {}
        # The times at which the answer may change although nothing else does.
        self._changes = {at + HOUR_S for at in moves_of_the_last_hour(session)}

    @property
    def settled_until(self) -> float:
        return min(self._changes, default=math.inf)

    def tidy(self) -> bool:
        """Makes the first step that is worth it; False if there is none."""
        for candidates in (self._scattered, self._breakable):
            for steps in self._in_turn(candidates()):
                if any(self._try(step) for step in steps()):
                    return True
        return False

    def _in_turn(self, candidates: Sequence[T]) -> Sequence[T]:
        """Returns the few candidates whose turn it is."""
        if len(candidates) <= _MOST_TRIED:
            return candidates
        interval = max(1.0, self._moving.idle_interval_s)
        turn = math.floor(self._session.snapshot.now / interval)
        self._changes.add((turn + 1) * interval)
        first = turn * _MOST_TRIED % len(candidates)
        return [*candidates[first:], *candidates[:first]][:_MOST_TRIED]

    # -- gangs that are spread

    def _scattered(self) -> list[Callable[[], Iterator[_Step]]]:
        """The gangs that are in more domains than they may need, those first that are spread most."""
        found = []
        for job in self._movable:
            if len(job.placed) > 1 and len(nodes := {pod.node for pod in job.placed}) > 1 and min(nodes) >= 0:
                pairs = zip(self._disorder.spread(job, nodes), self._disorder.least(job), strict=True)
                excess = [min(0, least - there) for there, least in pairs]
                if any(excess):
                    found.append((excess, job.key, job))
        found.sort(key=itemgetter(0, 1))
        return [partial(self._gatherings, job) for *_, job in found]

    def _gatherings(self, job: Job) -> Iterator[_Step]:
        """Surplus that joins the other pods of its gang is cheaper than the whole gang, so it is tried first."""
        units = self._units(job)
        steps = [unit for unit in units if not unit.is_whole]
        purpose = f"gathering {job.name}"
        by_node: dict[int, list[PlacedPod]] = {}
        for pod in job.placed:
            by_node.setdefault(pod.node, []).append(pod)
        for node in sorted(by_node, key=lambda node: (len(by_node[node]), node)):
            if chosen := _covering(steps, by_node[node]):
                gone = {pod.pod for unit in chosen for pod in unit.pods}
                others = np.zeros(len(self._session.snapshot.nodes), dtype=bool)
                others[[pod.node for pod in job.placed if pod.pod not in gone]] = True
                yield _Step(purpose, [(job, chosen)], others, is_gathering=True)
        if units and units[-1].is_whole:
            everywhere = np.ones(len(self._session.snapshot.nodes), dtype=bool)
            yield _Step(purpose, [(job, units)], everywhere, is_gathering=True)

    # -- nodes that could be emptied

    def _breakable(self) -> list[Callable[[], Iterator[_Step]]]:
        """The nodes with stranded GPUs that movable jobs hold, those with the fewest of these first."""
        used, free = self._disorder.used_gpus(), self._disorder.free_gpus()
        partly = self._disorder.partly_used()
        room = float(free[partly].sum())
        nodes = self._session.snapshot.nodes
        partly &= (used <= room - free) & nodes.ready & ~nodes.unschedulable
        if not partly.any():
            return []
        is_open, held = partly.tolist(), dict.fromkeys(np.flatnonzero(partly).tolist(), 0.0)
        jobs: dict[int, dict[tuple[str, str], Job]] = {node: {} for node in held}
        rows = self._session.snapshot.axis.gpu_rows
        for job in self._movable:
            for pod in job.placed:
                if is_open[pod.node] and pod.node >= 0 and (gpus := sum(map(pod.requests.item, rows))):
                    held[pod.node] += gpus
                    jobs[pod.node][job.key] = job
        whole = [node for node in held if held[node] and held[node] >= used[node] * MILLI - 0.5]
        whole.sort(key=lambda node: (used[node], node))
        return [partial(self._emptying, node, list(jobs[node].values())) for node in whole]

    def _emptying(self, node: int, jobs: Sequence[Job]) -> Iterator[_Step]:
        rows = list(self._session.snapshot.axis.gpu_rows)
        chosen: list[tuple[Job, Sequence[Unit]]] = []
        for job in jobs:
            there = [pod for pod in job.placed if pod.node == node and pod.requests[rows].any()]
            units = self._units(job)
            covering = _covering([unit for unit in units if not unit.is_whole], there) or _covering(units, there)
            if not covering:
                return
            chosen.append((job, units if any(unit.is_whole for unit in covering) else covering))
        within = ~self._disorder.untouched()
        within[node] = False
        yield _Step(f"emptying {self._session.snapshot.nodes.names[node]}", chosen, within)

    # -- what may move

    def _units(self, job: Job) -> list[Unit]:
        """What of the job may be moved now, the cheapest first."""
        if job.key not in self._offered:
            self._note_changes(job)
            is_open = not why_unmovable(self._session, job, self._moving) and not any(map(_has_neighbours, job.placed))
            is_open &= job.preemptable and job.exists
            self._offered[job.key] = list(movable_units(self._session, job, self._moving)) if is_open else []
        return self._offered[job.key]

    def _note_changes(self, job: Job) -> None:
        """Notes when something ends that may keep the job where it is."""
        times = [pod.started + job.min_runtime_s for pod in job.placed] if job.min_runtime_s else []
        if job.moved is not None:
            times += [job.moved.until_s, job.moved.at_s + self._moving.cooldown_s]
        if job.elastic is not None:
            times.append(job.elastic.cooldown_until)
        self._changes.update(time for time in times if time > self._session.snapshot.now)

    # -- one step

    def _try(self, step: _Step) -> bool:
        """Makes the step if all that move have places, the measure falls, and that is worth its cost."""
        session, moving = self._session, self._moving
        units = [unit for _, several in step.units for unit in several]
        if len(step.units) > moving.moves_left(session):
            return False
        if len(allowed_units(session, step.units[0][0], units, [])) < len(units):
            return False  # a PodDisruptionBudget keeps some of them
        before = self._disorder.stranded()
        with ExitStack() as stack:
            evictions = stack.enter_context(Statement(session))
            for unit in units:
                for pod in unit.pods:
                    evictions.evict(unit.job, pod, MOVED, step.purpose)
            places: list[tuple[Job, Statement]] = []
            for job, several in sorted(step.units, key=self._largest_first):
                statement = stack.enter_context(Statement(session))
                if not self._place(statement, job, several, step.within):
                    return False
                places.append((job, statement))
            changes = [self._change(job, statement) for job, statement in places]
            gained = moving.gained_by_tidying(self._gain(step, before, changes))
            if gained <= sum(unit.loss for unit in units):
                return False
            evictions.commit()
            for _, statement in places:
                statement.mark_moved(step.purpose)
                statement.commit()
        return True

    def _largest_first(self, entry: tuple[Job, Sequence[Unit]]) -> tuple[float, tuple[str, str]]:
        job, units = entry
        return -max(gpus_of(self._session, pod.requests) for unit in units for pod in unit.pods), job.key

    def _place(self, statement: Statement, job: Job, units: Sequence[Unit], within: BoolArray) -> bool:
        """Single pods go only to room that is free now. A gang that moves whole may get back room that it leaves."""
        session, pods = self._session, [pod for unit in units for pod in unit.pods]
        nodes = _of_same_models(session, pods)
        if nodes is None:
            return False
        is_whole = len(pods) > 1 and session.state(job).placed_count == 0
        if not place_close(session, statement, job, pods, nodes & within, later=is_whole):
            return False
        return not _slows_a_ring(session, statement, pods)

    def _change(self, job: Job, statement: Statement) -> int:
        """Whether the gang is spread less (-1), as before (0) or more (1)."""
        gone = self._session.state(job).evicted
        new = [node for done in statement.placed() for node, _ in done.slots()]
        before = self._disorder.spread(job, (pod.node for pod in job.placed))
        after = self._disorder.spread(job, [*new, *(pod.node for pod in job.placed if pod.pod not in gone)])
        return (after > before) - (after < before)

    def _gain(self, step: _Step, stranded: float, changes: Sequence[int]) -> float:
        """The GPUs that are tidied; 0 if the measure does not fall."""
        if step.is_gathering:
            allocated = step.units[0][0].allocated
            return gpus_of(self._session, allocated) if allocated is not None and changes == [-1] else 0.0
        return max(0.0, stranded - self._disorder.stranded()) if max(changes) <= 0 else 0.0


def _covering(units: Sequence[Unit], pods: Sequence[PlacedPod]) -> list[Unit]:
    """Returns the fewest units that have all these pods; none if they cannot go without others."""
    wanted = {pod.pod for pod in pods}
    found = [unit for unit in units if not wanted.isdisjoint(pod.pod for pod in unit.pods)]
    return found if wanted <= {pod.pod for unit in found for pod in unit.pods} else []


def _has_neighbours(pod: PlacedPod) -> bool:
    """Whether rules or wishes about other pods decided where it is."""
    return pod.pod_affinity is not None and pod.pod_affinity.has_terms


def _of_same_models(session: Session, pods: Sequence[PlacedPod]) -> BoolArray | None:
    """[N] the nodes with GPUs of the models that the pods run on, and those without; None if that is not one model."""
    nodes = np.ones(len(session.snapshot.nodes), dtype=bool)
    if not session.gpus.is_mixed:
        return nodes
    for row, table in session.gpus.tables.items():
        codes = {int(table.node_model[pod.node]) for pod in pods if pod.requests[row]}
        if len(codes) > 1 or MIXED in codes:
            return None
        if codes:
            nodes &= (table.node_model == codes.pop()) | ~table.there.any(axis=1)
    return nodes


def _slows_a_ring(session: Session, statement: Statement, pods: Sequence[PlacedPod]) -> bool:
    """Whether a pod would get GPUs with slower links than those that it has, as far as both are known."""
    before: Mapping[str, PlacedPod] = {pod.pod: pod for pod in pods if len(pod.gpus) > 1}
    for done in statement.placed() if before else ():
        for number, (node, grants) in enumerate(done.slots(), done.start):
            pod = before.get(done.group.pods[number])
            if pod is None:
                continue
            old, new = session.gpus.ring_gbs(pod.node, pod.gpus), session.gpus.ring_gbs(node, grants)
            if old is not None and new is not None and new < old:
                return True
    return False
