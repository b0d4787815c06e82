"""Room by eviction: who would have to go so that a gang can start, chosen together with where it will start.

Victims go in units: a step of what a job holds above its minimum, or a gang whole, never a part of one. Units stand in
order of what they cost. More evictions never make a gang fit worse, so a search over the length of the list finds how
many suffice; then each of them is put back, dearest first, if the gang still fits without it. Nothing is committed
unless the gang is then promised all that it needs, so nobody is taken in vain, and nobody who was not needed.

The cheapest units of a cluster may lie on many nodes and free no room for anybody, or use up what a queue can spare
in the wrong place. So the order by cost is only the first that is tried; others gather units by node, and by domain
for gangs that must be in one. The cheapest way that works is taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maniple.api.gpuwish import WHOLE
from maniple.model.job import Job, PlacedPod, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.hooks import Victim, VictimRule
from maniple.scheduler.placement import place_gang
from maniple.scheduler.scopes import by_domain, home_of, members_of
from maniple.scheduler.session import Session
from maniple.scheduler.statement import Statement

_FIRST_LOOK = 32  # units looked at first; then four times as many, and so on: most claimants need few
_MOST_PUT_BACK = 48  # units that are put back one by one; with more of them only where it can be seen at once
_MOST_DOMAINS = 8  # of a topology that are tried in turn, those that lack least first


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods of one job that go together."""

    job: Job
    pods: tuple[PlacedPod, ...]
    is_whole: bool  # a gang of several, or what is left of it
    cost: tuple[Any, ...]  # lower goes first


class Market:
    """The units that an action may take, cheapest first. Made once, and kept up to date as they go."""

    def __init__(
        self,
        session: Session,
        jobs: Iterable[Job],
        *,
        surplus_only: bool = False,
        loss: Callable[[Job], float] | None = None,
    ) -> None:
        self._units: list[Unit] = []
        for job in jobs:
            if job.placed:
                self._units += _units(session, job, surplus_only=surplus_only, loss=loss(job) if loss else 0.0)
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
            self._units += _units(session, job, surplus_only=False, loss=0.0)
        self._units.sort(key=lambda unit: unit.cost)


def _units(session: Session, job: Job, *, surplus_only: bool, loss: float) -> Iterator[Unit]:
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
        yield Unit(job, step, False, (loss, 0.0, job.priority, dearest, job.key, nth))
    if not rest or surplus_only:
        return
    if len(rest) == 1 and job.min_member == 1 and now - rest[0].started >= job.min_runtime_s:
        yield Unit(job, tuple(rest), False, (loss, 0.0, job.priority, max(dearest, -rest[0].started), job.key, nth + 1))
    elif session.evicts_whole and all(now - pod.started >= job.min_runtime_s for pod in there):
        started = max(pod.started for pod in there)
        yield Unit(job, tuple(there), True, (loss, 1.0, job.priority, max(dearest, -started), job.key, nth + 1))


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


def make_room(
    session: Session, queue: Queue, job: Job, units: Sequence[Unit], rules: Sequence[VictimRule], reason: str
) -> list[Unit]:
    """Evicts what costs least and lets `job` start, and promises it the room; or does nothing. Says who went."""
    if not units:
        return []
    attempt = _Attempt(session, queue, job, reason)
    if attempt.fits(()) is not None:
        return []  # there is room without anybody leaving: that is for allocate to give
    best: list[Unit] = []
    for order in _orders(session, job, units):
        found = attempt.search(order, rules)
        if found and (not best or _price(found) < _price(best)):
            best = found
        if len(best) == 1 and len(best[0].pods) == 1:
            break
    return best if best and attempt.fits(best, keep=True) is not None else []


def _price(units: Sequence[Unit]) -> tuple[Any, ...]:
    """What a way of making room costs: whom it hits, how many gangs, how many pods."""
    return (
        max(unit.cost[0] for unit in units),
        max(unit.job.priority for unit in units),
        sum(unit.is_whole for unit in units),
        sum(len(unit.pods) for unit in units),
        [unit.cost for unit in units],
    )


