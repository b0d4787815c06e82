"""Every elastic job has its machine here, driven by what the mirror tells; one task at a time for each job.

Level-triggered: where an instruction could not be done, the job's state is thrown away and read again from the mirror,
and the machine says again what is to be done. Only the leader acts: `begin` and `pause`.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from maniple.api import types
from maniple.api.decode.decode import Object
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
from maniple.elastic.machine import advance, restore
from maniple.elastic.sizes import wanted_sizes
from maniple.elastic.state import State
from maniple.kube.jobs.agent_server import Ack, Agents, Report
from maniple.kube.jobs.executor import Hands, NameTakenError, RefusedError
from maniple.kube.jobs.manifests import Setting
from maniple.kube.jobs.pod_view import place_of, replica_of
from maniple.kube.serve.events import Events, Regarding
from maniple.kube.transport.client import ApiError, Backoff, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Key, Mirror
from maniple.kube.transport.resource_kinds import PODS, RESOURCES, Resource
from maniple.model.building.from_scratch import Ours

log = logging.getLogger("maniple.jobs")

JOBS = next(resource for resource in RESOURCES if resource.struct is types.ElasticJob)
_TURNS = 32  # jobs that are attended to at once
_SURROUND_S = 60.0  # how long it is believed that a job's Service, Secret and ConfigMap are there
_MANY = 5  # conflicts in a row, after which they are told
_OFTEN_S = 1.0  # reports of a job that come more often are not acted upon
_OFTEN = 3  # failures in a row, after which the job says that it is hindered


class _Entry:
    """One job."""

    def __init__(self, key: Key, uid: str) -> None:
        self.key = key
        self.uid = uid
        self.most = 0  # replicas
        self.state: State | None = None  # None: to be read again
        self.inbox: list[Event] = []
        self.acks: dict[tuple[str, str], Acknowledged] = {}  # what replicas said; the server does not know
        self.report: Reported | None = None  # and how far they were last
        self.unheard: Reported | None = None  # the same, until the machine has heard of it
        self.surrounded_at = -_SURROUND_S  # when what its pods need was last made
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.backoff = Backoff(0.1, 30.0)
        self.is_paused = False  # after something went wrong, until the timer
        self.lags_since = 0.0  # of the state that was thrown away
        self.hindrance = Hindered()  # what has gone wrong time and again, until nothing is left to be done
        self.wish: tuple[Any, Any] | None = None  # spec and target as they were last heard of
        self.is_due = False  # to be looked at, though nothing was heard of it


class Jobs:
    def __init__(self, client: Client, mirror: Mirror, events: Events, setting: Setting) -> None:
        self._mirror = mirror
        self._events = events
        self._ours = Ours(setting.scheduler_name)
        self._entries: dict[Key, _Entry] = {}
        self._pods: dict[Key, dict[Key, ReplicaFacts]] = {}  # job -> its pods
        self._job_of: dict[Key, Key] = {}  # pod -> its job
        self._is_active = False
        self._turns = asyncio.Semaphore(_TURNS)
        self.hands = Hands(client, mirror, JOBS, setting)
        self.under_way: set[asyncio.Task[None]] = set()
        mirror.listen(self._hear)

    # -- leading

    def begin(self) -> None:
        """We lead, and know all that was written before: every job is looked at."""
        self._is_active = True
        for entry in self._entries.values():
            entry.state, entry.surrounded_at, entry.is_paused = None, -_SURROUND_S, False
            entry.backoff.reset()
            entry.is_due = True
            self._poke(entry)

    def pause(self) -> None:
        self._is_active = False
        for entry in self._entries.values():
            entry.inbox.clear()
            entry.report = entry.unheard = None
            if entry.timer is not None:
                entry.timer.cancel()

    def serve_agents(self, agents: Agents, authority: bytes) -> None:
        self.hands.agents, self.hands.authority = agents, authority
        for entry in self._entries.values():
            agents.expect("/".join(entry.key), entry.uid, entry.most)

    # -- what is told

    def _hear(self, resource: Resource, key: Key, item: Object | None) -> None:
        if resource is JOBS:
            self._hear_of_job(key, item if isinstance(item, types.ElasticJob) else None)
        elif resource is PODS:
            seen = self._mirror.seen(PODS).get(key)
            self._hear_of_pod(key, None if seen is None else seen.replica)

    def _hear_of_job(self, key: Key, item: types.ElasticJob | None) -> None:
        entry = self._entries.get(key)
        if entry is not None and (item is None or item.metadata.uid != entry.uid):
            self._forget(entry)
            entry = None
        if item is None or not self._ours.runs(item) or problems(item):
            return
        if entry is None:
            entry = self._entries[key] = _Entry(key, item.metadata.uid)
        entry.most = sum(role.max for role in item.spec.roles)
        if self.hands.agents is not None:
            self.hands.agents.expect("/".join(key), entry.uid, entry.most)
        wish = (item.spec, item.status.target)
        if wish != entry.wish:  # what could not be done may no longer be asked for
            entry.wish, entry.is_paused = wish, False
        entry.inbox.append(JobSeen(item))
        self._poke(entry)

    def _forget(self, entry: _Entry) -> None:
        del self._entries[entry.key]
        if entry.timer is not None:
            entry.timer.cancel()
        if self.hands.agents is not None:
            self.hands.agents.forget("/".join(entry.key))

    def _hear_of_pod(self, key: Key, facts: ReplicaFacts | None) -> None:
        before = self._job_of.get(key)
        job = None if facts is None else (key[0], facts.job)
        if before is not None and before != job:
            self._leave(key, before)
        if facts is None or job is None:
            return
        known = self._pods.setdefault(job, {})
        old = known.get(key)
        if old is not None and old.uid != facts.uid:
            self._tell_gone(job, old)
        known[key] = facts
        self._job_of[key] = job
        entry = self._entries.get(job)
        replica = None if entry is None else replica_of(key, facts, entry.uid, self._mirror)
        if entry is not None and replica is not None:
            entry.inbox.append(ReplicaSeen(replica))
            self._rouse(entry)

    def _leave(self, key: Key, job: Key) -> None:
        del self._job_of[key]
        old = self._pods[job].pop(key)
        if not self._pods[job]:
            del self._pods[job]
        self._tell_gone(job, old)

    def _tell_gone(self, job: Key, old: ReplicaFacts) -> None:
        entry, place = self._entries.get(job), place_of(old)
        if entry is not None and place is not None:
            entry.acks = {said: ack for said, ack in entry.acks.items() if said[0] != old.uid}
            entry.inbox.append(ReplicaGone(*place, old.uid))
            self._rouse(entry)

    def on_ack(self, ack: Ack) -> None:
        key = _key(ack.job)
        entry, facts = self._entries.get(key), self._pods.get(key, {}).get((key[0], ack.pod))
        place = None if facts is None else place_of(facts)
        if entry is None or facts is None or place is None or facts.uid != ack.uid:
            return
        said = Acknowledged(*place, ack.uid, ack.generation, ack.state, ack.exit or 0)
        entry.acks[ack.uid, ack.state] = said
        entry.inbox.append(said)
        self._poke(entry)

    def on_report(self, report: Report) -> None:
        entry = self._entries.get(_key(report.job))
        if entry is not None:
            now, before = time.time(), entry.report
            entry.report = entry.unheard = Reported(
                report.generation, report.step, now, report.throughput, report.total
            )
            if before is None or abs(now - before.at) >= _OFTEN_S:  # else it is heard with whatever comes next
                self._poke(entry)

    # -- driving

    def _rouse(self, entry: _Entry) -> None:
        """What has happened to its replicas does not wait until what could not be done is tried again."""
        entry.is_paused = False
        self._poke(entry)

    def _poke(self, entry: _Entry) -> None:
        if not self._is_active:
            entry.inbox.clear()  # who leads next, and if it is us, reads everything anew
        elif entry.task is None and not entry.is_paused:
            entry.task = asyncio.create_task(self._drive(entry))
            self.under_way.add(entry.task)
            entry.task.add_done_callback(self.under_way.discard)

    async def _drive(self, entry: _Entry) -> None:
        """Until nothing more is to be done now."""
        entry.is_due = False
        try:
            await self._walk(entry)
            entry.backoff.reset()
        except (ApiError, UnansweredError, NotLeadingError, NameTakenError) as error:
            self._stumble(entry, error)
        except Exception:
            log.exception("job", extra={"job": "/".join(entry.key)})
            self._stumble(entry, None)
        finally:
            entry.task = None
        if (entry.inbox or entry.is_due) and self._entries.get(entry.key) is entry:
            self._poke(entry)

    async def _walk(self, entry: _Entry) -> None:
        while True:
            async with self._turns:  # decided when its turn has come: what happened until then needs no writes
                if not self._is_active or self._entries.get(entry.key) is not entry:
                    return
                if entry.state is None:
                    self._restore(entry)
                    if entry.state is None:
                        return
                events, entry.inbox = entry.inbox, []
                if entry.unheard is not None:  # before all that has come of it, such as the end
                    events.insert(0, entry.unheard)
                    entry.unheard = None
                entry.state, instructions = advance(entry.state, events, time.time())
                todo = [one for one in instructions if not isinstance(one, Arm)]
                if not todo and entry.hindrance != Hindered():
                    entry.hindrance = Hindered()
                    entry.inbox.append(entry.hindrance)
                    continue
                if not todo:
                    self._arm(entry, instructions)
                    if entry.state.status.phase == "Failed" and self.hands.agents is not None:
                        self.hands.agents.end("/".join(entry.key), entry.uid)
                    return
                await self._obey(entry, todo)

    def _restore(self, entry: _Entry) -> None:
        seen = self._mirror.seen(JOBS).get(entry.key)
        entry.inbox.clear()
        if seen is None or seen.uid != entry.uid or not isinstance(seen.item, types.ElasticJob):
            return
        pods = self._pods.get(entry.key, {})
        replicas = [replica_of(key, facts, entry.uid, self._mirror) for key, facts in pods.items()]
        state = restore(seen.item, [one for one in replicas if one is not None], time.time())
        entry.state = replace(state, lags_since=entry.lags_since)
        entry.unheard = entry.report
        entry.inbox.extend((*entry.acks.values(), entry.hindrance))

    def _stumble(self, entry: _Entry, error: Exception | None) -> None:
        """What could not be done is tried again later, from what the server has by then."""
        if entry.state is not None:
            entry.lags_since = entry.state.lags_since
        entry.state = None
        if isinstance(error, NotLeadingError):
            return
        # That something has changed meanwhile is no news, unless it is said again and again.
        is_conflict = isinstance(error, ApiError) and error.status in (404, 409) and entry.backoff.failures < _MANY
        level = logging.DEBUG if is_conflict else logging.WARNING
        log.log(level, "job not carried out", extra={"job": "/".join(entry.key), "error": str(error)})
        if error is not None and not is_conflict and not isinstance(error, UnansweredError):
            self._record(entry, [RecordEvent("NotCarriedOut", str(error)[:500], "Warning")])
            if entry.backoff.failures + 1 >= _OFTEN:
                entry.hindrance = _hindrance(error)
        entry.is_paused = True
        self._wake(entry, entry.backoff.pause_s())

    def _arm(self, entry: _Entry, instructions: Iterable[Instruction]) -> None:
        at = next((one.at for one in instructions if isinstance(one, Arm)), None)
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        if at is not None:
            self._wake(entry, max(0.0, at - time.time()))

    def _wake(self, entry: _Entry, seconds: float) -> None:
        def wake() -> None:
            entry.is_paused = False
            entry.timer = None
            if self._entries.get(entry.key) is entry:
                self._poke(entry)

        if entry.timer is not None:
            entry.timer.cancel()
        entry.timer = asyncio.get_running_loop().call_later(min(seconds, 3600.0), wake)

    # -- doing

    async def _obey(self, entry: _Entry, instructions: Sequence[Instruction]) -> None:
        """In their order; deletions side by side, and then creations."""
        state = entry.state
        if state is None:
            return
        deletes: list[DeleteReplica] = []
        creates: list[CreateReplica] = []
        records: list[RecordEvent] = []
        for one in instructions:
            match one:
                case WriteStatus(status):
                    await self.hands.write_status(entry.key, entry.uid, status)
                case Publish(generation):
                    await self.hands.publish(state.job, generation, self._pods.get(entry.key, {}))
                case DeleteReplica():
                    deletes.append(one)
                case CreateReplica():
                    creates.append(one)
                case RecordEvent():
                    records.append(one)
                case DeleteJob():
                    await self.hands.delete_job(entry.key, entry.uid)
        self._record(entry, records)
        await asyncio.gather(*(self.hands.delete(state.job, one) for one in deletes))
        if creates:
            await self._create(entry, state, creates)

    async def _create(self, entry: _Entry, state: State, creates: list[CreateReplica]) -> None:
        if time.monotonic() - entry.surrounded_at >= _SURROUND_S:  # somebody may have deleted it
            await self.hands.make_surroundings(state.job)
            entry.surrounded_at = time.monotonic()
        spec = self.hands.spec(entry.key, entry.uid)
        sizes = wanted_sizes(state.job, state.status.target, state.replicas.values())

        async def create(one: CreateReplica) -> None:
            try:
                await self.hands.create(state.job, one, spec, sizes)
            except RefusedError as error:
                entry.inbox.append(CreateRefused(one.role, one.index, str(error)))

        # Ever more at once, so that a quota that is used up is asked once, and what it has left goes to the first.
        done, width = 0, 1
        while done < len(creates):
            await asyncio.gather(*(create(one) for one in creates[done : done + width]))
            done, width = done + width, 2 * width

    def _record(self, entry: _Entry, records: Iterable[RecordEvent]) -> None:
        for one in records:
            regarding = Regarding.of(JOBS, entry.key, entry.uid)
            self._events.add(regarding, one.reason, one.message, "Reconcile", one.kind)


def _hindrance(error: Exception) -> Hindered:
    if isinstance(error, ApiError):
        return Hindered(error.reason or f"Answer{error.status}", error.message[:500])
    return Hindered("NameTaken", str(error)[:500])


def _key(name: str) -> Key:
    namespace, _, own = name.partition("/")
    return namespace, own
