"""Why a gang waits: the reason, the nodes counted by what is wrong with each, the place that comes nearest, what was
tried, and the smallest change that would start it.

Runs after the actions, over what is then free, and changes nothing. Gangs that ask for the same in the same queue wait
for the same reasons: everything is found out once for each kind of demand, so that ten thousand waiting gangs of a few
kinds are explained in the time of a few.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from maniple.api.keys import split_name
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray
from maniple.scheduler.explain.nearest_miss import Miss, find_miss, nearest_of
from maniple.scheduler.explain.node_counts import NodeReport, count_nodes
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.explain.topology_reasons import is_torn, never_close, no_such_model, not_close
from maniple.scheduler.explain.tried import Case, EndOfCycle
from maniple.scheduler.explain.words import change, pods
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.plan import Nearest, NodeCount, Tried, Waiting
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True)
class _Verdict:
    """All that is said of gangs of one kind."""

    reason: Reason
    needs: dict[str, str]
    counts: tuple[NodeCount, ...] = ()
    tried: tuple[Tried, ...] = ()
    nearest: Nearest | None = None


class Explainer:
    """`thorough`: the name of a job whose explanation may cost whatever it takes."""

    def __init__(self, session: Session, thorough: str = "") -> None:
        self._session = session
        self._thorough = thorough
        self._verdicts: dict[object, _Verdict] = {}
        self._reports: dict[object, NodeReport] = {}
        self._misses: dict[object, Miss] = {}
        self._holders = Holders(session)
        self._end = EndOfCycle(session, self._holders)
        self._promised: dict[tuple[str, str], FloatArray] = {}
        for placed in session.placed:
            if placed.later:
                before = self._promised.get(placed.job.key, 0.0)
                self._promised[placed.job.key] = before + placed.group.shape.requests * placed.spot.total

    def explain_all(self) -> Iterator[Waiting]:
        """Every gang that waits."""
        explained = [(job, self.explain(job)) for job in self._session.snapshot.waiting]
        waiting = [(job, verdict) for job, verdict in explained if verdict is not None]
        places = self._places([job for job, verdict in waiting if verdict.reason.is_in_line])
        for job, verdict in waiting:
            yield Waiting(
                group=job.name,
                kind=job.key[1],
                queue=self._session.queue_of(job).name,
                reason=verdict.reason.code,
                message=verdict.reason.message,
                needs=verdict.needs,
                nodes=verdict.counts,
                would_start_if=verdict.reason.would_start_if,
                position=places.get(job.key),
                tried=verdict.tried,
                nearest=verdict.nearest,
            )

    def _places(self, jobs: list[Job]) -> dict[tuple[str, str], int]:
        """The place of each in its queue's line."""
        line: dict[int, int] = {}
        places: dict[tuple[str, str], int] = {}
        for job in sorted(jobs, key=self._session.job_key):
            line[job.queue] = places[job.key] = line.get(job.queue, 0) + 1
        return places

    def explain(self, job: Job) -> _Verdict | None:
        """None if nothing of the job waits."""
        session = self._session
        state = session.state(job)
        left = sum(state.left(group) for group in job.groups)
        if not left and not job.gated and not state.promised_count:
            return None
        need = session.job_need(job) if job.exists else Need({}, 0)
        # Whether a gang is complete does not depend on an action having asked.
        blocked = session.blocked.get(job.key)
        if blocked is None and job.exists and job.key not in session.checked:
            blocked = session.job_valid(job)
        if not job.exists or state.promised_count or job.name == self._thorough:
            return self._judge(job, need, left, blocked)
        kind = (*self._kind(job, left), blocked)
        verdict = self._verdicts.get(kind)
        if verdict is None:
            verdict = self._verdicts[kind] = self._judge(job, need, left, blocked)
        return verdict

    def _kind(self, job: Job, left: int) -> tuple[object, ...]:
        """All that decides why a gang waits and what could help it, apart from what stands in its way already."""
        session = self._session
        gang = (left, job.gated, job.strangers, job.is_suspended)
        if not session.reservations:
            return (session.demands.of(job), gang)
        # Whether it may run in reserved room.
        ends = tuple((group.lasts_s, group.stays) for group in job.groups)
        leaves = (job.key in session.reservations, job.preemptable, job.min_runtime_s, ends)
        return (session.demands.of(job), gang, leaves)

    def _exempt(self, job: Job) -> int | None:
        """The queue whose reservation does not bind the job."""
        reserved = self._session.reserved
        return job.queue if reserved.by_job and reserved.exempts(job) else None

    def _judge(self, job: Job, need: Need, left: int, blocked: Reason | None) -> _Verdict:
        with self._session.reserved.seen_by(job):
            return self._look_into(job, need, left, blocked)

    def _look_into(self, job: Job, need: Need, left: int, blocked: Reason | None) -> _Verdict:
        session = self._session
        state = session.state(job)
        if not job.exists:
            name, kind = split_name(job.name)[1], job.key[1]
            what = "job" if kind == "ElasticJob" else "group"
            message = f"its pods name the {what} {name!r}, and there is no such {kind} in their namespace"
            return _Verdict(Reason("GroupNotFound", message, f"{kind} {job.name} is created", is_in_line=False), {})
        if job.is_suspended:
            reason = Reason("Suspended", "spec.suspend is true", "spec.suspend is set to false", is_in_line=False)
            return _Verdict(self._and(job, need, reason), {})
        needs = self._needs(job, need)
        if state.promised_count:
            message = f"room for {pods(state.promised_count)} is promised and still held by pods that are leaving"
            return _Verdict(Reason("Promised", message, "the pods that are leaving have left", is_in_line=False), needs)
        if not need.total:
            return self._surplus(job, left, blocked)
        if blocked is None and not job.groups:
            blocked = _gated(job)
        if blocked is not None and not blocked.is_in_line:
            return _Verdict(self._and(job, need, blocked), needs)
        wanted = self._wanted(job, need)
        miss = self._miss(job, wanted)
        counts: tuple[NodeCount, ...] = ()
        if blocked is not None:
            reason = self._and(job, need, blocked)
        else:
            reason, counts = self._no_room(job, need, miss)
            limits = self._limits(job, wanted)
            if limits:
                reason = replace(reason, would_start_if=f"{reason.would_start_if} and {limits}")
        nearest = nearest_of(session, self._holders, job, miss)
        case = Case(self._end, job, reason, blocked, nearest, is_thorough=job.name == self._thorough)
        return _Verdict(reason, needs, counts, case.tried(), nearest)

    # -- what stands in the way beside what was found first

    def _and(self, job: Job, need: Need, reason: Reason) -> Reason:
        """The reason with all that would also have to change before the gang starts."""
        session = self._session
        wanted = self._wanted(job, need)
        conditions = [reason.cure]
        if wanted and not reason.is_in_line:
            conditions.append(self._limits(job, wanted))
        if wanted:
            conditions.append(change(session, self._miss(job, wanted), list(wanted)))
        return replace(reason, would_start_if=" and ".join(condition for condition in conditions if condition))

    def _limits(self, job: Job, wanted: Mapping[TaskGroup, int]) -> str:
        """What limits and shares of its queue would have to change; empty if nothing."""
        queue = self._session.queue_of(job)
        asked = np.zeros(len(self._session.snapshot.axis))
        for group, count in wanted.items():
            asked += group.shape.requests * count
        reason = self._session.admissible(queue, asked) or self._session.overused(queue, asked)
        return "" if reason is None else reason.cure

    def _wanted(self, job: Job, need: Need) -> dict[TaskGroup, int]:
        """The pods of each group that the gang needs to start; those that do not exist yet are taken to be like others.

        Where a role has several kinds of pods, or the gang more than it needs, those that are easiest to place count.
        """
        groups = self._session.groups(job)
        if not groups:
            return {}
        if len(groups) == 1:
            return {groups[0]: need.total}
        state = self._session.state(job)
        total = np.maximum(self._session.snapshot.total, 1.0)
        easiest = sorted(groups, key=lambda group: float((group.shape.requests / total).max()))
        wanted = dict.fromkeys(groups, 0)
        by_role = dict(need.by_role)

        def take(group: TaskGroup, count: int) -> int:
            taken = max(0, min(count, state.left(group) - wanted[group]))
            wanted[group] += taken
            return taken

        for group in easiest:
            by_role[group.role] = by_role.get(group.role, 0) - take(group, by_role.get(group.role, 0))
        for role, count in by_role.items():
            mine = next((group for group in easiest if group.role == role), easiest[0])
            wanted[mine] += count
        spare = need.total - sum(wanted.values())
        for group in easiest:
            spare -= take(group, spare)
        wanted[easiest[0]] += max(0, spare)
        return {group: count for group, count in wanted.items() if count}

    def _miss(self, job: Job, wanted: Mapping[TaskGroup, int]) -> Miss:
        session = self._session
        own = job.key if session.state(job).nodes else None
        of_group = session.demands.of_group
        groups = tuple((of_group(group), group.pod_affinity, count) for group, count in wanted.items())
        key = (groups, job.required, job.mixed_models, own, self._exempt(job))
        miss = self._misses.get(key)
        if miss is None:
            miss = self._misses[key] = find_miss(session, job, wanted)
        return miss

    # -- reasons

    def _surplus(self, job: Job, left: int, blocked: Reason | None) -> _Verdict:
        """The gang runs; pods above its minimum wait."""
        session = self._session
        if not left:
            return _Verdict(_gated(job), {})
        counts: tuple[NodeCount, ...] = ()
        nearest = None
        group = next(group for group in session.groups(job) if session.state(job).left(group))
        miss = self._miss(job, {group: 1})
        if blocked is not None:
            would = " and ".join(text for text in (blocked.cure, change(session, miss, [group])) if text)
            why = blocked.message
        else:
            report = self._report(job, group)
            counts = report.counts
            why, would = "no node has room for one", change(session, miss, [group])
            nearest = nearest_of(session, self._holders, job, miss)
            apart = None
            if report.fits or is_torn(session, job):
                apart = not_close(session, job, Need({}, 1), {group: 1}, {group: f"1 pod of {report.asks}"}, miss)
            if apart is not None:
                why, would = apart.message, apart.would_start_if
            elif report.fits:
                why, would = self._not_tried(job)
        wait = "waits" if left == 1 else "wait"
        message = f"the gang runs; {pods(left)} above its minimum {wait}: {why}"
        reason = Reason("SurplusWaiting", message, would, is_in_line=False)
        case = Case(self._end, job, replace(reason, message=why), None, nearest, is_surplus=True)
        return _Verdict(reason, {}, counts, case.tried(), nearest)

    def _no_room(self, job: Job, need: Need, miss: Miss) -> tuple[Reason, tuple[NodeCount, ...]]:
        """The group that is hardest to place speaks for the gang."""
        session = self._session
        groups = session.groups(job)
        wanted = {group: min(need.by_role.get(group.role, need.total), len(group.pods)) for group in groups}
        reports = {group: self._report(job, group) for group in groups}
        group = min(groups, key=lambda group: reports[group].fits - wanted[group])
        report, count = reports[group], wanted[group]
        if len(groups) == 1:
            count = need.total
        what = f"{pods(count)} of {report.asks}"
        wanted[group] = count
        phrases = {group: f"{pods(wanted[group])} of {reports[group].asks}" for group in groups}
        empty = {group: report.empty for group, report in reports.items()}
        never = never_close(session, job, wanted, empty, phrases, miss)
        if never is not None and all(reports[group].fits_empty >= wanted[group] for group in groups):
            return never, report.counts
        unknown = no_such_model(session, group, count)
        if unknown is not None:
            return Reason("NoNodeFits", f"needs {what}, and {unknown[0]}", unknown[1]), report.counts
        would = change(session, miss, groups)
        rules = " and ".join(dict.fromkeys(text for text in (_rules(session, group) for group in groups) if text))
        if would and rules:
            would += f", as far as their {rules} lets them"
        if report.fits_empty < count:
            code = "InsufficientResources" if report.fits_empty else "NoNodeFits"
            message = f"needs {what}; even an empty cluster has room for {report.fits_empty}"
            return Reason(code, message, would or "a node that meets the pod's demands were added"), report.counts
        if report.fits < count:
            message = f"needs {what} at once; there is room for {report.fits} now"
            return Reason("InsufficientResources", message, would or "more room came free"), report.counts
        apart = not_close(session, job, need, wanted, phrases, miss)
        if apart is not None:
            return apart, report.counts
        if _rules(session, group):
            message = f"needs {what}; each finds a node, but not all together: {rules} stands between them"
            return Reason(
                "InsufficientResources", message, f"there were more nodes where their {rules} lets them go"
            ), report.counts
        if len(groups) > 1:
            message = f"needs {what} together with its other pods; each part fits alone, but not all at once"
            return Reason("InsufficientResources", message, would or "more room came free"), report.counts
        why, would = self._not_tried(job)
        return Reason("NotTried", f"needs {what}; {why}", would), report.counts

    def _not_tried(self, job: Job) -> tuple[str, str]:
        """Why pods wait for which there is room by now, and what would start them."""
        if job.key in self._session.checked:
            return (
                "there is room by the end of this cycle, and there was none when its turn came",
                "the next cycle came",
            )
        action = Ability.BACKFILL if job.is_best_effort else Ability.ALLOCATE
        return "there is room, but no action of the policy places such pods", f"the policy's actions included {action}"

    def _report(self, job: Job, group: TaskGroup) -> NodeReport:
        key = (self._session.demands.of_group(group), group.pod_affinity, self._exempt(job))
        report = self._reports.get(key)
        if report is None:
            report = self._reports[key] = count_nodes(self._session, group)
        return report

    def _needs(self, job: Job, need: Need) -> dict[str, str]:
        """The pods still needed to start, and what they ask for together."""
        if not need.total:
            return {}
        total = self._promised.get(job.key)
        if total is None:
            total = self._session.needed_resources(job)
        return {"pods": str(need.total), **self._session.snapshot.axis.describe(total)}


def _gated(job: Job) -> Reason:
    held = f"{pods(job.gated)} {'is' if job.gated == 1 else 'are'} held by scheduling gates"
    return Reason("SchedulingGated", held, "the gates are removed", is_in_line=False)


def _rules(session: Session, group: TaskGroup) -> str:
    """The rules that can keep the pods of the group apart."""
    pod_affinity = group.pod_affinity
    if pod_affinity is None or not group.is_coupled:
        return "plugin rule (pod_predicate)" if session.is_coupled(group) else ""
    rules = (
        ("pod affinity", any(pod_affinity.match(term) for term in pod_affinity.affinity)),
        ("pod anti-affinity", any(pod_affinity.match(term) for term in pod_affinity.anti_affinity)),
        ("topology spread", any(spread.is_required for spread in pod_affinity.spread)),
    )
    return " and ".join(name for name, is_there in rules if is_there)
