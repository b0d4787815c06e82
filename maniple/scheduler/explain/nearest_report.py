"""The nearest miss as the plan shows it: where, how much is lacking, and who holds it there."""

from math import inf

import numpy as np
from msgspec import UNSET

from maniple.model.job import Job
from maniple.scheduler.explain.holders import ABOVE, ELSEWHERE, HIGHER, LOWER, SAME, SURPLUS, WITHIN, Guard, Holdings
from maniple.scheduler.explain.nearest_miss import Miss
from maniple.scheduler.framework.plan import Holder, Nearest
from maniple.scheduler.framework.session import Session

_MOST_HOLDERS = 5
_MOST_REFUSALS = 5

_STARTS, _PROMISED, _RESERVED = "starts in this cycle", "promised room", "reserved room"
_LEAVING, _FOREIGN = "pods that are leaving", "pods that are not ours"
# Those who could give it back soonest first. Where room is reserved, whatever comes free goes there: that stands in the
# way before all else.
_ORDER = (
    *(_RESERVED, _LEAVING, SURPLUS, LOWER, ABOVE, SAME, ELSEWHERE, WITHIN, HIGHER),
    *(_PROMISED, _STARTS, _FOREIGN),
)


def nearest_of(session: Session, holdings: Holdings, claimant: Job, miss: Miss) -> Nearest | None:
    """None if nothing is lacking."""
    if not miss.missing:
        return None
    axis, names = session.snapshot.axis, session.snapshot.nodes.names
    parts = np.divide(miss.total, miss.needs, out=np.zeros(len(axis)), where=miss.needs > 0)
    row = int(np.argmax(parts))
    is_short = bool(parts[row] > 0)
    place, free, needs, lacks = "cluster", float(miss.free[row]), float(miss.needs[row]), float(miss.total[row])
    if miss.level:
        place = f"{miss.level} {session.snapshot.domains.levels[miss.level].names[miss.domain]}"
    elif miss.wanted == 1 and miss.lacks:
        place, free = f"node {names[miss.lacks[0].node]}", max(0.0, needs - lacks)
    if not np.isfinite(free):
        free = max(0.0, needs - lacks)  # some node there has no bound on it, and is of no use
    tally = _Tally(session, holdings, claimant, row)
    if is_short:
        for lack in miss.lacks:
            if lack.amounts[row] > 0:
                tally.count(lack.node)
    held, others = tally.shown(lacks)
    return Nearest(
        place=place,
        pods=miss.wanted,
        fits=miss.fits,
        resource=axis.names[row] if is_short else "",
        needs=axis.text(row, needs) if is_short else "",
        free=axis.text(row, free) if is_short else "",
        lacks=axis.text(row, lacks) if is_short else "",
        is_scattered=is_short and free + lacks > needs,
        refusals=tuple(dict.fromkeys(reason for lack in miss.lacks for reason in lack.refusals))[:_MOST_REFUSALS],
        held_by=held,
        others=others,
    )


class _Tally:
    """Who holds how much of one resource, on nodes where a gang lacks it."""

    def __init__(self, session: Session, holdings: Holdings, claimant: Job, row: int) -> None:
        self._session = session
        self._holdings = holdings
        self._claimant = claimant
        self._row = row
        # (job, what its pods are, what protects them) -> (pods, amount, for how long they are protected)
        self._found: dict[tuple[str, str, str], tuple[int, float, float | None]] = {}
        self._ends: dict[tuple[str, str, str], float] = {}  # when the last of them will have ended, as they say
        self._spent = holdings.spend(())  # of budgets, by those who might go

    def count(self, node: int) -> None:
        session, row, claimant = self._session, self._row, self._claimant
        ours = 0.0
        for job, pod in self._holdings.on(node):
            amount = float(pod.requests[row])
            ours += amount
            state = session.states.get(job.key)
            # Whoever leaves in this cycle leaves for somebody else, who counts in its place.
            if amount > 0 and job.key != claimant.key and (state is None or pod.pod not in state.evicted):
                what = self._holdings.relation(claimant, job, pod)
                might_go = what in (SURPLUS, LOWER, ABOVE)
                guard = None
                if might_go:
                    guard = self._holdings.guard(job, pod, is_surplus=what == SURPLUS, spent=self._spent)
                    if guard is None and self._spent:
                        self._spent = [
                            had + one for had, one in zip(self._spent, self._holdings.spend([pod]), strict=True)
                        ]
                self._add(job.name, what, guard, 1, amount, pod.ends)
        for done, number in self._holdings.coming.get(node, ()):
            amount = float(done.group.shape.requests[row]) * number
            if amount > 0 and done.job.key != claimant.key:
                self._add(done.job.name, _PROMISED if done.later else _STARTS, None, number, amount)
        made = session.reserved.holder(node)
        mask = session.reserved.mask
        if made is not None and mask is not None and mask[node]:
            asked = max(float(group.shape.requests[row]) for group in made.job.groups)
            if asked > 0:
                self._add(made.job.name, _RESERVED, None, made.nodes[node], asked * made.nodes[node])
        snapshot = session.snapshot
        leaving = float(snapshot.releasing[row, node])
        foreign = float(snapshot.nodes.allocatable[row, node] - snapshot.free[row, node]) - ours - leaving
        for what, amount in ((_LEAVING, leaving), (_FOREIGN, foreign)):
            if amount > 0:
                self._add("", what, None, 0, amount)

    def _add(self, name: str, what: str, guard: Guard | None, number: int, amount: float, ends: float = inf) -> None:
        key = (name, what, guard.what if guard else "")
        had, held, until = self._found.get(key, (0, 0.0, None))
        left = guard.until if guard else None
        until = left if until is None else until if left is None else min(until, left)
        self._found[key] = (had + number, held + amount, until)
        self._ends[key] = max(ends, self._ends.get(key, ends))

    def shown(self, lacks: float) -> tuple[tuple[Holder, ...], int]:
        """(those who could give it back soonest, until so much is covered; how many other jobs hold some)"""

        def rank(item: tuple[tuple[str, str, str], object]) -> tuple[object, ...]:
            key = item[0]
            return _ORDER.index(key[1]), bool(key[2]), self._ends[key], key

        ranked = sorted(self._found.items(), key=rank)
        shown: list[Holder] = []
        covered = 0.0
        for (name, what, guard), (number, amount, until) in ranked:
            if len(shown) == _MOST_HOLDERS or covered >= lacks:
                break
            covered += amount
            shown.append(
                Holder(
                    job=name,
                    pods=number,
                    amount=self._session.snapshot.axis.text(self._row, amount),
                    what=what,
                    guard=guard or UNSET,
                    until=UNSET if until is None else round(until, 3),
                )
            )
        rest = {name for (name, _, _), _ in ranked if name} - {holder.job for holder in shown}
        return tuple(shown), len(rest)
