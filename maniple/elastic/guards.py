"""When a job goes from one state to the next: the questions in table.py."""

from maniple.api.timestamps import to_seconds
from maniple.elastic import failures
from maniple.elastic.events import Replica
from maniple.elastic.failures import SETTLE_S, Failure
from maniple.elastic.job import Place
from maniple.elastic.step import Turn

GATHER_S = 10.0  # so long those who are ready wait for others that have no node yet


def always(_turn: Turn) -> bool:
    return True


def is_late(turn: Turn) -> bool:
    start, limit = turn.status.start_time, turn.job.deadline_s
    return start is not None and limit is not None and turn.is_past(to_seconds(start) + limit)


def is_refused(turn: Turn) -> bool:
    return bool(turn.refused)


def is_done(turn: Turn) -> bool:
    """Those who speak for the job have ended well."""
    if turn.job.restart_policy == "Always" or (turn.phase == "Restarting" and turn.generation.stop):
        return False
    places = speakers(turn)
    return bool(places) and all(_ended_well(turn.replicas.get(place)) for place in places)


def speakers(turn: Turn) -> list[Place]:
    """The first of the generation speaks for all; without a framework each replica of the first role for itself."""
    if turn.job.framework == "none":
        return [(turn.job.lead, index) for index in range(turn.wanted[turn.job.lead])]
    return [(one.role, one.index) for one in turn.generation.members[:1]] or [turn.job.first]


def _ended_well(replica: Replica | None) -> bool:
    return replica is not None and not replica.is_leaving and (replica.stage == "succeeded" or replica.is_done)


def is_suspended(turn: Turn) -> bool:
    return turn.job.is_suspended


def has_no_generation(turn: Turn) -> bool:
    """It is said to run, and nobody does: those who did are lost, or somebody else has written its phase."""
    return not turn.generation.members


def may_resume(turn: Turn) -> bool:
    return not turn.job.is_suspended and not turn.replicas


# -- failures


def failure(turn: Turn) -> Failure | None:
    """What has failed and is not counted yet, once all that failed with it can be known."""
    wanted, members, counted = turn.wanted, turn.member_uids(), turn.status.failures.pods
    failed = [one for one in turn.replicas.values() if failures.has_failed(turn.job, one) and one.uid not in counted]
    pods = [one for one in failed if one.uid in members or one.index < wanted.get(one.role, 0)]
    if pods:
        first = min(pods, key=lambda one: (one.failed_at, one.place))
        return failures.of_pod(turn.job, first) if turn.is_past(first.failed_at + SETTLE_S, SETTLE_S) else None
    crashed = turn.crashed
    if crashed is not None and crashed.generation == turn.generation.number and not turn.generation.stop:
        return (
            failures.of_worker(turn.job, crashed.pod, crashed.exit)
            if turn.is_past(crashed.at + SETTLE_S, SETTLE_S)
            else None
        )
    # Once the minimum is ready the job is about to run, and who is stuck above it gives back when it does.
    if turn.phase in ("Pending", "Starting") and not turn.is_complete(ready_replicas(turn)):
        stuck = [one for one in turn.replicas.values() if is_stuck(turn, one)]
        return failures.of_start(turn.job, min(stuck, key=lambda one: one.place)) if stuck else None
    return None


def awaits_judgement(turn: Turn) -> bool:
    """Whether a member has failed, and it is not known yet what with it: no generation is made before that."""
    if turn.crashed is not None and turn.crashed.generation == turn.generation.number:
        return True
    members, counted = turn.member_uids(), turn.status.failures.pods
    failed = (one for one in turn.replicas.values() if one.uid in members and one.uid not in counted)
    return any(failures.has_failed(turn.job, one) for one in failed)


def is_stuck(turn: Turn, replica: Replica) -> bool:
    is_starting = replica.stage == "starting" and not replica.is_leaving
    return is_starting and turn.is_past(replica.bound_at + turn.job.start_s)


def has_failed_for_good(turn: Turn) -> bool:
    found = failure(turn)
    return found is not None and (found.is_final or turn.status.failures.count >= turn.job.backoff_limit)


