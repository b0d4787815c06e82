"""What a job does when it goes from one state to the next: the second half of a row in table.py."""

from maniple.api import types
from maniple.api.timestamps import from_seconds
from maniple.elastic import guards
from maniple.elastic.failures import Failure, backoff_s, has_failed
from maniple.elastic.step import Turn


def nothing(_turn: Turn) -> None:
    pass


def begin(turn: Turn) -> None:
    turn.say("Created", "the job has been accepted")


def run(turn: Turn) -> None:
    """The first generation, or the first after a restart."""
    turn.form(guards.ready_replicas(turn))
    if turn.status.start_time is None:
        turn.change(start_time=from_seconds(turn.now))
    turn.keep_size()
    _tell_size(turn, "Running", "runs")


def join(turn: Turn) -> None:
    newcomers = [turn.replicas[place] for place in turn.newcomers() if place in turn.replicas]
    ready = [one for one in newcomers if one.stage == "ready" and not one.is_leaving]
    turn.form([*turn.survivors(), *ready])
    _tell_size(turn, "Grown", "has grown to")


def shrink(turn: Turn) -> None:
    """The members that stay are a generation; those that go are told by not being in it."""
    if guards.must_shrink_more(turn):
        leaving = {one.uid for one in turn.beyond()}
        turn.form([one for one in turn.survivors() if one.uid not in leaving])
        _tell_size(turn, "Shrinking", "shrinks to")


def go_on_smaller(turn: Turn) -> None:
    lost = ", ".join(one.pod for one in turn.lost()[:5])
    turn.form(turn.survivors())
    turn.say("ReplicaLost", f"lost {lost}; goes on with {_size(turn)}", "Warning")


def give_back(turn: Turn) -> None:
    """Newcomers that do not start: their GPUs go back, and the size is what can be had. Others may have the GPUs for as
    long as these had them, before it is tried again."""
    stuck = guards.stuck_newcomers(turn)
    for one in stuck:
        why = one.trouble or "it is not ready"
        said = f"{turn.job.pod(one.place)} on {one.node} did not start within {turn.job.start_s:.0f} s: {why}"
        turn.say("StartTimeout", said, "Warning")
        turn.delete(one)
    sizes = turn.wanted
    members = turn.member_uids()
    for role in turn.job.roles:
        kept = [
            one.index + 1
            for one in turn.replicas.values()
            if one.role == role.name and not one.is_leaving and (one.uid in members or one.stage == "ready")
        ]
        sizes[role.name] = max(role.least, min(sizes[role.name], max(kept, default=0)))
    turn.set_target(sizes)
    turn.change(grow_after=from_seconds(turn.now + turn.job.start_s))


def fall_below(turn: Turn) -> None:
    lost = ", ".join(one.pod for one in turn.lost()[:5])
    turn.why = ("BelowMinimum", f"lost {lost}, and with it the minimum")
    turn.say("Restarting", f"lost {lost}: fewer than the minimum are left; starts over", "Warning")
    _restart(turn)
    turn.start_over()


def crash(turn: Turn) -> None:
    _count(turn, _failure(turn))
    _restart(turn)


def fail_as_a_gang(turn: Turn) -> None:
    _count(turn, _failure(turn))
    _restart(turn)
    turn.start_over()


def fail_above_minimum(turn: Turn) -> None:
    _count(turn, _failure(turn))
    turn.form(turn.survivors())
    _tell_size(turn, "Running", "goes on with")


def fail_beside_done(turn: Turn) -> None:
    stuck = [one for one in turn.replicas.values() if guards.is_stuck(turn, one)]
    _count(turn, _failure(turn))
    for one in stuck:
        turn.delete(one)


def give_up_in_place(turn: Turn) -> None:
    turn.start_over()


def go_on_in_place(turn: Turn) -> None:
    _note_failed(turn)
    turn.form(turn.survivors())
    _tell_size(turn, "Running", "goes on with")


def suspend(turn: Turn) -> None:
    turn.say("Suspended", "checkpoints, stops and gives its GPUs back")
    turn.start_over()
    failures = types.JobFailures(count=turn.status.failures.count)
    turn.change(start_time=None, failures=failures)


def resume(turn: Turn) -> None:
    turn.say("Resumed", "starts again")


def succeed(turn: Turn) -> None:
    said = f"{turn.job.pod(guards.speakers(turn)[0])}, the first of its replicas, has ended well"
    if turn.job.framework == "none":
        said = "all replicas of its first role have ended well"
    turn.why = ("JobSucceeded", said)
    _end(turn)
    turn.say("Succeeded", turn.why[1])


def fail(turn: Turn) -> None:
    found = _failure(turn)
    count, limit = turn.status.failures.count + 1, turn.job.backoff_limit
    if found.is_final:
        turn.why = (found.reason, f"{found.message}, and restartPolicy {turn.job.restart_policy} does not try again")
    else:
        turn.why = ("BackoffLimitExceeded", f"{found.message}: failure {count}, and backoffLimit is {limit}")
    failures = turn.status.failures
    turn.change(failures=types.JobFailures(count, turn.generation.number, failures.pods))
    _end(turn)
    turn.say("Failed", turn.why[1], "Warning")


def expire(turn: Turn) -> None:
    turn.why = ("DeadlineExceeded", f"it took longer than activeDeadlineSeconds ({turn.job.deadline_s:.0f})")
    _end(turn)
    turn.say("Failed", turn.why[1], "Warning")


def refuse(turn: Turn) -> None:
    turn.why = ("PodRefused", turn.refused)
    _end(turn)
    turn.say("Failed", f"the API server refuses its pods: {turn.refused}", "Warning")


# -- parts


def _failure(turn: Turn) -> Failure:
    found = guards.failure(turn)
    if found is None:
        raise AssertionError("a row about failures was taken without one")
    return found


def _count(turn: Turn, found: Failure) -> None:
    count = turn.status.failures.count + 1
    turn.change(
        failures=types.JobFailures(
            count=count, generation=turn.generation.number, retry_time=from_seconds(turn.now + backoff_s(count))
        )
    )
    _note_failed(turn)
    turn.crashed = None
    turn.why = (found.reason, found.message)
    again = f"failure {count} of at most {turn.job.backoff_limit}, tried again in {backoff_s(count):.0f} s"
    turn.say(found.reason, f"{found.message}; {again}", "Warning")


def _note_failed(turn: Turn) -> None:
    """All that has failed by now belongs to the failure that is counted."""
    pods = tuple(sorted(one.uid for one in turn.replicas.values() if has_failed(turn.job, one)))
    old = turn.status.failures
    turn.change(failures=types.JobFailures(old.count, old.generation, pods, old.retry_time))


def _restart(turn: Turn) -> None:
    turn.change(restarts=turn.status.restarts + 1)


def _end(turn: Turn) -> None:
    turn.change(completion_time=from_seconds(turn.now))


def _tell_size(turn: Turn, reason: str, verb: str) -> None:
    turn.say(reason, f"{verb} {_size(turn)}")


def _size(turn: Turn) -> str:
    """So `maniple describe` and `maniple watch` know of it."""
    return f"{len(turn.generation.members)} replicas in generation {turn.generation.number}"
