"""How the nodes look to pods of one shape at the end of a cycle: counted by what is wrong with each."""

from dataclasses import dataclass

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.quantity import format_quantity
from maniple.model.job import TaskGroup
from maniple.model.pod_shape import Shape
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.explain.fit_view import FitView, usable_room
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.plan import NodeCount
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class NodeReport:
    asks: str  # what one pod asks for
    counts: tuple[NodeCount, ...]
    fits: int  # pods of it that would fit now, each without the others
    fits_empty: int  # … if nothing at all were running
    empty: FloatArray  # [N] … node by node


def count_nodes(session: Session, group: TaskGroup) -> NodeReport:
    """Counts every node once, by the first thing that is wrong with it."""
    requests = group.shape.requests
    view = FitView(session, group, 1, usable_room(session))
    open_ = np.ones(len(session.snapshot.nodes), dtype=bool)
    counts: dict[str, int] = {}

    def refuse(reason: str, passes: BoolArray) -> None:
        nonlocal open_
        number = int((open_ & ~passes).sum())
        if number:
            counts[reason] = counts.get(reason, 0) + number
        open_ = open_ & passes

    for check in (*view.checks, *view.pod_checks):
        refuse(check.reason, check.passes)
    usable = np.minimum(session.free, session.future)
    for row in _rows_by_interest(requests):
        name, enough = session.snapshot.axis.names[row], usable[row] >= requests[row]
        if row in session.gpus.tables:
            refuse(f"insufficient {name} beside unhealthy ones", enough | ~session.gpus.has_unhealthy(row))
        refuse(f"insufficient {name}", enough)
    if session.gpus.is_counted(group.shape):
        refuse("no GPU has so much of it free", session.gpus.fits(group.shape, None, usable) > 0)
    if session.reserved.mask is not None:
        refuse("room is reserved for another gang", capacity(requests, usable_room(session)) > 0)
    left = int(open_.sum())
    if left:
        counts["has room, but not for all pods"] = left
    return NodeReport(
        asks=describe_shape(session, group.shape),
        counts=tuple(NodeCount(r, n) for r, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        fits=int(min(view.now.sum(), 1e9)),
        fits_empty=int(min(view.empty.sum(), 1e9)),
        empty=view.empty,
    )


def _rows_by_interest(requests: FloatArray) -> list[int]:
    """Requested resources, extended ones first: that a node has no GPUs says more than that it lacks memory."""
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
