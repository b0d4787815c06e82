"""The effects of transitions.py: what a job does when it goes from one phase to the next."""

from maniple.api import types
from maniple.api.timestamps import from_seconds
from maniple.elastic import transition_guards as guards
from maniple.elastic.failures import Failure, backoff_s, has_failed, start_timeout
from maniple.elastic.machine_step import Step
from maniple.elastic.target_sizes import as_target


def begin(step: Step) -> None:
    step.record("Created", "the job has been accepted")


def run(step: Step) -> None:
    """Forms the first generation, or the first after a restart."""
    step.form_generation(guards.ready_replicas(step))
    if step.status.start_time is None:
        step.change(start_time=from_seconds(step.now))
    # The size that the job runs at is its target until another is decided. This is no resize.
    step.change(target=as_target(step.sizes))
    _record_size(step, "Running", "runs")


def join(step: Step) -> None:
    newcomers = [step.replicas[key] for key in step.newcomer_keys() if key in step.replicas]
    ready = [replica for replica in newcomers if replica.stage == "ready" and not replica.is_leaving]
    step.form_generation([*step.survivors(), *ready])
    _record_size(step, "Grown", "has grown to")


def shrink(step: Step) -> None:
    """Forms a generation of the members that stay. The others learn that they leave by not being in it."""
    if guards.must_shrink_more(step):
        leaving = {replica.uid for replica in step.surplus()}
        step.form_generation([replica for replica in step.survivors() if replica.uid not in leaving])
        _record_size(step, "Shrinking", "shrinks to")


def go_on_smaller(step: Step) -> None:
    lost = _lost_pods(step)
    step.form_generation(step.survivors())
    step.record("ReplicaLost", f"lost {lost}; goes on with {_size(step)}", "Warning")


def give_back(step: Step) -> None:
    """Deletes newcomers that do not start, and makes the size what the job has.

    Other jobs may use their GPUs for as long as these did, before the job grows again.
    """
    for replica in guards.stuck_newcomers(step):
        step.record("StartTimeout", start_timeout(step.job, replica), "Warning")
        step.delete(replica)
    sizes = step.sizes
    members = step.member_uids()
    for role in step.job.roles:
        kept = [
            replica.index + 1
            for replica in step.replicas.values()
            if replica.role == role.name
            and not replica.is_leaving
            and (replica.uid in members or replica.stage == "ready")
        ]
        sizes[role.name] = max(role.least, min(sizes[role.name], max(kept, default=0)))
    step.set_target(sizes)
    step.change(grow_after=from_seconds(step.now + step.job.spec.start_seconds))


def fall_below(step: Step) -> None:
    lost = _lost_pods(step)
    step.why = ("BelowMinimum", f"lost {lost}, and with it the minimum")
    step.record("Restarting", f"lost {lost}: fewer than the minimum are left; starts over", "Warning")
    _count_restart(step)
    step.start_over()


def crash(step: Step) -> None:
    _count_failure(step)
    _count_restart(step)


def fail_as_a_gang(step: Step) -> None:
    crash(step)
    step.start_over()


def fail_above_minimum(step: Step) -> None:
    _count_failure(step)
    _go_on(step)


def fail_beside_done(step: Step) -> None:
    stuck = [replica for replica in step.replicas.values() if guards.is_stuck(step, replica)]
    _count_failure(step)
    for replica in stuck:
        step.delete(replica)


def go_on_in_place(step: Step) -> None:
    _note_failed_pods(step)
    _go_on(step)


def suspend(step: Step) -> None:
    step.record("Suspended", "checkpoints, stops and gives its GPUs back")
    step.start_over()
    step.change(start_time=None, failures=types.JobFailures(count=step.status.failures.count))


def resume(step: Step) -> None:
    step.record("Resumed", "starts again")


def succeed(step: Step) -> None:
    message = "all replicas of its first role have ended well"
    if step.job.spec.framework != "none":
        message = f"{step.job.pod(guards.deciding_keys(step)[0])}, the first of its replicas, has ended well"
    step.why = ("JobSucceeded", message)
    _end(step, "Succeeded", message)


def fail(step: Step) -> None:
    failure = _failure(step)
    count, limit = step.status.failures.count + 1, step.job.spec.backoff_limit
    if failure.is_final:
        policy = step.job.spec.restart_policy
        step.why = (failure.reason, f"{failure.message}, and restartPolicy {policy} does not try again")
    else:
        step.why = ("BackoffLimitExceeded", f"{failure.message}: failure {count}, and backoffLimit is {limit}")
    step.change(failures=types.JobFailures(count, step.generation.number, step.status.failures.pods))
    _end(step, "Failed", step.why[1])


def expire(step: Step) -> None:
    step.why = (
        "DeadlineExceeded",
        f"it took longer than activeDeadlineSeconds ({step.job.spec.active_deadline_seconds})",
    )
    _end(step, "Failed", step.why[1])


def refuse(step: Step) -> None:
    step.why = ("PodRefused", step.refused)
    _end(step, "Failed", f"the API server refuses its pods: {step.refused}")


# -- parts


def _failure(step: Step) -> Failure:
    failure = guards.failure(step)
    if failure is None:
        raise AssertionError("a transition for failures was taken without one")
    return failure


def _count_failure(step: Step) -> None:
    failure = _failure(step)
    count = step.status.failures.count + 1
    pause_s = backoff_s(count)
    step.change(
        failures=types.JobFailures(
            count=count, generation=step.generation.number, retry_time=from_seconds(step.now + pause_s)
        )
    )
    _note_failed_pods(step)
    step.worker_failure = None
    step.why = (failure.reason, failure.message)
    again = f"failure {count} of at most {step.job.spec.backoff_limit}, tried again in {pause_s:.0f} s"
    step.record(failure.reason, f"{failure.message}; {again}", "Warning")


def _note_failed_pods(step: Step) -> None:
    """All pods that have failed by now belong to the failure that is counted."""
    pods = tuple(sorted(replica.uid for replica in step.replicas.values() if has_failed(step.job, replica)))
    old = step.status.failures
    step.change(failures=types.JobFailures(old.count, old.generation, pods, old.retry_time))


def _count_restart(step: Step) -> None:
    step.change(restarts=step.status.restarts + 1)


def _end(step: Step, reason: str, message: str) -> None:
    step.change(completion_time=from_seconds(step.now))
    step.record(reason, message, "Warning" if reason == "Failed" else "Normal")


def _lost_pods(step: Step) -> str:
    return ", ".join(member.pod for member in step.lost_members()[:5])


def _go_on(step: Step) -> None:
    step.form_generation(step.survivors())
    _record_size(step, "Running", "goes on with")


def _record_size(step: Step, reason: str, verb: str) -> None:
    step.record(reason, f"{verb} {_size(step)}")


def _size(step: Step) -> str:
    """In the words that `maniple describe` and `maniple watch` look for."""
    return f"{len(step.generation.members)} replicas in generation {step.generation.number}"
