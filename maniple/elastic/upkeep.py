"""What is to be done in a state for as long as the job is in it: replicas made, replicas removed."""

from maniple.api.timestamps import to_seconds
from maniple.elastic.events import Replica
from maniple.elastic.failures import has_failed
from maniple.elastic.state import ACTIVE
from maniple.elastic.step import Turn

_AGENT_S = 5.0  # for the agent itself, after its workers


def keep_up(turn: Turn) -> bool:
    """Whether the job itself is to be deleted."""
    phase = turn.phase
    if phase in ("Succeeded", "Failed"):
        return _clean_up(turn)
    if phase == "Suspended" or (phase == "Restarting" and not turn.generation.members):
        for replica in list(turn.replicas.values()):
            _remove(turn, replica)
    elif phase != "Restarting":
        _drop_surplus(turn)
        _fill(turn)
    return False


def _drop_surplus(turn: Turn) -> None:
    members = turn.member_uids()
    for replica in turn.beyond():
        if turn.is_done(replica):
            continue  # it holds nothing, and its work would be done again if the job grew
        if replica.uid not in members or replica.has_ended:
            _remove(turn, replica)
    for replica in turn.premature():
        turn.delete(replica)


def _fill(turn: Turn) -> None:
    """All that are missing, at once. What has failed is in the way of its successor, and stays until that may come."""
    if turn.phase in ACTIVE and not (turn.newcomers() and turn.may_grow()):
        return
    if not turn.may_retry():
        return
    for place in turn.wanted_places():
        replica = turn.replicas.get(place)
        if replica is None:
            turn.create(place)
        elif _is_in_the_way(turn, replica):
            turn.delete(replica)


def _is_in_the_way(turn: Turn, replica: Replica) -> bool:
    """Whether it has ended, and another is to come."""
    counted = turn.status.failures.pods
    if replica.stage == "succeeded":
        return replica.uid in counted  # restartPolicy: Always
    return replica.stage == "failed" and (replica.uid in counted or not has_failed(turn.job, replica))


def _remove(turn: Turn, replica: Replica) -> None:
    """At once if it does nothing; else when it has acknowledged, or has had its time."""
    if not replica.is_at_work:
        turn.delete(replica)
        return
    told = turn.generation.time
    if turn.job.has_agents and told is not None and replica.stopped < turn.generation.number:
        is_over = turn.is_past(to_seconds(told) + turn.job.grace_s, turn.job.grace_s)
        if not is_over:
            return
    turn.delete(replica, turn.job.grace_s)


def _clean_up(turn: Turn) -> bool:
    ended = turn.status.completion_time
    policy = turn.job.clean
    for replica in list(turn.replicas.values()):
        if replica.stage == "pending":
            turn.delete(replica)  # it would take room that nobody needs any more
            continue
        if policy == "None" or (policy == "Running" and replica.has_ended):
            continue
        time_s = _time_to_end(turn, replica)
        if ended is None or turn.is_past(to_seconds(ended) + time_s, time_s):
            turn.delete(replica, turn.job.grace_s if replica.stage == "ready" else None)
    ttl_s = turn.job.ttl_s
    return ttl_s is not None and ended is not None and turn.is_past(to_seconds(ended) + ttl_s)


def _time_to_end(turn: Turn, replica: Replica) -> float:
    """Whoever still runs when the job has succeeded is ending by itself, and may. Agents of a job that has failed are
    told to: a pod that has ended stays, and with it the log that says why."""
    if replica.has_ended:
        return 0.0
    if turn.phase == "Succeeded":
        return turn.job.grace_s
    may_stay = turn.job.has_agents and turn.job.clean == "Running" and replica.stage == "ready"
    return turn.job.grace_s + _AGENT_S if may_stay else 0.0
