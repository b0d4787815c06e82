"""allocate: gives free resources to jobs in line.

It takes the queue with the lowest share, and that queue's first job. The pods that the job needs to start are placed
together or not at all. A gang that fits once leaving pods have left is promised those resources. A started job goes
back into line for one more pod a turn, behind all jobs that have not started. Earlier promises are kept first.

Stale gangs that lack pods which do not exist are released first (common/stale_gangs.py). Their room is promised like
any other that leaving pods hold.

The first gang of a queue that has waited for long gets a reservation if it does not fit. Jobs that a blocked gang would
evict again are put aside, until later actions have shown whether they can make room for that gang.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.common.in_line import check_valid, first_of, in_line, still_in_line
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.actions.common.stale_gangs import release_hopeless
from maniple.scheduler.eviction.queue_claims import claims_of
from maniple.scheduler.eviction.surplus_claims import promised_claim, surplus_preempts
from maniple.scheduler.explain.tried import FreeRoom
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.kept_places import KeptPlace, kept_for, without
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.framework.waiting_gangs import Place
from maniple.scheduler.placement.placement_search import place_gang, place_more
from maniple.scheduler.reservation.reserve import displace, has_guests, host_of, keep_reservations, reserve
from maniple.scheduler.reservation.start_search import at_most

_HIGHEST = 2**31  # above every priority
_BREAKS_PROMISE = Reason(
    "BreaksPromise",
    "there is room, but its pods would break the topology spread of a gang that is promised room",
    "that gang had started",
)


class Allocate:
    abilities = frozenset((Ability.ALLOCATE,))

    def execute(self, session: Session) -> None:
        session.leave_note(FreeRoom())
        # Backfill places best-effort pods.
        items = list(in_line(session, lambda job: not job.is_best_effort))
        keep_promises(session)
        if session.has_action(Ability.RELEASE):
            jobs = (item for item in items if isinstance(item, Job))
            late = (job for job in jobs if job.placed and job.stale_at < session.snapshot.now)
            session.could_be_whole.update(job.key for job in late if _fits_now(session, job))
            release_hopeless(session)
        hand_out(session, still_in_line(session, items), Deference(session))


def _fits_now(session: Session, job: Job) -> bool:
    """Whether the gang could start with what is free, if its turn came now."""
    with Statement(session) as statement:
        before = session.state(job).allocated.copy()
        if not place_gang(session, statement, job, later=False) or not session.job_ready(job):
            return False
        more = session.state(job).allocated - before
        return session.may_start(session.queue_of(job), job, more, is_charged=True) is None


def hand_out(session: Session, items: Iterable[Job | Place], deference: "Deference | None" = None) -> None:
    """Gives free resources to the jobs in order. Jobs that defer to a blocked gang are put aside.

    What was not found for a gang is not found for those that are like it, until a reservation or a guest is gone.
    """

    def can_start(job: Job) -> bool:
        if session.job_ready(job) or _fits_now(session, job):
            return True
        if deference is not None:
            deference.expect_priority(job)  # it may evict what passes
        return False

    line = JobQueue(session, items, can_start)
    times_forgotten = session.times_forgotten
    failed: list[Job | Place] = []
    while (turn := line.next()) is not None:
        queue, job = turn
        if deference is not None and deference.is_due_by(job):
            deference.expect_claim(job)
            session.put_aside.append(line.drop())
            continue
        reason = session.overused(queue, session.asked(job))
        if reason is not None:
            # A limit is the stronger reason of the two.
            session.blocked[job.key] = session.may_start(queue, job, session.needed_resources(job)) or reason
            line.drop()
            continue
        if session.job_ready(job):
            moved = place_one(session, queue, job)
            if not moved and deference is not None and job.key not in session.blocked:
                deference.expect_surplus(job)
        else:
            moved = start_gang(session, queue, job)
            if not moved and has_guests(session, job):
                moved = displace(session, queue, job, is_its_turn=True)
            if not moved:
                reserve(session, queue, job)
                if deference is not None and job.key not in session.blocked:
                    deference.expect(job)
                failed.append(line.drop())
        if moved and session.job_ready(job) and any(session.state(job).left(group) for group in job.groups):
            line.put_back(job)
        if session.times_forgotten != times_forgotten:
            times_forgotten = session.times_forgotten
            line.revive()
    if deference is not None:
        session.put_aside += [item for item in failed if deference.is_due_by(first_of(item))]


class Deference:
    """Which jobs leave free resources to a blocked gang, because it would evict others for them, or these jobs again.

    These are lower priorities and surplus of its queue, if such pods already run there. And if its queue may take from
    others, these are jobs that would bring another queue above its due. After shrink, reclaim and preempt have tried to
    make room for the gang, backfill gives these jobs what is left, in the same cycle. If surplus may take surplus of
    lower priority, that leaves free resources to it, too.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        between = session.abilities_between(Ability.ALLOCATE, Ability.BACKFILL)
        self._shrinks, self._preempts = Ability.SHRINK in between, Ability.PREEMPT in between
        self._takes_from_others = self._shrinks or Ability.RECLAIM in between
        self._surplus_preempts = self._preempts and surplus_preempts(session)
        self._highest: dict[int, int] = {}  # queue -> the highest priority of a gang that did not fit
        self._highest_surplus: dict[int, int] = {}  # the same of surplus that may take lower surplus
        self._claimants: set[int] = set()  # queues of gangs that did not fit and may take from other queues

    def expect(self, job: Job) -> None:
        """The job did not fit, and others may be evicted for it."""
        self.expect_priority(job)
        self.expect_claim(job)

    def expect_priority(self, job: Job) -> None:
        """The job did not fit, and lower priorities of its queue may be evicted for it."""
        self._highest[job.queue] = max(job.priority, self._highest.get(job.queue, job.priority))

    def expect_claim(self, job: Job) -> None:
        """The job waits, and may take from other queues what these borrow."""
        claims = claims_of(self._session) if self._takes_from_others and job.queue not in self._claimants else None
        if claims is not None:
            has_surplus = self._shrinks and self._running.get(job.queue, (_HIGHEST, False))[1]
            given_back = claims.surplus_of(job.queue) if has_surplus else None
            if next(claims.possible(job, given_back), None) is not None:
                self._claimants.add(job.queue)

    def expect_surplus(self, job: Job) -> None:
        """A pod above the minimum of the job did not fit."""
        if self._surplus_preempts and job.may_preempt:
            self._highest_surplus[job.queue] = max(job.priority, self._highest_surplus.get(job.queue, job.priority))

    def _borrows(self, job: Job) -> bool:
        return self._session.queue_turns.borrows(self._session.queue_of(job), self._session.next_needs.of(job))

    def is_due_by(self, job: Job) -> bool:
        if not self._claimants <= {job.queue} and self._borrows(job):
            return True
        if job.priority < self._highest_surplus.get(job.queue, job.priority) and self._session.job_ready(job):
            return True
        highest = self._highest.get(job.queue)
        if highest is None:
            return False
        lowest, has_surplus = self._running.get(job.queue, (highest, False))
        if self._preempts and job.priority < highest and lowest < highest:
            return True
        return self._shrinks and has_surplus and self._session.job_ready(job)

    @cached_property
    def _running(self) -> dict[int, tuple[int, bool]]:
        """Queue -> the lowest priority of its running jobs that may be evicted, and whether it has surplus."""
        running: dict[int, tuple[int, bool]] = {}
        for job in self._session.snapshot.running:
            lowest, has_surplus = running.get(job.queue, (_HIGHEST, False))
            is_larger = len(job.placed) + job.succeeded > max(job.min_member, 1)
            priority = job.priority if job.preemptable else _HIGHEST
            running[job.queue] = (min(lowest, priority), has_surplus or is_larger)
        return running


