"""The guards of transitions.py: when a job goes from one phase to the next.

A guard that depends on a time that has not come arms the step's timer (`is_due_or_arm`), so that it is asked again.
"""

from maniple.api.timestamps import to_seconds
from maniple.elastic import failures
from maniple.elastic.events import Replica
from maniple.elastic.failures import SETTLE_S, Failure
from maniple.elastic.job_spec import ReplicaKey
from maniple.elastic.machine_step import Step

GATHER_S = 10.0  # ready replicas wait this long for others that have no node yet


def is_late(step: Step) -> bool:
    start, limit = step.status.start_time, step.job.spec.active_deadline_seconds
    return start is not None and limit is not None and step.is_due_or_arm(to_seconds(start) + limit)


def is_refused(step: Step) -> bool:
    return bool(step.refused)


def is_done(step: Step) -> bool:
    """The replicas that decide on success have succeeded."""
    if step.job.spec.restart_policy == "Always" or (step.phase == "Restarting" and step.generation.stop):
        return False
    keys = deciding_keys(step)
    return bool(keys) and all(_has_succeeded(step.replicas.get(key)) for key in keys)


def deciding_keys(step: Step) -> list[ReplicaKey]:
    """The first member decides for all. Without a framework all replicas of the lead role do."""
    if step.job.spec.framework == "none":
        return [(step.job.spec.lead, index) for index in range(step.sizes[step.job.spec.lead])]
    return [(member.role, member.index) for member in step.generation.members[:1]] or [step.job.first]


def _has_succeeded(replica: Replica | None) -> bool:
    return replica is not None and not replica.is_leaving and (replica.stage == "succeeded" or replica.is_done)


def is_suspended(step: Step) -> bool:
    return step.job.spec.suspend


def has_no_generation(step: Step) -> bool:
    """Its phase says that it runs, but no member is left. Or somebody else has written the phase."""
    return not step.generation.members


def may_resume(step: Step) -> bool:
    return not step.job.spec.suspend and not step.replicas


# -- failures


def failure(step: Step) -> Failure | None:
    """A failure that is not counted yet, once everything that failed with it is known."""
    sizes, members, counted = step.sizes, step.member_uids(), step.status.failures.pods
    failed = [
        replica
        for replica in step.replicas.values()
        if failures.has_failed(step.job, replica)
        and replica.uid not in counted
        and (replica.uid in members or replica.index < sizes.get(replica.role, 0))
    ]
    if failed:
        first = min(failed, key=lambda replica: (replica.failed_at, replica.key))
        return failures.of_pod(step.job, first) if step.is_due_or_arm(first.failed_at + SETTLE_S, SETTLE_S) else None
    worker = step.worker_failure
    if worker is not None and worker.generation == step.generation.number and not step.generation.stop:
        if not step.is_due_or_arm(worker.at + SETTLE_S, SETTLE_S):
            return None
        return failures.of_worker(step.job, worker.pod, worker.exit)
    # Once the minimum is ready the job is about to run. Stuck replicas above it are given back then.
    if step.phase in ("Pending", "Starting") and not step.is_complete(ready_replicas(step)):
        stuck = [replica for replica in step.replicas.values() if is_stuck(step, replica)]
        return failures.of_start(step.job, min(stuck, key=lambda replica: replica.key)) if stuck else None
    return None


def has_open_failure(step: Step) -> bool:
    """Whether a member has failed and it is not known yet what failed with it: no generation is formed before that."""
    if step.worker_failure is not None and step.worker_failure.generation == step.generation.number:
        return True
    members, counted = step.member_uids(), step.status.failures.pods
    return any(
        replica.uid in members and replica.uid not in counted and failures.has_failed(step.job, replica)
        for replica in step.replicas.values()
    )


def is_stuck(step: Step, replica: Replica) -> bool:
    is_starting = replica.stage == "starting" and not replica.is_leaving
    return is_starting and step.is_due_or_arm(replica.bound_at + step.job.spec.start_seconds)


