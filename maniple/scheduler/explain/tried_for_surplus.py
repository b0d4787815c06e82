"""What was tried for pods above a minimum that wait, in words: surplus of lower priority in their queue."""

from dataclasses import replace

from maniple.scheduler.eviction.surplus_claims import smallest_claim, why_no_claim
from maniple.scheduler.explain.tried import Case, Pool, Victims


class LowerSurplus(Victims):
    """Pods above the minimum of jobs with a lower priority, in the queue of a job whose own surplus waits."""

    is_surplus = True

    def describe(self, case: Case) -> str:
        claim = smallest_claim(case.session, case.job)
        return super().describe(replace(case, job=claim, is_surplus=False))

    def pool(self, case: Case) -> Pool | str:
        queue = case.session.queue_of(case.job).name
        why_none = why_no_claim(case.session, case.job)
        if why_none:
            return why_none
        surplus = case.holders.with_surplus.get(case.job.queue, [])
        lower = [job for job in surplus if job.priority < case.job.priority]
        if not lower:
            return f"no job of lower priority in queue {queue!r} has surplus"
        return Pool("surplus", len(lower), lower)
