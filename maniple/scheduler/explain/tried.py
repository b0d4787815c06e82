"""What was tried for a gang that waits, action by action, and why it did not help.

Actions leave no notes: it is found out afterwards, from the state in which they left things, by asking what they ask.
Looking at each pod that might have been taken costs as much as taking it, so in a large cluster that is done for the
first kinds of gangs only; what is said of the others is as true, and shorter.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.actions.shrink import returnable, surplus_units
from maniple.scheduler.eviction.consent import agreed
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit, UnitsOf, offered_units
from maniple.scheduler.explain.holders import Census, Holdings
from maniple.scheduler.explain.nearest_miss import find_miss
from maniple.scheduler.explain.words import describe_nearest, joined, listed, pods
from maniple.scheduler.framework.hooks import Reason, VictimRule
from maniple.scheduler.framework.plan import SHRUNK, Nearest, Tried
from maniple.scheduler.framework.queue_dues import EPSILON, Due, entitled, spared
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.search import place_gang

_MOST_LOOKED_AT = 10_000  # pods that might have been taken, over all kinds of gangs
_TAKING = ("shrink", "reclaim", "preempt")


@dataclass(frozen=True, slots=True)
class _Offer:
    """What an action looks at for a gang: pods of these jobs, as far as all rules let them go."""

    noun: str  # what those pods are, such as "of lower priority in queue 'q'"
    count: int  # of pods, or of jobs with surplus
    jobs: Callable[[], Iterable[Job]]
    rules: Sequence[VictimRule]
    units_of: UnitsOf = offered_units
    is_surplus: bool = False


class Tries:
    def __init__(self, session: Session, holdings: Holdings) -> None:
        self._session = session
        self._holdings = holdings
        self._census = Census(session, holdings)
        self._looked_at = 0

    def tell(
        self, job: Job, reason: Reason, blocked: Reason | None, nearest: Nearest | None, *, is_thorough: bool
    ) -> tuple[Tried, ...]:
        """For a gang that is in line; `blocked`: the limit or share that an action was told of."""
        found = []
        for action in dict.fromkeys(self._session.actions):
            if action in ("allocate", "backfill"):
                why = self._free(action, job, reason, None if blocked else nearest)
            elif job.is_best_effort:
                why = ""
            elif nearest is None and blocked is not None and not self._is_limited(job):
                why = "there is room without anybody leaving" if action in _TAKING else ""
            else:
                offer = self._offer(action, job)
                why = offer if isinstance(offer, str) else self._judge(job, offer, is_thorough=is_thorough)
            if why:
                found.append(Tried(action, why))
        return tuple(found)

    def tell_surplus(self, job: Job, why: str, nearest: Nearest | None) -> tuple[Tried, ...]:
        """Pods above a minimum get what is free, and take nothing from anybody."""
        action = "backfill" if job.is_best_effort else "allocate"
        if action not in self._session.actions:
            return ()
        return (Tried(action, why if nearest is None else describe_nearest(nearest)),)

    # -- free room

    def _free(self, action: str, job: Job, reason: Reason, nearest: Nearest | None) -> str:
        if action == "backfill" and not job.is_best_effort:
            return self._backfill(job)
        if action == "allocate" and job.is_best_effort:
            return ""
        return reason.message if nearest is None else describe_nearest(nearest)

    def _is_limited(self, job: Job) -> bool:
        """Whether a limit keeps it out, and not only its queue's share."""
        return self._session.admissible(self._session.queue_of(job), self._session.needed_resources(job)) is not None

    def _backfill(self, job: Job) -> str:
        """Why it does not run meanwhile where room is reserved for others."""
        session = self._session
        others = [made for made in session.reservations.values() if made.job is not job]
        if not others or job.key in session.reservations:
            return ""
        lasts = max((group.lasts_s for group in job.groups), default=0.0)
        in_time = [made for made in others if session.snapshot.now + lasts <= made.ready]
        may_leave = job.preemptable and not any(group.stays for group in job.groups)
        patient = [made for made in others if session.snapshot.now + job.min_runtime_s <= made.ready]
        names = listed(sorted(made.job.name for made in others))
        if in_time or (may_leave and patient):
            return f"what is free of the room that is reserved for {names} is not enough for it"
        ends = "it does not say when it ends" if np.isinf(lasts) else "it ends too late"
        leaves = "may not be evicted" if not may_leave else "runs for its minRuntimeSeconds at least"
        return f"it could delay {names}, for which room is reserved: {ends}, and {leaves}"

    # -- room that others hold

    def _offer(self, action: str, job: Job) -> _Offer | str:
        """What the action looks at, or why it looked at nothing; empty if it is not for gangs at all."""
        if action == "shrink":
            return self._shrink(job)
        if action == "reclaim":
            return self._reclaim(job)
        return self._preempt(job) if action == "preempt" else ""

    def _shrink(self, job: Job) -> _Offer | str:
        session = self._session
        jobs = self._census.with_surplus
        if not jobs:
            is_gone = any(done.reason == SHRUNK for done in session.evicted)
            return "all surplus has been taken for others already" if is_gone else "no job has surplus"
        if job.queue not in jobs and session.due is not None:
            # All that is on offer belongs to other queues.
            why = self._not_due(job, session.due)
            if why:
                return f"only other queues have surplus, and {why}"
            if isinstance(self._above_share(job, session.due, set(jobs)), str):
                return "other queues hold no surplus above what they deserve"
        rules = [lambda claimant, found: returnable(session, claimant, found)]
        count = sum(map(len, jobs.values()))
        return _Offer("surplus", count, lambda: chain(*jobs.values()), rules, surplus_units, is_surplus=True)

    def _reclaim(self, job: Job) -> _Offer | str:
        session = self._session
        rules = session.victim_rules("reclaimable")
        if not rules:
            return "no plugin of the policy says what may be reclaimed"
        due = session.due
        if due is None:
            return "no plugin of the policy says what queues deserve"
        others = set(self._census.by_queue) - {job.queue}
        if not others:
            return "no other queue holds anything"
        why = self._not_due(job, due)
        if why:
            return why
        queues = self._above_share(job, due, others)
        if isinstance(queues, str):
            return queues
        names = listed([repr(session.snapshot.queues[queue].name) for queue in queues])
        noun = f"of queue {names}, which holds" if len(queues) == 1 else f"of queues {names}, which hold"
        rules = [*rules, lambda claimant, found: spared(session, claimant, found)]
        by_queue, count = self._census.by_queue, sum(map(self._census.pods_of, queues))
        return _Offer(f"{noun} more than deserved", count, lambda: chain(*map(by_queue.__getitem__, queues)), rules)

    def _preempt(self, job: Job) -> _Offer | str:
        session = self._session
        rules = session.victim_rules("preemptable")
        queue = session.queue_of(job).name
        if not rules:
            return "no plugin of the policy says what may be preempted"
        jobs, count = self._census.lower(job)
        if not jobs:
            return f"nothing of lower priority runs in queue {queue!r}"
        if all(map(self._is_leaving, self._census.lower_jobs(job))):
            return f"all of lower priority that runs in queue {queue!r} is leaving already"
        if not job.may_preempt:
            return "its PriorityClass says preemptionPolicy: Never"
        return _Offer(f"of lower priority in queue {queue!r}", count, lambda: self._census.lower_jobs(job), rules)

    def _is_leaving(self, job: Job) -> bool:
        state = self._session.states.get(job.key)
        return state is not None and len(state.evicted) == len(job.placed)

    # -- shares

    def _not_due(self, job: Job, due: Due) -> str:
        """Why its queue may take nothing of others; empty if it may of some."""
        session = self._session
        if entitled(session, job, due):
            return ""
        need = due.measure.asked(session.needed_resources(job))
        at = session.queue_paths[job.queue][0]
        held, deserved = due.measure.queue_held[at], due.deserved[at]
        over = due.scarce[at] & (need > 0) & (held + need > deserved + EPSILON)
        row = int(np.flatnonzero(over)[0])
        axis, name = session.snapshot.axis, session.snapshot.queues[at].name
        has = "has its due" if held[row] >= deserved[row] - EPSILON else "would have more than its due"
        return (
            f"queue {name!r} {has}: it deserves {axis.text(row, deserved[row])} {axis.names[row]}, "
            f"holds {axis.text(row, held[row])}, and this needs {axis.text(row, need[row])}"
        )

    def _above_share(self, job: Job, due: Due, queues: set[int]) -> list[int] | str:
        """Those of the queues that hold more than they deserve and may lose it to the job; or why there are none."""
        session = self._session
        mine, allowed = set(session.queue_paths[job.queue]), entitled(session, job, due)
        able: list[int] = []
        kept: dict[int, str] = {}
        for queue in sorted(queues):
            path = session.queue_paths[queue]
            if not self._holdings.is_above_share(queue):
                continue
            meeting = next((at for at in path if at in mine), -1)
            if not all(self._holdings.is_above_share(at) for at in path if at not in mine):
                kept[queue] = "the queue above it does not"
            elif meeting not in allowed:
                kept[queue] = f"a queue above {session.queue_of(job).name!r} has its due already"
            elif not self._is_reclaimable(queue, mine):
                kept[queue] = "may not lose it (reclaimable: false)"
            else:
                able.append(queue)
        if able:
            return able
        if not kept:
            return "no other queue holds more than it deserves"
        names = {queue: session.snapshot.queues[queue].name for queue in kept}
        told = [f"queue {names[queue]!r} holds more than it deserves, but {why}" for queue, why in kept.items()]
        return listed(told)

    def _is_reclaimable(self, queue: int, mine: set[int]) -> bool:
        session = self._session
        return all(session.snapshot.queues[at].reclaimable for at in session.queue_paths[queue] if at not in mine)

    # -- what would come of it

    def _judge(self, job: Job, offer: _Offer, *, is_thorough: bool) -> str:
        if not is_thorough and self._looked_at + offer.count > _MOST_LOOKED_AT:
            noun = f"{pods(offer.count)} {offer.noun}"
            if offer.is_surplus:
                noun = f"surplus of {offer.count:,} job{'s' * (offer.count > 1)}"
            return f"{noun}: taking what may be taken of that did not make room"
        self._looked_at += offer.count
        return _Look(self._session, self._holdings, job, offer, list(offer.jobs())).tell()


