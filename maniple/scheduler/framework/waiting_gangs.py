"""The gangs that wait, with equal ones together: the first of them has a turn for all.

Gangs are alike if they ask for the same in the same queue on the same conditions. They differ in their age and name
alone. If one of them finds no room, the next would find none either, so an action gives no turn to the others until
something has changed that may help them. A queue with ten thousand gangs of a few kinds is thus a line of a few.

A gang that holds something, was promised room, has a reservation or depends on other pods is like no other.
"""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Reason

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class Alike:
    """Gangs that are alike, in the order of their turns."""

    __slots__ = ("apart", "blocked", "jobs", "was_tried")

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        # Those that this cycle has given something, and so are like no other any more, with their positions.
        self.apart: dict[JobKey, int] = {}
        self.blocked: Reason | None = None  # why the last of them that had a turn may not start
        self.was_tried = False  # an action gave them a turn, or would have

    def next_from(self, first: int) -> int | None:
        """The position of the first gang from `first` on that was given nothing yet."""
        for position in range(first, len(self.jobs)):
            if self.jobs[position].key not in self.apart:
                return position
        return None


Place = tuple[Alike, int]  # of one of several gangs that are alike


class WaitingGangs:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._seen = (0, 0)  # how much of session.placed is in `apart`, and which reservations
        self._numbers: dict[Hashable, int] = {}
        self._places: dict[JobKey, Place] = {}
        self._others: list[Job] = []
        alike: dict[Hashable, Alike] = {}
        for job in session.snapshot.waiting:
            if not session.demands.is_shared or not self._may_be_alike(job):
                self._others.append(job)
            else:
                alike.setdefault(self._key(job), Alike()).jobs.append(job)
        self._alike = list(alike.values())
        for gangs in self._alike:
            if len(gangs.jobs) > 1:
                gangs.jobs.sort(key=session.job_key)
            for position, job in enumerate(gangs.jobs):
                self._places[job.key] = gangs, position

    def __iter__(self) -> Iterator[Job | Alike]:
        """Gangs that are alike come as one, those to which something was given and all others on their own."""
        self.catch_up()
        yield from self._others
        for gangs in self._alike:
            yield gangs
            yield from [gangs.jobs[position] for position in gangs.apart.values()]

    def catch_up(self) -> None:
        """Notes which gangs were given room or a reservation since the last call."""
        session, seen = self._session, self._seen
        self._seen = len(session.placed), session.reserved.times_changed
        if seen == self._seen:
            return
        for key in (*[done.job.key for done in session.placed[seen[0] :]], *session.reservations):
            if key in self._places:
                gangs, position = self._places[key]
                gangs.apart[key] = position

    def untouched_like(self, job: Job) -> Alike | None:
        """The gangs that are like this one, if nothing was given to it."""
        self.catch_up()
        gangs, _ = self._places.get(job.key, (None, 0))
        return None if gangs is None or job.key in gangs.apart else gangs

    def kind(self, job: Job) -> int:
        """The same number for gangs that are alike, whether they share their turns or not."""
        key = self._key(job) if self._may_be_alike(job) else job.key
        return self._numbers.setdefault(key, len(self._numbers))

    def _may_be_alike(self, job: Job) -> bool:
        session = self._session
        return (
            bool(job.groups)
            and job.exists
            and not job.is_suspended
            and not (job.placed or job.succeeded or job.gated or job.strangers)
            and not (job.was_promised or job.holds_reservation or job.nominated or job.moved)
            and not job.bind_failures
            and not any(session.depends_on_pods(group) or group.shape.exclusives for group in job.groups)
            and session.job_valid(job) is None
        )

    def _key(self, job: Job) -> Hashable:
        ends = tuple([(group.lasts_s, group.stays) for group in job.groups])
        return self._session.demands.unlike(job), job.preemptable, job.min_runtime_s, job.min_member, ends
