"""Room by eviction: who would have to go so that a gang can start, chosen together with where it will start.

Scenario first, eviction after. Candidates stand in order of what they cost. More evictions never make a gang fit
worse, so a binary search over the length of the list finds how many suffice; then every one of them is put back,
dearest first, if the gang still fits without it. Nothing is committed unless the gang is then promised all that it
needs, so nobody is taken in vain, and nobody is taken who was not needed.
"""

import math
from collections.abc import Callable, Sequence

from maniple.api.core import PodDisruptionBudget
from maniple.model.job import Job, Queue
from maniple.model.peers import matches_labels
from maniple.scheduler.hooks import Victim
from maniple.scheduler.placement import place_gang
from maniple.scheduler.session import Session
from maniple.scheduler.statement import Statement


def find_candidates(session: Session, claimant: Job, belongs: Callable[[Job], bool]) -> list[Victim]:
    """Pods that may be evicted at all, cheapest first: lower priority, younger, the highest index of a job."""
    now = session.snapshot.now
    found = [
        Victim(job, pod)
        for job in session.snapshot.jobs
        if job.placed and job is not claimant and job.preemptable and belongs(job)
        for pod in job.placed
        if pod.node >= 0 and now - pod.started >= job.min_runtime_s and pod.pod not in session.state(job).evicted
    ]
    found.sort(key=lambda victim: (victim.job.priority, -victim.pod.started, victim.job.key, _descending(victim)))
    return _within_budgets(session, found)


def _descending(victim: Victim) -> tuple[int, str]:
    prefix, number, name = victim.pod.order
    return -number, f"{prefix}/{name}"


def make_room(session: Session, queue: Queue, job: Job, candidates: Sequence[Victim], reason: str) -> bool:
    """Evicts the fewest and cheapest that let `job` start, and promises it the room; or does nothing."""
    if not candidates:
        return False

    def fits(victims: Sequence[Victim], *, keep: bool = False) -> set[int] | None:
        """The nodes where the gang would go without `victims`, or None if it would not fit."""
        with Statement(session) as statement:
            for victim in victims:
                statement.evict(victim.job, victim.pod, reason, job.name)
            before = session.state(job).allocated.copy()
            # A search that fails rolls back what it placed itself, never the evictions before it.
            with Statement(session) as gang:
                if not place_gang(session, gang, job, later=True) or not session.job_pipelined(job):
                    return None
                if session.admissible(queue, session.state(job).allocated - before, is_charged=True) is not None:
                    return None
                nodes = gang.nodes()
                if keep:
                    statement.commit()
                    gang.commit()
                return nodes

    if fits(()) is not None:
        return False  # there is room without anybody leaving: that is for allocate to give
    if fits(candidates) is None:
        return False
    too_few, enough = 0, len(candidates)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(candidates[:middle]) is None:
            too_few = middle
        else:
            enough = middle
    chosen = list(candidates[:enough])
    used = fits(chosen) or set()
    nearby = [victim for victim in chosen if victim.pod.node in used]
    if fits(nearby) is not None:
        chosen = nearby
    for victim in reversed(list(chosen)):
        rest = [other for other in chosen if other is not victim]
        if fits(rest) is not None:
            chosen = rest
    return fits(chosen, keep=True) is not None


def _within_budgets(session: Session, candidates: list[Victim]) -> list[Victim]:
    """`candidates` without those that would break a PodDisruptionBudget, counting the ones before them."""
    if not session.snapshot.budgets:
        return candidates
    allowed: dict[int, int] = {}
    kept = []
    for victim in candidates:
        namespace = victim.pod.pod.split("/", 1)[0]
        bound = [
            number
            for number, (where, budget) in enumerate(session.snapshot.budgets)
            if where == namespace and matches_labels(budget.spec.selector, victim.pod.labels)
        ]
        for number in bound:
            if number not in allowed:
                allowed[number] = _disruptions_allowed(session, *session.snapshot.budgets[number])
        if all(allowed[number] > 0 for number in bound):
            for number in bound:
                allowed[number] -= 1
            kept.append(victim)
    return kept


def _disruptions_allowed(session: Session, namespace: str, budget: PodDisruptionBudget) -> int:
    """What the disruption controller says; where it has said nothing, what it would say of the pods that are there."""
    selected = [
        pod
        for job in session.snapshot.jobs
        for pod in job.placed
        if pod.pod.startswith(f"{namespace}/") and matches_labels(budget.spec.selector, pod.labels)
    ]
    gone = sum(done.pod in selected for done in session.evicted)
    if budget.status.disruptions_allowed is not None:
        return budget.status.disruptions_allowed - gone
    spec, count = budget.spec, len(selected)
    if spec.max_unavailable is not None:
        return _number(spec.max_unavailable, count) - gone
    return count - _number(spec.min_available if spec.min_available is not None else 1, count) - gone


def _number(value: int | str, of: int) -> int:
    """A count, or a percentage of `of` rounded up, as the disruption controller rounds."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * of / 100)
