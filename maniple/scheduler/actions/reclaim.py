"""reclaim: a queue below its share takes back what other queues hold above theirs.

A queue never loses what it deserves, whatever the plugins say: candidates are only pods that their queue, and every
queue above it, can spare. The claimant must stay within its own share with what it takes. So each reclaim lowers the
sum of what queues hold above their shares, and never raises it: that is why reclaiming ends, and nothing is taken
back and forth.
"""

import numpy as np

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.contend import contend
from maniple.scheduler.hooks import Victim
from maniple.scheduler.session import Session
from maniple.scheduler.victims import find_candidates


class Reclaim:
    def execute(self, session: Session) -> None:
        contend(session, "Reclaimed", _candidates)


def _candidates(session: Session, queue: Queue, job: Job) -> list[Victim]:
    if not _within_share(session, queue, job):
        return []

    def belongs(other: Job) -> bool:
        return other.queue != job.queue

    spare = _spared(session, find_candidates(session, job, belongs))
    return session.victims("reclaimable", job, spare)


def _within_share(session: Session, queue: Queue, job: Job) -> bool:
    """Whether the queue, and those above it, hold no more than they deserve once the job has what it needs."""
    need = session.needed_resources(job)
    asked = session.snapshot.axis.shared & (need > 0)
    for at in session.queue_paths[queue.index]:
        due = session.deserved(session.snapshot.queues[at])
        if due is None or (session.queue_allocated[at] + need > due + 1e-6)[asked].any():
            return False
    return True


def _spared(session: Session, candidates: list[Victim]) -> list[Victim]:
    """Candidates whose queues keep what they deserve without them, counting the ones before."""
    snapshot = session.snapshot
    deserved = np.array([session.deserved(queue) for queue in snapshot.queues])
    left = session.queue_allocated.copy()
    kept = []
    for victim in candidates:
        path = session.queue_paths[victim.job.queue]
        touched = snapshot.axis.shared & (victim.pod.requests > 0)
        after = left[path] - victim.pod.requests
        if (after >= deserved[path] - 1e-6)[:, touched].all():
            left[path] = after
            kept.append(victim)
    return kept