def keep_promises(session: Session) -> None:
    """Starts the gangs that earlier cycles promised resources, before any other job's turn.

    Gangs whose victims are gone come first, and those whose victims are still leaving last. A promise names a node and
    no GPUs, so pods that need most GPUs choose first, and leave the others theirs.
    """

    def key(job: Job) -> tuple[object, ...]:
        asks = [(ask.count, ask.milli) for group in job.groups for ask in group.shape.gpus]
        count, milli = max(asks, default=(0, 0))
        return (session.promised_room.rank(job), -count, -milli, *session.job_key(job))

    for job, places in session.kept_places.open():
        session.kept_places.occupy(job, _start_moved(session, job, places))
    promised = [job for job in session.waiting.others if job.was_promised and check_valid(session, job)]
    waiting = [job for job in promised if not session.job_ready(job)]
    waiting.sort(key=key)
    started = [job for job in promised if session.job_ready(job)] if surplus_preempts(session) else []
    claims = [claim for job in started if (claim := promised_claim(session, job)) is not None]
    if session.patience_s is not None:
        waiting = _keep_reservations(session, waiting, claims)
    else:
        # First on the nodes they were nominated to: elsewhere one gang may take the room of another.
        waiting = _start_all_as_nominated(session, waiting, claims)
    for job in waiting:
        start_gang(session, session.queue_of(job), job)


