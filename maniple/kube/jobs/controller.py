"""Runs the state machine of every elastic job on events of the mirror and of agents, in one task for each job.

Level-triggered: after a failed instruction the job's state is dropped and restored from the mirror, and the machine
decides anew. Only the leader acts: `begin` and `pause`.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from maniple.api import types
from maniple.api.keys import Key, join_key, split_name
from maniple.api.replica_pods import ReplicaFacts
from maniple.api.validate.ours import problems
from maniple.elastic.events import (
    Acknowledged,
    CreateRefused,
    Event,
    Hindered,
    JobSeen,
    ReplicaGone,
    ReplicaSeen,
    Reported,
)
from maniple.elastic.instructions import (
    Arm,
    CreateReplica,
    DeleteJob,
    DeleteReplica,
    Instruction,
    Publish,
    RecordEvent,
    WriteStatus,
)
from maniple.elastic.machine import advance
from maniple.elastic.state import State, restore
from maniple.elastic.target_sizes import wanted_sizes
from maniple.kube.jobs.agent_server import Ack, AgentServer, Report
from maniple.kube.jobs.executor import Executor, NameTakenError, RefusedError
from maniple.kube.jobs.manifests import PodSettings
from maniple.kube.jobs.pod_view import place_of, replica_of
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.transport.client import ApiError, Backoff, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror, PodsByOwner, Seen
from maniple.kube.transport.resource_kinds import JOBS, PODS, Resource
from maniple.model.pods_we_schedule import Ours

log = logging.getLogger("maniple.jobs")

_CONCURRENT_JOBS = 32
_DEPENDENTS_S = 60.0  # how long a job's Service, Secret and ConfigMap are assumed to exist
_LOGGED_CONFLICTS = 5  # conflicts in a row, after which they are logged as warnings
_REPORT_S = 1.0  # more frequent reports of a job do not wake its machine
_HINDERED_FAILURES = 3  # failures in a row, after which the job is Hindered


class _ManagedJob:
    """One job, its state machine's state, and what it has not processed yet."""

    def __init__(self, key: Key, uid: str, backoff: Backoff) -> None:
        self.key = key
        self.name = join_key(key)
        self.uid = uid
        self.max_replicas = 0
        self.state: State | None = None  # None: to be restored
        self.inbox: list[Event] = []
        self.acks: dict[tuple[str, str], Acknowledged] = {}  # by pod uid and state; the API server does not have them
        self.report: Reported | None = None  # the last one; the API server does not have it
        self.new_report: Reported | None = None  # the same, until the machine has processed it
        self.dependents_at = -_DEPENDENTS_S  # when its Service, Secret and ConfigMap were last created
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.backoff = backoff
        self.is_paused = False  # after a failure, until the timer
        self.lags_since = 0.0  # of the state that was dropped
        self.hindrance = Hindered()  # repeated failure, until nothing is left to do
        self.desired: tuple[Any, Any] | None = None  # spec and target, as last seen
        self.is_due = False  # to be processed without an event


