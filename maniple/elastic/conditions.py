"""Conditions in the manner of pytorch-operator, so that tools which wait for `Succeeded` work.

Created, Running, Restarting, Succeeded, Failed; and Suspended. Running and Restarting replace each other, and when the
job has ended Running is False. Suspended is True when nothing of the job is left, and not before: whoever waits for it
may use the room. Hindered is there, and True, for as long as something outside of the job keeps it from what it is to
be. Conditions of others stay as they are.
"""

from typing import Literal

import msgspec

from maniple.api import types
from maniple.api.timestamps import from_seconds

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
    """`reason` and `message` say why the job came into this phase. `is_idle`: it has no replicas."""
    after = before
    if not any(one.type == "Created" for one in after):
        after = _with(after, "Created", True, "JobCreated", "the job has been accepted", now)
    mine = _OF_PHASE.get(phase)
    if mine is None:
        return _ended(after, ("Running", "Suspended"), reason, now)
    if mine in ("Running", "Restarting"):
        after = tuple(one for one in after if one.type not in ("Running", "Restarting") or one.type == mine)
        return _ended(_with(after, mine, True, reason, message, now), ("Suspended",), reason, now)
    after = tuple(one for one in after if one.type != "Restarting")
    if mine == "Suspended":
        after = _ended(after, ("Running",), reason, now)
        if is_idle:
            return _with(after, mine, True, "Suspended", "it has stopped, and holds nothing", now)
        return _with(after, mine, False, STOPPING, "its replicas checkpoint and stop", now)
    return _with(_ended(after, ("Running", "Suspended"), reason, now), mine, True, reason, message, now)


def with_hindrance(before: Conditions, reason: str, message: str, now: float) -> Conditions:
    """An empty reason: nothing hinders it."""
    old = next((one for one in before if one.type == HINDERED), None)
    if not reason:
        return before if old is None else tuple(one for one in before if one is not old)
    since = _time(now) if old is None else old.last_transition_time
    new = types.StatusCondition(HINDERED, "True", reason, message, since)
    return (*before, new) if old is None else tuple(new if one is old else one for one in before)


def _ended(conditions: Conditions, kinds: tuple[str, ...], reason: str, now: float) -> Conditions:
    """Those of these that are there become False."""
    for one in conditions:
        if one.type in kinds and (one.status == "True" or one.reason == STOPPING):
            conditions = _with(conditions, one.type, False, reason, "", now)
    return conditions


def _with(conditions: Conditions, kind: str, is_true: bool, reason: str, message: str, now: float) -> Conditions:
    status: Literal["True", "False"] = "True" if is_true else "False"
    old = next((one for one in conditions if one.type == kind), None)
    if old is not None and old.status == status and (is_true or old.reason == reason):
        return conditions  # since then, and for the reason that it had then
    new = types.StatusCondition(kind, status, reason, message, _time(now))
    if old is None:
        return (*conditions, new)
    return tuple(new if one is old else one for one in conditions)


def _time(now: float) -> str:
    return msgspec.json.encode(from_seconds(int(now))).decode().strip('"')
