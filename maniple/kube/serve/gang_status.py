"""The status that a gang should have, counted from its pods, in our terms and in those of other systems. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import msgspec

from maniple.api import kubernetes, types
from maniple.api.compat import other_schedulers
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.incomplete_since import stale_at
from maniple.api.meta import Struct
from maniple.api.phases import FINISHED
from maniple.api.timestamps import format_timestamp
from maniple.elastic.conditions import Conditions, find_condition, is_true, put_condition
from maniple.kube.serve.gang_index import SCHEDULED, SCHEDULED_NOW, has_started
from maniple.scheduler.framework.hooks import Reason

INVALID = "Invalid"
BACKING_OFF = "BackingOff"  # needs no event: that of the failed bind says why
INITIALLY = "PodGroupInitiallyScheduled"  # of an upstream PodGroup; once it is True it stays so
_UNSCHEDULABLE = "Unschedulable"  # upstream's word; ours begins the message
_LONGEST = 1000


@dataclass(frozen=True)
class Why:
    """Why a gang is not scheduled."""

    reason: str
    message: str


def why_it_waits(reason: Reason) -> Why:
    would = reason.would_start_if if reason.code != BACKING_OFF else ""  # a countdown would be news every second
    message = f"{reason.message}; would start if {would}" if would else reason.message
    return Why(reason.code, message[:_LONGEST])


def why_invalid(problems: Iterable[str], subject: str = "") -> Why:
    """`subject`: the object that has the problems, if another says so."""
    return Why(INVALID, ((subject and f"{subject} is set aside: ") + "; ".join(problems))[:_LONGEST])


_WAITING = Why("Waiting", "its pods are not all there yet")
_NONE_BOUND = Why("Waiting", "none of its pods has been bound; each of them says why")
_SUSPENDED = Why("Suspended", "the job is suspended, and waits for nothing")
_ENDED = Why("Ended", "the job is over, and waits for nothing")


@dataclass(frozen=True)
class Count:
    """A gang's pods by phase, without those that are leaving."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    bound: int = 0  # on a node and not finished

    @classmethod
    def of(cls, pods: Sequence[kubernetes.Pod]) -> "Count":
        there = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        phases = [pod.status.phase for pod in there]
        return cls(
            pending=phases.count("Pending"),
            running=phases.count("Running"),
            succeeded=phases.count("Succeeded"),
            failed=phases.count("Failed"),
            bound=sum(1 for pod in there if pod.spec.node_name and pod.status.phase not in FINISHED),
        )

    def is_whole(self, minimum: int) -> bool:
        return self.bound + self.succeeded >= minimum

    def is_scheduled(self, minimum: int, was: bool) -> bool:
        """Once whole, a gang stays scheduled as long as any of its pods is bound."""
        return self.is_whole(minimum) or (was and self.bound + self.succeeded > 0)

    def phase(self, minimum: int, was: bool) -> str:
        if self.succeeded >= minimum and not self.pending and not self.running:
            return "Finished"
        if self.is_whole(minimum):
            return "Running"
        return "Unknown" if was and self.bound else "Pending"


def condition_of(before: Conditions, kind: str, is_met: bool, why: Why, now: str, generation: int) -> Conditions:
    """The conditions with this one as it is now. The transition time stays if the status does."""
    old = find_condition(before, kind)
    status: Literal["True", "False"] = "True" if is_met else "False"
    since = now if old is None or old.status != status else old.last_transition_time
    condition = types.StatusCondition(kind, status, why.reason, why.message, since, generation)
    return put_condition(before, condition)


def pod_group_status(
    group: types.PodGroup, count: Count, why: Why | None, now: str, queue: str = types.DEFAULT_QUEUE
) -> types.PodGroupStatus:
    before = group.status
    was, minimum = is_true(before.conditions, SCHEDULED), group.spec.min_member
    phase = count.phase(minimum, was)
    if phase == "Running" and not count.running:
        phase = "Pending"  # as Kubernetes says of a bound pod whose volumes or images are not there yet
    return types.PodGroupStatus(
        phase=phase,  # type: ignore[arg-type]  # one of the phases
        queue=queue,
        conditions=gang_conditions(
            before.conditions, count, minimum, was, why, now, group.metadata.generation, gives_back_at=stale_at(group)
        ),
        pending=count.pending,
        running=count.running,
        succeeded=count.succeeded,
        failed=count.failed,
    )


def gang_conditions(
    before: Conditions,
    count: Count,
    minimum: int,
    was: bool,
    why: Why | None,
    now: str,
    generation: int,
    kind: str = SCHEDULED,
    gives_back_at: float = inf,
) -> Conditions:
    """`why` its pods wait, or it is set aside. A gang that has started stays scheduled, and says what it lacks."""
    if count.is_scheduled(minimum, was):
        if not count.is_whole(minimum):
            lacks = f"it has started; {count.bound + count.succeeded} of at least {minimum} pods are bound"
            if gives_back_at < inf:
                lacks += (
                    f"; what it holds is given back at {format_timestamp(gives_back_at)}, unless it is whole by then"
                )
            why = Why("Incomplete", lacks if why is None else f"{lacks}; {why.reason}: {why.message}"[:_LONGEST])
        elif why is None or why.reason != INVALID:
            why = Why(SCHEDULED, "all of its minimum has been bound")
        return condition_of(before, kind, True, why, now, generation)
    if why is None:
        old = find_condition(before, kind)
        if old is not None and old.status == "False" and old.reason != INVALID:
            return before
        why = _WAITING
    return condition_of(before, kind, False, why, now, generation)


