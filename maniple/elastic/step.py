"""One step while it is being made: the state, what can be asked of it, and the instructions so far."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Literal

import msgspec

from maniple.api import types
from maniple.api.timestamps import from_seconds, to_seconds
from maniple.elastic.conditions import conditions_in, with_hindrance
from maniple.elastic.events import Replica
from maniple.elastic.failures import LONGEST_S, has_failed
from maniple.elastic.generations import next_generation
from maniple.elastic.instructions import CreateReplica, DeleteReplica, RecordEvent
from maniple.elastic.job import Place
from maniple.elastic.sizes import as_target, resized, wanted_sizes
from maniple.elastic.state import ACTIVE, OVER, Phase, State

_SKEW_S = 30.0  # by so much the clocks of two machines may differ
_LINGER_S = 30.0  # after its grace, a pod that is still there waits for somebody
_WHY_IT_LINGERS = (
    "its node does not say that it has ended, or a finalizer holds it; where the node is lost for good, delete the "
    "Node, or the pod with --force"
)


class Turn:
    def __init__(self, state: State, now: float) -> None:
        self.now = now
        self.job = state.job
        self.status = state.status
        self.replicas = dict(state.replicas)
        self.crashed = state.crashed
        self.refused = state.refused
        self.samples = state.samples
        self.is_gone = state.is_gone
        self.wake: float | None = None
        self.has_new_generation = False
        self.creates: list[CreateReplica] = []
        self.deletes: list[DeleteReplica] = []
        self.records: list[RecordEvent] = []
        self.taken: list[str] = []
        self.why = ("", "")  # reason and message of the transition that is being made

    # -- time

    def is_past(self, when: float | datetime | None, longest_s: float = inf) -> bool:
        """Whether that moment has come; if not, the machine wants to be woken then. None has come long ago.

        `longest_s`: nobody waits longer than so for it. What is further away was written by a clock that was ahead of
        ours, or before ours was set back, and has come too.
        """
        if when is None:
            return True
        at = to_seconds(when) if isinstance(when, datetime) else when
        if at <= self.now or at > self.now + longest_s + _SKEW_S:
            return True
        self.wake = at if self.wake is None else min(self.wake, at)
        return False

    def may_grow(self) -> bool:
        """Whether it is not too soon after newcomers that did not start, or after a failure."""
        return self.may_retry() and self.is_past(self.status.grow_after, self.job.start_s)

    def may_retry(self) -> bool:
        """Whether the pause after the last failure is over."""
        return self.is_past(self.status.failures.retry_time, LONGEST_S)

    # -- what is

    @property
    def phase(self) -> Phase:
        return self.status.phase

    @property
    def generation(self) -> types.JobGeneration:
        return self.status.generation

    @property
    def wanted(self) -> dict[str, int]:
        return wanted_sizes(self.job, self.status.target, self.replicas.values())

    def wanted_places(self) -> list[Place]:
        """Places to be filled now. While one that the job had is missing, those are all that it has: what room there is
        must go to the missing one, and above all to the first, before the job gets any larger.
        """
        sizes, filled = self.wanted, self._filled()
        reach = self._reach(filled) if self._has_gap(sizes, filled) else sizes
        return [(role, index) for role, size in sizes.items() for index in range(min(size, reach[role]))]

    def _filled(self) -> set[Place]:
        """Places whose replica takes part, or has ended well."""
        members = self.member_uids()
        return {one.place for one in self.replicas.values() if one.uid in members or self.is_done(one)}

    def _has_gap(self, sizes: dict[str, int], filled: set[Place]) -> bool:
        """Whether a running job is without its first replica, or without one below its highest."""
        if self.phase not in ACTIVE or not self.generation.members:
            return False
        ends = {self.job.first[0]: 1}
        for one in self.generation.members:
            ends[one.role] = max(ends.get(one.role, 0), one.index)
        return any((role, i) not in filled for role, end in ends.items() for i in range(min(sizes.get(role, 0), end)))

    def _reach(self, filled: set[Place]) -> dict[str, int]:
        """Role -> the places up to the highest that is filled, or will be at the next generation."""
        reach = {role.name: 0 for role in self.job.roles} | {self.job.first[0]: 1}
        for one in self.replicas.values():
            if one.place in filled or (one.stage == "ready" and not one.is_leaving):
                reach[one.role] = max(reach.get(one.role, 0), one.index + 1)
        return reach

    def premature(self) -> list[Replica]:
        """Newcomers that are not ready, above the places to be filled now: their room is for those below."""
        places = {*self.wanted_places(), *self._filled()}
        there = (one for one in self.replicas.values() if one.stage in ("pending", "starting") and not one.is_at_work)
        return [one for one in there if one.place not in places]

    def beyond(self) -> list[Replica]:
        """Replicas that the job is to be without: those above its size.

        Where one below the size is missing, a member above it stays until that is filled, if the minimum needs it.
        """
        wanted, members, filled = self.wanted, self.member_uids(), self._filled()
        found = []
        for role in self.job.roles:
            size = wanted[role.name]
            mine = sorted((one for one in self.replicas.values() if one.role == role.name), key=lambda one: one.index)
            there = sum(1 for one in mine if one.index < size and one.place in filled and not one.is_leaving)
            for one in mine:
                if one.index < size:
                    continue
                if there < role.least and one.uid in members and one.is_alive:
                    there += 1
                else:
                    found.append(one)
        return found

    def member_uids(self) -> set[str]:
        return {one.uid for one in self.generation.members}

    def survivors(self) -> list[Replica]:
        """Members that are there, and have not ended."""
        found = (self.replicas.get((one.role, one.index)) for one in self.generation.members)
        uids = self.member_uids()
        return [one for one in found if one is not None and one.uid in uids and one.is_alive]

    def lost(self) -> list[types.GenerationMember]:
        """Members that are gone or about to go. Those that have ended well are not lost; those that failed are judged
        as failures first."""
        return [one for one in self.generation.members if self._is_lost(one)]

    def _is_lost(self, member: types.GenerationMember) -> bool:
        replica = self.replicas.get((member.role, member.index))
        if replica is None or replica.uid != member.uid or replica.is_leaving:
            return True
        if has_failed(self.job, replica):
            return replica.uid in self.status.failures.pods
        return replica.stage == "failed"

    def is_done(self, replica: Replica) -> bool:
        """Whether it has ended well, and need not be started again."""
        return replica.stage == "succeeded" and not replica.is_leaving and self.job.restart_policy != "Always"

    def newcomers(self) -> list[Place]:
        """Places that the job is to have, and whose replica does not take part yet."""
        filled = self._filled()
        return [place for place in self.wanted_places() if place not in filled]

    def is_enough(self, replicas: Iterable[Replica]) -> bool:
        """Whether the job can go on with these and those that have ended well; the latter are enough where each replica
        speaks for itself."""
        there = list(replicas)
        if not there and self.job.framework != "none":
            return False
        return self._has({role.name: role.min for role in self.job.roles}, there)

    def is_complete(self, replicas: Iterable[Replica]) -> bool:
        """Whether the job can start with these: with its minimum, or the size that it is pinned at."""
        there = list(replicas)
        return bool(there) and self._has({role.name: role.least for role in self.job.roles}, there)

    def _has(self, least: dict[str, int], replicas: Iterable[Replica]) -> bool:
        there = {one.place for one in replicas}
        done = {one.place for one in self.replicas.values() if self.is_done(one)}
        if self.job.needs_first and self.job.first not in there | done:
            return False
        counts: dict[str, int] = {}
        for role, _ in there | done:
            counts[role] = counts.get(role, 0) + 1
        return all(counts.get(role, 0) >= size for role, size in least.items())

    # -- what becomes

    def change(self, **changes: object) -> None:
        self.status = msgspec.structs.replace(self.status, **changes)

    def enter(self, phase: Phase) -> None:
        reason, message = self.why
        self.change(phase=phase)
        self.tell_conditions(reason or f"Job{phase}", message)
        self.why = ("", "")

    def tell_conditions(self, reason: str, message: str) -> None:
        before, is_idle = self.status.conditions, not self.replicas
        after = conditions_in(self.phase, before, reason, message, self.now, is_idle=is_idle)
        self.change(conditions=after)

    def tell_hindrance(self, told: tuple[str, str]) -> None:
        """`told`: what the API server has against an instruction, if anything."""
        reason, message = told
        lingering = [] if self.phase in OVER else self._lingering()
        if lingering and not reason:
            named = ", ".join(f"{self.job.pod(one.place)} on {one.node}" for one in lingering[:3])
            more = f" and {len(lingering) - 3} more" if len(lingering) > 3 else ""
            reason, message = "ReplicaLingers", f"waits for {named}{more} to be gone: {_WHY_IT_LINGERS}"
        if self.phase in OVER:
            reason, message = "", ""
        self.change(conditions=with_hindrance(self.status.conditions, reason, message, self.now))

    def _lingering(self) -> list[Replica]:
        """Replicas that should be gone: nobody can have their places before."""
        leaving = sorted((one for one in self.replicas.values() if one.leaves_at), key=lambda one: one.place)
        return [one for one in leaving if self.is_past(one.leaves_at + _LINGER_S)]

    def form(self, replicas: Iterable[Replica]) -> None:
        """A new generation of these; of nobody: all are to stop."""
        members = [one for one in replicas if one.is_alive]
        # Replicas listen to newer ones only, also if somebody has removed the status with its number.
        last = max([self.generation.number, *(one.told for one in self.replicas.values())])
        self.change(generation=next_generation(last, self.job, members, from_seconds(self.now)))
        self.crashed = None
        self.has_new_generation = True

    def stop(self) -> None:
        """Whoever runs is asked to checkpoint and stop."""
        if self.generation.members:
            self.form(())

    def keep_size(self) -> None:
        """What the job runs at is its size until another is decided. That is no resize."""
        size = as_target(self.wanted)
        if size != self.status.target:
            self.change(target=size)

    def set_target(self, sizes: dict[str, int]) -> None:
        if as_target(sizes) == self.status.target:
            return
        self.status = resized(self.status, sizes, from_seconds(self.now))

    def start_over(self) -> None:
        """The next start is with the minimum: what it had above that may be somebody else's by then."""
        self.stop()
        if self.status.target:
            least = {role.name: role.least for role in self.job.roles}
            if as_target(least) != self.status.target:
                self.change(target=as_target(least))

    def say(self, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        self.records.append(RecordEvent(reason, message, kind))

    def create(self, place: Place) -> None:
        self.creates.append(CreateReplica(*place))
        self.replicas[place] = Replica(*place, stage="asked")

    def delete(self, replica: Replica, grace_s: float | None = None) -> None:
        """Once: from then on it is about to go."""
        if replica.is_leaving or replica.stage == "asked":
            return
        self.deletes.append(DeleteReplica(replica.role, replica.index, replica.uid, grace_s))
        self.replicas[replica.place] = replace(replica, is_leaving=True)
