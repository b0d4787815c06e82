"""Dues: what a queue deserves and is guaranteed, which resources are scarce, and how a queue stands with them.

A resource is scarce among sibling queues if they ask for more of it than there is to share. A due matters only for
scarce resources: every queue gets what it asks for of the others. A guarantee matters always. What queues may take
from each other is in eviction/queue_claims.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maniple.model.job import Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.share_accounting import Accounting

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

# Shares are fractions of whole numbers; a smaller difference is a rounding error.
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Due:
    """[Q, R] what each queue deserves, and whether the resource is scarce among the queue and its siblings.

    `guaranteed`: what it gets before weights count, as far as it asks for it; of a parent at least that of its children
    together. It may be more than there is; then `deserved` is less.
    """

    deserved: FloatArray
    guaranteed: FloatArray
    scarce: BoolArray
    accounting: Accounting  # in whose units


def share_of(held: FloatArray, due: FloatArray, counted: BoolArray) -> float:
    """The largest part of its due that a queue holds, over resources; 1 for a held resource without a due."""
    held, due = held[counted], due[counted]
    parts = np.divide(held, due, out=(held > 0).astype(np.float64), where=due > 0)
    return float(parts.max()) if len(parts) else 0.0


class Standing(IntEnum):
    """How a queue stands with what a gang of it needs: whoever has the lower one is served first."""

    GUARANTEED = 0  # within what the queue is guaranteed
    DESERVED = 1  # within what it deserves
    BORROWING = 2  # above that


def covered(due: Due, queue: int, asked: FloatArray) -> BoolArray:
    """[R] what the queue's guarantee names of what is asked for; nothing, if it does not name a scarce device.

    A guarantee of GPUs covers the CPUs beside them. A guarantee of CPUs is no claim on GPUs.
    """
    is_named = due.guaranteed[queue] > 0
    has_other = ((asked > 0) & ~is_named & due.accounting.extended & due.scarce[queue]).any()
    return np.zeros_like(is_named) if has_other else (asked > 0) & is_named


def standing_with(due: Due, queue: int, held: FloatArray, need: FloatArray) -> Standing:
    """`held`: what the queue would hold with `need`."""
    asked = need > 0
    named = covered(due, queue, need)
    if named.any() and not (held > due.guaranteed[queue] + EPSILON)[named].any():
        return Standing.GUARANTEED
    is_over = (held > due.deserved[queue] + EPSILON) & asked & due.scarce[queue]
    return Standing.BORROWING if is_over.any() else Standing.DESERVED


class Stand(NamedTuple):
    """How a queue would stand with what is needed: (resource, the most that it may hold) for each of two standings."""

    guaranteed: list[tuple[int, float]]  # empty: no guarantee covers what is needed
    deserved: list[tuple[int, float]]

    @staticmethod
    def of(due: Due, queue: int, need: FloatArray) -> "Stand":
        def most(amounts: FloatArray, counted: BoolArray) -> list[tuple[int, float]]:
            return [(row, float(amounts[row]) + EPSILON) for row in np.flatnonzero(counted).tolist()]

        named = most(due.guaranteed[queue], covered(due, queue, need))
        return Stand(named, most(due.deserved[queue], (need > 0) & due.scarce[queue]))

    def standing(self, held: Sequence[float]) -> Standing:
        """The same as standing_with."""
        if self.guaranteed and all(held[row] <= most for row, most in self.guaranteed):
            return Standing.GUARANTEED
        is_over = any(held[row] > most for row, most in self.deserved)
        return Standing.BORROWING if is_over else Standing.DESERVED


def counted_of(session: "Session", queue: Queue) -> BoolArray:
    """The resources that count for a queue's share: the scarce ones, or all if none is scarce."""
    shared = session.snapshot.axis.shared
    if session.due is None:
        return shared
    scarce = session.due.scarce[queue.index]
    return scarce if scarce.any() else shared