def _start_moved(session: Session, job: Job, places: Sequence[KeptPlace]) -> Sequence[KeptPlace]:
    """Starts what waits of a job that was moved where places are kept for it. Returns those of pods yet to come."""
    if not job.groups or not check_valid(session, job):
        return places
    queue, before = session.queue_of(job), len(session.placed)
    by_group = {group.number: at_most(session, kept_for(group, places)) for group in job.groups}
    most = np.max(list(by_group.values()), axis=0)
    with session.reserved.lifted([], most, by_group):
        if not session.job_ready(job):
            start_gang(session, queue, job)
        while session.job_ready(job) and place_one(session, queue, job):
            pass
    placed = session.placed[before:]
    # Pods that wait and do not fit there look elsewhere. The last places are theirs.
    waiting = sum(session.state(job).left(group) for group in job.groups)
    return without(places, placed, waiting)


def _start_all_as_nominated(session: Session, gangs: Sequence[Job], claims: Sequence[Job] = ()) -> list[Job]:
    """Returns the gangs that do not fit on the nodes they are nominated to. `claims` of surplus come after them.

    The rules of one gang may need the pods of another: then it is tried again once others have started.
    """
    owed = session.gpus.owed
    waiting = [*gangs, *claims]
    while True:
        for job in waiting:
            if not job.holds_reservation:
                owed.expect(job.groups)
                session.promised_room.expect(job)
        left = []
        for job in waiting:
            session.promised_room.drop(job)
            if not _start_as_nominated(session, job):
                left.append(job)
            owed.forget(job.groups)  # if its room is lost, the others need not care
        if len(left) == len(waiting) or not any(session.depends_on_pods(group) for job in left for group in job.groups):
            return [job for job in left if job not in claims]
        waiting = left


def _start_as_nominated(session: Session, job: Job) -> bool:
    """Starts the gang where it is nominated to. Groups do not swap nodes: rules of other gangs may count on each."""
    by_group = {group.number: at_most(session, group.nominated) for group in job.groups}
    with session.reserved.lifted([], at_most(session, job.nominated), by_group):
        return start_gang(session, session.queue_of(job), job)


