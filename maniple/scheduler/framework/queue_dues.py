"""Dues: what a queue deserves, what of it is scarce, and what it may lose or take. Shared by proportion and reclaim.

A resource is scarce among sibling queues if they ask for more of it than there is to share. Only there does a due mean
anything: what is plentiful everybody gets in full, and whoever gives up a pod can have its CPU again at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.accounting import Accounting
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.session import Session

# Shares are fractions of whole numbers; less than this is an error of rounding.
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Due:
    """[Q, R] both: what each queue deserves, and whether the resource is scarce among it and its siblings."""

    deserved: FloatArray
    scarce: BoolArray
    accounting: Accounting  # in whose units


def share_of(held: FloatArray, due: FloatArray, counted: BoolArray) -> float:
    """The largest part of its due that a queue holds, over resources; what it has no due of counts as 1 if held."""
    held, due = held[counted], due[counted]
    parts = np.divide(held, due, out=(held > 0).astype(np.float64), where=due > 0)
    return float(parts.max()) if len(parts) else 0.0


def spared(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that may go so that `claimant` can start, counting the ones before: nobody loses what it deserves.

    Between claimant and victim stands the lowest queue that holds both. Below it, on the claimant's side every queue
    must be within its due once the claimant has what it needs; on the victim's side every queue must be reclaimable
    and keep its due.
    """
    due, queues = session.due, session.snapshot.queues
    if due is None:
        return []
    allowed_above = entitled(session, claimant, due)
    mine = set(session.queue_paths[claimant.queue])
    left = due.accounting.queue_held.copy()
    kept = []
    refused: set[tuple[int, int]] = set()  # (queue, amount): what it cannot spare now it cannot spare later
    for victim in candidates:
        amount = due.accounting.of_pod(victim.pod)
        kind = (victim.job.queue, id(amount))
        if kind in refused:
            continue
        path = session.queue_paths[victim.job.queue]
        below = [queue for queue in path if queue not in mine]
        meeting = next((queue for queue in path if queue in mine), -1)
        if meeting not in allowed_above or not all(queues[queue].reclaimable for queue in below):
            refused.add(kind)
            continue
        after = left[below] - amount
        touched = due.scarce[below] & (amount > 0)
        if touched.any() and (~touched | (after >= due.deserved[below] - EPSILON)).all():
            left[path] -= amount
            kept.append(victim)
        else:
            refused.add(kind)
    return kept


def yielding(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that run in room reserved for `claimant` and may be displaced, counting the ones before.

    They have come on the condition that they leave. Yet no queue is brought below its due by one that is then above its
    own: what the claimant would hold beyond its due it has only of what others do not deserve.
    """
    due = session.due
    if due is None:
        return list(candidates)
    within_due = entitled(session, claimant, due)
    mine = set(session.queue_paths[claimant.queue])
    left = due.accounting.queue_held.copy()
    kept = []
    for victim in candidates:
        amount = due.accounting.of_pod(victim.pod)
        path = session.queue_paths[victim.job.queue]
        below = [queue for queue in path if queue not in mine]
        meeting = next((queue for queue in path if queue in mine), -1)
        touched = due.scarce[below] & (amount > 0)
        is_short = touched & (left[below] - amount < due.deserved[below] - EPSILON)
        if not below or meeting in within_due or not is_short.any():
            left[path] -= amount
            kept.append(victim)
    return kept


def entitled(session: Session, claimant: Job, due: Due) -> set[int]:
    """The queues (-1: the cluster) below which the claimant's side stays within its dues with what it needs."""
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
    """The resources that decide about a queue: the scarce ones, or all where nothing is scarce."""
    shared = session.snapshot.axis.shared
    if session.due is None:
        return shared
    scarce = session.due.scarce[queue.index]
    return scarce if scarce.any() else shared
