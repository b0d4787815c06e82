"""What may be taken by eviction, in units that go together: a step of a job's surplus, or a gang whole."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.scheduler.hooks import Victim, VictimRule
from maniple.scheduler.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods of one job that go together."""

    job: Job
    pods: tuple[PlacedPod, ...]
    is_whole: bool  # a gang of several, or what is left of it
    cost: tuple[Any, ...]  # lower goes first


class Market:
    """The units that an action may take, cheapest first. Made once, and kept up to date as they go."""

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        self._units = [unit for job in jobs if job.placed for unit in _units(session, job)]
        self._units.sort(key=lambda unit: unit.cost)

    def offer(self, belongs: Callable[[Job], bool]) -> list[Unit]:
        verdicts: dict[tuple[str, str], bool] = {}
        offered = []
        for unit in self._units:
            verdict = verdicts.get(unit.job.key)
            if verdict is None:
                verdict = verdicts[unit.job.key] = belongs(unit.job)
            if verdict:
                offered.append(unit)
        return offered

    def take(self, session: Session, taken: Sequence[Unit]) -> None:
        """These are gone, and what else their jobs have to offer is counted anew."""
        touched = {unit.job.key: unit.job for unit in taken}
        self._units = [unit for unit in self._units if unit.job.key not in touched]
        for job in touched.values():
            self._units += _units(session, job)
        self._units.sort(key=lambda unit: unit.cost)


def _units(session: Session, job: Job) -> Iterator[Unit]:
    """Surplus steps, the highest indices first, then all of it as one unit: a gang goes whole, surplus and all."""
    state, now = session.state(job), session.snapshot.now
    there = [pod for pod in job.placed if pod.node >= 0 and pod.pod not in state.evicted]
    there.sort(key=_descending)
    left = state.placed_count + job.succeeded
    by_role = {role: count + job.succeeded_by_role.get(role, 0) for role, count in state.placed.items()}
    rest = list(there)
    dearest = -np.inf
    nth = 0
    while True:
        step = _step(session, job, rest, left, by_role)
        if not step:
            break
        nth += 1
        left -= len(step)
        by_role[step[0].role] -= len(step)
        rest = [pod for pod in rest if pod not in step]
        # Within a job indices decide, between jobs age: a step is never cheaper than the one before it.
        dearest = max(dearest, -max(pod.started for pod in step))
        yield Unit(job, step, False, (False, job.priority, dearest, job.key, nth))
    if not rest:
        return
    if len(rest) == 1 and job.min_member == 1 and now - rest[0].started >= job.min_runtime_s:
        yield Unit(job, tuple(rest), False, (False, job.priority, max(dearest, -rest[0].started), job.key, nth + 1))
    elif session.evicts_whole and all(now - pod.started >= job.min_runtime_s for pod in there):
        started = max(pod.started for pod in there)
        yield Unit(job, tuple(there), True, (True, job.priority, max(dearest, -started), job.key, nth + 1))


def _step(
    session: Session, job: Job, rest: Sequence[PlacedPod], left: int, by_role: Mapping[str, int]
) -> tuple[PlacedPod, ...]:
    """The next step of surplus: of the role whose highest index is highest."""

    def may_go(pod: PlacedPod) -> bool:
        return session.snapshot.now - pod.started >= job.min_runtime_s and not session.is_protected(pod)

    for role in dict.fromkeys(pod.role for pod in rest):
        size = job.steps.get(role, 1)
        if left - size < max(job.min_member, 1) or by_role.get(role, 0) - size < job.role_min.get(role, 0):
            continue
        mine = [pod for pod in rest if pod.role == role]
        if job.steps:
            # An elastic job keeps its lowest indices, and the one where its replicas meet always.
            step = [pod for pod in mine[:size] if pod.order[1] > 0 and may_go(pod)]
        else:
            step = [pod for pod in mine if may_go(pod)][:size]
        if len(step) == size:
            return tuple(step)
    return ()


def _descending(pod: PlacedPod) -> tuple[int, str]:
    prefix, number, name = pod.order
    return -number, f"{prefix}/{name}"


def agreed(session: Session, claimant: Job, units: Sequence[Unit], rules: Sequence[VictimRule]) -> list[Unit]:
    """The units that every rule lets go.

    Rules count: a queue can spare so much, whoever goes. So a unit of which some rule would not let a pod go, or only
    a part, must not use up what another rule would have given to others: it is taken out, and all rules are asked
    again. Ends since the pool shrinks each time.
    """
    pool = list(units)
    while pool:
        # A pod may be offered by itself and with all of its gang: it is one victim.
        victims = {pod.pod: Victim(unit.job, pod) for unit in pool for pod in unit.pods}
        chosen: Sequence[Victim] = list(victims.values())
        never: set[Victim] = set()
        for rule in (lambda _, candidates: _within_budgets(session, candidates), *rules):
            kept = rule(claimant, chosen)
            alone: dict[object, bool] = {}  # asked once of victims that are alike: there may be thousands
            for victim in set(chosen) - set(kept):
                kind = _kind(session, victim)
                if kind not in alone:
                    alone[kind] = bool(rule(claimant, [victim]))
                if not alone[kind]:
                    never.add(victim)
            chosen = kept
        left = set(chosen)
        whole: list[Unit] = []
        broken = False
        for unit in pool:
            mine = [victims[pod.pod] for pod in unit.pods]
            if all(victim in left for victim in mine):
                whole.append(unit)
            elif any(victim in left or victim in never for victim in mine):
                broken = True  # it took a part of what others could have had
        if not broken:
            return whole
        pool = whole if len(whole) < len(pool) else []
    return []


def _kind(session: Session, victim: Victim) -> object:
    """Victims of one kind are the same to every rule that looks at one of them alone."""
    job, pod = victim.job, victim.pod
    alike = len(job.placed) == 1 and not job.succeeded and not job.role_min
    of_job = (job.queue, job.priority, job.min_member) if alike else job.key
    budgets = tuple(budget.covers(pod.pod, pod.labels) for budget in session.snapshot.budgets)
    counted = tuple(id(measure.of_pod(pod)) for measure in session.by_speed.values())
    return of_job, id(pod.requests), counted, pod.role, pod.is_critical, budgets


def _within_budgets(session: Session, candidates: Sequence[Victim]) -> list[Victim]:
    """`candidates` without those that would break a PodDisruptionBudget, counting the ones before them."""
    budgets = session.snapshot.budgets
    if not budgets:
        return list(candidates)
    gone = [sum(budget.covers(done.pod.pod, done.pod.labels) for done in session.evicted) for budget in budgets]
    left = [budget.allowed - number for budget, number in zip(budgets, gone, strict=True)]
    kept = []
    for victim in candidates:
        bound = [at for at, budget in enumerate(budgets) if budget.covers(victim.pod.pod, victim.pod.labels)]
        if all(left[at] > 0 for at in bound):
            for at in bound:
                left[at] -= 1
            kept.append(victim)
    return kept
