"""The next job of an action: the queues in the order of their turn, and the jobs of each queue in order.

The next job of a queue counts in the queue's turn: one that stays within what its queue deserves comes before one that
goes beyond (Hooks.queue_standing).

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
        self._queues = [(self._key(index), index) for index in self._jobs]
        heapq.heapify(self._queues)

    def _entry(self, job: Job) -> tuple[Any, int, Job]:
        self._entered += 1
        return self._session.job_key(job), self._entered, job

    def _key(self, index: int) -> tuple[Any, ...]:
        queue = self._session.snapshot.queues[index]
        return self._session.queue_key(queue, self._jobs[index][0][2] if len(self._jobs) > 1 else None)

    def next(self) -> tuple[Queue, Job] | None:
        """Removes the job whose turn it is. A queue keeps its turns until it has no jobs left."""
        while self._queues:
            key, index = self._queues[0]
            if not self._jobs[index]:
                heapq.heappop(self._queues)
                continue
            if len(self._queues) > 1:  # else it is the queue's turn whatever its key is now
                current_key = self._key(index)
                if current_key > key:
                    heapq.heapreplace(self._queues, (current_key, index))
                    continue
            return self._session.snapshot.queues[index], heapq.heappop(self._jobs[index])[2]
        return None

    def put_back(self, job: Job) -> None:
        heapq.heappush(self._jobs[job.queue], self._entry(job))
