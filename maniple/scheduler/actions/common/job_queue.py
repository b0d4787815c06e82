"""The next job of an action: the queues in the order of their turn, and the jobs of each queue in order.

A key is computed when its entry is pushed. A queue's share only rises while an action places jobs, so a stale key is
too low: it is noticed at the top of the heap and pushed again. Each step costs O(log n).
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
        self._queues = [(session.queue_key(queues[index]), index) for index in self._jobs]
        heapq.heapify(self._queues)

    def _entry(self, job: Job) -> tuple[Any, int, Job]:
        self._entered += 1
        return self._session.job_key(job), self._entered, job

    def next_queue(self) -> Queue | None:
        """Returns the queue whose turn it is; it keeps its turns until it has no jobs left."""
        while self._queues:
            key, index = self._queues[0]
            if not self._jobs[index]:
                heapq.heappop(self._queues)
                continue
            if len(self._queues) == 1:
                return self._session.snapshot.queues[index]  # whatever its key is now
            current_key = self._session.queue_key(self._session.snapshot.queues[index])
            if current_key > key:
                heapq.heapreplace(self._queues, (current_key, index))
                continue
            return self._session.snapshot.queues[index]
        return None

    def next_job(self, queue: Queue) -> Job:
        return heapq.heappop(self._jobs[queue.index])[2]

    def put_back(self, job: Job) -> None:
        heapq.heappush(self._jobs[job.queue], self._entry(job))