def job_conditions(job: types.ElasticJob, count: Count, why: Why | None, now: str) -> Conditions:
    """A job that is finished or suspended waits for nothing, and its condition says so unless it is scheduled."""
    before = job.status.conditions
    old = find_condition(before, SCHEDULED)
    was = old is not None and old.status == "True"
    if job.status.phase in FINISHED:
        if old is None or was:
            return before
        return condition_of(before, SCHEDULED, False, _ENDED, now, job.metadata.generation)
    if why is None and job.status.phase == "Suspended" and not count.bound:
        return condition_of(before, SCHEDULED, False, _SUSPENDED, now, job.metadata.generation)
    if why is None and old is not None and old.reason == _SUSPENDED.reason:
        why = _WAITING
    return gang_conditions(before, count, least(job), was, why, now, job.metadata.generation)


def least(job: types.ElasticJob) -> int:
    return max(1, sum(role.least for role in job.spec.roles))


def upstream_conditions(group: UpstreamPodGroup, count: Count, why: Why | None, now: str) -> Conditions:
    """Upstream's condition, and one of our own that says whether the gang is whole now. Those of others stay.

    One pod is enough for a group that is no gang.
    """
    before, gang = group.status.conditions, group.spec.scheduling_policy.gang
    minimum, was = 1 if gang is None else gang.min_count, group.has(SCHEDULED_NOW)
    is_scheduled = count.is_scheduled(minimum, was)
    if gang is None and not is_scheduled:
        why = why or _NONE_BOUND
    after = gang_conditions(before, count, minimum, was, why, now, group.metadata.generation, SCHEDULED_NOW)
    if group.has(INITIALLY):
        return after
    ours = next(condition for condition in after if condition.type == SCHEDULED_NOW)
    initially = Why(ours.reason, ours.message)
    if not is_scheduled:
        initially = Why(_UNSCHEDULABLE, f"{ours.reason}: {ours.message}")
    return condition_of(after, INITIALLY, is_scheduled, initially, now, group.metadata.generation)


def foreign_status(source: Struct, minimum: int, count: Count, why: Why | None, now: str) -> dict[str, Any] | None:
    """The status of another system's PodGroup in that system's terms; None if it has it already."""
    before: dict[str, Any] = getattr(source, "status", {})
    was = has_started(source)
    phase = count.phase(minimum, was)
    counts = {"running": count.running, "succeeded": count.succeeded, "failed": count.failed}
    if isinstance(source, other_schedulers.CoschedulingPodGroup):
        if phase == "Running" and count.running + count.succeeded < minimum:
            phase = "Scheduled"
        status: dict[str, Any] = {"phase": phase, "scheduled": count.bound, **counts}
        return None if all(before.get(name, 0) == value for name, value in status.items()) else status
    # Inqueue tells Kubeflow's and Volcano's controllers that they may create the pods.
    words = {"Pending": "Inqueue"}
    if isinstance(source, other_schedulers.VolcanoPodGroup):
        words["Finished"] = "Completed"
    status = {"phase": words.get(phase, phase), **counts}
    is_scheduled = count.is_scheduled(minimum, was)
    condition = _foreign_condition(before.get("conditions"), is_scheduled, why, now)
    if condition is not None:
        status["conditions"] = [condition]
    elif all(before.get(name, 0) == value for name, value in status.items()):
        return None
    return status


def _foreign_condition(before: object, is_scheduled: bool, why: Why | None, now: str) -> dict[str, str] | None:
    """Scheduled, or Unschedulable with the reason; None if the last condition is the same."""
    if is_scheduled:
        kind, reason, message = SCHEDULED, "tasks in gang are ready to be scheduled", ""
    elif why is None:
        return None
    else:
        kind, reason, message = "Unschedulable", why.reason, why.message
    last = before[-1] if isinstance(before, list) and before and isinstance(before[-1], dict) else {}
    if last.get("type") == kind and last.get("reason") == reason and last.get("message", "") == message:
        return None
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def is_message_only(before: types.PodGroupStatus, after: types.PodGroupStatus) -> bool:
    """Whether nothing but the wording of conditions has changed."""
    is_rest_same = msgspec.structs.replace(before, conditions=()) == msgspec.structs.replace(after, conditions=())
    return is_rest_same and only_reworded(before.conditions, after.conditions)


def only_reworded(before: Conditions, after: Conditions) -> bool:
    """Whether all conditions have the status that they had."""
    old, new = (sorted((condition.type, condition.status) for condition in several) for several in (before, after))
    return old == new
