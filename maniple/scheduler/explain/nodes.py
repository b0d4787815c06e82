"""How the nodes look to pods of one shape at the end of a cycle: counted by what is wrong with each."""

from dataclasses import dataclass

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.quantity import format_quantity
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray
from maniple.model.shape import Shape
from maniple.scheduler.explain.nearest_miss import usable_room
from maniple.scheduler.framework.capacity import capacity
from maniple.scheduler.framework.plan import NodeCount
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True)
class View:
    asks: str  # what one pod asks for
    counts: tuple[NodeCount, ...]
    fits: int  # pods of it that would fit now, as far as each can tell without the others
    fits_empty: int  # … if nothing at all were running


def look(session: Session, group: TaskGroup) -> View:
    """Every node is counted once, by the first thing that is wrong with it."""
    requests, nodes = group.shape.requests, session.snapshot.nodes
    open_ = np.ones(len(nodes), dtype=bool)
    counts: dict[str, int] = {}

    def refuse(reason: str, passes: BoolArray) -> None:
        nonlocal open_
        number = int((open_ & ~passes).sum())
        if number:
            counts[reason] = counts.get(reason, 0) + number
        open_ = open_ & passes

    for check in session.rooms.checks(group):
        refuse(check.reason, check.passes)
    statically = open_.copy()
    if group.peers is not None or group.shape.exclusives:
        for check in session.pod_checks(group):
            refuse(check.reason, check.passes)
    fits = np.where(open_, session.room_for(group, later=False, is_next=True), 0.0)
    empty = np.where(statically, capacity(requests, nodes.allocatable), 0.0)
    is_counted = session.gpus.is_counted(group.shape)
    if is_counted:
        empty = np.minimum(empty, session.gpus.fits(group.shape, None, nodes.allocatable, empty=True))
    if group.shape.is_one_per_node:
        empty = np.minimum(empty, 1.0)
    usable = np.minimum(session.free, session.future)
    for row in _rows_by_interest(requests):
        name, enough = session.snapshot.axis.names[row], usable[row] >= requests[row]
        if row in session.gpus.tables:
            refuse(f"insufficient {name} beside unhealthy ones", enough | ~session.gpus.has_unhealthy(row))
        refuse(f"insufficient {name}", enough)
    if is_counted:
        refuse("no GPU has so much of it free", session.gpus.fits(group.shape, None, usable) > 0)
    if session.reserved.mask is not None:
        refuse("room is reserved for another gang", capacity(requests, usable_room(session)) > 0)
    left = int(open_.sum())
    if left:
        counts["has room, but not for all pods"] = left
    return View(
        asks=describe_shape(session, group.shape),
        counts=tuple(NodeCount(r, n) for r, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        fits=int(min(fits.sum(), 1e9)),
        fits_empty=int(min(empty.sum(), 1e9)),
    )


def _rows_by_interest(requests: FloatArray) -> list[int]:
    """Requested resources, extended ones first: of a node without GPUs one wants to hear that it has no GPUs."""
    return sorted(np.flatnonzero(requests).tolist(), key=lambda row: (row < 3, row))


def describe_shape(session: Session, shape: Shape) -> str:
    """What one pod asks for, in words."""
    axis = session.snapshot.axis
    named = axis.describe(shape.requests)
    for ask in shape.gpus:
        name = axis.names[ask.row]
        if ask.memory:
            named[name] = f"{format_quantity(ask.memory, per_unit=1, binary=True)} of {ask.count}"
        elif not ask.is_whole:
            named[name] = f"{ask.milli / WHOLE:g} of {'each of ' if ask.count > 1 else ''}{ask.count}"
    return ", ".join(f"{value} {name}" for name, value in named.items()) or "no requests"
