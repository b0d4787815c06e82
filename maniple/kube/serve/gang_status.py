"""What the status of a gang is to say: counted from its pods, in our words and in those of other systems. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.compat import other_schedulers
from maniple.api.meta import Struct
from maniple.kube.serve.gangs import SCHEDULED, has_started

INVALID = "Invalid"
_OVER = ("Succeeded", "Failed")
_LONGEST = 1000


@dataclass(frozen=True)
class Why:
    """Why a gang is not scheduled."""

    reason: str
    message: str


_WAITING = Why("Waiting", "its pods are not all there yet")
_SUSPENDED = Why("Suspended", "the job is suspended, and waits for nothing")
_ENDED = Why("Ended", "the job is over, and waits for nothing")


@dataclass(frozen=True)
class Count:
    """A gang's pods. Those that are leaving count nowhere."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    bound: int = 0  # on a node and not over

    @classmethod
    def of(cls, pods: Sequence[kubernetes.Pod]) -> "Count":
        there = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        phases = [pod.status.phase for pod in there]
        return cls(
            pending=phases.count("Pending"),
            running=phases.count("Running"),
            succeeded=phases.count("Succeeded"),
            failed=phases.count("Failed"),
            bound=sum(1 for pod in there if pod.spec.node_name and pod.status.phase not in _OVER),
        )

    def is_whole(self, minimum: int) -> bool:
        return self.bound + self.succeeded >= minimum

    def is_scheduled(self, minimum: int, was: bool) -> bool:
        """Once whole, a gang is scheduled until it has nobody left."""
        return self.is_whole(minimum) or (was and self.bound + self.succeeded > 0)

    def phase(self, minimum: int, was: bool) -> str:
        if self.succeeded >= minimum and not self.pending and not self.running:
            return "Finished"
        if self.is_whole(minimum):
            return "Running"
        return "Unknown" if was and self.bound else "Pending"


def condition_of(
    before: Sequence[types.StatusCondition], kind: str, is_true: bool, why: Why, now: str, generation: int
) -> tuple[types.StatusCondition, ...]:
    """The conditions with this one as it is now; the moment stays where nothing has turned."""
    status = "True" if is_true else "False"
    old = next((one for one in before if one.type == kind), None)
    turned = old.last_transition_time if old is not None and old.status == status else now
    made = types.StatusCondition(
        type=kind,
        status="True" if is_true else "False",
        reason=why.reason,
        message=why.message,
        last_transition_time=turned,
        observed_generation=generation,
    )
    return (*before, made) if old is None else tuple(made if one is old else one for one in before)


def pod_group_status(group: types.PodGroup, count: Count, why: Why | None, now: str) -> types.PodGroupStatus:
    before = group.status
    was = any(one.type == SCHEDULED and one.status == "True" for one in before.conditions)
    minimum = group.spec.min_member
    return types.PodGroupStatus(
        phase=count.phase(minimum, was),  # type: ignore[arg-type]  # one of the phases
        conditions=gang_conditions(before.conditions, count, minimum, was, why, now, group.metadata.generation),
        pending=count.pending,
        running=count.running,
        succeeded=count.succeeded,
        failed=count.failed,
    )


def gang_conditions(
    before: tuple[types.StatusCondition, ...],
    count: Count,
    minimum: int,
    was: bool,
    why: Why | None,
    now: str,
    generation: int,
    kind: str = SCHEDULED,
) -> tuple[types.StatusCondition, ...]:
    """`why`: why pods of it wait, or it is set aside. A gang that has started stays so, and says what it lacks."""
    if count.is_scheduled(minimum, was):
        if not count.is_whole(minimum):
            lacks = f"it has started; {count.bound + count.succeeded} of at least {minimum} pods are bound"
            why = Why("Incomplete", lacks if why is None else f"{lacks}; {why.reason}: {why.message}"[:_LONGEST])
        elif why is None or why.reason != INVALID:
            why = Why(SCHEDULED, "all of its minimum has been bound")
        return condition_of(before, kind, True, why, now, generation)
    if why is None:
        old = next((one for one in before if one.type == kind and one.status == "False"), None)
        if old is not None and old.reason != INVALID:
            return before
        why = _WAITING
    return condition_of(before, kind, False, why, now, generation)


def job_conditions(job: types.ElasticJob, count: Count, why: Why | None, now: str) -> tuple[types.StatusCondition, ...]:
    """A job that is over or suspended waits for nothing, and says so if it is not scheduled."""
    before = job.status.conditions
    old = next((one for one in before if one.type == SCHEDULED), None)
    was = old is not None and old.status == "True"
    if job.status.phase in _OVER:
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


def foreign_status(source: Struct, minimum: int, count: Count, why: Why | None, now: str) -> dict[str, Any] | None:
    """The status of another system's PodGroup in that system's words; None if it says so already."""
    before: dict[str, Any] = getattr(source, "status", {})
    was = has_started(source)
    phase = count.phase(minimum, was)
    counts = {"running": count.running, "succeeded": count.succeeded, "failed": count.failed}
    if isinstance(source, other_schedulers.CoschedulingPodGroup):
        if phase == "Running" and count.running + count.succeeded < minimum:
            phase = "Scheduled"
        made: dict[str, Any] = {"phase": phase, "scheduled": count.bound, **counts}
        return None if all(before.get(name, 0) == value for name, value in made.items()) else made
    # Inqueue tells Kubeflow's and Volcano's controllers that they may create the pods.
    words = {"Pending": "Inqueue"}
    if isinstance(source, other_schedulers.VolcanoPodGroup):
        words["Finished"] = "Completed"
    made = {"phase": words.get(phase, phase), **counts}
    is_scheduled = count.is_scheduled(minimum, was)
    condition = _foreign_condition(before.get("conditions"), is_scheduled, why, now)
    if condition is not None:
        made["conditions"] = [condition]
    elif all(before.get(name, 0) == value for name, value in made.items()):
        return None
    return made


def _foreign_condition(before: object, is_scheduled: bool, why: Why | None, now: str) -> dict[str, str] | None:
    """Scheduled, or Unschedulable with the reason; None if the last one says so already."""
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
    """Whether nothing but the wording of the reason has changed."""
    return msgspec.structs.replace(before, conditions=()) == msgspec.structs.replace(after, conditions=()) and [
        (one.type, one.status) for one in before.conditions
    ] == [(one.type, one.status) for one in after.conditions]
