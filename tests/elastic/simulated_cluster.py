"""A simulated cluster for one elastic job. It knows nothing of the machine's internals, and checks that the
instructions keep the promises of docs/elastic.md.

The server has the job and its pods. The machine hears of changes later, in any order, more than once, or only of their
result. Instructions are carried out one by one; the controller may be killed between any two of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from elastic.lowest_indices import MANY, reach
from maniple.api import types
from maniple.api.phases import FINISHED
from maniple.elastic.events import (
    Acknowledged,
    CreateRefused,
    Event,
    JobSeen,
    Replica,
    ReplicaGone,
    ReplicaSeen,
    Reported,
    TimePassed,
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
from maniple.elastic.state import restore
from maniple.elastic.transitions import TRANSITIONS

RUNS = ("Running", "Growing", "Shrinking")
WAITS = ("Pending", "Starting")
TARGETS = {transition.name: transition.target for transition in TRANSITIONS}
START = 1_800_000_000.0


@dataclass
class Pod:
    role: str
    index: int
    uid: str
    stage: str = "pending"
    is_leaving: bool = False
    leaves_at: float = 0.0
    bound_at: float = 0.0
    ready_at: float = 0.0
    exit: int | None = None
    reason: str = ""
    trouble: str = ""
    notified_generation: int = 0

    @property
    def has_ended(self) -> bool:
        return self.stage in ("succeeded", "failed")


class KilledError(Exception):
    """The controller was killed, or an instruction failed: it starts again with `restore`."""


def elastic_job(roles: Iterable[tuple[str, int, int]] = (("worker", 2, 4),), **spec: Any) -> types.ElasticJob:
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}}
    listed = [{"name": name, "min": least, "max": most, "template": template} for name, least, most in roles]
    elastic = {"graceSeconds": 30, **spec.pop("elastic", {})}
    identity = {"metadata": {"name": "j", "namespace": "ns", "uid": "job-1"}}
    return msgspec.convert({**identity, "spec": {"roles": listed, "elastic": elastic, **spec}}, types.ElasticJob)


class World:
    def __init__(self, item: types.ElasticJob) -> None:
        self.now = START
        self.item = item
        self.pods: dict[tuple[str, int], Pod] = {}
        self.news: set[tuple[str, int] | None] = set()  # replicas, or None for the job, whose change was not sent yet
        self.gone: list[ReplicaGone] = []
        self.refusals: list[CreateRefused] = []
        self.published: list[types.JobGeneration] = []
        self.records: list[RecordEvent] = []
        self.acks: dict[str, int] = {}  # uid -> the generation that its workers have stopped for
        self.paths: set[tuple[str, str]] = set()
        self.is_deleted = False
        self.kill_after: int | None = None  # instructions
        self.refuses = ""
        self.heard: dict[tuple[str, int], Replica] = {}  # pods as the machine last heard of them
        self.armed: float | None = None
        self._known_spec = item
        self._own_phase: str = item.status.phase  # as the machine restored or wrote it: a user's is written over
        self._numbers = 0
        self._conflict = False
        self._is_wiped = False
        self.state = restore(item, (), self.now)
        self.tell(TimePassed())

    # -- events and instructions

    @property
    def status(self) -> types.ElasticJobStatus:
        return self.item.status

    @property
    def phase(self) -> str:
        """As the server has it. How far a start has come is written a little later."""
        written, is_to_be = self.status.phase, self.state.status.phase
        return is_to_be if written in ("", *WAITS) and is_to_be in WAITS else written

    def tell(self, *events: Event) -> None:
        for _ in range(60):
            instructions = self._step(*events)
            events = ()
            if not [one for one in instructions if not isinstance(one, Arm)]:
                self._arm(instructions)
                self._check_newcomers()
                return
            try:
                self._obey(instructions)
            except KilledError:
                self.restart()
                return
        raise AssertionError(f"never at rest: {instructions}")

    def _step(self, *events: Event) -> tuple[Instruction, ...]:
        for event in events:
            if isinstance(event, ReplicaSeen):
                self.heard[event.replica.key] = event.replica
            elif isinstance(event, ReplicaGone) and self._uid_heard((event.role, event.index)) == event.uid:
                del self.heard[event.role, event.index]
        before: str = self.state.status.phase
        self.state, instructions = advance(self.state, events, self.now)
        for transition in self.state.taken:
            self.paths.add((before, transition))
            before = TARGETS[transition]
        return instructions

    def restart(self) -> None:
        """A new controller, which knows only what the server has."""
        self.kill_after = None
        self.news.clear()
        self.gone.clear()
        self.refusals.clear()
        self._conflict = False
        self._known_spec, self._own_phase = self.item, self.status.phase
        self.heard = {key: self._replica(pod) for key, pod in self.pods.items()}
        self.state = restore(self.item, self.heard.values(), self.now)
        self.tell(TimePassed())

    def _arm(self, instructions: tuple[Instruction, ...]) -> None:
        armed = [one.at for one in instructions if isinstance(one, Arm)]
        self.armed = armed[0] if armed else None
        assert self.armed is None or self.armed > self.now, "a timer for what has passed"

    def _obey(self, instructions: tuple[Instruction, ...]) -> None:
        seen: list[Event] = []
        for number, one in enumerate(instructions):
            assert isinstance(one, WriteStatus) is (number == 0) or not isinstance(one, WriteStatus), "status is first"
            if self.kill_after is not None:
                if self.kill_after == 0:
                    raise KilledError
                self.kill_after -= 1
            match one:
                case WriteStatus(status):
                    self._write(status)
                case Publish(generation):
                    self._publish(generation)
                case CreateReplica(role, index):
                    seen += self._create(role, index)
                case DeleteReplica():
                    self._delete(one)
                case RecordEvent():
                    self.records.append(one)
                case DeleteJob():
                    assert self.phase in FINISHED
                    self.is_deleted = True
        for event in seen:
            more = self._step(event)
            if [one for one in more if not isinstance(one, Arm)]:
                self._obey(more)

    # -- checks

    @property
    def _first(self) -> str:
        """The lead: the first role with a minimum."""
        return next(role.name for role in self.item.spec.roles if role.min)

    def _write(self, status: types.ElasticJobStatus) -> None:
        if self._conflict:
            raise KilledError  # a conflict: the job has been written since
        before, after = self.status.generation, status.generation
        if self.phase in FINISHED:
            assert status.phase == self.phase, f"{self.phase} became {status.phase}"
            assert before == after
        if self._is_wiped and after.number:
            before, self._is_wiped = self.published[-1], False
        assert after.number in (before.number, before.number + 1), f"generation {before.number}, then {after.number}"
        if after.number == before.number:
            assert after == before, f"two generations have number {after.number}"
        elif after.members:
            self._check_members(before, after)
        assert len({(one.role, one.index) for one in after.members}) == len(after.members)
        assert len({one.type for one in status.conditions}) == len(status.conditions)
        true = {one.type for one in status.conditions if one.status == "True"}
        assert not {"Running", "Restarting"} <= true
        assert ("Running" in true) == (status.phase in RUNS), (status.phase, true)
        assert ("Succeeded" in true) == (status.phase == "Succeeded")
        assert ("Failed" in true) == (status.phase == "Failed")
        if "Suspended" in true:
            assert status.phase == "Suspended"
            assert not self.pods, "it says that it holds nothing"
        self.item, self._own_phase = msgspec.structs.replace(self.item, status=status), status.phase

    def _check_members(self, before: types.JobGeneration, after: types.JobGeneration) -> None:
        assert after.coordinator == after.members[0].address
        assert after.port != before.port
        uids = {one.uid for one in after.members}
        known = {pod.uid: pod for pod in self.pods.values()}
        for role in self.item.spec.roles:
            now = sum(1 for one in after.members if one.role == role.name)
            was = sum(1 for one in before.members if one.role == role.name)
            done = sum(1 for pod in self.pods.values() if pod.role == role.name and pod.stage == "succeeded")
            known_role = self._known_spec.spec.roles[self.item.spec.roles.index(role)]
            if not before.members:
                starts = known_role.min if known_role.pin is None else known_role.pin
                assert now + done >= starts, f"started with {now} of {role.name} instead of {starts}"
            # A minimum that was raised while the job runs is something to grow to.
            least = known_role.min
            assert now + done >= min(least, was), f"{now} of {role.name} in {after.number}, the minimum is {least}"
        first = self._first
        had = next((one for one in before.members if (one.role, one.index) == (first, 0)), None)
        if had is not None and had.uid not in uids:
            pod = known.get(had.uid)
            assert pod is None or pod.is_leaving or pod.has_ended, "index 0 was shrunk away"

    def _reach(self, role: str) -> int:
        return reach(role, self.status, self._known_spec.spec, self.heard) if self._own_phase in RUNS else MANY

    def _uid_heard(self, key: tuple[str, int]) -> str:
        return self.heard[key].uid if key in self.heard else ""

    def _check_newcomers(self) -> None:
        """At rest no replica waits or starts above one that is missing."""
        for (role, index), one in self.heard.items():
            pod = self.pods.get((role, index))
            is_new = pod is not None and pod.uid == one.uid and not pod.is_leaving
            if is_new and one.stage in ("pending", "starting") and not one.is_leaving:
                assert index < self._reach(role), f"{role}-{index} is {one.stage}, and one below is missing"

    def _publish(self, generation: types.JobGeneration) -> None:
        assert generation == self.status.generation, "published before it was written"
        assert self.phase not in FINISHED
        self._publish_once(generation)

    def _publish_once(self, generation: types.JobGeneration) -> None:
        last = self.published[-1] if self.published else None
        if last is None or last.number != generation.number:
            assert generation.number == (last.number if last else 0) + 1, "a generation was skipped"
            self.published.append(generation)
            members = {one.uid for one in generation.members}
            for pod in self.pods.values():
                if pod.uid in members or pod.notified_generation:
                    pod.notified_generation = generation.number
        else:
            assert last == generation

    def _create(self, role: str, index: int) -> list[Event]:
        assert self.phase not in (*FINISHED, "Suspended", "Restarting"), f"a replica made while {self.phase}"
        if self.refuses:
            self.refusals.append(CreateRefused(role, index, self.refuses))
            return []
        assert index < self._reach(role), f"{role}-{index} made, and one below is missing"
        if (role, index) in self.pods:
            raise KilledError  # the server refuses a second pod of a name; the controller looks again
        self._numbers += 1
        pod = Pod(role, index, f"{role}-{index}-{self._numbers}")
        self.pods[role, index] = pod
        return [ReplicaSeen(self._replica(pod))]

    def _delete(self, one: DeleteReplica) -> None:
        pod = self.pods.get((one.role, one.index))
        if pod is None or pod.uid != one.uid:
            return
        generation = self.status.generation
        heard = self.heard.get((one.role, one.index))
        is_known = heard is not None and heard.uid == pod.uid and heard.stage == "ready"
        if self.phase in RUNS and pod.stage == "ready" and is_known and not pod.is_leaving:
            assert (pod.role, pod.index) != (self._first, 0), "index 0 was shrunk away"
            assert pod.uid not in {member.uid for member in generation.members}, "a member was deleted"
            was_member = any(pod.uid == one.uid for known in self.published for one in known.members)
            if self.item.spec.framework == "torch" and was_member:
                told = generation.time
                assert told is not None
                assert self.published[-1].number == generation.number
                grace_s = self.item.spec.elastic.grace_seconds
                is_set_back = told.timestamp() > self.now + 30  # the clock was set back: the time is unknown
                has_had_its_time = self.now >= told.timestamp() + grace_s or is_set_back
                assert has_had_its_time or self.acks.get(pod.uid, 0) >= generation.number, "deleted before it was ready"
        pod.is_leaving = True
        self.news.add((one.role, one.index))
        if pod.stage == "pending" or pod.has_ended:
            self.vanish(pod)

    # -- what happens on the server

    def vanish(self, pod: Pod) -> None:
        del self.pods[pod.role, pod.index]
        self.news.discard((pod.role, pod.index))
        self.gone.append(ReplicaGone(pod.role, pod.index, pod.uid))

    def bind(self, pod: Pod) -> None:
        self._change(pod, stage="starting", bound_at=self.now)

    def get_ready(self, pod: Pod) -> None:
        self._change(pod, stage="ready", ready_at=self.now, bound_at=pod.bound_at or self.now)

    def get_unready(self, pod: Pod) -> None:
        """Its probe fails, or its node is lost. Its workers may still run."""
        self._change(pod, stage="starting")

    def end(self, pod: Pod, code: int, reason: str = "") -> None:
        self._change(pod, stage="failed" if code else "succeeded", exit=code, reason=reason)

    def evict(self, pod: Pod) -> None:
        self._change(pod, is_leaving=True)

    def _change(self, pod: Pod, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(pod, name, value)
        self.news.add((pod.role, pod.index))

    def edit(self, **spec: Any) -> None:
        self.item = msgspec.structs.replace(self.item, spec=msgspec.structs.replace(self.item.spec, **spec))
        self.news.add(None)

    def edit_role(self, number: int = 0, **changes: Any) -> None:
        roles = list(self.item.spec.roles)
        roles[number] = msgspec.structs.replace(roles[number], **changes)
        self.edit(roles=tuple(roles))

    def decide(self, **sizes: int) -> None:
        """The scheduler decides a size."""
        target = {one.role: one.replicas for one in self.status.target} | sizes
        listed = tuple(types.RoleTarget(role, size) for role, size in target.items())
        status = msgspec.structs.replace(self.status, target=listed, resizes=self.status.resizes + 1)
        self.item = msgspec.structs.replace(self.item, status=status)
        self.news.add(None)
        self._conflict = True

    def overwrite(self, phase: str) -> None:
        """A user writes a wrong phase."""
        status = msgspec.structs.replace(self.status, phase=phase)
        self.item = msgspec.structs.replace(self.item, status=status)
        self.news.add(None)
        self._conflict = True

    def wipe(self) -> None:
        """A user removes the status."""
        self.item = msgspec.structs.replace(self.item, status=types.ElasticJobStatus())
        self.news.add(None)
        self._conflict = True
        self._is_wiped = bool(self.published)

    # -- what the machine hears

    def acknowledge(self, pod: Pod, state: str, generation: int | None = None, code: int = 0) -> None:
        number = self.status.generation.number if generation is None else generation
        if state == "stopped":
            self.acks[pod.uid] = max(self.acks.get(pod.uid, 0), number)
        self.tell(Acknowledged(pod.role, pod.index, pod.uid, number, state, code))

    def report(self, throughput: float | None, step: int = 1) -> None:
        self.tell(Reported(self.status.generation.number, step, self.now, throughput, 100))

    def hear(self, key: tuple[str, int] | None) -> None:
        """An event of the job (None) or of a pod, as it is now."""
        self.news.discard(key)
        if key is None:
            self._conflict = False
            self._known_spec = self.item
            self.tell(JobSeen(self.item))
        elif key in self.pods:
            self.tell(ReplicaSeen(self._replica(self.pods[key])))

    def hear_all(self) -> None:
        while self.news or self.gone or self.refusals:
            if self.gone or self.refusals:
                self.tell((self.gone or self.refusals).pop(0))
            else:
                self.hear(min(self.news, key=lambda key: key or ("", 0)))

    def hear_all_at_once(self) -> None:
        """One decision for all events, as of a controller that was busy."""
        events: list[Event] = [*self.gone, *self.refusals]
        for key in self.news:
            if key is not None:
                events.append(ReplicaSeen(self._replica(self.pods[key])))
            else:
                self._conflict, self._known_spec = False, self.item
                events.append(JobSeen(self.item))
        self.news.clear()
        self.gone.clear()
        self.refusals.clear()
        self.tell(*events)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.armed is not None and self.armed <= self.now:
            self.tell(TimePassed())

    def set_clock(self, seconds: float) -> None:
        """The wall clock jumps. A running timer is not affected."""
        self.now += seconds
        if self.armed is not None:
            self.armed += seconds

    def settle(self, *, has_room: bool = True) -> None:
        """Sends all events, lets leaving pods go, and passes time until nothing more happens."""
        for _ in range(400):
            self.hear_all()
            todo = [pod for pod in self.pods.values() if pod.is_leaving or (has_room and self._may_start(pod))]
            for pod in todo:
                if pod.is_leaving:
                    self.vanish(pod)
                else:
                    self.get_ready(pod)
            if todo or self.news or self.gone:
                continue
            if self.armed is None:
                return
            self.pass_time(max(0.0, self.armed - self.now) + 0.001)
        raise AssertionError("never at rest")

    def _may_start(self, pod: Pod) -> bool:
        return pod.stage in ("pending", "starting") and not pod.trouble

    def _replica(self, pod: Pod) -> Replica:
        return replace(
            Replica(pod.role, pod.index, pod.uid),
            stage=pod.stage,  # type: ignore[arg-type]
            is_leaving=pod.is_leaving,
            leaves_at=pod.leaves_at,
            node="" if pod.stage == "pending" else f"n{pod.index // 2}",
            address="" if pod.stage == "pending" else f"10.0.0.{pod.index}",
            bound_at=pod.bound_at,
            ready_at=pod.ready_at,
            exit=pod.exit,
            reason=pod.reason,
            trouble=pod.trouble,
            notified_generation=pod.notified_generation,
        )

    # -- for tests

    def pod(self, index: int, role: str = "worker") -> Pod:
        return self.pods[role, index]

    def indices(self, role: str = "worker") -> list[int]:
        return sorted(index for name, index in self.pods if name == role)

    def members(self) -> list[str]:
        return [one.pod for one in self.status.generation.members]

    def reason(self, kind: str) -> str:
        return next(one.reason for one in self.status.conditions if one.type == kind and one.status == "True")


def running(size: int = 2, least: int = 2, most: int = 4, **spec: object) -> World:
    world = World(elastic_job((("worker", least, most),), **spec))
    if size > least:
        world.decide(worker=size)
    world.settle()
    assert world.phase == "Running"
    assert len(world.members()) == size
    return world
