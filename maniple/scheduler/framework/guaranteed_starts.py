"""Gangs with `preemptable: false` start only within their queue's guarantee: nobody could take the room back.

In a queue, and in every queue above it that names a guarantee, the minimums of such gangs together stay within what is
guaranteed there. Their own queue's guarantee names every GPU and other device that they ask for. Their surplus is on
loan and does not count. A gang that runs already is never held back: what it waits for counts from the beginning, so
that nobody else takes it. During a cycle these sums only grow.

Guarantees count here as they are written, as plain amounts: not as far as the queue asks for them, nor by GPU speed. A
queue with children guarantees at least what these do together.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Reason

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

_OR = "(or spec.preemptable were true)"


class GuaranteedStarts:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._counted = 0  # how many entries of session.placed `_held` has
        self._missing: dict[JobKey, int] = {}  # gang that started in this cycle -> pods that its minimum lacks

    def refusal(self, job: Job, more: FloatArray) -> Reason | None:
        """Why the gang may not start with `more`; None if it may."""
        if job.preemptable or job.placed:
            return None
        session = self._session
        asked = (more > 0) & session.snapshot.axis.shared
        if not asked.any():
            return None
        held = self._held_by_queue()
        lacking: list[tuple[Queue, int]] = []
        for index in session.queue_paths[job.queue]:
            queue = session.snapshot.queues[index]
            guaranteed = self._guaranteed(index)
            named = asked & (queue.guaranteed > 0)
            if index == job.queue:
                unnamed = np.flatnonzero(asked & ~named & session.snapshot.axis.extended).tolist()
                if not unnamed and not named.any():
                    unnamed = [_most_telling(session, asked)]
                lacking += [(queue, row) for row in unnamed]
            rows = np.flatnonzero(named & (held[index] + more > guaranteed))
            lacking += [(queue, row) for row in rows.tolist()]
        return self._reason(lacking, more) if lacking else None

    def _reason(self, lacking: Sequence[tuple[Queue, int]], more: FloatArray) -> Reason:
        """`lacking`: each queue and resource of which too little is guaranteed."""
        axis = self._session.snapshot.axis
        queue, row = lacking[0]
        name, held, guaranteed = axis.names[row], self._held[queue.index, row], self._guaranteed(queue.index)[row]
        amount = f"{axis.amount(row, guaranteed)} {name}" if guaranteed > 0 else f"no {name}"
        least: dict[str, list[str]] = {}  # queue -> the guarantees that it would need
        for other, other_row in lacking:
            wanted = axis.amount(other_row, self._held[other.index, other_row] + more[other_row], up=True)
            least.setdefault(other.name, []).append(f"{wanted} {axis.names[other_row]}")
        would = [f"the guarantee of queue {other!r} were at least {', '.join(own)}" for other, own in least.items()]
        return Reason(
            "BeyondGuarantee",
            f"it has preemptable: false and starts only within its queue's guarantee: queue {queue.name!r} guarantees "
            f"{amount}, the minimums of such jobs hold {axis.amount(row, held)}, this needs "
            f"{axis.amount(row, more[row])}",
            f"{' and '.join(would)} {_OR}",
        )

    def _guaranteed(self, index: int) -> FloatArray:
        """[R] what the queue says, or what its children are guaranteed together if that is more."""
        queue = self._session.snapshot.queues[index]
        below = [self._guaranteed(child) for child in queue.children]
        return np.maximum(queue.guaranteed, np.sum(below, axis=0)) if below else queue.guaranteed

    # -- what such gangs hold

    def _held_by_queue(self) -> FloatArray:
        session, held = self._session, self._held
        for done in session.placed[self._counted :]:
            job = done.job
            if job.preemptable or job.placed:
                continue
            # A gang starts with its minimum; what is placed after that is surplus.
            missing = self._missing.get(job.key, _size(job))
            if missing > 0:
                held[session.queue_paths[job.queue]] += done.used().sum(axis=1)
            self._missing[job.key] = missing - done.spot.total
        self._counted = len(session.placed)
        return held

    @cached_property
    def _held(self) -> FloatArray:
        """[Q, R] by the minimums of gangs that run, in the queue and below it. Most cycles never need it."""
        session = self._session
        held = np.zeros_like(session.snapshot.queue_allocated)
        for job in session.snapshot.running:
            if not job.preemptable and job.placed:
                held[session.queue_paths[job.queue]] += _minimum(job, held.shape[1])
        return held


def _most_telling(session: "Session", asked: FloatArray) -> int:
    """The resource to name where any would do: an extended one, such as GPUs, before CPU and memory."""
    rows = np.flatnonzero(asked).tolist()
    return int(next((row for row in rows if "/" in session.snapshot.axis.names[row]), rows[0]))


def _size(job: Job) -> int:
    """How many pods the job starts with."""
    return max(max(job.min_member, 1) - job.succeeded, sum(_by_role(job).values()))


def _by_role(job: Job) -> dict[str, int]:
    return {role: max(0, least - job.succeeded_by_role.get(role, 0)) for role, least in job.role_min.items()}


def _minimum(job: Job, resources: int) -> FloatArray:
    """What the minimum of a running job holds, and what waits where it lacks pods. The first pods are the minimum."""
    size, by_role = _size(job), _by_role(job)
    if job.allocated is not None and len(job.placed) == size:
        return job.allocated
    pods = [(pod.role, pod.requests, 1) for pod in sorted(job.placed, key=lambda pod: pod.order)]
    pods += [(group.role, group.shape.requests, len(group.pods)) for group in job.groups]
    held, others = np.zeros(resources), []
    for role, requests, count in pods:
        own = min(count, by_role.get(role, 0))
        by_role[role] = by_role.get(role, 0) - own
        size -= own
        held += requests * own
        others.append((requests, count - own))
    for requests, count in others:
        own = max(0, min(count, size))
        size -= own
        held += requests * own
    return held
