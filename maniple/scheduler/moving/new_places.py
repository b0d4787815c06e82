"""Places for pods that are evicted, so that their jobs go on elsewhere with the same size.

The places obey the same rules as any other: predicates, domains, GPU models, reservations. Single pods go only to room
that is free now. A gang that is moved whole may also get back room that it leaves, because it comes back as a whole.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.hooks import Need
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.domains_and_models import scopes
from maniple.scheduler.placement.placement_search import place_gang, place_some

_OTHER = -1  # units of several pods
_FIRST = -1  # numbers of groups of moved pods; those of waiting pods are not negative


class FreePlaces:
    """Which units have a place elsewhere, if they were the only ones. Others need not be tried."""

    def __init__(self, session: Session, table: UnitTable) -> None:
        self._session = session
        numbers: dict[int, int] = {}
        self._groups: list[TaskGroup] = []  # one for each kind of single pod
        self._kinds: IntArray = np.full(len(table), _OTHER, dtype=np.intp)
        for number, unit in enumerate(table.units):
            if len(unit.pods) == 1:
                shape = id(unit.pods[0].shape)
                if shape not in numbers:
                    numbers[shape] = len(self._groups)
                    self._groups += _groups(unit.pods)
                self._kinds[number] = numbers[shape]

    def units(self) -> BoolArray:
        """[units] false for single pods of a shape that fits nowhere now."""
        session = self._session
        fits = [bool(session.capacity.fits(group).any()) for group in self._groups]
        return np.array([*fits, True], dtype=bool)[self._kinds]


def place_elsewhere(session: Session, statement: Statement, job: Job, pods: Sequence[PlacedPod]) -> bool:
    """Places pods that come in the place of these, which are evicted already; False if not all of them fit."""
    stand_in = msgspec.structs.replace(job, groups=_groups(pods))
    is_whole = session.state(job).placed_count == 0
    for later in (False, True) if is_whole else (False,):
        is_placed = _place_all(session, statement, stand_in, later=later)
        is_placed = is_placed and _leaves(statement, pods, is_whole=is_whole)
        if is_placed and _may_start(session, statement, job):
            return True
        statement.rollback()
    return False


def place_close(
    session: Session, statement: Statement, job: Job, pods: Sequence[PlacedPod], within: BoolArray, *, later: bool
) -> bool:
    """Places pods that come in the place of these on few nodes `within` [N]; False if not all of them fit there."""
    stand_in = msgspec.structs.replace(job, groups=_groups(pods))
    for scope in scopes(session, stand_in, Need({}, len(pods)), stand_in.groups, later=later):
        nodes = within if scope.nodes is None else within & scope.nodes
        near = dataclasses.replace(scope, nodes=nodes, levels=scope.levels or ())
        if all(
            place_some(session, statement, stand_in, group, len(group.pods), near, later=later) == len(group.pods)
            for group in session.groups(stand_in)
        ):
            return _may_start(session, statement, job)
        statement.rollback()
    return False


def _may_start(session: Session, statement: Statement, job: Job) -> bool:
    """Whether the limits let the pods start again: they may have been lowered below what the queue holds."""
    amounts = np.sum([done.used().sum(axis=1) for done in statement.placed()], axis=0)
    return session.admissible(session.queue_of(job), amounts, is_charged=True) is None


def _place_all(session: Session, statement: Statement, job: Job, *, later: bool) -> bool:
    if session.job_need(job).total and not place_gang(session, statement, job, later=later):
        return False
    for group in session.groups(job):
        while left := session.state(job).left(group):
            need = Need({}, left)
            if not any(
                place_some(session, statement, job, group, left, scope, later=later)
                for scope in scopes(session, job, need, [group], later=later)
            ):
                return False
    return True


def _groups(pods: Sequence[PlacedPod]) -> list[TaskGroup]:
    """The pods that come, in groups of equal ones."""
    by_kind: dict[tuple[object, ...], list[PlacedPod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.order):
        by_kind.setdefault((pod.role, pod.priority, id(pod.shape), pod.pod_affinity, pod.owner), []).append(pod)
    groups = []
    for number, like in enumerate(by_kind.values()):
        shape = like[0].shape
        assert shape is not None, "only pods with a shape may be moved"
        groups.append(
            TaskGroup(
                number=_FIRST - number,
                role=like[0].role,
                priority=like[0].priority,
                shape=shape,
                pod_affinity=like[0].pod_affinity,
                owner=like[0].owner,
                pods=tuple(pod.pod for pod in like),
            )
        )
    return groups


def _leaves(statement: Statement, pods: Sequence[PlacedPod], *, is_whole: bool) -> bool:
    """Whether the pods leave their nodes. One that could stay, itself or instead of an equal one, is moved in vain.

    A gang that is moved whole stops as a whole, so it is enough if any of its pods leaves.
    """
    if is_whole:
        after = Counter(node for done in statement.placed() for node, _ in done.slots())
        return after != Counter(pod.node for pod in pods)
    old_nodes = {pod.pod: pod.node for pod in pods}
    left: set[tuple[int, int]] = set()
    taken: set[tuple[int, int]] = set()
    for done in statement.placed():
        kind = done.group.number
        left.update((kind, old_nodes[pod]) for pod in done.group.pods)
        taken.update((kind, node) for node, _ in done.slots())
    return left.isdisjoint(taken)