def has_crashed(turn: Turn) -> bool:
    """Workers have, while all pods are there."""
    found = failure(turn)
    return found is not None and found.in_place and turn.is_enough(turn.survivors())


def has_failed_above_minimum(turn: Turn) -> bool:
    found = failure(turn)
    return found is not None and not found.in_place and turn.is_enough(turn.survivors())


def has_failed_beside_done(turn: Turn) -> bool:
    """Of a sweep: what the others have done is not done again."""
    return failure(turn) is not None and turn.is_enough(())


def has_failed(turn: Turn) -> bool:
    return failure(turn) is not None


# -- losses


def has_lost_too_many(turn: Turn) -> bool:
    return bool(turn.lost()) and not turn.is_enough(turn.survivors())


def has_lost_some(turn: Turn) -> bool:
    return bool(turn.lost()) and turn.is_enough(turn.survivors())


# -- starting


def is_bound(turn: Turn) -> bool:
    return turn.is_complete(one for one in _wanted(turn) if one.is_bound)


def is_unbound(turn: Turn) -> bool:
    return not is_bound(turn)


def is_ready(turn: Turn) -> bool:
    """The minimum is ready, and so are those that started with it, or they take too long."""
    replicas, ready = _wanted(turn), ready_replicas(turn)
    if not turn.is_complete(ready):
        return False
    is_whole = all(one.stage == "ready" for one in replicas if one.is_bound and not one.has_ended)
    return is_whole or turn.is_past(max(one.ready_at for one in ready) + GATHER_S, GATHER_S)


def ready_replicas(turn: Turn) -> list[Replica]:
    return [one for one in _wanted(turn) if one.stage == "ready"]


def _wanted(turn: Turn) -> list[Replica]:
    found = (turn.replicas.get(place) for place in turn.wanted_places())
    return [one for one in found if one is not None and not one.is_leaving]


# -- sizes


def has_surplus(turn: Turn) -> bool:
    """There are replicas beyond the size that have been started."""
    members = turn.member_uids()
    return any(one.uid in members or one.is_at_work for one in turn.beyond() if not one.has_ended)


def must_shrink_more(turn: Turn) -> bool:
    if awaits_judgement(turn):
        return False
    members = turn.member_uids()
    return any(one.uid in members for one in turn.beyond() if one.is_alive)


def has_shrunk(turn: Turn) -> bool:
    return not has_surplus(turn)


def must_grow(turn: Turn) -> bool:
    return bool(turn.newcomers()) and turn.may_grow()


def has_grown(turn: Turn) -> bool:
    return not turn.newcomers()


def has_stuck_newcomers(turn: Turn) -> bool:
    return bool(stuck_newcomers(turn))


def stuck_newcomers(turn: Turn) -> list[Replica]:
    found = (turn.replicas.get(place) for place in turn.newcomers())
    return [one for one in found if one is not None and is_stuck(turn, one)]


def may_join(turn: Turn) -> bool:
    """Newcomers are ready, and nobody is left who soon will be: one standstill for all of them."""
    newcomers = [turn.replicas.get(place) for place in turn.newcomers()]
    ready = [one for one in newcomers if one is not None and one.stage == "ready" and not one.is_leaving]
    if not ready or awaits_judgement(turn):
        return False
    if any(one is not None and one.stage == "starting" and not one.is_leaving for one in newcomers):
        return False
    return len(ready) == len(newcomers) or turn.is_past(max(one.ready_at for one in ready) + GATHER_S, GATHER_S)


# -- restarting


def is_gang_restart(turn: Turn) -> bool:
    return not turn.generation.members


def may_start_over(turn: Turn) -> bool:
    return is_gang_restart(turn) and not turn.replicas and turn.may_retry()


def may_go_on_in_place(turn: Turn) -> bool:
    if is_gang_restart(turn) or not turn.may_retry():
        return False
    return turn.is_enough(turn.survivors())


def cannot_go_on_in_place(turn: Turn) -> bool:
    return not is_gang_restart(turn) and not turn.is_enough(turn.survivors())
