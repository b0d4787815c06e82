"""Dues: what a queue deserves, which resources are scarce, and what a queue may lose or take.

A resource is scarce among sibling queues if they ask for more of it than there is to share. A due matters only for
scarce resources: every queue gets what it asks for of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import Accounting

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


def spared(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that may be evicted so that `claimant` can start, each given the ones before. No queue loses its due.

    The rule applies below the lowest queue that contains both claimant and victim. On the claimant's side every queue
    must be within its due with what the claimant needs. On the victim's side every queue must be reclaimable and keep
    its due.
    """
    due = session.due
    return [] if due is None else _within_dues(session, due, claimant, candidates, are_guests=False)


def displaceable(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that run in the reservation of `claimant` and may be displaced, each given the ones before.

    They started there on the condition that they leave. Yet a claimant above its due must not bring another queue below
    its due.
    """
    due = session.due
    return list(candidates) if due is None else _within_dues(session, due, claimant, candidates, are_guests=True)


def _within_dues(
    session: Session, due: Due, claimant: Job, candidates: Sequence[Victim], *, are_guests: bool
) -> list[Victim]:
    queues = session.snapshot.queues
    within_due = entitled(session, claimant, due)
    mine = set(session.queue_paths[claimant.queue])
    left = due.accounting.queue_held.copy()
    allowed = []
    refused: set[tuple[int, int]] = set()  # (queue, amount): refused once, refused later too
    for victim in candidates:
        amount = due.accounting.of_pod(victim.pod)
        kind = (victim.job.queue, id(amount))
        if kind in refused:
            continue
        path = session.queue_paths[victim.job.queue]
        below = [queue for queue in path if queue not in mine]
        is_entitled = next((queue for queue in path if queue in mine), -1) in within_due
        touched = due.scarce[below] & (amount > 0)
        is_short = bool((touched & (left[below] - amount < due.deserved[below] - EPSILON)).any())
        if are_guests:
            is_allowed = is_entitled or not is_short
        else:
            is_reclaimable = is_entitled and all(queues[queue].reclaimable for queue in below)
            is_allowed = is_reclaimable and bool(touched.any()) and not is_short
        if is_allowed:
            left[path] -= amount
            allowed.append(victim)
        else:
            refused.add(kind)
    return allowed


def entitled(session: Session, claimant: Job, due: Due) -> set[int]:
    """The queues (-1: the cluster) below which the claimant's queues stay within their dues with what it needs."""
    need = due.accounting.asked(session.needed_resources(claimant))
    held = due.accounting.queue_held
    path: list[int] = session.queue_paths[claimant.queue]
    within_due: set[int] = set()
    for queue, above in zip(path, [*path[1:], -1], strict=True):
        asked = due.scarce[queue] & (need > 0)
        if (held[queue] + need > due.deserved[queue] + EPSILON)[asked].any():
            break
        within_due.add(above)
    return within_due


def counted_of(session: Session, queue: Queue) -> BoolArray:
    """The resources that count for a queue's share: the scarce ones, or all if none is scarce."""
    shared = session.snapshot.axis.shared
    if session.due is None:
        return shared
    scarce = session.due.scarce[queue.index]
    return scarce if scarce.any() else shared
