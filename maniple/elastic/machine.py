"""`advance(state, events, now)`: the state after some events, and the instructions that follow."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from maniple.api import types
from maniple.api.keys import join_key
from maniple.api.phases import FINISHED
from maniple.api.timestamps import from_seconds
from maniple.elastic.events import (
    Acknowledged,
    CreateRefused,
    Event,
    Hindered,
    JobSeen,
    Replica,
    ReplicaGone,
    ReplicaSeen,
    Reported,
)
from maniple.elastic.instructions import Arm, DeleteJob, Instruction, Publish, WriteStatus
from maniple.elastic.job_spec import read_job_spec
from maniple.elastic.machine_step import Step
from maniple.elastic.measured_speeds import measured
from maniple.elastic.replica_upkeep import keep_up
from maniple.elastic.state import ACTIVE, WAITING, State, WorkerFailure, restore, with_decisions
from maniple.elastic.transitions import TRANSITIONS

__all__ = ["advance", "restore"]

# How long a change that only people read may wait to be written together with another.
LAG_S = 1.0
PROGRESS_S = 30.0  # for progress, which changes all the time


def advance(state: State, events: Iterable[Event], now: float) -> tuple[State, tuple[Instruction, ...]]:
    """One decision for all events. Events say how things are, so what was in between adds nothing."""
    for event in events:
        state = _apply(state, event, now)
    if state.is_gone or state.job.is_leaving:
        return state, ()  # the job owns its pods: they are deleted with it
    step = Step(state, now)
    if state.status.generation.number > state.published and state.status.phase not in FINISHED:
        return _finish(state, step, must_delete_job=False)  # after `restore`: no generation is skipped
    _bound_target(step)
    _take_transitions(step)
    must_delete_job = keep_up(step)
    _measure_speed(step)
    return _finish(state, step, must_delete_job)


def _apply(state: State, event: Event, now: float) -> State:
    """The state with what the event says. Nothing is decided yet."""
    match event:
        case JobSeen(item):
            status, written = with_decisions(state.status, item), with_decisions(state.written, item)
            # If somebody else has written a phase, ours is written again.
            written = msgspec.structs.replace(written, phase=item.status.phase)
            return replace(state, job=read_job_spec(item), status=status, written=written)
        case ReplicaSeen(replica):
            return _see(state, replica, now) if replica.role in {role.name for role in state.job.roles} else state
        case ReplicaGone(role, index, uid):
            known = state.replicas.get((role, index))
            if known is None or known.uid != uid:
                return state
            return replace(
                state, replicas={key: other for key, other in state.replicas.items() if key != (role, index)}
            )
        case CreateRefused():
            return replace(state, refused=event.message)
        case Hindered(reason, message):
            return replace(state, hindrance=(reason, message))
        case Acknowledged():
            return _acknowledge(state, event, now)
        case Reported():
            return _take_report(state, event)
    return state


def _take_report(state: State, report: Reported) -> State:
    if report.generation != state.status.generation.number or state.status.phase in FINISHED:
        return state
    progress = types.JobProgress(report.step, report.total, report.throughput, from_seconds(report.at))
    state = replace(state, status=msgspec.structs.replace(state.status, progress=progress))
    if report.throughput is None:
        return state
    return replace(state, samples=state.samples.add(report.generation, report.throughput))


def _see(state: State, new: Replica, now: float) -> State:
    old = state.replicas.get(new.key)
    if old is not None and old.uid == new.uid:
        # Events may overtake each other. A replica that has ended or is being deleted stays so.
        if old.has_ended and not new.has_ended:
            new = replace(old, is_leaving=old.is_leaving or new.is_leaving)
        new = replace(
            new,
            is_leaving=old.is_leaving or new.is_leaving,
            failed_at=old.failed_at,
            stopped_generation=old.stopped_generation,
            is_done=old.is_done,
        )
    if new.has_ended and not new.failed_at:
        new = replace(new, failed_at=now)
    return replace(state, replicas={**state.replicas, new.key: new})


def _acknowledge(state: State, ack: Acknowledged, now: float) -> State:
    replica = state.replicas.get((ack.role, ack.index))
    if replica is None or replica.uid != ack.uid:
        return state
    if ack.state == "failed":
        current = state.status.generation
        is_member = any(member.uid == ack.uid for member in current.members)
        if state.worker_failure is not None or not is_member or ack.generation != current.number:
            return state
        if state.status.failures.generation == current.number or state.status.phase not in ACTIVE:
            return state  # it is counted already
        failure = WorkerFailure(state.job.pod(replica.key), ack.generation, ack.exit, now)
        return replace(state, worker_failure=failure)
    if ack.state == "stopped":
        replica = replace(replica, stopped_generation=max(replica.stopped_generation, ack.generation))
    elif ack.state == "done":
        replica = replace(replica, is_done=True)
    return replace(state, replicas={**state.replicas, replica.key: replica})


def _bound_target(step: Step) -> None:
    """Brings a target within its bounds at once. They may have been changed, or the job pinned."""
    if not step.status.target or step.phase in FINISHED:
        return
    sizes = step.sizes
    if any(sizes.get(target.role, target.replicas) != target.replicas for target in step.status.target):
        step.set_target(sizes)


def _take_transitions(step: Step) -> None:
    for _ in range(2 * len(TRANSITIONS)):
        transition = next((each for each in TRANSITIONS if step.phase in each.sources and each.guard(step)), None)
        if transition is None:
            return
        transition.effect(step)
        step.enter(transition.target)
        step.taken.append(transition.name)
        if step.has_new_generation:
            return  # it must be written before there can be another
    name = join_key((step.job.namespace, step.job.name))
    raise AssertionError(f"the transitions of ElasticJob {name} do not end: {step.taken}")


def _measure_speed(step: Step) -> None:
    if step.phase in ACTIVE and step.samples.generation == step.generation.number:
        speeds = measured(step.status.speeds, step.samples, len(step.generation.members))
        if speeds != step.status.speeds:
            step.change(speeds=speeds)


def _finish(state: State, step: Step, must_delete_job: bool) -> tuple[State, tuple[Instruction, ...]]:
    step.set_conditions(f"Job{step.phase}", "")
    step.set_hindrance(state.hindrance)
    status = msgspec.structs.replace(step.status, replicas=_counts(step))
    written, lags_since = state.written, state.lags_since
    instructions: list[Instruction] = []
    if status != written:
        lags_since, lag_s = lags_since or step.now, _lag_s(status, written)
        if not lag_s or step.is_due_or_arm(lags_since + lag_s, lag_s):
            instructions.append(WriteStatus(status))
            written = status
    if status == written:
        lags_since = 0.0
    published = state.published
    if step.phase not in FINISHED and status.generation.number > published:
        instructions.append(Publish(status.generation))
        published = status.generation.number
    instructions += [*step.deletes, *step.creates, *step.records]
    if must_delete_job:
        instructions.append(DeleteJob())
    elif not instructions and step.has_new_generation:
        raise AssertionError("a new generation is always written")
    if step.timer is not None:
        instructions.append(Arm(step.timer))
    after = replace(
        state,
        status=status,
        written=written,
        replicas=step.replicas,
        published=published,
        worker_failure=step.worker_failure,
        lags_since=lags_since,
        is_gone=must_delete_job,
        taken=tuple(step.taken),
    )
    return after, tuple(instructions)


def _lag_s(status: types.ElasticJobStatus, written: types.ElasticJobStatus) -> float:
    """How long `status` may wait to be written.

    Nothing depends on progress, on the counts of replicas, or on how far a start has come.
    """
    has_progress = written.progress.time is not None
    written = msgspec.structs.replace(written, progress=status.progress)
    if written == status:
        return PROGRESS_S if has_progress else LAG_S
    if status.phase in WAITING and written.phase in ("", *WAITING):
        written = msgspec.structs.replace(written, phase=status.phase, conditions=status.conditions)
    return LAG_S if msgspec.structs.replace(written, replicas=status.replicas) == status else 0.0


def _counts(step: Step) -> types.ReplicaCounts:
    stages = [replica.stage for replica in step.replicas.values() if not replica.is_leaving or replica.stage == "ready"]
    return types.ReplicaCounts(
        pending=stages.count("pending"),
        starting=stages.count("starting"),
        running=stages.count("ready"),
        succeeded=stages.count("succeeded"),
        failed=stages.count("failed"),
    )
