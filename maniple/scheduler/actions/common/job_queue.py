"""The next job of an action: the queues in the order of their turn, and the jobs of each queue in order.

A queue's next job counts in its turn: one that stays within what its queue deserves comes before one that goes beyond
(Hooks.queue_standing). A job that goes beyond lets later jobs of its queue pass that stay within, unless their priority
is lower: it might evict them next. One that cannot start now whoever comes first lets these pass, too. This holds also
while no other queue waits: others may hold what the job takes.

Of gangs that are alike only the next one is in line. An action that finds nothing for it drops them all.

A key is computed when its entry is pushed. A queue's share only rises while an action places jobs, so a stale key is
too low: it is noticed at the top of the heap and pushed again. Each step costs O(log n).
"""

import heapq
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.waiting_gangs import Place

_Entry = tuple[Any, int, Job, Place | None]
_NO_PRIORITY = -(2**63)  # below every priority


class _Line:
    """The jobs of one queue."""

    def __init__(self) -> None:
        self.jobs: list[_Entry] = []
        self.beyond: list[_Entry] = []  # those that let others pass
        # Of its turn, with the version of what the queue held.
        self.key: tuple[int, tuple[Any, ...]] | None = None
        self.lowest = 0  # priority of all jobs of the line
        self._highest = _NO_PRIORITY  # of those beyond that let only others of their priority pass, and higher ones

    def next_heap(self) -> list[_Entry]:
        """The heap that has the next job: what may pass, or else what comes first of all."""
        if not self.beyond or (self.jobs and self.jobs[0][2].priority >= self._highest):
            return self.jobs
        return min((heap for heap in (self.jobs, self.beyond) if heap), key=itemgetter(0))

    def let_pass(self, *, is_stuck: bool) -> None:
        entry = heapq.heappop(self.jobs)
        if not self.beyond:
            self._highest = _NO_PRIORITY
        if not is_stuck:
            self._highest = max(self._highest, entry[2].priority)
        heapq.heappush(self.beyond, entry)


class JobQueue:
    def __init__(
        self, session: Session, jobs: Iterable[Job | Place], can_start: Callable[[Job], bool] = lambda _: True
    ) -> None:
        """`jobs`: with a place, one of several gangs that are alike; those after it come in their turn.

        `can_start`: whether the job could start if its turn came now. If it cannot now, it cannot later either.
        """
        self._session = session
        self._can_start = can_start
        self._stuck: dict[object, bool] = {}  # by demand
        self._lines: dict[int, _Line] = {}
        self._entered = 0
        self._needs: dict[JobKey, FloatArray] = {}
        self._last: Place | None = None  # of the job that had the last turn
        self._dropped: list[Place] = []
        for item in jobs:
            job, place = (item, None) if isinstance(item, Job) else (item[0].jobs[item[1]], item)
            self._lines.setdefault(job.queue, _Line()).jobs.append(self._entry(job, place))
        for line in self._lines.values():
            heapq.heapify(line.jobs)
            line.lowest = min(entry[2].priority for entry in line.jobs)
        self._has_standings = session.has_standings and not self._is_alone()
        self._queues = [(self._key(index), index) for index in self._lines]
        heapq.heapify(self._queues)
        self._open = set(self._lines)  # the queues in the heap

    def _is_alone(self) -> bool:
        """Whether one queue waits, and no other holds anything: nobody has lent or could lend it anything."""
        if len(self._lines) != 1:
            return False
        (index,) = self._lines
        held = np.delete(self._session.queue_allocated, self._session.queue_paths[index], axis=0)
        return not held.any()

    def _entry(self, job: Job, place: Place | None = None) -> _Entry:
        self._entered += 1
        key = self._session.job_key(job) if place is None else place[0].key(place[1], self._session.job_key)
        return key, self._entered, job, place

    def _key(self, index: int) -> tuple[Any, ...]:
        turns, line = self._session.queue_turns, self._lines[index]
        queue = self._session.snapshot.queues[index]
        if not self._has_standings:
            return turns.key(queue)
        version = turns.version(queue)
        if line.key is None or line.key[0] != version:
            self._let_pass(queue, line)
            line.key = version, turns.key(queue, self._need(line.next_heap()[0][2]))
        return line.key[1]

    def _let_pass(self, queue: Queue, line: _Line) -> None:
        """Sets jobs aside that go beyond what the queue deserves, until the next one does not, or all of them do."""
        while line.next_heap() is line.jobs and (len(line.jobs) > 1 or line.beyond):
            if not self._session.queue_turns.borrows(queue, self._need(line.jobs[0][2])):
                return
            line.let_pass(is_stuck=self._is_stuck(line.jobs[0][2], line.lowest))

    def _is_stuck(self, job: Job, lowest: int) -> bool:
        """Whether the job cannot start, if anybody might pass because of that."""
        if job.priority <= lowest:
            return False
        demand = self._session.demands.of(job)
        if demand not in self._stuck:
            self._stuck[demand] = not self._can_start(job)
        return self._stuck[demand]

    def _need(self, job: Job) -> FloatArray:
        need = self._needs.get(job.key)
        if need is None:
            need = self._needs[job.key] = self._session.next_needs.of(job)
        return need

    def next(self) -> tuple[Queue, Job] | None:
        """Removes the job whose turn it is. A queue keeps its turns until it has no jobs left."""
        if self._last is not None:
            self._push_next(self._last)
            self._last = None
        while self._queues:
            key, index = self._queues[0]
            line = self._lines[index]
            if not line.jobs and not line.beyond:
                heapq.heappop(self._queues)
                self._open.discard(index)
                continue
            queue = self._session.snapshot.queues[index]
            if len(self._queues) > 1:
                current_key = self._key(index)
                if current_key > key:
                    heapq.heapreplace(self._queues, (current_key, index))
                    continue
            elif self._has_standings:  # its turn, whatever its key is now
                self._let_pass(queue, line)
            _, _, self._turn, self._last = heapq.heappop(line.next_heap())
            line.key = None
            return queue, self._turn
        return None

    def drop(self) -> Job | Place:
        """Those that are like the job that had the last turn get none. Returns its place among them, or it alone."""
        job, place = self._turn, self._last
        if place is None:
            return job
        place[0].blocked = self._session.blocked.get(job.key) or place[0].blocked
        self._dropped.append(place)
        self._last = None
        return place

    def revive(self) -> None:
        """Something has changed that may help those that were dropped: they get a turn after all."""
        dropped, self._dropped = self._dropped, []
        for place in dropped:
            self._push_next(place)

    def _push_next(self, place: Place) -> None:
        alike, position = place
        self._session.waiting.catch_up(place)
        following = alike.next_from(position + 1)
        if following is not None:
            self._push(alike.jobs[following], (alike, following))

    def _push(self, job: Job, place: Place | None = None) -> None:
        line = self._lines[job.queue]
        heapq.heappush(line.jobs, self._entry(job, place))
        line.key = None
        if job.queue not in self._open:
            self._open.add(job.queue)
            heapq.heappush(self._queues, (self._key(job.queue), job.queue))

    def put_back(self, job: Job) -> None:
        """Puts a job back into its queue's line after it was given something."""
        self._needs.pop(job.key, None)
        self._push(job)
