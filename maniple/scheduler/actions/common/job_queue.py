"""Who is next: the queues in order of their turn, and in each queue its jobs in order.

Keys are computed when something enters a heap. A queue's share only rises while an action hands things out, so a key
that has become stale is too low: it is found out when it comes to the top, and put back where it belongs.
"""

import heapq
from collections.abc import Iterable
from typing import Any

from maniple.model.job import Job, Queue
from maniple.scheduler.framework.session import Session


class JobQueue:
    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        self._session = session
        self._jobs: dict[int, list[tuple[Any, int, Job]]] = {}
        self._entered = 0
        for job in jobs:
            self._jobs.setdefault(job.queue, []).append(self._entry(job))
        for heap in self._jobs.values():
            heapq.heapify(heap)
        queues = session.snapshot.queues
        self._queues = [(session.queue_key(queues[at]), at) for at in self._jobs]
        heapq.heapify(self._queues)

    def _entry(self, job: Job) -> tuple[Any, int, Job]:
        self._entered += 1
        return self._session.job_key(job), self._entered, job

    def next_queue(self) -> Queue | None:
        """The queue whose turn it is; it stays in line until it has no jobs left."""
        while self._queues:
            key, at = self._queues[0]
            if not self._jobs[at]:
                heapq.heappop(self._queues)
                continue
            if len(self._queues) == 1:
                return self._session.snapshot.queues[at]  # whatever its key is now
            now = self._session.queue_key(self._session.snapshot.queues[at])
            if now > key:
                heapq.heapreplace(self._queues, (now, at))
                continue
            return self._session.snapshot.queues[at]
        return None

    def next_job(self, queue: Queue) -> Job:
        return heapq.heappop(self._jobs[queue.index])[2]

    def put_back(self, job: Job) -> None:
        heapq.heappush(self._jobs[job.queue], self._entry(job))
