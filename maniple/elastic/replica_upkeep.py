"""What a job does for as long as it is in a phase: creating and deleting replicas."""

from maniple.api.phases import FINISHED
from maniple.api.timestamps import to_seconds
from maniple.elastic.events import Replica
from maniple.elastic.failures import has_failed
from maniple.elastic.machine_step import Step
from maniple.elastic.state import ACTIVE

_AGENT_S = 5.0  # for the agent itself to end, after its workers


def keep_up(step: Step) -> bool:
    """Returns whether the job itself is to be deleted."""
    if step.phase in FINISHED:
        return _clean_up(step)
    if step.phase == "Suspended" or (step.phase == "Restarting" and not step.generation.members):
        for replica in list(step.replicas.values()):
            _remove(step, replica)
    elif step.phase != "Restarting":
        _remove_surplus(step)
        _create_missing(step)
    return False


def _remove_surplus(step: Step) -> None:
    members = step.member_uids()
    for replica in step.surplus():
        if step.is_done(replica):
            continue  # it holds nothing, and its work would be repeated if the job grew again
        if replica.uid not in members or replica.has_ended:
            _remove(step, replica)
    for replica in step.premature():
        step.delete(replica)


def _create_missing(step: Step) -> None:
    """All at once. A failed replica has the name of its successor, and stays until that may be created."""
    if step.phase in ACTIVE and not (step.newcomer_keys() and step.may_grow_or_arm()):
        return
    if not step.may_retry_or_arm():
        return
    for key in step.wanted_keys():
        replica = step.replicas.get(key)
        if replica is None:
            step.create(key)
        elif _is_in_the_way(step, replica):
            step.delete(replica)


def _is_in_the_way(step: Step, replica: Replica) -> bool:
    """Whether it has ended and is to be replaced."""
    counted = step.status.failures.pods
    if replica.stage == "succeeded":
        return replica.uid in counted  # restartPolicy: Always
    return replica.stage == "failed" and (replica.uid in counted or not has_failed(step.job, replica))


def _remove(step: Step, replica: Replica) -> None:
    """At once if no worker runs in it, otherwise when its workers have stopped or its grace period is over."""
    if not replica.is_at_work:
        step.delete(replica)
        return
    grace_s, since = step.job.spec.elastic.grace_seconds, step.generation.time
    must_wait = step.job.has_agents and since is not None and replica.stopped_generation < step.generation.number
    if not must_wait or step.is_due_or_arm(to_seconds(since) + grace_s, grace_s):
        step.delete(replica, grace_s)


def _clean_up(step: Step) -> bool:
    ended = step.status.completion_time
    policy = step.job.spec.clean_pod_policy
    for replica in list(step.replicas.values()):
        if replica.stage == "pending":
            step.delete(replica)  # it must not take resources any more
            continue
        if policy == "None" or (policy == "Running" and replica.has_ended):
            continue
        time_s = _time_to_end_s(step, replica)
        if ended is None or step.is_due_or_arm(to_seconds(ended) + time_s, time_s):
            step.delete(replica, step.job.spec.elastic.grace_seconds if replica.stage == "ready" else None)
    ttl_s = step.job.spec.ttl_seconds_after_finished
    return ttl_s is not None and ended is not None and step.is_due_or_arm(to_seconds(ended) + ttl_s)


def _time_to_end_s(step: Step, replica: Replica) -> float:
    """Replicas of a job that has succeeded end by themselves. Agents of a job that has failed are told to end: the pod
    stays then, and with it the log that says why."""
    if replica.has_ended:
        return 0.0
    if step.phase == "Succeeded":
        return step.job.spec.elastic.grace_seconds
    may_stay = step.job.has_agents and step.job.spec.clean_pod_policy == "Running" and replica.stage == "ready"
    return step.job.spec.elastic.grace_seconds + _AGENT_S if may_stay else 0.0
