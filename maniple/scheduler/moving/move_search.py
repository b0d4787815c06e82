"""Finds pods whose move to other nodes lets a gang start: enough is free, only not together.

Targets are chosen greedily: the nodes that free the most room for the fewest pods, in the order of node_first_order.
The units found are supposed gone, the gang is placed in their room, and then each of them in what is free elsewhere.
If some find no place, they choose before the others; then the gang is kept to the nodes that they leave, so that free
room elsewhere is theirs. Failing that, they stay, and the search goes on without them. Nothing is evicted unless
the gang and all that are moved have places in the same plan.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.node_first_order import units_by_node
from maniple.scheduler.eviction.trial import Trial
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.victim_search import RoomMaker, Terms, always, domains_in_order
from maniple.scheduler.framework.plan import MOVED
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.growth.resize_value import gpus_of
from maniple.scheduler.moving.move_value import Moving
from maniple.scheduler.moving.new_places import place_elsewhere

_MOST_STUCK = 16  # searches of one order that find units without a place elsewhere
_MOST_TURNS = 4  # orders in which jobs choose their places
NOT_ENOUGH = "not enough is free in all, so moving others does not help"
NO_PLACES = "no pods that may be moved have places elsewhere and leave it room that is together"


@dataclass(frozen=True, slots=True)
class Moves:
    """Units that can be moved for a gang, and where to."""

    units: IntArray
    jobs: int
    lost: float  # GPU-seconds
    gained: float
    words: str  # such as "2 pods of default/x moved from n3 to n7"


def is_enough_free(session: Session, job: Job) -> bool:
    """Whether what the gang needs is free in all, or will be: moving others frees nothing."""
    needed = session.needed_resources(job)
    rows = np.flatnonzero(needed)
    return bool((np.maximum(session.future[rows], 0.0).sum(axis=1) >= needed[rows]).all())


class MoveMaker(RoomMaker):
    """Makes room for gangs with the same demand by moving units in `offered`."""

    def __init__(self, session: Session, table: UnitTable, offered: BoolArray, moving: Moving) -> None:
        super().__init__(session, table, offered, Terms(always(MOVED)))
        self._moving = moving

    def move(self, queue: Queue, job: Job, left: BoolArray, *, is_real: bool = True) -> Moves | str:
        """Moves units in `left` and nominates the job for their room; or returns why not, and changes nothing.

        Unless `is_real` it only returns what would be moved, whatever that costs.
        """
        session, left = self._session, left & self._offered
        with session.reserved.seen_by(job):
            trial = Trial(session, self._table, queue, job)
            if trial.fits():
                return ""  # in room that others leave: other actions give it
            for order, within in self._move_orders(trial, left):
                answer = self._try(trial, order, within, is_real=is_real)
                if answer is not None:
                    return answer
        return NO_PLACES

    def _move_orders(self, trial: Trial, left: BoolArray) -> Iterator[tuple[IntArray, BoolArray]]:
        """Yields the units in the orders in which they are tried, the nodes that move least first."""
        session, table = self._session, self._table
        if not left.any():
            return
        if not trial.job.required:
            yield units_by_node(session, trial.group, table, left).units, left
            return
        for nodes in domains_in_order(session, trial, table, left):
            yield units_by_node(session, trial.group, table, left, nodes).units, left

    def _try(self, trial: Trial, order: IntArray, left: BoolArray, *, is_real: bool) -> Moves | str | None:
        for _ in range(_MOST_STUCK):
            units = self._search(trial, order, left)
            if units is None or not len(units):
                return None
            moves, stuck = self._place(trial, units, is_real=is_real)
            if moves is None:
                moves = self._try_within(trial, units, order, left, is_real=is_real)
            if moves is not None:
                return moves
            out = self._table.with_dependents(stuck)
            order, left = order[~out[order]], left & ~out
        return None

    def _try_within(
        self, trial: Trial, units: IntArray, order: IntArray, left: BoolArray, *, is_real: bool
    ) -> Moves | str | None:
        """The same with a gang that uses only the nodes of these units."""
        nodes = self._table.pods.nodes[self._table.pods_of(units)]
        within = np.zeros(len(self._session.snapshot.nodes))
        within[nodes] = np.inf
        with self._session.reserved.lifted([], within):
            trial = Trial(self._session, self._table, trial.queue, trial.job)
            found = self._search(trial, order, left)
        if found is None or not len(found):
            return None
        return self._place(trial, found, within, is_real=is_real)[0]

    def _place(
        self, trial: Trial, units: IntArray, within: FloatArray | None = None, *, is_real: bool
    ) -> tuple[Moves | str | None, IntArray]:
        """Places the gang and the pods of the units; or returns the units that have no place elsewhere.

        `within` [N]: the most pods of the gang on each node.
        """
        session, table, gang = self._session, self._table, trial.job
        by_job: dict[int, list[int]] = {}
        for unit in units.tolist():
            by_job.setdefault(int(table.job_of[unit]), []).append(unit)
        lost = float(table.losses[units].sum())
        gained = self._moving.gained_by(session, gang)
        with ExitStack() as stack:
            evictions = stack.enter_context(Statement(session))
            for unit in units.tolist():
                for pod in table.units[unit].pods:
                    evictions.evict(table.units[unit].job, pod, MOVED, gang.name)
            room = stack.enter_context(Statement(session))
            with session.reserved.lifted([], within):
                if not trial.place(room):
                    return None, units
            places, stuck = self._find_places(by_job, stack)
            if stuck:
                return None, np.array([unit for number in stuck for unit in by_job[number]])
            if not session.promised_pods.hold(room.placed()):
                return None, units
            words = self._words(places, [self._pods(by_job[number]) for number in by_job])
            moves = Moves(units, len(by_job), lost, gained, words)
            if is_real:
                refusal = self._refusal(moves)
                if refusal:
                    return refusal, units
                evictions.commit()
                room.commit()
                for statement in places:
                    statement.mark_moved(gang.name)
                    statement.commit()
            return moves, units

    def _find_places(self, by_job: dict[int, list[int]], stack: ExitStack) -> tuple[list[Statement], list[int]]:
        """Places the jobs elsewhere, and leaves their statements open in `stack`; or returns those without a place.

        Those with the largest pods choose first. Whoever finds nothing chooses before the others the next time.
        """
        turns = sorted(by_job, key=lambda number: self._size(by_job[number]))
        tried: list[list[int]] = []
        homeless: list[int] = []
        while turns not in tried and len(tried) < _MOST_TURNS:
            tried.append(turns)
            with ExitStack() as attempt:
                places = {number: attempt.enter_context(Statement(self._session)) for number in turns}
                stuck = [
                    number
                    for number, statement in places.items()
                    if not place_elsewhere(
                        self._session, statement, self._table.jobs[number], self._pods(by_job[number])
                    )
                ]
                if not stuck:
                    stack.push(attempt.pop_all())
                    return [places[number] for number in by_job], []
            homeless = homeless or stuck
            turns = [*stuck, *(number for number in turns if number not in stuck)]
        return [], homeless

    def _pods(self, units: Sequence[int]) -> list[PlacedPod]:
        return [pod for unit in units for pod in self._table.units[unit].pods]

    def _size(self, units: Sequence[int]) -> tuple[float, int]:
        """Sorts the jobs with the largest pods first: these have the fewest places."""
        return -max(gpus_of(self._session, pod.requests) for pod in self._pods(units)), units[0]

    def _refusal(self, moves: Moves) -> str:
        """Why the moves are not made although they would help; empty if they are."""
        moving, left = self._moving, self._moving.moves_left(self._session)
        if moves.jobs > left:
            several = f"{moves.jobs} job{'s' * (moves.jobs > 1)}"
            most = f"{left} of {moving.moves_per_hour} moves an hour are left"
            return f"it would start if {moves.words}: that moves {several}, and {most}"
        if moves.gained <= moves.lost:
            costs = f"that would lose {moves.lost:,.0f} GPU-seconds and gain {moves.gained:,.0f}"
            return f"it would start if {moves.words}: {costs}"
        return ""

    def _words(self, places: Sequence[Statement], pods: Sequence[Sequence[PlacedPod]]) -> str:
        """`2 pods of default/x moved from n3 to n7`"""
        names = self._session.snapshot.nodes.names
        before = {pod.pod: pod.node for several in pods for pod in several}
        moves: dict[tuple[str, str, str], int] = {}
        for statement in places:
            for done in statement.placed():
                for number, (node, _) in enumerate(done.slots(), done.start):
                    key = (done.job.name, names[before[done.group.pods[number]]], names[node])
                    moves[key] = moves.get(key, 0) + 1
        # A gang that is moved whole may get back a part of its room.
        in_order = sorted(moves.items(), key=lambda entry: (entry[0][1] == entry[0][2], entry[0]))
        parts = [
            f"{count} pod{'s' * (count > 1)} of {job} "
            + (f"restarted on {new}" if old == new else f"moved from {old} to {new}")
            for (job, old, new), count in in_order
        ]
        return " and ".join(parts[:3]) + (f" and {len(parts) - 3} more such moves were made" if len(parts) > 3 else "")
