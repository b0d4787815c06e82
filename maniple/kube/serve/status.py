"""What objects say of themselves: gangs, queues, and pods that wait. Written only when it has changed.

What only re-words itself is written seldom, and so many pods at most in a cycle; the rest comes in the next.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup, UpstreamPodGroupStatus
from maniple.kube.serve.events import Events, Regarding
from maniple.kube.serve.gang_status import (
    INVALID,
    Count,
    Why,
    condition_of,
    foreign_status,
    is_message_only,
    job_conditions,
    least,
    pod_group_status,
)
from maniple.kube.serve.gangs import SCHEDULED, Gangs, jobs_by_queue
from maniple.kube.serve.patches import Patches
from maniple.kube.serve.upstream_status import only_reworded, upstream_conditions
from maniple.kube.transport.client import STRATEGIC_PATCH
from maniple.kube.transport.mirror import Key, Mirror, Seen, Wrong
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import Plan, QueueShare, Waiting

log = logging.getLogger("maniple.status")

VALID = "Valid"  # the condition of a queue
_MOST_PODS = 100  # whose condition is written in one cycle
_MOST_UNDER_WAY = 400
_REWORD_S = 10.0  # the same reason in other words, at most this often
_HELD_S = 30.0  # what a controller here is about to write, or to make superfluous
_SAY_AGAIN_S = 60.0  # an event with the same reason in other words
_QUEUE_S = 2.0
_UNCLAIMED_S = 5.0
_LONGEST = 1000
_REMEMBERED = 10_000

NOT_ENOUGH = "NotEnoughPods"

Place = tuple[Resource, Key]


class Statuses:
    def __init__(self, patches: Patches, mirror: Mirror, gangs: Gangs, events: Events) -> None:
        self._patches = patches
        self._mirror = mirror
        self._gangs = gangs
        self._events = events
        self._busy: set[Place] = set()
        self._written: dict[Place, float] = {}
        self._said: dict[str, tuple[Why, float]] = {}  # uid of a pod -> what it says, and since when
        self._spoken: dict[str, tuple[Why, tuple[tuple[str, ...], ...]]] = {}  # gangs of which every pod says it
        self._voiced: dict[str, tuple[str, float]] = {}  # uid of a gang -> the reason its last event gave, and when
        self._told: dict[Place, str] = {}  # what an object was told to be wrong with it
        self._noted: dict[Place, tuple[str, ...]] = {}  # what a queue was told that is not read of it
        self.makes_pods = False  # whether a controller here makes the pods of elastic jobs
        self.under_way: set[asyncio.Task[None]] = set()

    def write(self, snapshot: Snapshot, plan: Plan, wrong: Mapping[Place, Wrong]) -> None:
        """Begins to write what has changed; `wrong` are the objects that are set aside."""
        waiting = {_key(entry.group): _why(entry) for entry in plan.waiting}
        for (resource, key), entry in wrong.items():
            if key in waiting and resource.read_as in (types.PodGroup, types.ElasticJob):
                waiting[key] = Why(INVALID, f"{resource.kind} {key[1]} is set aside: {_said(entry)}"[:_LONGEST])
        touched, self._gangs.touched = self._gangs.touched | waiting.keys(), set()
        for key in touched:
            if len(self.under_way) > _MOST_UNDER_WAY:
                self._gangs.touched.add(key)
            else:
                self._write_gang(key, waiting.get(key), wrong)
        self._write_pods(snapshot, waiting)
        self._write_queues(snapshot, plan.queues, wrong)
        self._tell_unread_queues()
        self._tell_wrong(wrong)
        if len(self._written) > _REMEMBERED:
            since = time.monotonic() - 10 * _REWORD_S
            self._written = {place: at for place, at in self._written.items() if at > since}
            self._voiced = {uid: said for uid, said in self._voiced.items() if said[1] > since}

    async def settle(self) -> None:
        while self.under_way:
            await asyncio.wait(self.under_way)

    def _begin(self, place: Place, work: Coroutine[Any, Any, bool]) -> None:
        async def done() -> None:
            try:
                if not await work:
                    self._gangs.touched.add(place[1])
                    if place[0].struct is types.ElasticJob:  # its controller was quicker: there is no need to wait
                        self._written.pop(place, None)
            except Exception:
                log.exception("status")
            finally:
                self._busy.discard(place)

        self._busy.add(place)
        self._written[place] = time.monotonic()
        task = asyncio.create_task(done())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    def _is_recent(self, place: Place, pause_s: float) -> bool:
        return time.monotonic() - self._written.get(place, -pause_s) < pause_s

    # -- gangs

    def _write_gang(self, key: Key, why: Why | None, wrong: Mapping[Place, Wrong]) -> None:
        found = self._gangs.find(key)
        if found is None:
            return
        place = (found[0], key)
        if place in self._busy:
            self._gangs.touched.add(key)
            return
        if isinstance(found[1].item, types.ElasticJob) and not self._gangs.runs(found[1].item):
            return
        if place in wrong:
            why = Why(INVALID, _said(wrong[place]))
        seen, now = found[1], _now()
        members = self._gangs.members(key)
        if members and not self._gangs.is_ours(key):
            return
        if not members and seen.source is not None and not self._is_unclaimed(key, seen):
            return
        count = Count.of(members)
        status: dict[str, Any] | None
        if isinstance(seen.item, types.ElasticJob):
            status = self._of_elastic_job(place, seen.item, count, why, now)
        elif not isinstance(seen.item, types.PodGroup):
            return
        elif isinstance(seen.source, UpstreamPodGroup):
            status = self._of_upstream(place, seen.source, count, why, now)
        elif seen.source is not None:
            status = foreign_status(seen.source, seen.item.spec.min_member, count, why, now)
        else:
            status = self._of_pod_group(place, seen.item, count, why, now)
        if status is not None:
            self._begin(place, self._patches.write(*place, _exactly(seen, status), "status"))
            self._tell_waiting(place, seen, why)
            if getattr(seen.source, "status", None) in ({}, UpstreamPodGroupStatus()):  # the first words about it
                self._tell_unread(place, seen)

    def _is_unclaimed(self, key: Key, seen: Seen) -> bool:
        """Another system's group without pods, whose own scheduler would have said something of it by now."""
        if isinstance(seen.source, UpstreamPodGroup):
            return False  # no controller waits for a word of ours
        created = None if seen.item is None else seen.item.metadata.creation_timestamp
        if created is not None and time.time() - created.timestamp() < _UNCLAIMED_S:
            self._gangs.touched.add(key)
            return False
        status: dict[str, Any] = getattr(seen.source, "status", {})
        return status.get("phase", "Pending") in ("", "Pending") and not status.get("conditions")

    def _of_pod_group(
        self, place: Place, group: types.PodGroup, count: Count, why: Why | None, now: str
    ) -> dict[str, Any] | None:
        after = pod_group_status(group, count, why, now)
        if after == group.status:
            return None
        if is_message_only(group.status, after) and self._is_recent(place, _REWORD_S):
            self._gangs.touched.add(place[1])
            return None
        made: dict[str, Any] = msgspec.to_builtins(after)
        return made

    def _of_upstream(
        self, place: Place, group: UpstreamPodGroup, count: Count, why: Why | None, now: str
    ) -> dict[str, Any] | None:
        before, after = group.status.conditions, upstream_conditions(group, count, why, now)
        if set(after) == set(before):
            return None
        if only_reworded(before, after) and self._is_recent(place, _REWORD_S):
            self._gangs.touched.add(place[1])
            return None
        return {"conditions": msgspec.to_builtins(after)}

    def _of_elastic_job(
        self, place: Place, job: types.ElasticJob, count: Count, why: Why | None, now: str
    ) -> dict[str, Any] | None:
        """Of an ElasticJob only the condition is ours."""
        before, after = job.status.conditions, job_conditions(job, count, why, now)
        if after == before:
            return None
        old, is_whole = _status_of(SCHEDULED, before), count.is_whole(least(job))
        has_turned = old != _status_of(SCHEDULED, after)
        pause_s = 0.0 if has_turned else _REWORD_S
        if self.makes_pods and has_turned and job.status.phase in ("", "Pending"):
            # A controller here says that all are bound with what it has to say, which is that the job starts;
            # and of pods that it is making there is nothing to say.
            is_being_made = not old and not is_whole and (why is None or why.reason == NOT_ENOUGH)
            if is_whole or is_being_made:
                pause_s = _HELD_S
                self._written.setdefault(place, time.monotonic())
        if self._is_recent(place, pause_s):
            self._gangs.touched.add(place[1])
            return None
        return {"conditions": msgspec.to_builtins(after)}

    def conditions_of(self, key: Key, job: types.ElasticJob) -> tuple[types.StatusCondition, ...]:
        """With ours as it is now, for the controller to write with its own."""
        count = Count.of(self._gangs.members(key))
        return job_conditions(job, count, None, _now()) if count.is_whole(least(job)) else job.status.conditions

    def _tell_waiting(self, place: Place, seen: Seen, why: Why | None) -> None:
        """The same reason in other words is no news: the condition has the words."""
        if why is None:
            return
        reason, at = self._voiced.get(seen.uid, ("", 0.0))
        now = time.monotonic()
        if reason != why.reason or now - at >= _SAY_AGAIN_S:
            self._voiced[seen.uid] = (why.reason, now)
            self._events.add(Regarding.of(*place, seen.uid), why.reason, why.message, "Schedule", "Warning")

    def _tell_unread(self, place: Place, seen: Seen) -> None:
        """What another system's object says that has no counterpart here."""
        if seen.notes:
            self._events.add(Regarding.of(*place, seen.uid), "NotRead", "; ".join(seen.notes), "Read", "Warning")

    # -- pods

    def _write_pods(self, snapshot: Snapshot, waiting: Mapping[Key, Why]) -> None:
        left = _MOST_PODS - sum(1 for resource, _ in self._busy if resource is PODS)
        known, self._spoken = self._spoken, {}
        for job in snapshot.waiting:
            why = waiting.get(_key(job.name))
            if why is None:
                continue
            said = (why, tuple(group.pods for group in job.groups))
            if known.get(job.name) == said:
                self._spoken[job.name] = said
                continue
            is_said = True
            for pod in (pod for group in job.groups for pod in group.pods):
                if left <= 0:
                    is_said = False
                    break
                is_written = self._write_pod(_key(pod), why)
                left -= is_written
                is_said &= not is_written and self._is_said(_key(pod), why)
            if is_said:
                self._spoken[job.name] = said
        if len(self._said) > 2 * sum(job.waiting_pods for job in snapshot.waiting) + 1000:
            self._said.clear()  # of pods that have gone; what is said again changes nothing on the server

    def _is_said(self, key: Key, why: Why) -> bool:
        found = self._mirror.find(kubernetes.Pod, key)
        return found is None or self._said.get(found[1].uid, (None, 0.0))[0] == why

    def _write_pod(self, key: Key, why: Why) -> bool:
        found = self._mirror.find(kubernetes.Pod, key)
        if found is None or not isinstance(found[1].item, kubernetes.Pod) or found[1].item.spec.node_name:
            return False
        seen, place = found[1], (PODS, key)
        said, since = self._said.get(seen.uid, (None, 0.0))
        if said == why or place in self._busy:
            return False
        now = time.monotonic()
        if said is not None and said.reason == why.reason and now - since < 3 * _REWORD_S:
            return False
        self._said[seen.uid] = (why, now)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",  # the word that cluster autoscalers look for; ours begins the message
            "message": f"{why.reason}: {why.message}",
            "lastTransitionTime": found[1].item.metadata.creation_timestamp,  # it has not been otherwise since
        }
        self._begin(place, self._say(place, seen.uid, {"status": {"conditions": [condition]}}))
        return True

    async def _say(self, place: Place, uid: str, body: dict[str, Any]) -> bool:
        if not await self._patches.write(*place, body, "status", STRATEGIC_PATCH):
            self._said.pop(uid, None)
            self._spoken.clear()
        return True

    # -- queues

    def _write_queues(self, snapshot: Snapshot, shares: tuple[QueueShare, ...], wrong: Mapping[Place, Wrong]) -> None:
        pending, running = jobs_by_queue(snapshot)
        by_name = {share.name: share for share in shares}
        for resource, key, seen in self._our_queues():
            place = (resource, key)
            if place in self._busy or self._is_recent(place, _QUEUE_S):
                continue
            before = seen.item.status if isinstance(seen.item, types.Queue) else types.QueueStatus()
            generation = 0 if seen.item is None else seen.item.metadata.generation
            share = by_name.get(key[1])
            conditions = before.conditions
            if place in wrong:
                conditions = condition_of(
                    conditions, VALID, False, Why(INVALID, _said(wrong[place])), _now(), generation
                )
            elif conditions:
                conditions = tuple(one for one in conditions if one.type != VALID)
            after = types.QueueStatus(
                deserved={} if share is None else dict(share.deserved),
                allocated={} if share is None else dict(share.allocated),
                pending_jobs=pending.get(key[1], 0),
                running_jobs=running.get(key[1], 0),
                conditions=conditions,
            )
            if after != before:
                status: dict[str, Any] = msgspec.to_builtins(after)
                for name in ("deserved", "allocated"):  # a merge leaves what is not named
                    gone = getattr(before, name).keys() - status[name].keys()
                    status[name] |= dict.fromkeys(gone)
                self._begin(place, self._patches.write(*place, _exactly(seen, status), "status"))

    def _tell_unread_queues(self) -> None:
        for resource in self._mirror.rivals(types.Queue):
            for key, seen in self._mirror.seen(resource).items():
                place = (resource, key)
                if seen.notes and self._noted.get(place) != seen.notes:
                    self._noted[place] = seen.notes
                    self._tell_unread(place, seen)

    def _our_queues(self) -> list[tuple[Resource, Key, Seen]]:
        resource = next(one for one in self._mirror.rivals(types.Queue) if not one.is_foreign)
        return [(resource, key, seen) for key, seen in self._mirror.seen(resource).items()]

    # -- what is wrong

    def _tell_wrong(self, wrong: Mapping[Place, Wrong]) -> None:
        self._told = {place: said for place, said in self._told.items() if place in wrong}
        for place, entry in wrong.items():
            said = _said(entry)
            if self._told.get(place) == said:
                continue
            self._told[place] = said
            log.warning(
                "set aside", extra={"object": f"{place[0].kind} {'/'.join(filter(None, place[1]))}", "why": said}
            )
            self._events.add(Regarding.of(*place, entry.uid), INVALID, said, "Read", "Warning")
            why = Why(INVALID, said)
            seen = self._mirror.seen(place[0]).get(place[1])
            if seen is None or place in self._busy:
                continue
            if place[0] is PODS:
                self._write_pod(place[1], why)
            elif (
                place[0].read_as in (types.PodGroup, types.ElasticJob) and seen.item is None and not place[0].is_foreign
            ):
                conditions = condition_of((), SCHEDULED, False, why, _now(), 0)
                body = {"status": {"conditions": msgspec.to_builtins(conditions)}}
                self._begin(place, self._patches.write(*place, body, "status"))


def _why(entry: Waiting) -> Why:
    would = entry.would_start_if if entry.reason != "BackingOff" else ""  # a countdown would be news every second
    message = f"{entry.message}; would start if {would}" if would else entry.message
    return Why(entry.reason, message[:_LONGEST])


def _said(entry: Wrong) -> str:
    return "; ".join(entry.why)[:_LONGEST]


def _status_of(kind: str, conditions: Iterable[types.StatusCondition]) -> str:
    return next((one.status for one in conditions if one.type == kind), "")


def _exactly(seen: Seen, status: dict[str, Any]) -> dict[str, Any]:
    """A change of just the version that we have seen: lists are replaced, and another may have added to them."""
    return {"metadata": {"resourceVersion": str(seen.version)}, "status": status}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(name: str) -> Key:
    namespace, _, short = name.partition("/")
    return namespace, short