def _keep_reservations(session: Session, waiting: list[Job], claims: Sequence[Job]) -> list[Job]:
    """Starts gangs on their nominated nodes, and renews reservations. Returns gangs that got neither.

    Both promises and reservations nominate pods to nodes. Promises are kept first. A gang that fits on its nominated
    nodes, now or when leaving pods have left, gets them. Others get a reservation there, if they may have one.
    """
    if session.reserved.is_open:
        return []
    session.reserved.is_open = True
    kept = _start_all_as_nominated(session, [job for job in waiting if not job.holds_reservation], claims)
    kept += _start_all_as_nominated(session, [job for job in waiting if job.holds_reservation])
    keep_reservations(session, kept)
    for job in kept:
        if has_guests(session, job) and not start_gang(session, session.queue_of(job), job):
            displace(session, session.queue_of(job), job, is_its_turn=False)
    return [job for job in kept if job.key not in session.reservations and not session.is_promised(job)]


def start_gang(session: Session, queue: Queue, job: Job, *, promises: bool = True, backfill: str = "") -> bool:
    """Binds the pods that the job needs to start, or promises them resources; False if neither is possible."""
    need = session.job_need(job)
    alike = job.groups[0] if len(job.groups) == 1 else None
    # Fit failures are cached only for searches that saw every node.
    remembers = alike is not None and session.reserved.binds_as_usual and session.reserved.surely_binds(job)
    # Checked before the search: ten thousand jobs behind a full limit must cost nothing.
    reason = refusal_of_gang(session, queue, job, need)
    if reason is not None:
        session.blocked[job.key] = reason
        return False
    for later in (False, True) if promises and session.anything_leaving else (False,):
        if remembers and alike and session.known_not_to_fit(job, alike, need.total, later=later):
            continue
        with Statement(session) as statement:
            before = session.state(job).allocated.copy()
            if not place_gang(session, statement, job, later=later):
                if remembers and alike:
                    session.remember_not_to_fit(job, alike, need.total, later=later)
                continue
            reason = session.may_start(queue, job, session.state(job).allocated - before, is_charged=True)
            if reason is not None:
                session.blocked[job.key] = reason
                return False
            if not session.promised_pods.hold(statement.placed()):
                session.blocked[job.key] = _BREAKS_PROMISE
                continue
            if session.job_pipelined(job) if later else session.job_ready(job):
                statement.mark_backfill(backfill)
                statement.commit()
                return True
            refusal = session.refusal(job, "job_pipelined" if later else "job_ready")
            session.blocked[job.key] = Reason("NotReady", f"there is room, but {refusal}", "that plugin let it start")
    return False


def refusal_of_gang(session: Session, queue: Queue, job: Job, need: Need) -> Reason | None:
    """Why the gang may not start whatever is free, as far as known without a search."""
    if len(job.groups) == 1:
        return session.may_start(queue, job, job.groups[0].shape.requests * need.total)
    return session.startable(job, session.needed_resources(job))


def place_one(session: Session, queue: Queue, job: Job, *, backfill: str = "") -> bool:
    """Places one pod above the minimum, on free resources only."""
    remembers = session.reserved.binds_as_usual
    if remembers and session.reservations and host_of(session, job):
        return False  # a job that will make way has pods only in that reservation
    for group in session.groups(job):
        if not session.state(job).left(group):
            continue
        if remembers and session.known_not_to_fit(job, group, 1, later=False):
            continue
        reason = session.admissible(queue, group.shape.requests)
        if reason is not None:
            session.blocked[job.key] = reason
            continue
        with Statement(session) as statement:
            before = session.state(job).allocated.copy()
            if place_more(session, statement, job, group):
                # A request for GPU memory is a larger share of a smaller GPU.
                reason = session.admissible(queue, session.state(job).allocated - before, is_charged=True)
                if reason is not None:
                    session.blocked[job.key] = reason
                    continue
                if not session.promised_pods.hold():
                    session.blocked[job.key] = _BREAKS_PROMISE
                    continue
                statement.mark_backfill(backfill)
                statement.commit()
                return True
        if remembers:
            session.remember_not_to_fit(job, group, 1, later=False)
    return False
