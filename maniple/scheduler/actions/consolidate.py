"""consolidate: a gang for which enough is free, only not together, starts where running pods move away.

Pods are evicted only if each has a place elsewhere in the same plan, and if the gang starts when they are gone. Their
places are kept until the pods that come instead are there (framework/kept_places.py). A move loses seconds: it is made
if the gang gains more GPU-seconds than the moved jobs lose, within a number of moves an hour. A moved job cools down.
The gang takes nothing from anybody, so no shares change. But it makes others move only within the share and the
limit of its queue, and never work of a higher priority.

It ends: moves start a gang and take nothing from any other, so each of them leaves one gang less that waits. While
nothing waits, the idle pass may move jobs (moving/idle_pass.py), by a measure that only falls.
"""

from collections.abc import Iterator

import numpy as np

from maniple.model.job import Job
from maniple.model.resources import BoolArray
from maniple.scheduler.actions.allocate import keep_promises
from maniple.scheduler.actions.common.in_line import check_valid
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.explain.moves import Movable, Unmovable
from maniple.scheduler.explain.tried import OwnPodsLeave
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.moving.idle_pass import IdlePass
from maniple.scheduler.moving.movable_units import movable_jobs, movable_units
from maniple.scheduler.moving.move_search import NOT_ENOUGH, MoveMaker, is_enough_free
from maniple.scheduler.moving.move_value import DEFAULT, Moving
from maniple.scheduler.moving.new_places import FreePlaces


class Consolidate:
    abilities = frozenset((Ability.CONSOLIDATE,))

    def __init__(self) -> None:
        self._idle = IdlePass()

    def execute(self, session: Session) -> None:
        moving = session.moving or DEFAULT
        self._help(session, moving)
        if moving.is_idle:
            self._idle.run(session, moving)

    def _help(self, session: Session, moving: Moving) -> None:
        """Moves running pods for gangs that wait."""
        unmovable = Unmovable(session, moving)
        session.leave_note(Movable(unmovable))
        keep_promises(session)
        waiting = [job for job in session.snapshot.waiting if not job.is_best_effort and check_valid(session, job)]
        waiting = [job for job in waiting if not session.job_ready(job)]
        jobs = list(movable_jobs(session, moving)) if waiting else []
        if not jobs:
            return
        session.leave_note(Movable(unmovable, ""))

        def units_of(session: Session, job: Job) -> Iterator[Unit]:
            return movable_units(session, job, moving)

        offered = OfferedUnits(session, jobs, units_of)
        places: FreePlaces | None = None  # the first gang that may be helped builds the table
        line = JobQueue(session, waiting)
        failed: dict[object, str] = {}  # demand -> why
        while (turn := line.next()) is not None:
            queue, job = turn
            if session.state(job).evicted:
                session.leave_note(OwnPodsLeave(), job.key)
                continue
            if session.overused(queue, session.asked(job)) is not None:
                continue
            if session.startable(job, session.needed_resources(job)) is not None:
                continue
            if not is_enough_free(session, job):
                session.leave_note(Movable(unmovable, NOT_ENOUGH), job.key)
                continue
            demand = session.demands.of(job)
            if demand not in failed:
                places = places or FreePlaces(session, offered.table)
                mask = _not_above(offered, job) & offered.of_others(job) & places.units()
                answer = MoveMaker(session, offered.table, mask, moving).move(queue, job, offered.left)
                if not isinstance(answer, str):
                    offered.take(np.flatnonzero(np.isin(offered.table.job_of, offered.table.job_of[answer.units])))
                    offered.withdraw(job)
                    continue
                failed[demand] = answer
            session.leave_note(Movable(unmovable, failed[demand]), job.key)


def _not_above(offered: OfferedUnits, job: Job) -> BoolArray:
    """[units] those of jobs without a higher priority."""
    return offered.table.of_jobs(lambda other: other.priority <= job.priority)
