"""One step of the machine while it is computed: the state, questions about it, and the instructions so far."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Literal

import msgspec

from maniple.api import types
from maniple.api.phases import FINISHED
from maniple.api.timestamps import from_seconds, to_seconds
from maniple.elastic.conditions import conditions_in, with_hindrance
from maniple.elastic.events import Replica
from maniple.elastic.failures import LONGEST_S, has_failed
from maniple.elastic.generations import next_generation
from maniple.elastic.instructions import CreateReplica, DeleteReplica, RecordEvent
from maniple.elastic.job_spec import ReplicaKey
from maniple.elastic.state import ACTIVE, Phase, State
from maniple.elastic.target_sizes import as_target, resized, wanted_sizes

_SKEW_S = 30.0  # the clocks of two machines may differ by this much
_LINGER_S = 30.0  # a pod that is still there this long after its grace period is reported
_WHY_IT_LINGERS = (
    "its node does not say that it has ended, or a finalizer holds it; where the node is lost for good, delete the "
    "Node, or the pod with --force"
)


class Step:
    def __init__(self, state: State, now: float) -> None:
        self.now = now
        self.job = state.job
        self.status = state.status
        self.replicas = dict(state.replicas)
        self.worker_failure = state.worker_failure
        self.refused = state.refused
        self.samples = state.samples
        self.timer: float | None = None  # the next time at which the machine must run again
        self.has_new_generation = False
        self.creates: list[CreateReplica] = []
        self.deletes: list[DeleteReplica] = []
        self.records: list[RecordEvent] = []
        self.taken: list[str] = []  # names of the transitions taken so far
        self.why = ("", "")  # reason and message of the current transition

    # -- time

    def is_due_or_arm(self, when: float | datetime | None, longest_s: float = inf) -> bool:
        """Whether `when` has come, as None has. If not, arms the timer, so that the machine asks again at that time.

        `longest_s` is the longest that anything waits for it. A time further away was written by a clock that was ahead
        of ours, or before ours was set back, and counts as come.
        """
        seconds = to_seconds(when) if when is None or isinstance(when, datetime) else when
        if seconds <= self.now or seconds > self.now + longest_s + _SKEW_S:
            return True
        self.timer = seconds if self.timer is None else min(self.timer, seconds)
        return False

    def may_grow_or_arm(self) -> bool:
        """Whether the pauses after a failure and after newcomers that did not start are over."""
        return self.may_retry_or_arm() and self.is_due_or_arm(self.status.grow_after, self.job.spec.start_seconds)

    def may_retry_or_arm(self) -> bool:
        """Whether the pause after the last failure is over."""
        return self.is_due_or_arm(self.status.failures.retry_time, LONGEST_S)

    # -- questions

    @property
    def phase(self) -> Phase:
        return self.status.phase

    @property
    def generation(self) -> types.JobGeneration:
        return self.status.generation

    @property
    def sizes(self) -> dict[str, int]:
        """Role -> replicas that the job should have."""
        return wanted_sizes(self.job, self.status.target, self.replicas.values())

    def wanted_keys(self) -> list[ReplicaKey]:
        """Replicas that should exist now.

        While a replica that the job had is missing, the job gets no larger: what room there is must go to the missing
        one, and above all to the first.
        """
        sizes, filled = self.sizes, self._filled_keys()
        reach = self._reach(filled) if self._has_gap(sizes, filled) else sizes
        return [(role, index) for role, size in sizes.items() for index in range(min(size, reach[role]))]

    def _filled_keys(self) -> set[ReplicaKey]:
        """Replicas that are members or are done."""
        members = self.member_uids()
        return {replica.key for replica in self.replicas.values() if replica.uid in members or self.is_done(replica)}

    def _has_gap(self, sizes: dict[str, int], filled: set[ReplicaKey]) -> bool:
        """Whether a running job is without its first replica, or without one below its highest."""
        if self.phase not in ACTIVE or not self.generation.members:
            return False
        highest = {self.job.first[0]: 1}
        for member in self.generation.members:
            highest[member.role] = max(highest.get(member.role, 0), member.index)
        return any(
            (role, index) not in filled
            for role, end in highest.items()
            for index in range(min(sizes.get(role, 0), end))
        )

    def _reach(self, filled: set[ReplicaKey]) -> dict[str, int]:
        """Role -> one more than the highest index that is filled, or will be in the next generation."""
        reach = {role.name: 0 for role in self.job.roles} | {self.job.first[0]: 1}
        for replica in self.replicas.values():
            if replica.key in filled or (replica.stage == "ready" and not replica.is_leaving):
                reach[replica.role] = max(reach.get(replica.role, 0), replica.index + 1)
        return reach

    def premature(self) -> list[Replica]:
        """Newcomers that are not ready and not wanted yet: their room is for missing replicas with a lower index."""
        keys = {*self.wanted_keys(), *self._filled_keys()}
        return [
            replica
            for replica in self.replicas.values()
            if replica.stage in ("pending", "starting") and not replica.is_at_work and replica.key not in keys
        ]

    def surplus(self) -> list[Replica]:
        """Replicas above the size of their role.

        While one below the size is missing, a member above it stays if the minimum needs it.
        """
        sizes, members, filled = self.sizes, self.member_uids(), self._filled_keys()
        surplus = []
        for role in self.job.roles:
            size = sizes[role.name]
            replicas = sorted(
                (replica for replica in self.replicas.values() if replica.role == role.name),
                key=lambda replica: replica.index,
            )
            kept = sum(
                1 for replica in replicas if replica.index < size and replica.key in filled and not replica.is_leaving
            )
            for replica in replicas:
                if replica.index < size:
                    continue
                if kept < role.least and replica.uid in members and replica.is_alive:
                    kept += 1
                else:
                    surplus.append(replica)
        return surplus

    def member_uids(self) -> set[str]:
        return {member.uid for member in self.generation.members}

    def survivors(self) -> list[Replica]:
        """Members that are alive."""
        members = (self.replicas.get((member.role, member.index)) for member in self.generation.members)
        uids = self.member_uids()
        return [replica for replica in members if replica is not None and replica.uid in uids and replica.is_alive]

    def lost_members(self) -> list[types.GenerationMember]:
        """Members that are gone or being deleted.

        Those that have succeeded are not lost. Those that failed are lost once the failure is counted.
        """
        return [member for member in self.generation.members if self._is_lost(member)]

    def _is_lost(self, member: types.GenerationMember) -> bool:
        replica = self.replicas.get((member.role, member.index))
        if replica is None or replica.uid != member.uid or replica.is_leaving:
            return True
        if has_failed(self.job, replica):
            return replica.uid in self.status.failures.pods
        return replica.stage == "failed"

    def is_done(self, replica: Replica) -> bool:
        """Whether it has succeeded and need not be started again."""
        return replica.stage == "succeeded" and not replica.is_leaving and self.job.spec.restart_policy != "Always"

    def newcomer_keys(self) -> list[ReplicaKey]:
        """Replicas that the job should have and that are not members yet."""
        filled = self._filled_keys()
        return [key for key in self.wanted_keys() if key not in filled]

    def is_enough(self, replicas: Iterable[Replica]) -> bool:
        """Whether the job can go on with `replicas` and those that are done.

        Replicas that are done are enough alone where each replica works for itself.
        """
        alive = list(replicas)
        if not alive and self.job.spec.framework != "none":
            return False
        return self._has({role.name: role.min for role in self.job.roles}, alive)

    def is_complete(self, replicas: Iterable[Replica]) -> bool:
        """Whether the job can start with `replicas`: with its minimum, or the size that it is pinned at."""
        alive = list(replicas)
        return bool(alive) and self._has({role.name: role.least for role in self.job.roles}, alive)

    def _has(self, least: dict[str, int], replicas: Iterable[Replica]) -> bool:
        keys = {replica.key for replica in replicas}
        keys |= {replica.key for replica in self.replicas.values() if self.is_done(replica)}
        if self.job.needs_first and self.job.first not in keys:
            return False
        counts: dict[str, int] = {}
        for role, _ in keys:
            counts[role] = counts.get(role, 0) + 1
        return all(counts.get(role, 0) >= size for role, size in least.items())

    # -- changes

    def change(self, **changes: object) -> None:
        """Sets fields of the status."""
        self.status = msgspec.structs.replace(self.status, **changes)

    def enter(self, phase: Phase) -> None:
        reason, message = self.why
        self.change(phase=phase)
        self.set_conditions(reason or f"Job{phase}", message)
        self.why = ("", "")

    def set_conditions(self, reason: str, message: str) -> None:
        before, is_idle = self.status.conditions, not self.replicas
        self.change(conditions=conditions_in(self.phase, before, reason, message, self.now, is_idle=is_idle))

    def set_hindrance(self, hindrance: tuple[str, str]) -> None:
        """`hindrance`: reason and message of what the API server has against an instruction; empty if nothing."""
        reason, message = hindrance
        lingering = [] if self.phase in FINISHED else self._lingering()
        if lingering and not reason:
            names = ", ".join(f"{self.job.pod(replica.key)} on {replica.node}" for replica in lingering[:3])
            more = f" and {len(lingering) - 3} more" if len(lingering) > 3 else ""
            reason, message = "ReplicaLingers", f"waits for {names}{more} to be gone: {_WHY_IT_LINGERS}"
        if self.phase in FINISHED:
            reason, message = "", ""
        self.change(conditions=with_hindrance(self.status.conditions, reason, message, self.now))

    def _lingering(self) -> list[Replica]:
        """Replicas that should be gone. Their successors cannot be created before."""
        leaving = sorted(
            (replica for replica in self.replicas.values() if replica.leaves_at), key=lambda replica: replica.key
        )
        return [replica for replica in leaving if self.is_due_or_arm(replica.leaves_at + _LINGER_S)]

    def form_generation(self, replicas: Iterable[Replica]) -> None:
        """A new generation of these replicas. An empty one tells all workers to stop."""
        members = [replica for replica in replicas if replica.is_alive]
        # Replicas ignore numbers that are not newer, also if the status with the number was removed.
        last = max([self.generation.number, *(replica.notified_generation for replica in self.replicas.values())])
        self.change(generation=next_generation(last, self.job, members, from_seconds(self.now)))
        self.worker_failure = None
        self.has_new_generation = True

    def set_target(self, sizes: dict[str, int]) -> None:
        if as_target(sizes) != self.status.target:
            self.status = resized(self.status, sizes, from_seconds(self.now))

    def start_over(self) -> None:
        """Asks workers to checkpoint and stop. The next start is with the minimum: other jobs may get the rest."""
        if self.generation.members:
            self.form_generation(())
        if self.status.target:
            self.change(target=as_target({role.name: role.least for role in self.job.roles}))

    def record(self, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        self.records.append(RecordEvent(reason, message, kind))

    def create(self, key: ReplicaKey) -> None:
        self.creates.append(CreateReplica(*key))
        self.replicas[key] = Replica(*key, stage="asked")

    def delete(self, replica: Replica, grace_s: float | None = None) -> None:
        if replica.is_leaving or replica.stage == "asked":
            return
        self.deletes.append(DeleteReplica(replica.role, replica.index, replica.uid, grace_s))
        self.replicas[replica.key] = replace(replica, is_leaving=True)