class JobController:
    def __init__(self, client: Client, mirror: Mirror, events: Events, settings: PodSettings) -> None:
        self._client = client
        self._mirror = mirror
        self._events = events
        self._ours = Ours(settings.scheduler_name)
        self._jobs: dict[Key, _ManagedJob] = {}
        self._index = PodsByOwner()
        self._is_active = False
        self._slots = asyncio.Semaphore(_CONCURRENT_JOBS)
        self.executor = Executor(client, mirror, settings)
        self.under_way: set[asyncio.Task[None]] = set()
        mirror.listen(self._on_change)

    # -- leading

    def begin(self) -> None:
        """This replica leads, and its mirror has everything written before: every job is processed."""
        self._is_active = True
        for job in self._jobs.values():
            job.state, job.dependents_at, job.is_paused = None, -_DEPENDENTS_S, False
            job.backoff.reset()
            job.is_due = True
            self._wake(job)

    def pause(self) -> None:
        self._is_active = False
        for job in self._jobs.values():
            job.inbox.clear()
            job.report = job.new_report = None
            if job.timer is not None:
                job.timer.cancel()

    def serve_agents(self, agents: AgentServer, authority: bytes) -> None:
        self.executor.agents, self.executor.authority = agents, authority
        for job in self._jobs.values():
            agents.expect(job.name, job.uid, job.max_replicas)

    # -- events

    def _on_change(self, resource: Resource, key: Key, before: Seen | None, seen: Seen | None) -> None:
        if resource is JOBS:
            item = None if seen is None else seen.item
            self._on_job(key, item if isinstance(item, types.ElasticJob) else None)
        elif resource is PODS:
            self._on_pod(key, None if before is None else before.replica, None if seen is None else seen.replica)

    def _on_job(self, key: Key, item: types.ElasticJob | None) -> None:
        job = self._jobs.get(key)
        if job is not None and (item is None or item.metadata.uid != job.uid):
            self._forget(job)
            job = None
        if item is None or not self._ours.runs(item) or problems(item):
            return
        if job is None:
            job = self._jobs[key] = _ManagedJob(key, item.metadata.uid, self._client.backoff(0.1, 30.0))
        job.max_replicas = sum(role.max for role in item.spec.roles)
        if self.executor.agents is not None:
            self.executor.agents.expect(job.name, job.uid, job.max_replicas)
        desired = (item.spec, item.status.target)
        if desired != job.desired:  # what failed may no longer be needed
            job.desired, job.is_paused = desired, False
        job.inbox.append(JobSeen(item))
        self._wake(job)

    def _forget(self, job: _ManagedJob) -> None:
        del self._jobs[job.key]
        if job.timer is not None:
            job.timer.cancel()
        if self.executor.agents is not None:
            self.executor.agents.forget(job.name)

    def _on_pod(self, key: Key, old: ReplicaFacts | None, new: ReplicaFacts | None) -> None:
        old_job = None if old is None else (key[0], old.job)
        new_job = None if new is None else (key[0], new.job)
        self._index.move(key, old_job, new_job)
        if old is not None and (new is None or (old.job, old.uid) != (new.job, new.uid)):
            self._on_gone((key[0], old.job), old)
        job = None if new_job is None else self._jobs.get(new_job)
        replica = None if job is None or new is None else replica_of(key, new, job.uid, self._mirror)
        if job is not None and replica is not None:
            job.inbox.append(ReplicaSeen(replica))
            self._resume(job)

    def _on_gone(self, job_key: Key, old: ReplicaFacts) -> None:
        job, place = self._jobs.get(job_key), place_of(old)
        if job is not None and place is not None:
            job.acks = {(uid, state): ack for (uid, state), ack in job.acks.items() if uid != old.uid}
            job.inbox.append(ReplicaGone(*place, old.uid))
            self._resume(job)

    def _replicas(self, job: Key) -> dict[Key, ReplicaFacts]:
        pods = self._mirror.seen(PODS)
        replicas = {key: pods[key].replica for key in self._index.pods(job)}
        return {key: facts for key, facts in replicas.items() if facts is not None}

    def on_ack(self, name: str, ack: Ack) -> None:
        key = split_name(name)
        job, seen = self._jobs.get(key), self._mirror.seen(PODS).get((key[0], ack.pod))
        facts = None if seen is None else seen.replica
        place = None if facts is None else place_of(facts)
        if job is None or facts is None or place is None or (facts.job, facts.uid) != (key[1], ack.uid):
            return
        event = Acknowledged(*place, ack.uid, ack.generation, ack.state, ack.exit or 0)
        job.acks[ack.uid, ack.state] = event
        job.inbox.append(event)
        self._wake(job)

    def on_report(self, name: str, report: Report) -> None:
        job = self._jobs.get(split_name(name))
        if job is not None:
            now, before = time.time(), job.report
            job.report = job.new_report = Reported(report.generation, report.step, now, report.throughput, report.total)
            if before is None or abs(now - before.at) >= _REPORT_S:  # otherwise it is processed with the next event
                self._wake(job)

    # -- the machine

    def _resume(self, job: _ManagedJob) -> None:
        """Events of replicas do not wait for the retry of what failed."""
        job.is_paused = False
        self._wake(job)

    def _wake(self, job: _ManagedJob) -> None:
        if not self._is_active:
            job.inbox.clear()  # the next leader restores everything, also if it is this replica
        elif job.task is None and not job.is_paused:
            job.task = asyncio.create_task(self._process(job))
            self.under_way.add(job.task)
            job.task.add_done_callback(self.under_way.discard)

    async def _process(self, job: _ManagedJob) -> None:
        """Until nothing is left to do now."""
        job.is_due = False
        try:
            await self._steps(job)
            job.backoff.reset()
        except (ApiError, UnansweredError, NotLeadingError, NameTakenError) as error:
            self._on_failure(job, error)
        except Exception:
            log.exception("job", extra={"job": job.name})
            self._on_failure(job, None)
        finally:
            job.task = None
        if (job.inbox or job.is_due) and self._jobs.get(job.key) is job:
            self._wake(job)

    async def _steps(self, job: _ManagedJob) -> None:
        while True:
            async with self._slots:  # decided only once there is a slot: earlier changes then need no writes
                if not self._is_active or self._jobs.get(job.key) is not job:
                    return
                if job.state is None:
                    self._restore(job)
                    if job.state is None:
                        return
                events, job.inbox = job.inbox, []
                if job.new_report is not None:  # before events that follow from it, such as the end
                    events.insert(0, job.new_report)
                    job.new_report = None
                job.state, instructions = advance(job.state, events, time.time())
                todo = [instruction for instruction in instructions if not isinstance(instruction, Arm)]
                if not todo and job.hindrance != Hindered():
                    job.hindrance = Hindered()
                    job.inbox.append(job.hindrance)
                    continue
                if not todo:
                    self._arm(job, instructions)
                    if job.state.status.phase == "Failed" and self.executor.agents is not None:
                        self.executor.agents.end(job.name, job.uid)
                    return
                await self._execute(job, todo)

    def _restore(self, job: _ManagedJob) -> None:
        seen = self._mirror.seen(JOBS).get(job.key)
        job.inbox.clear()
        if seen is None or seen.uid != job.uid or not isinstance(seen.item, types.ElasticJob):
            return
        pods = self._replicas(job.key).items()
        replicas = [replica_of(key, facts, job.uid, self._mirror) for key, facts in pods]
        state = restore(seen.item, [replica for replica in replicas if replica is not None], time.time())
        job.state = replace(state, lags_since=job.lags_since)
        job.new_report = job.report
        job.inbox.extend((*job.acks.values(), job.hindrance))

    def _on_failure(self, job: _ManagedJob, error: Exception | None) -> None:
        """Retried later, from what the API server has by then."""
        if job.state is not None:
            job.lags_since = job.state.lags_since
        job.state = None
        if isinstance(error, NotLeadingError):
            return
        # A conflict only means that something changed meanwhile, unless it is repeated.
        is_repeated = job.backoff.failures >= _LOGGED_CONFLICTS
        is_conflict = isinstance(error, ApiError) and error.status in (404, 409) and not is_repeated
        is_old_news = isinstance(error, UnansweredError) and job.backoff.failures > 0
        level = logging.DEBUG if is_conflict or is_old_news else logging.WARNING
        log.log(level, "job not carried out", extra={"job": job.name, "error": str(error)})
        if error is not None and not is_conflict and not isinstance(error, UnansweredError):
            self._record(job, [RecordEvent("NotCarriedOut", str(error)[:500], "Warning")])
            if job.backoff.failures + 1 >= _HINDERED_FAILURES:
                job.hindrance = _hindrance(error)
        job.is_paused = True
        self._set_timer(job, job.backoff.pause_s(error))

    def _arm(self, job: _ManagedJob, instructions: Iterable[Instruction]) -> None:
        times = (instruction.at for instruction in instructions if isinstance(instruction, Arm))
        wake_at = next(times, None)
        self._set_timer(job, None if wake_at is None else max(0.0, wake_at - time.time()))

    def _set_timer(self, job: _ManagedJob, seconds: float | None) -> None:
        """Replaces the job's timer; None: by none."""

        def wake() -> None:
            job.is_paused = False
            job.timer = None
            if self._jobs.get(job.key) is job:
                self._wake(job)

        if job.timer is not None:
            job.timer.cancel()
        job.timer = None if seconds is None else asyncio.get_running_loop().call_later(min(seconds, 3600.0), wake)

    # -- instructions

    async def _execute(self, job: _ManagedJob, instructions: Sequence[Instruction]) -> None:
        """In their order; but deletions last, at once, and then creations."""
        state = job.state
        if state is None:
            return
        deletes: list[DeleteReplica] = []
        creates: list[CreateReplica] = []
        records: list[RecordEvent] = []
        for instruction in instructions:
            match instruction:
                case WriteStatus(status):
                    await self.executor.write_status(job.key, job.uid, status)
                case Publish(generation):
                    await self.executor.publish(state.job, generation, self._replicas(job.key))
                case DeleteReplica():
                    deletes.append(instruction)
                case CreateReplica():
                    creates.append(instruction)
                case RecordEvent():
                    records.append(instruction)
                case DeleteJob():
                    await self.executor.delete_job(job.key, job.uid)
        self._record(job, records)
        await asyncio.gather(*(self.executor.delete(state.job, delete) for delete in deletes))
        if creates:
            await self._create(job, state, creates)

    async def _create(self, job: _ManagedJob, state: State, creates: list[CreateReplica]) -> None:
        if time.monotonic() - job.dependents_at >= _DEPENDENTS_S:  # a user may have deleted them
            await self.executor.create_dependents(state.job)
            job.dependents_at = time.monotonic()
        spec = self.executor.spec(job.key, job.uid)
        sizes = wanted_sizes(state.job, state.status.target, state.replicas.values())

        async def create(instruction: CreateReplica) -> None:
            try:
                await self.executor.create(state.job, instruction, spec, sizes)
            except RefusedError as error:
                job.inbox.append(CreateRefused(instruction.role, instruction.index, str(error)))

        # In batches that double: an exhausted quota refuses one request, and what it has left goes to the first.
        done, batch = 0, 1
        while done < len(creates):
            await asyncio.gather(*map(create, creates[done : done + batch]))
            done, batch = done + batch, 2 * batch

    def _record(self, job: _ManagedJob, records: Iterable[RecordEvent]) -> None:
        regarding = Regarding.of(JOBS, job.key, job.uid)
        for record in records:
            self._events.add(regarding, record.reason, record.message, "Reconcile", record.kind)


def _hindrance(error: Exception) -> Hindered:
    if isinstance(error, ApiError):
        return Hindered(error.reason or f"Answer{error.status}", error.message[:500])
    return Hindered("NameTaken", str(error)[:500])
