"""How the nodes look to pods of one group: how many fit, how many would, and what each node objects to."""

import itertools
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.quantity import format_quantity
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.hooks import Check
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.plan import NodeCount
from maniple.scheduler.framework.session import Session

_MOST_PATTERNS = 24  # sets of objections, each of some nodes, that are lifted one by one and in pairs


def usable_room(session: Session, *, later: bool = False) -> FloatArray:
    """[R, N] what a gang may use: promises and reservations are kept."""
    usable = session.future if later else session.capacity.usable()
    mask, spare = session.reserved.mask, session.reserved.spare
    return usable if mask is None or spare is None else np.where(mask, np.minimum(usable, spare), usable)


def lacking_room(session: Session, *, later: bool = False) -> FloatArray:
    """[R, N] the same; below zero only where pods hold more than a node has.

    Reservations and promises may want more than is left of their nodes. A gang that gets this room instead need not
    make up for that.
    """
    there = session.future if later else np.minimum(session.free, session.future)
    return np.maximum(usable_room(session, later=later), np.minimum(there, 0.0))


def alike_together(session: Session, wanted: Mapping[TaskGroup, int]) -> dict[TaskGroup, int]:
    """Counts groups whose pods ask for the same as one: together they may need fewer nodes."""
    first: dict[object, TaskGroup] = {}
    counts: dict[TaskGroup, int] = {}
    for group, count in wanted.items():
        same = first.setdefault((session.demands.number_of(group), group.pod_affinity), group)
        counts[same] = counts.get(same, 0) + count
    return counts


