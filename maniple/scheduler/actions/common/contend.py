"""The loop of shrink, reclaim and preempt: blocked gangs, in the order of their turn, make room by eviction.

Only gangs that have not started are claimants: pods above a minimum never evict. A gang that loses pods in this cycle
waits for the next one.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from maniple.model.job import Job
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.actions.allocate import keep_promises
from maniple.scheduler.actions.common.filling import Filling
from maniple.scheduler.actions.common.in_line import in_line
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.eviction.entitlement import Entitlement
from maniple.scheduler.eviction.trial import ReasonOf
from maniple.scheduler.eviction.unit_table import OfferedUnits, UnitTable
from maniple.scheduler.eviction.victim_search import RoomMaker, Terms
from maniple.scheduler.explain.tried import OwnPodsLeave
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.reservation_book import Reservation

_MOST_KEPT = 64  # demands whose RoomMaker is kept


class Attempt(NamedTuple):
    """One way in which a claimant may make room. Its answers are kept for claimants with the same demand."""

    key: Hashable  # tells the attempts of one claimant apart
    reason_of: ReasonOf
    offered: Callable[[UnitTable], BoolArray]  # [units] those that may be evicted for such claimants
    rules: Sequence[VictimRule] = ()
    # [units] those with a lower number may have to leave before others are allowed; None: in any order.
    distance: Callable[[UnitTable], IntArray | None] = lambda _: None
    entitlement: Callable[[UnitTable, BoolArray], Entitlement | None] = lambda _table, _units: None
    lone_rules: Sequence[VictimRule] | None = None  # rules to ask about single units, if not all can be asked so
    only_for_room: Callable[[UnitTable], BoolArray | None] = lambda _: None  # see Terms
    giving_way: Callable[[], Sequence[Reservation]] = lambda: ()  # reservations whose room it may use
    stand_ins: Callable[[UnitTable], Sequence[IntArray]] = lambda _: ()  # see Terms

    def maker(self, session: Session, table: UnitTable, claimant: Job, units: BoolArray) -> RoomMaker:
        """`units`: those that may be evicted."""
        entitlement = self.entitlement(table, units)
        if entitlement is not None and session.due is not None:
            need = session.due.accounting.asked(session.needed_resources(claimant))
            units = entitlement.able(need, units)
        only_for_room = self.only_for_room(table)
        terms = Terms(
            self.reason_of,
            self.rules,
            self.lone_rules,
            self.distance(table),
            entitlement,
            only_for_room,
            partial(self.stand_ins, table),
        )
        return RoomMaker(session, table, units, terms)


def contend(
    session: Session,
    offered: OfferedUnits,
    attempts_of: Callable[[Job], Iterable[Attempt]],
    gives_nothing: Callable[[], bool] = lambda: False,
) -> None:
    """Makes room for each blocked gang in turn, by the first of its attempts that succeeds.

    Gangs with the same demand must have the same attempts. `gives_nothing`: whether nobody could be evicted for any of
    them, as far as that is known without asking for each.
    """
    keep_promises(session)
    if not session.evicted and not session.reservations and gives_nothing():
        return  # no gang would find room: there is neither a victim, nor room that is left of one, nor reserved room
    # Pods without requests claim, too: a host port or an anti-affinity may be all that is in their way.
    jobs = JobQueue(session, in_line(session, lambda job: not session.job_ready(job)))
    # Reserved room that a gang may use meanwhile is cheaper than any eviction.
    filling = Filling(session) if session.reservations and session.has_action(Ability.BACKFILL) else None
    makers: dict[object, RoomMaker] = {}
    # Room made here is nominated at once, so a demand that found no room finds none later.
    failed: set[object] = set()
    while (turn := jobs.next()) is not None:
        queue, job = turn
        demand = session.demands.of(job)
        if session.state(job).evicted:
            session.leave_note(OwnPodsLeave(), job.key)
            continue
        if demand in failed:
            jobs.drop()
            continue
        if filling is not None and job.key not in session.reservations and filling.place(queue, job):
            continue
        if session.startable(job, session.needed_resources(job)) is not None:
            failed.add(demand)
            jobs.drop()
            continue
        for attempt in attempts_of(job):
            key = (demand, attempt.key)
            if key in failed:
                continue
            maker = makers.pop(key, None)
            if maker is None:
                units = attempt.offered(offered.table) & offered.of_others(job)
                maker = attempt.maker(session, offered.table, job, units)
            with session.reserved.lifted(attempt.giving_way()):
                victims = maker.make_room(queue, job, offered.left)
            if victims is None:
                failed.add(key)
                continue
            offered.take(victims)
            offered.withdraw(job)  # a nominated gang keeps the pods that it has
            makers[key] = maker
            if len(makers) > _MOST_KEPT:
                del makers[next(iter(makers))]
            break
        else:
            failed.add(demand)
            if job.key not in session.reservations:  # those behind it may still run in reserved room
                jobs.drop()
