"""Room by eviction: who would have to go so that a gang can start, chosen together with where it will start.

Scenario first, eviction after. Candidates stand in order of what they cost. More evictions never make a gang fit
worse, so a binary search over the length of the list finds how many suffice; then every one of them is put back,
dearest first, if the gang still fits without it. Nothing is committed unless the gang is then promised all that it
needs, so nobody is taken in vain, and nobody is taken who was not needed.
"""

from collections.abc import Callable, Sequence

from maniple.model.job import Job, Queue
from maniple.scheduler.hooks import Victim, VictimRule
from maniple.scheduler.placement import place_gang
from maniple.scheduler.session import Session
from maniple.scheduler.statement import Statement


def find_victims(
    session: Session, claimant: Job, belongs: Callable[[Job], bool], rules: Sequence[VictimRule]
) -> list[Victim]:
    """Pods that all rules let go together, cheapest first: lower priority, younger, the highest index of a job."""
    now = session.snapshot.now
    found = [
        Victim(job, pod)
        for job in session.snapshot.jobs
        if job.placed and job is not claimant and job.preemptable and belongs(job)
        for pod in job.placed
        if pod.node >= 0 and now - pod.started >= job.min_runtime_s and pod.pod not in session.state(job).evicted
    ]
    found.sort(key=lambda victim: (victim.job.priority, -victim.pod.started, victim.job.key, _descending(victim)))
    return agreed(session, claimant, found, [lambda _, candidates: _within_budgets(session, candidates), *rules])


def agreed(session: Session, claimant: Job, candidates: Sequence[Victim], rules: Sequence[VictimRule]) -> list[Victim]:
    """The candidates that every rule lets go.

    Rules count: a gang lets go so many, whoever they are. So one that some rule would not even let go alone must not
    use up what another rule would have given to others: it is taken out, and all rules are asked again. Ends since the
    pool shrinks each time.
    """
    pool = list(candidates)
    while True:
        chosen: Sequence[Victim] = pool
        never: set[Victim] = set()
        for rule in rules:
            kept = rule(claimant, chosen)
            alone: dict[object, bool] = {}  # asked once of victims that are alike: there may be thousands
            for victim in set(chosen) - set(kept):
                kind = _kind(session, victim)
                if kind not in alone:
                    alone[kind] = bool(rule(claimant, [victim]))
                if not alone[kind]:
                    never.add(victim)
            chosen = kept
        if not never:
            return list(chosen)
        pool = [victim for victim in pool if victim not in never]


def _kind(session: Session, victim: Victim) -> object:
    """Victims of one kind are the same to every rule that looks at one of them alone."""
    job, pod = victim.job, victim.pod
    alike = len(job.placed) == 1 and not job.succeeded and not job.role_min
    of_job = (job.queue, job.priority, job.min_member) if alike else job.key
    budgets = tuple(budget.covers(pod.pod, pod.labels) for budget in session.snapshot.budgets)
    counted = tuple(id(measure.of_pod(pod)) for measure in session.by_speed.values())
    return of_job, id(pod.requests), counted, pod.role, pod.is_critical, budgets


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


def _within_budgets(session: Session, candidates: Sequence[Victim]) -> list[Victim]:
    """`candidates` without those that would break a PodDisruptionBudget, counting the ones before them."""
    budgets = session.snapshot.budgets
    if not budgets:
        return list(candidates)
    gone = [sum(budget.covers(done.pod.pod, done.pod.labels) for done in session.evicted) for budget in budgets]
    left = [budget.allowed - number for budget, number in zip(budgets, gone, strict=True)]
    kept = []
    for victim in candidates:
        bound = [at for at, budget in enumerate(budgets) if budget.covers(victim.pod.pod, victim.pod.labels)]
        if all(left[at] > 0 for at in bound):
            for at in bound:
                left[at] -= 1
            kept.append(victim)
    return kept
