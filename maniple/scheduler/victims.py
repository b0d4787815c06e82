"""Room by eviction: who would have to go so that a gang can start, chosen together with where it will start.

Victims go in units: a step of what a job holds above its minimum, or a gang whole, never a part of one. Units stand in
order of what they cost. More evictions never make a gang fit worse, so a search over the length of the list finds how
many suffice; then each of them is put back, dearest first, if the gang still fits without it. Nothing is committed
unless the gang is then promised all that it needs, so nobody is taken in vain, and nobody who was not needed.

The cheapest units of a cluster may lie on many nodes and free no room for anybody, or use up what a queue can spare
in the wrong place. So the order by cost is only the first that is tried; others gather units by node, and by domain
for gangs that must be in one. The cheapest way that works is taken.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maniple.api.gpuwish import WHOLE
from maniple.model.job import Job, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.hooks import VictimRule
from maniple.scheduler.placement import place_gang
from maniple.scheduler.scopes import by_domain, home_of, members_of
from maniple.scheduler.session import Session
from maniple.scheduler.statement import Statement
from maniple.scheduler.units import Unit, agreed

_FIRST_LOOK = 32  # units looked at first; then four times as many, and so on: most claimants need few
_MOST_PUT_BACK = 48  # units that are put back one by one; with more of them only where it can be seen at once
_MOST_DOMAINS = 8  # of a topology that are tried in turn, those that lack least first


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
    level = session.snapshot.domains.levels[job.required]
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
        mine.sort(key=lambda unit: (unit.is_whole, _held_with(session, unit, node), unit.cost))
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
                way = (priority, evicted / gained, at)
                if best is None or way < best:
                    best = way
        if best is not None:
            ways.append((best, node, mine))
    ways.sort(key=lambda way: way[:2])
    ordered: dict[Unit, None] = {}
    for best, _, mine in ways:
        ordered.update(dict.fromkeys(mine[: best[2] + 1]))
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
