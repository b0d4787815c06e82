"""The moves of running pods that would start a gang although nobody makes them, and what stands in their way.

For a gang that waits while enough is free in all, only not together. The jobs in the way may not say that they can be
moved, the policy may not move anybody, or not now, or the moves may cost too much. All that is named is enough: with it
changed, the action `consolidate` makes the moves, and the gang starts.

Searching costs about as much as moving. A plan does it for the first kinds of gangs in line, and only where few pods
run; for one gang that somebody asks about it is always done.
"""

from collections.abc import Iterator
from functools import cached_property

from maniple.model.job import Job
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.explain.words import listed
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.moving.movable_units import MOVED_LATELY, cools_down, movable_units, why_fixed
from maniple.scheduler.moving.move_search import MoveMaker, Moves, is_enough_free
from maniple.scheduler.moving.move_value import DEFAULT
from maniple.scheduler.moving.new_places import FreePlaces

_KINDS = ("PodGroup", "ElasticJob")  # a pod on its own has no controller that is known to make another one
_UNWILLING, _ABOVE = "unwilling", "above"
_OF_JOBS = {  # an obstacle, as said of one job and of several
    _UNWILLING: ("does not say movable: true", "do not say movable: true"),
    MOVED_LATELY: ("was moved not long ago", "were moved not long ago"),
    _ABOVE: ("has a higher priority", "have a higher priority"),
}
_MOST_SEARCHES = 4  # kinds of gangs
_MOST_PODS = 500  # that run


class PossibleMoves:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._moving = session.moving or DEFAULT
        self._searches = 0

    def words(self, job: Job, *, is_thorough: bool) -> str:
        """`, or 2 pods of default/x moved from n3 to n7 (default/x does not say movable: true)`; empty if none help."""
        session = self._session
        if not is_thorough and (self._searches >= _MOST_SEARCHES or not self._are_few):
            return ""
        if session.state(job).evicted or not is_enough_free(session, job):
            return ""
        self._searches += 1
        table = self._table
        if not len(table):
            return ""
        others = table.job_of != table.job_numbers.get(job.key, -1)
        others &= FreePlaces(session, table).units()
        may_be = table.of_jobs(lambda other: not any(self._obstacles_of(other, job)))
        for offered in (others & may_be, others):
            if offered.any():
                maker = MoveMaker(session, table, offered, self._moving)
                moves = maker.move(session.queue_of(job), job, offered, is_real=False)
                if isinstance(moves, Moves):
                    obstacles = list(self._obstacles(job, moves))
                    return f", or {moves.words} ({'; '.join(obstacles)})" if obstacles else ""
        return ""

    @cached_property
    def _are_few(self) -> bool:
        count = 0
        for job in self._session.snapshot.running:
            count += len(job.placed)
            if count > _MOST_PODS:
                return False
        return True

    @cached_property
    def _table(self) -> UnitTable:
        session, moving = self._session, self._moving
        jobs = (job for job in session.snapshot.running if self._could_move(job))
        return UnitTable(session, (unit for job in jobs for unit in movable_units(session, job, moving)))

    def _could_move(self, job: Job) -> bool:
        """Whether nothing but `_obstacles_of` keeps the job from being moved."""
        return job.exists and job.preemptable and job.key[1] in _KINDS and not why_fixed(self._session, job)

    def _obstacles_of(self, other: Job, gang: Job) -> Iterator[str]:
        """All that keeps the job from being moved for the gang."""
        if not other.is_movable:
            yield _UNWILLING
        if cools_down(self._session, other, self._moving):
            yield MOVED_LATELY
        if other.priority > gang.priority:
            yield _ABOVE

    def _obstacles(self, gang: Job, moves: Moves) -> Iterator[str]:
        session, moving, table = self._session, self._moving, self._table
        kept: dict[str, list[str]] = {}
        for number in dict.fromkeys(table.job_of[moves.units].tolist()):
            for why in self._obstacles_of(table.jobs[number], gang):
                kept.setdefault(why, []).append(table.jobs[number].name)
        for why, names in sorted(kept.items()):
            one, several = _OF_JOBS[why]
            yield f"{listed(sorted(names))} {one if len(names) == 1 else several}"
        if not session.has_action(Ability.CONSOLIDATE):
            yield "the policy's actions do not include consolidate"
        left = moving.moves_left(session)
        if moves.jobs > left:
            yield f"{left} of {moving.moves_per_hour} moves an hour are left"
        if moves.gained <= moves.lost:
            yield f"that would lose {moves.lost:,.0f} GPU-seconds and gain {moves.gained:,.0f}"
