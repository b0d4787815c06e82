"""`step(state, event, now)`: the state after an event, and what is to be done. `restore` is in state.py."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from maniple.api import types
from maniple.api.timestamps import from_seconds
from maniple.elastic.events import (
    Acknowledged,
    CreateRefused,
    Event,
    Hindered,
    JobGone,
    JobSeen,
    ReplicaGone,
    ReplicaSeen,
    Reported,
)
from maniple.elastic.instructions import Arm, DeleteJob, Instruction, Publish, WriteStatus
from maniple.elastic.job import read_job
from maniple.elastic.speeds import measured
from maniple.elastic.state import ACTIVE, OVER, WAITING, State, WorkerFailure, restore, take_others
from maniple.elastic.step import Turn
from maniple.elastic.transitions import TABLE
from maniple.elastic.upkeep import keep_up

__all__ = ["restore", "step", "step_all"]

# How long what is only for people to read may wait for something to be written with it.
LAG_S = 1.0
PROGRESS_S = 30.0  # how far the job is, which changes all the time


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Instruction, ...]]:
    return step_all(state, (event,), now)


def step_all(state: State, events: Iterable[Event], now: float) -> tuple[State, tuple[Instruction, ...]]:
    """Several events, and one decision. Events say how things are: what was in between adds nothing."""
    for event in events:
        state = _hear(state, event, now)
    if state.is_gone or state.job.is_leaving:
        return state, ()  # its pods go with it: it owns them
    turn = Turn(state, now)
    if state.status.generation.number > state.told and state.status.phase not in OVER:
        return _finish(state, turn, is_to_go=False)  # as a new controller: none is left out
    _bound_target(turn)
    _walk(turn)
    is_to_go = keep_up(turn)
    _learn(turn)
    return _finish(state, turn, is_to_go)


def _hear(state: State, event: Event, now: float) -> State:
    """The state with what the event says, and nothing done about it."""
    match event:
        case JobSeen(item):
            status, written = take_others(state.status, item), take_others(state.written, item)
            # If somebody else has written a phase, ours is written again.
            written = msgspec.structs.replace(written, phase=item.status.phase)
            return replace(state, job=read_job(item), status=status, written=written)
        case JobGone():
            return replace(state, is_gone=True)
        case ReplicaSeen(replica):
            return _see(state, event, now) if replica.role in {one.name for one in state.job.roles} else state
        case ReplicaGone(role, index, uid):
            there = state.replicas.get((role, index))
            if there is None or there.uid != uid:
                return state
            return replace(state, replicas={key: one for key, one in state.replicas.items() if key != (role, index)})
        case CreateRefused():
            return replace(state, refused=event.message)
        case Hindered(reason, message):
            return replace(state, hindrance=(reason, message))
        case Acknowledged():
            return _acknowledge(state, event, now)
        case Reported():
            return _take_report(state, event)
    return state


def _take_report(state: State, said: Reported) -> State:
    if said.generation != state.status.generation.number or state.status.phase in OVER:
        return state
    progress = types.JobProgress(said.step, said.total, said.throughput, from_seconds(said.at))
    state = replace(state, status=msgspec.structs.replace(state.status, progress=progress))
    if said.throughput is None:
        return state
    return replace(state, samples=state.samples.add(said.generation, said.throughput))


def _see(state: State, event: ReplicaSeen, now: float) -> State:
    new, old = event.replica, state.replicas.get(event.replica.place)
    if old is not None and old.uid == new.uid:
        # What has ended stays so, and who is about to go does not come back: news may overtake each other.
        if old.has_ended and not new.has_ended:
            new = replace(old, is_leaving=old.is_leaving or new.is_leaving)
        new = replace(
            new,
            is_leaving=old.is_leaving or new.is_leaving,
            failed_at=old.failed_at,
            stopped=old.stopped,
            is_done=old.is_done,
        )
    if new.stage in ("failed", "succeeded") and not new.failed_at:
        new = replace(new, failed_at=now)
    return replace(state, replicas={**state.replicas, new.place: new})


def _acknowledge(state: State, ack: Acknowledged, now: float) -> State:
    replica = state.replicas.get((ack.role, ack.index))
    if replica is None or replica.uid != ack.uid:
        return state
    if ack.state == "failed":
        current = state.status.generation
        is_member = any(one.uid == ack.uid for one in current.members)
        if state.crashed is not None or not is_member or ack.generation != current.number:
            return state
        if state.status.failures.generation == current.number or state.status.phase not in ACTIVE:
            return state  # it is counted already
        return replace(state, crashed=WorkerFailure(state.job.pod(replica.place), ack.generation, ack.exit, now))
    if ack.state == "stopped":
        replica = replace(replica, stopped=max(replica.stopped, ack.generation))
    elif ack.state == "done":
        replica = replace(replica, is_done=True)
    return replace(state, replicas={**state.replicas, replica.place: replica})


def _bound_target(turn: Turn) -> None:
    """A size outside of the bounds, because they were changed or the job was pinned, is brought within them at once."""
    if not turn.status.target or turn.phase in OVER:
        return
    wanted = turn.wanted
    if any(wanted.get(one.role, one.replicas) != one.replicas for one in turn.status.target):
        turn.set_target(wanted)


def _walk(turn: Turn) -> None:
    for _ in range(2 * len(TABLE)):
        row = next((one for one in TABLE if turn.phase in one.sources and one.when(turn)), None)
        if row is None:
            return
        row.do(turn)
        turn.enter(row.target)
        turn.taken.append(row.name)
        if turn.has_new_generation:
            return  # it must be written before there can be another
    raise AssertionError(f"ElasticJob {turn.job.namespace}/{turn.job.name} walks in circles: {turn.taken}")


def _learn(turn: Turn) -> None:
    if turn.phase in ACTIVE and turn.samples.generation == turn.generation.number:
        speeds = measured(turn.status.speeds, turn.samples, len(turn.generation.members))
        if speeds != turn.status.speeds:
            turn.change(speeds=speeds)


def _finish(state: State, turn: Turn, is_to_go: bool) -> tuple[State, tuple[Instruction, ...]]:
    turn.tell_conditions(f"Job{turn.phase}", "")
    turn.tell_hindrance(state.hindrance)
    status = msgspec.structs.replace(turn.status, replicas=_counts(turn))
    written, lags_since = state.written, state.lags_since
    out: list[Instruction] = []
    if status != written:
        lags_since, lag_s = lags_since or turn.now, _lag_s(status, written)
        if not lag_s or turn.is_past(lags_since + lag_s, lag_s):
            out.append(WriteStatus(status))
            written = status
    if status == written:
        lags_since = 0.0
    told = state.told
    if turn.phase not in OVER and status.generation.number > told:
        out.append(Publish(status.generation))
        told = status.generation.number
    out += [*turn.deletes, *turn.creates, *turn.records]
    if is_to_go:
        out.append(DeleteJob())
    elif not out and turn.has_new_generation:
        raise AssertionError("a new generation is always written")
    if turn.wake is not None:
        out.append(Arm(turn.wake))
    after = State(
        job=turn.job,
        status=status,
        written=written,
        replicas=turn.replicas,
        told=told,
        crashed=turn.crashed,
        refused=turn.refused,
        hindrance=state.hindrance,
        samples=turn.samples,
        lags_since=lags_since,
        is_gone=is_to_go,
        taken=tuple(turn.taken),
    )
    return after, tuple(out)


def _lag_s(status: types.ElasticJobStatus, written: types.ElasticJobStatus) -> float:
    """How long it may wait to be written. Nothing depends on how far the job is, how many replicas do what, and how far
    a start has come."""
    has_progress = written.progress.time is not None
    written = msgspec.structs.replace(written, progress=status.progress)
    if written == status:
        return PROGRESS_S if has_progress else LAG_S
    if status.phase in WAITING and written.phase in ("", *WAITING):
        written = msgspec.structs.replace(written, phase=status.phase, conditions=status.conditions)
    return LAG_S if msgspec.structs.replace(written, replicas=status.replicas) == status else 0.0


def _counts(turn: Turn) -> types.ReplicaCounts:
    stages = [one.stage for one in turn.replicas.values() if not one.is_leaving or one.stage == "ready"]
    return types.ReplicaCounts(
        pending=stages.count("pending"),
        starting=stages.count("starting"),
        running=stages.count("ready"),
        succeeded=stages.count("succeeded"),
        failed=stages.count("failed"),
    )