class FitView:
    """[N] how every node looks to pods of a group. `model`: the GPU model that they must get; None: any.

    `later`: when all leaving pods have left.
    """

    def __init__(self, session: Session, group: TaskGroup, model: int | None = None, *, later: bool = False) -> None:
        self.group = group
        self.requests = group.shape.requests
        self._session, self._model, self._later = session, model, later
        self.now = session.room_for(group, later=later, model=model, is_next=True)
        self.pod_checks = session.pod_checks(group, later=later)
        self.has_model: BoolArray = np.ones(len(self.now), dtype=bool)
        if model is not None:
            self.has_model = session.gpus.has_model(group.shape, model)
        self.allowed = session.capacity.allowed(group)
        # Pods that would fit if nothing were running: with no node objecting, and as nodes do object.
        self.largest = self._limited(session.snapshot.nodes.allocatable, empty=True)
        self.empty: FloatArray = np.where(self.allowed, self.largest, 0.0)
        self.fits, self.fits_empty = (int(min(room.sum(), 1e9)) for room in (self.now, self.empty))

    def _limited(self, free: FloatArray, *, empty: bool) -> FloatArray:
        """Pods that fit into what is free if no node objects."""
        shape, gpus = self.group.shape, self._session.gpus
        room = np.where(self.has_model, capacity(self.requests, free), 0.0)
        if gpus.is_counted(shape):
            later = self._later and not empty
            room = np.minimum(room, gpus.fits(shape, None, free, later=later, empty=empty, model=self._model))
        return np.minimum(room, 1.0) if shape.is_one_per_node else room

    def knows_gpus(self, node: int) -> bool:
        """Whether more GPUs like those of the node are all that the pods need there."""
        shape = self.group.shape
        has_none = any(self._session.snapshot.nodes.allocatable[ask.row, node] <= 0 for ask in shape.gpus)
        is_known = not (has_none and shape.constraint.gpu_models) and not any(ask.memory for ask in shape.gpus)
        return is_known and bool(self.has_model[node])

    # -- objections

    def openings(self, nodes: IntArray, count: int) -> tuple[BoolArray, list[Check]]:
        """Which of the nodes would take pods, with the fewest objections lifted; and these and all passing objections.

        `count`: how many pods look for a place.
        """
        failing = [check for check in self._session.capacity.checks(self.group) if not check.passes[nodes].all()]
        refused = np.array([~check.passes[nodes] for check in failing], dtype=bool).reshape(len(failing), len(nodes))
        lifted = self._fewest_to_lift(refused, nodes, count)
        is_open: BoolArray = ~np.any(refused[~lifted], axis=0)
        if not is_open.any():
            is_open, lifted = ~is_open, np.ones(len(failing), dtype=bool)
        objections = [failing[number] for number in np.flatnonzero(lifted)]
        objections += [check for check in self.pod_checks if not check.passes[nodes].all()]
        with_model = is_open & self.has_model[nodes]
        return with_model if with_model.any() else is_open, objections

    def _fewest_to_lift(self, refused: BoolArray, nodes: IntArray, count: int) -> BoolArray:
        """The fewest objections without which the pods would have a place on the nodes, now or if they were empty.

        None where there are places enough without that, or too few even then. What is lifted must be all that some
        nodes object to, else it opens none: so the objections of nodes, and of pairs of them, are all that is tried.
        """
        none = np.zeros(len(refused), dtype=bool)
        if not len(refused) or float(self.empty[nodes].sum()) >= count:
            return none
        patterns, which = np.unique(refused, axis=1, return_inverse=True)
        unrefused = self._limited(usable_room(self._session, later=self._later), empty=False)
        rooms = [np.bincount(which, weights=room[nodes]) for room in (unrefused, self.largest)]
        single = sorted(patterns.T.tolist(), key=sum)[:_MOST_PATTERNS]
        pairs = [np.logical_or(*pair).tolist() for pair in itertools.combinations(single, 2)]
        for chosen in sorted([*single, *pairs, [True] * len(refused)], key=sum):
            lifted = np.array(chosen)
            opened = ~patterns[~lifted].any(axis=0)
            if any(float(room[opened].sum()) >= count for room in rooms):
                return lifted
        return none

    # -- for people

    @cached_property
    def node_counts(self) -> tuple[NodeCount, ...]:
        """Every node once, by the first thing that is wrong with it for one pod."""
        session, shape = self._session, self.group.shape
        usable = session.capacity.usable()
        names, gpus = session.snapshot.axis.names, session.gpus
        checks = [*session.capacity.checks(self.group), *self.pod_checks]
        # Extended resources first: that a node has no GPUs says more than that it lacks memory.
        for row in sorted(np.flatnonzero(self.requests).tolist(), key=lambda row: (row < 3, row)):
            enough = usable[row] >= self.requests[row]
            if row in gpus.tables:
                text = f"insufficient {names[row]} beside unhealthy ones"
                checks.append(Check(text, enough | ~gpus.has_unhealthy(row)))
            checks.append(Check(f"insufficient {names[row]}", enough))
        if gpus.is_counted(shape):
            checks.append(Check("no GPU has so much of it free", gpus.fits(shape, None, usable) > 0))
        if session.reserved.mask is not None:
            has_room = capacity(self.requests, usable_room(session)) > 0
            checks.append(Check("room is reserved for another gang", has_room))
        is_open = np.ones(len(self.now), dtype=bool)
        counts: dict[str, int] = {}
        for check in (*checks, Check("has room, but not for all pods", np.zeros_like(is_open))):
            refused = int((is_open & ~check.passes).sum())
            if refused:
                counts[check.reason] = counts.get(check.reason, 0) + refused
            is_open &= check.passes
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(NodeCount(reason, number) for reason, number in ordered)

    @cached_property
    def asks(self) -> str:
        """What one pod asks for; empty if it requests nothing."""
        axis, requests = self._session.snapshot.axis, self.requests.copy()
        shares = []
        for ask in self.group.shape.gpus:
            if ask.memory or not ask.is_whole:
                requests[ask.row] = 0.0
                part = memory_text(ask.memory) if ask.memory else f"{ask.milli / WHOLE:g}"
                shares.append(f"{part} of {'a GPU' if ask.count == 1 else f'each of {ask.count} GPUs'}")
        return ", ".join([*axis.list_words(requests), *shares])


def memory_text(amount: int) -> str:
    return format_quantity(amount, per_unit=1, binary=True)