class _Attempt:
    def __init__(self, session: Session, queue: Queue, job: Job, reason: str) -> None:
        self._session = session
        self._queue = queue
        self._job = job
        self._reason = reason

    def fits(self, units: Sequence[Unit], *, keep: bool = False) -> set[int] | None:
        """The nodes where the gang would go without `units`, or None if it would not fit."""
        session, job = self._session, self._job
        with Statement(session) as statement:
            self._evict(statement, units)
            before = session.state(job).allocated.copy()
            # A search that fails rolls back what it placed itself, never the evictions before it.
            with Statement(session) as gang:
                if not self._place(gang, before):
                    return None
                nodes = gang.nodes()
                if keep:
                    statement.commit()
                    gang.commit()
                return nodes

    def _evict(self, statement: Statement, units: Sequence[Unit]) -> None:
        gone: set[str] = set()
        for unit in units:
            for pod in unit.pods:
                if pod.pod not in gone:
                    gone.add(pod.pod)
                    statement.evict(unit.job, pod, self._reason, self._job.name)

    def _place(self, gang: Statement, before: FloatArray) -> bool:
        session, job = self._session, self._job
        if not place_gang(session, gang, job, later=True) or not session.job_pipelined(job):
            return False
        return session.admissible(self._queue, session.state(job).allocated - before, is_charged=True) is None

    def search(self, order: Sequence[Unit], rules: Sequence[VictimRule]) -> list[Unit]:
        """The fewest units from the front of `order` that make room, without those that were not needed."""
        count = _FIRST_LOOK
        while True:
            kept = agreed(self._session, self._job, order[:count], rules)
            if kept and self.fits(kept) is not None:
                break
            if count >= len(order):
                return []
            count *= 4
        too_few, enough = 0, len(kept)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self.fits(kept[:middle]) is None:
                too_few = middle
            else:
                enough = middle
        chosen = list(kept[:enough])
        used = self.fits(chosen) or set()
        nearby = [unit for unit in chosen if any(pod.node in used for pod in unit.pods)]
        if len(nearby) < len(chosen) and self.fits(nearby) is not None:
            chosen = nearby
        if len(chosen) > _MOST_PUT_BACK:
            chosen = self._without_idle(chosen)
        for unit in reversed(chosen[-_MOST_PUT_BACK:]):
            rest = [other for other in chosen if other is not unit]
            if self.fits(rest) is not None:
                chosen = rest
        return chosen

    def _without_idle(self, chosen: list[Unit]) -> list[Unit]:
        """`chosen` without those whose place stays empty when the gang is there."""
        session = self._session
        with Statement(session) as statement:
            self._evict(statement, chosen)
            with Statement(session) as gang:
                if not self._place(gang, session.state(self._job).allocated.copy()):
                    return chosen
                future = session.future.copy()
                devices = {row: array.copy() for row, array in session.gpus.future.items()}
        kept = []
        for unit in reversed(chosen):
            idle = all(
                (future[:, pod.node] >= pod.requests).all()
                and all(devices[part.row][pod.node, part.device] >= part.milli for part in pod.gpus)
                for pod in unit.pods
            )
            if not idle:
                kept.append(unit)
                continue
            for pod in unit.pods:
                future[:, pod.node] -= pod.requests
                for part in pod.gpus:
                    devices[part.row][pod.node, part.device] -= part.milli
        kept.reverse()
        return kept if self.fits(kept) is not None else chosen


# --- in which order units are tried


def _orders(session: Session, job: Job, units: Sequence[Unit]) -> Iterator[list[Unit]]:
    yield list(units)
    yield _by_node(session, job, units)
    for nodes in _domains(session, job):
        inside = [unit for unit in units if any(nodes[pod.node] for pod in unit.pods)]
        if inside:
            yield inside
            yield _by_node(session, job, inside)


def _domains(session: Session, job: Job) -> Iterator[BoolArray]:
    """Domains that could hold a gang which must be in one, those that lack least first."""
    if not job.required:
        return
    level = next(level for level in session.snapshot.domains.chain(job.required) if level.name == job.required)
    group = _main_group(session, job)
    now = by_domain(level, session.room_for(group, later=True))
    home = home_of(level, members_of(session, job))
    domains = np.argsort(-now, kind="stable") if home is None else np.array([home])
    for domain in domains[:_MOST_DOMAINS].tolist():
        if domain >= 0:
            yield level.codes == domain


def _main_group(session: Session, job: Job) -> TaskGroup:
    """The group that is hardest to place speaks for the gang."""
    total = np.maximum(session.snapshot.total, 1.0)
    return max(job.groups, key=lambda group: (float((group.shape.requests / total).max()), -group.number))


def _by_node(session: Session, job: Job, units: Sequence[Unit]) -> list[Unit]:
    """Units gathered by node: first the nodes where a pod of the gang comes in for the fewest pods that go."""
    group = _main_group(session, job)
    rows = np.flatnonzero(group.shape.requests).tolist()
    asked = [float(group.shape.requests[row]) for row in rows]
    on_node: dict[int, list[Unit]] = {}
    for unit in units:
        for node in dict.fromkeys(pod.node for pod in unit.pods):
            on_node.setdefault(node, []).append(unit)
    ways: list[tuple[Any, int, list[Unit]]] = []
    for node, mine in on_node.items():
        free = [float(session.future[row, node]) for row in rows]
        mine.sort(key=lambda unit: (unit.cost[:2], _held_with(session, unit, node), unit.cost[2:]))
        had = _times(free, asked)
        evicted, best = 0, None
        for at, unit in enumerate(mine):
            for pod in unit.pods:
                evicted += 1
                if pod.node == node:
                    free = [have + float(pod.requests[row]) for have, row in zip(free, rows, strict=True)]
            gained = _times(free, asked) - had
            if gained > 0:
                priority = max(other.job.priority for other in mine[: at + 1])
                way = (unit.cost[0], priority, evicted / gained, at)
                if best is None or way < best:
                    best = way
        if best is not None:
            ways.append((best, node, mine))
    ways.sort(key=lambda way: way[:2])
    ordered: dict[Unit, None] = {}
    for best, _, mine in ways:
        ordered.update(dict.fromkeys(mine[: best[3] + 1]))
    for _, _, mine in ways:
        ordered.update(dict.fromkeys(mine))
    return list(ordered)


def _times(free: Sequence[float], asked: Sequence[float]) -> int:
    finite = (int(have // want) for have, want in zip(free, asked, strict=True) if have != np.inf)
    return max(0, min(finite, default=0))


def _held_with(session: Session, unit: Unit, node: int) -> int:
    """For shares of GPUs: how much of their devices is held. The emptiest device is whole again soonest."""
    held = 0
    for pod in unit.pods:
        for granted in pod.gpus if pod.node == node else ():
            held += WHOLE - int(session.gpus.future[granted.row][node, granted.device])
    return held


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
