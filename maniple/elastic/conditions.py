"""Conditions in the manner of pytorch-operator, so that tools which wait for `Succeeded` work.

Created, Running, Restarting, Succeeded, Failed and Suspended. Running and Restarting replace each other, and Running is
False once the job has ended. Suspended becomes True only when no replica is left, so that its GPUs are free for whoever
waits for it. Hindered is True while something outside of the job blocks it, and absent otherwise. Conditions of other
writers are left alone.
"""

from typing import Literal

from maniple.api import types
from maniple.api.timestamps import format_timestamp

OURS = ("Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed", "Hindered")
_OF_PHASE = {
    "Running": "Running",
    "Growing": "Running",
    "Shrinking": "Running",
    "Restarting": "Restarting",
    "Suspended": "Suspended",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}
STOPPING = "Stopping"
HINDERED = "Hindered"
Conditions = tuple[types.StatusCondition, ...]


def conditions_in(
    phase: str, before: Conditions, reason: str, message: str, now: float, *, is_idle: bool
) -> Conditions:
    """`reason` and `message` say why the job entered this phase. `is_idle`: it has no replicas."""
    after = before
    if find_condition(after, "Created") is None:
        after = _set(after, "Created", True, "JobCreated", "the job has been accepted", now)
    kind = _OF_PHASE.get(phase)
    if kind is None:
        return _end(after, ("Running", "Suspended"), reason, now)
    if kind in ("Running", "Restarting"):
        after = _without(after, "Restarting" if kind == "Running" else "Running")
        return _end(_set(after, kind, True, reason, message, now), ("Suspended",), reason, now)
    after = _without(after, "Restarting")
    if kind == "Suspended":
        after = _end(after, ("Running",), reason, now)
        if is_idle:
            return _set(after, kind, True, "Suspended", "it has stopped, and holds nothing", now)
        return _set(after, kind, False, STOPPING, "its replicas checkpoint and stop", now)
    return _set(_end(after, ("Running", "Suspended"), reason, now), kind, True, reason, message, now)


def with_hindrance(before: Conditions, reason: str, message: str, now: float) -> Conditions:
    """An empty reason: nothing hinders the job."""
    if not reason:
        return _without(before, HINDERED)
    old = find_condition(before, HINDERED)
    since = format_timestamp(now) if old is None else old.last_transition_time
    return put_condition(before, types.StatusCondition(HINDERED, "True", reason, message, since))


def _end(conditions: Conditions, kinds: tuple[str, ...], reason: str, now: float) -> Conditions:
    """Sets those of `kinds` that exist to False."""
    for condition in conditions:
        if condition.type in kinds and (condition.status == "True" or condition.reason == STOPPING):
            conditions = _set(conditions, condition.type, False, reason, "", now)
    return conditions


def _set(conditions: Conditions, kind: str, is_true: bool, reason: str, message: str, now: float) -> Conditions:
    status: Literal["True", "False"] = "True" if is_true else "False"
    old = find_condition(conditions, kind)
    if old is not None and old.status == status and (is_true or old.reason == reason):
        return conditions  # keeps its time and its reason
    return put_condition(conditions, types.StatusCondition(kind, status, reason, message, format_timestamp(now)))


def find_condition(conditions: Conditions, kind: str) -> types.StatusCondition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Conditions, kind: str) -> bool:
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"


def put_condition(conditions: Conditions, new: types.StatusCondition) -> Conditions:
    if find_condition(conditions, new.type) is None:
        return (*conditions, new)
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def _without(conditions: Conditions, kind: str) -> Conditions:
    return tuple(condition for condition in conditions if condition.type != kind)