def has_failed_for_good(step: Step) -> bool:
    new = failure(step)
    return new is not None and (new.is_final or step.status.failures.count >= step.job.spec.backoff_limit)


def has_crashed(step: Step) -> bool:
    """Workers have failed, and all pods are there."""
    new = failure(step)
    return new is not None and new.in_place and step.is_enough(step.survivors())


def has_failed_above_minimum(step: Step) -> bool:
    new = failure(step)
    return new is not None and not new.in_place and step.is_enough(step.survivors())


def has_failed_beside_done(step: Step) -> bool:
    """In a sweep, replicas that have succeeded are not run again."""
    return failure(step) is not None and step.is_enough(())


def has_failed(step: Step) -> bool:
    return failure(step) is not None


# -- losses


def has_lost_too_many(step: Step) -> bool:
    return bool(step.lost_members()) and not step.is_enough(step.survivors())


def has_lost_some(step: Step) -> bool:
    return bool(step.lost_members()) and step.is_enough(step.survivors())


# -- starting


def is_bound(step: Step) -> bool:
    return step.is_complete(replica for replica in _wanted_replicas(step) if replica.is_bound)


def is_ready(step: Step) -> bool:
    """The minimum is ready, and so are the replicas that were bound with it, unless they take too long."""
    ready = ready_replicas(step)
    if not step.is_complete(ready):
        return False
    started = (replica for replica in _wanted_replicas(step) if replica.is_bound and not replica.has_ended)
    if all(replica.stage == "ready" for replica in started):
        return True
    return step.is_due_or_arm(max(replica.ready_at for replica in ready) + GATHER_S, GATHER_S)


def ready_replicas(step: Step) -> list[Replica]:
    return [replica for replica in _wanted_replicas(step) if replica.stage == "ready"]


def _wanted_replicas(step: Step) -> list[Replica]:
    replicas = (step.replicas.get(key) for key in step.wanted_keys())
    return [replica for replica in replicas if replica is not None and not replica.is_leaving]


# -- sizes


def has_surplus(step: Step) -> bool:
    """Replicas above the size have been started."""
    members = step.member_uids()
    return any(replica.uid in members or replica.is_at_work for replica in step.surplus() if not replica.has_ended)


def must_shrink_more(step: Step) -> bool:
    if has_open_failure(step):
        return False
    members = step.member_uids()
    return any(replica.uid in members for replica in step.surplus() if replica.is_alive)


def has_newcomers(step: Step) -> bool:
    return bool(step.newcomer_keys())


def must_grow(step: Step) -> bool:
    return has_newcomers(step) and step.may_grow_or_arm()


def has_stuck_newcomers(step: Step) -> bool:
    return bool(stuck_newcomers(step))


def stuck_newcomers(step: Step) -> list[Replica]:
    newcomers = (step.replicas.get(key) for key in step.newcomer_keys())
    return [replica for replica in newcomers if replica is not None and is_stuck(step, replica)]


def may_join(step: Step) -> bool:
    """Newcomers are ready, and no other soon will be: the job stands still once for all of them."""
    newcomers = [step.replicas.get(key) for key in step.newcomer_keys()]
    alive = [replica for replica in newcomers if replica is not None and not replica.is_leaving]
    ready = [replica for replica in alive if replica.stage == "ready"]
    if not ready or has_open_failure(step) or any(replica.stage == "starting" for replica in alive):
        return False
    if len(ready) == len(newcomers):
        return True
    return step.is_due_or_arm(max(replica.ready_at for replica in ready) + GATHER_S, GATHER_S)


# -- restarting


def may_start_over(step: Step) -> bool:
    return has_no_generation(step) and not step.replicas and step.may_retry_or_arm()


def may_go_on_in_place(step: Step) -> bool:
    if has_no_generation(step) or not step.may_retry_or_arm():
        return False
    return step.is_enough(step.survivors())


def cannot_go_on_in_place(step: Step) -> bool:
    return not has_no_generation(step) and not step.is_enough(step.survivors())