@dataclass(slots=True)
class _Look:
    """A close look at what an action could have taken."""

    session: Session
    holdings: Holdings
    job: Job
    offer: _Offer
    jobs: Sequence[Job]
    taken: set[str] = field(default_factory=set)

    def tell(self) -> str:
        session, offer = self.session, self.offer
        jobs = [other for other in self.jobs if offer.is_surplus or self._is_evictable(other)]
        # As a table has them: the cheapest first, and no pod in two of them.
        units = UnitTable(session, (unit for other in jobs for unit in offer.units_of(session, other))).units
        kept = agreed(session, self.job, units, offer.rules)
        self.taken = {pod.pod for unit in kept for pod in unit.pods}
        refused = self._refused()
        if not kept:
            return f"{refused[0]}, none of which may be taken: {refused[1]}" if refused[1] else refused[0]
        names = listed(sorted({unit.job.name for unit in kept}))
        taking = f"taking all that may be taken ({pods(len(self.taken))} of {names})"
        rest = f"; may not be taken: {refused[1]}" if refused[1] else ""
        return f"{taking} {self._effect(kept)}{rest}"

    def _is_evictable(self, other: Job) -> bool:
        return other.preemptable and other.key not in self.holdings.shrunk

    def _effect(self, units: Sequence[Unit]) -> str:
        session, job = self.session, self.job
        queue = session.queue_of(job)
        with Statement(session) as statement:
            for unit in units:
                for pod in unit.pods:
                    if pod.pod not in session.state(unit.job).evicted:
                        statement.evict(unit.job, pod, "", job.name)
            before = session.state(job).allocated.copy()
            with Statement(session) as gang:
                if place_gang(session, gang, job, later=True) and session.job_pipelined(job):
                    more = session.state(job).allocated - before
                    limit = session.admissible(queue, more, is_charged=True)
                    if limit is not None:
                        return f"would make room, but {limit.message}"
                    return "would make room by the end of this cycle: it is tried again in the next one"
            need = session.job_need(job)
            wanted = {group: min(need.total, session.state(job).left(group)) for group in job.groups}
            miss = find_miss(session, job, wanted, later=True)
        where = f" in one {miss.level}" if miss.level else ""
        if miss.missing and miss.wanted > 1 and len(wanted) == 1:
            return f"would make room for {miss.fits} of {pods(miss.wanted)} only{where}"
        return f"would still not make room{' for all of it at once' * (miss.wanted > 1)}{where}"

    def _refused(self) -> tuple[str, str]:
        """(what there is in all, what of it may not be taken and why)"""
        holdings, offer = self.holdings, self.offer
        why: dict[str, tuple[int, float | None]] = {}
        names: dict[str, None] = {}
        count = 0
        spent = holdings.spend(pod for other in self.jobs for pod in other.placed if pod.pod in self.taken)
        for other in self.jobs:
            surplus = holdings.surplus(other)
            for pod in other.placed:
                is_surplus = pod.pod in surplus
                if pod.node < 0 or (offer.is_surplus and not is_surplus):
                    continue
                count += 1
                names.setdefault(other.name)
                if pod.pod in self.taken:
                    continue
                guard = holdings.why_kept(self.job, other, pod, of_surplus=offer.is_surplus, spent=spent)
                had, until = why.get(guard.what, (0, None))
                until = guard.until if until is None else until if guard.until is None else min(until, guard.until)
                why[guard.what] = (had + 1, until)
        noun = (
            f"surplus of {listed(list(names))} ({pods(count)})" if offer.is_surplus else f"{pods(count)} {offer.noun}"
        )
        parts = [
            f"{number} {what}" + ("" if until is None else f" (the first for {until:g} s more)")
            for what, (number, until) in why.items()
        ]
        return noun, joined(parts)
