"""Room on nodes of which reservations keep a part: what fits into the rest."""

from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.node_capacity import capacity

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


def without_reserved(
    session: "Session", group: TaskGroup, fits: FloatArray, *, later: bool, model: int | None
) -> FloatArray:
    """Returns `fits` [N] without what is reserved for other gangs than that of the current attempt."""
    mask = session.reserved.mask
    if mask is not None:
        nodes = np.flatnonzero(mask)
        nodes = nodes[fits[nodes] > 0]
        if len(nodes):
            fits = fits.copy()
            fits[nodes] = np.minimum(fits[nodes], _beside_reservations(session, group, nodes, later=later, model=model))
    most = session.reserved.most(group)
    return fits if most is None else np.minimum(fits, most)


def room_on(session: "Session", group: TaskGroup, nodes: IntArray, *, later: bool) -> FloatArray:
    """Returns how many pods fit on these nodes beside all reservations, wherever they are allowed."""
    fits = session.capacity.fits_on(group, nodes, later=later)
    is_reserved = session.reserved.reserved_among(nodes)
    if is_reserved is not None:
        left = _beside_reservations(session, group, nodes[is_reserved], later=later, model=None)
        fits[is_reserved] = np.minimum(fits[is_reserved], left)
    return fits


def _beside_reservations(
    session: "Session", group: TaskGroup, nodes: IntArray, *, later: bool, model: int | None
) -> FloatArray:
    """Returns how many pods fit into what reservations leave of these nodes, which are reserved."""
    assert session.reserved.spare is not None
    left = session.reserved.spare[:, nodes]
    fits = capacity(group.shape.requests, left)
    if not group.shape.gpus:
        return fits
    is_reserved = np.ones(len(nodes), dtype=bool)
    devices = session.gpus.fits(group.shape, nodes, left, later=later, model=model, reserved=is_reserved)
    return np.minimum(fits, devices)
