"""The gangs that wait, with equal ones together: the first of them has a turn for all.

Gangs are alike if they ask for the same in the same queue on the same conditions. They differ in their age and name
alone. If one of them finds no room, the next would find none either, so an action gives no turn to the others until
something has changed that may help them. A queue with ten thousand gangs of a few kinds is thus a line of a few.

A gang that holds something, was promised room, has a reservation or depends on other pods is like no other.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from maniple.model.alike_jobs import age_and_name, group_jobs, kind_of
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Reason

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class Alike:
    """Gangs that are alike, in the order of their turns."""

    __slots__ = ("_keys", "_prefix", "apart", "blocked", "jobs", "was_tried")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        # Those that this cycle has given something, and so are like no other any more, with their positions.
        self.apart: dict[JobKey, int] = {}
        self.blocked: Reason | None = None  # why the last of them that had a turn may not start
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._prefix: tuple[Any, ...] | None = None  # of the keys of all: plugins do not tell them apart
        self.was_tried = False  # an action gave them a turn, or would have

    def key(self, position: int, job_key: Callable[[Job], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The place in line of a gang that was given nothing yet."""
        key = self._keys.get(position)
        if key is None:
            job = self.jobs[position]
            if self._prefix is None:
                self._prefix = job_key(job)[: -len(_last_of_key(job))]
            key = self._keys[position] = (*self._prefix, *_last_of_key(job))
        return key

    def next_from(self, first: int) -> int | None:
        """The position of the first gang from `first` on that was given nothing yet."""
        if not self.apart:
            return first if first < len(self.jobs) else None
        for position in range(first, len(self.jobs)):
            if self.jobs[position].key not in self.apart:
                return position
        return None


Place = tuple[Alike, int]  # of one of several gangs that are alike


class WaitingGangs:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._seen = (0, 0)  # how much of session.placed is in `apart`, and which reservations
        waiting = group_jobs(session.snapshot.waiting)
        self._others = list(waiting.others)
        self._alike: dict[Hashable, Alike] = {}
        for kind, jobs in waiting.alike.items():
            self._add(kind, jobs)

    def _add(self, kind: Hashable, jobs: Sequence[Job]) -> None:
        session, first = self._session, jobs[0]
        is_alone = any(session.depends_on_pods(group) or group.shape.exclusives for group in first.groups)
        if is_alone or not session.demands.is_shared or not session.are_alike_in_line:
            self._others += jobs
        elif session.demands.kinds_of_waiting(first) is None:
            if session.job_valid(first) is None:
                self._alike[kind] = Alike(jobs)
            else:
                self._others += jobs
        else:
            parts: dict[Hashable, list[Job]] = {}
            for job in jobs:
                parts.setdefault((kind, session.demands.kinds_of_waiting(job)), []).append(job)
            for part, several in parts.items():
                if session.job_valid(several[0]) is None:
                    self._alike[part] = Alike(several)
                else:
                    self._others += several

    def __iter__(self) -> Iterator[Job | Alike]:
        """Gangs that are alike come as one, those to which something was given and all others on their own."""
        self.catch_up()
        yield from self._others
        for gangs in self._alike.values():
            yield gangs
            yield from [gangs.jobs[position] for position in gangs.apart.values()]

    def one_of_each(self) -> Iterator[Job]:
        """One gang for all that are alike, and all others."""
        for item in self:
            if isinstance(item, Job):
                yield item
            elif (position := item.next_from(0)) is not None:
                yield item.jobs[position]

    def oldest_after(self, moment: float) -> Iterator[Job]:
        """Of gangs that are alike, the oldest one that is younger than that; and all others."""
        for item in self:
            if isinstance(item, Job):
                yield item
            elif (position := item.next_from(bisect_right(item.jobs, moment, key=_created))) is not None:
                yield item.jobs[position]

    @property
    def others(self) -> Sequence[Job]:
        """Those that were like no other when the cycle began."""
        return self._others

    def catch_up(self, likely: Place | None = None) -> None:
        """Notes which gangs were given room or a reservation since the last call; `likely`: one that may be."""
        session, seen = self._session, self._seen
        self._seen = len(session.placed), session.reserved.version
        if seen == self._seen:
            return
        jobs = [done.job for done in session.placed[seen[0] :]]
        for job in (*jobs, *[reservation.job for reservation in session.reservations.values()]):
            if likely is not None and job is likely[0].jobs[likely[1]]:  # found without a search
                likely[0].apart[job.key] = likely[1]
                continue
            alike = self._alike.get(self.kind(job))
            if alike is not None and job.key not in alike.apart:
                alike.apart[job.key] = bisect_left(alike.jobs, age_and_name(job), key=age_and_name)

    def untouched_like(self, job: Job) -> Alike | None:
        """The gangs that are like this one, if nothing was given to it."""
        self.catch_up()
        alike = self._alike.get(self.kind(job))
        return None if alike is None or job.key in alike.apart else alike

    def kind(self, job: Job) -> Hashable:
        """Equal for gangs that are alike, whether they share their turns or not."""
        kind, kinds = kind_of(job), self._session.demands.kinds_of_waiting(job)
        if kind is None:
            return job.key
        return kind if kinds is None else (kind, kinds)


def _last_of_key(job: Job) -> tuple[Any, ...]:
    """What is at the end of each gang's key (Session.job_key)."""
    return job.created, *job.key


def _created(job: Job) -> float:
    return job.created
