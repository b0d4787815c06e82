"""gang: a job starts with its minimum or not at all, and is never left below it.

Pods are counted as in kube-batch: ready = placed (running, bound, or allocated this cycle) + succeeded >= minMember;
pipelined also counts promised pods; valid also counts pending ones. Roles have minimums of their own. Jobs that are not
ready come before jobs that only want more pods. A pod can be a victim if its job keeps its minimums without it, or if
it is the only pod of its job; with `evict.whole: "true"` also if its whole gang is evicted.
"""

from collections import Counter
from collections.abc import Sequence

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Hooks, Need, Reason, Victim, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session


class Gang:
    def __init__(self, arguments: Arguments) -> None:
        self._whole = arguments.boolean("evict.whole", default=False)

    def open(self, session: Session) -> Hooks:
        def need(job: Job, *, promised: bool = False) -> Need:
            state = session.state(job)
            have = state.placed_count + job.succeeded + (state.promised_count if promised else 0)
            if not job.role_min:  # asked many times for each gang
                return Need({}, max(job.min_member - have, 0))
            by_role = {}
            for role, minimum in job.role_min.items():
                there = state.placed.get(role, 0) + job.succeeded_by_role.get(role, 0)
                there += state.promised.get(role, 0) if promised else 0
                if minimum > there:
                    by_role[role] = minimum - there
            return Need(by_role, max(job.min_member - have, sum(by_role.values()), 0))

        def is_ready(job: Job) -> bool:
            if not job.role_min:
                return session.state(job).placed_count + job.succeeded >= job.min_member
            return not need(job).total

        def valid(job: Job) -> Reason | None:
            wanted = need(job)
            if not wanted.by_role and sum([len(group.pods) for group in job.groups]) >= wanted.total:
                return None
            pending: dict[str, int] = {}
            for group in job.groups:
                pending[group.role] = pending.get(group.role, 0) + len(group.pods)
            for role, count in wanted.by_role.items():
                there = pending.get(role, 0)
                if there < count:
                    has_some = bool(session.state(job).placed.get(role))
                    detail = f"role {role!r} needs {_pods(count, has_some)}, and {_waiting(there)}"
                    return _too_few(job, detail, count - there)
            there = sum(pending.values())
            if there < wanted.total:
                has_some = bool(session.state(job).placed_count)
                detail = f"it needs {_pods(wanted.total, has_some)} to start, and {_waiting(there)}"
                return _too_few(job, detail, wanted.total - there)
            return None

        def victims(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
            """Victims whose job keeps its minimums without them, given the ones before. A gang of one may be evicted
            whole, others only with `evict.whole`.
            """
            del claimant
            gone: dict[tuple[JobKey, str], int] = {}
            chosen = []
            offered = Counter(victim.job.key for victim in candidates) if self._whole else Counter()
            for victim in candidates:
                if self._whole and offered[victim.job.key] >= session.state(victim.job).placed_count:
                    chosen.append(victim)
                    continue
                job, role = victim.job, victim.pod.role
                state = session.state(job)
                left = state.placed_count - gone.get((job.key, ""), 0) - 1
                of_role = state.placed.get(role, 0) - gone.get((job.key, "/" + role), 0) - 1
                of_role += job.succeeded_by_role.get(role, 0)
                keeps = left + job.succeeded >= job.min_member and of_role >= job.role_min.get(role, 0)
                if keeps or (job.min_member == 1 and not left):
                    chosen.append(victim)
                    for key in ((job.key, ""), (job.key, "/" + role)):
                        gone[key] = gone.get(key, 0) + 1
            return chosen

        return Hooks(
            job_order=lambda job: float(is_ready(job)),
            job_valid=valid,
            job_ready=is_ready,
            job_pipelined=lambda job: not need(job, promised=True).total,
            job_need=need,
            evicts_whole=self._whole,
            preemptable=victims,
            reclaimable=victims,
            job_kind=nothing_else,
            is_alike_in_line=True,
            victim_kind=nothing_else,
        )


def _pods(count: int, has_some: bool) -> str:
    return f"{count}{' more' * has_some} pod{'s' * (count != 1)}"


def _waiting(count: int) -> str:
    return f"{count or 'none'} {'waits' if count < 2 else 'wait'}"


def _too_few(job: Job, detail: str, missing: int) -> Reason:
    if job.key[1] == "Pod" and job.gated:
        message = "it is held by scheduling gates"
        return Reason("SchedulingGated", message, "its scheduling gates were removed", is_in_line=False)
    gated = f" ({job.gated} {'is' if job.gated == 1 else 'are'} held by scheduling gates)" if job.gated else ""
    strangers = f" ({job.strangers} more with another schedulerName)" if job.strangers else ""
    message = f"the gang is not complete: {detail}{gated}{strangers}"
    if job.strangers >= missing - job.gated > 0:
        return Reason(
            "NotEnoughPods", message, "those pods named this scheduler as their schedulerName", is_in_line=False
        )
    if job.gated < missing:
        return Reason("NotEnoughPods", message, "the missing pods were created", is_in_line=False)
    return Reason("SchedulingGated", message, "its scheduling gates were removed", is_in_line=False)
