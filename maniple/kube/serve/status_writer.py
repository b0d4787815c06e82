"""Writes the status of gangs, queues and waiting pods, and events about them. Only what has changed is written.

What changes only in its wording is written seldom. The number of pods written in a cycle is limited. A gang that waits
is written when it has been explained (reasons.py).
"""

import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from maniple.api import kubernetes, types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup, UpstreamPodGroupStatus
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, split_name
from maniple.api.phases import FINISHED
from maniple.api.timestamps import format_timestamp
from maniple.elastic.conditions import find_condition
from maniple.kube.serve.background_writes import Background
from maniple.kube.serve.gang_index import SCHEDULED, Gangs, jobs_by_queue
from maniple.kube.serve.gang_status import (
    BACKING_OFF,
    INVALID,
    Count,
    Why,
    condition_of,
    foreign_status,
    is_message_only,
    job_conditions,
    least,
    only_reworded,
    pod_group_status,
    upstream_conditions,
    why_invalid,
)
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.serve.object_patches import Patches
from maniple.kube.serve.pod_conditions import PodConditions, WhyOf
from maniple.kube.serve.reasons import Reasons, gangs_of
from maniple.kube.serve.skip_repeated_writes import Throttle
from maniple.kube.serve.stuck_pod_events import StuckPodEvents
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import JOBS, PODS, QUEUES, ObjectRef, Resource
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import QueueShare

log = logging.getLogger("maniple.status")

_GANGS = (types.PodGroup, types.ElasticJob)
VALID = "Valid"  # the condition of a queue
_MOST_UNDER_WAY = 400
_REWORD_S = 10.0  # the same reason in other words, at most this often
_HELD_S = 30.0  # what a controller here is about to write, or to make superfluous
_REPEAT_EVENT_S = 60.0  # an event with the same reason
_QUEUE_S = 2.0
_UNCLAIMED_S = 5.0
_BEING_MADE_S = 30.0  # since the last pod: so long a controller may take to create the next
_REMEMBERED = 10_000

NOT_ENOUGH = "NotEnoughPods"

Rejected = Mapping[ObjectRef, tuple[str, ...]]  # objects that are set aside, and why


class _Change(NamedTuple):
    status: dict[str, Any]
    pause_s: float  # since the last write


class Statuses:
    def __init__(self, patches: Patches, mirror: Mirror, gangs: Gangs, events: Events) -> None:
        self._patches = patches
        self._mirror = mirror
        self._gangs = gangs
        self._events = events
        self._written: Throttle[ObjectRef] = Throttle()
        self._waiting_events: Throttle[str] = Throttle()  # uid of a gang -> the reason that its last event gave
        self._being_made: set[Key] = set()  # gangs that lack pods, but some were created a moment ago
        self._invalid_events: Throttle[ObjectRef] = Throttle()
        self._unread_events: Throttle[ObjectRef] = Throttle()
        self._without_queue: set[Resource] = set()  # kinds whose CRD has no status.queue
        self._unread: set[ObjectRef] = set()  # objects with notes that are not yet told
        mirror.listen(self._on_change)
        self.reasons = Reasons()
        self.makes_pods = False  # whether a controller here makes the pods of elastic jobs
        self.writes = Background(log, "status")
        self._pods = PodConditions(patches, mirror, gangs, events, self.writes)
        self._stuck = StuckPodEvents(mirror, events)

    def write(self, snapshot: Snapshot, shares: tuple[QueueShare, ...], rejected: Rejected) -> None:
        """Begins to write what has changed. `reasons` says why gangs wait."""
        reasons = self.reasons
        invalid = {
            key: why_invalid(problems, f"{resource.kind} {key[1]}")
            for (resource, key), problems in rejected.items()
            if resource.read_as in _GANGS and reasons.waits(key)
        }

        def why_of(key: Key) -> Why | None:
            return invalid.get(key) or reasons.of(key)

        fresh = reasons.take_fresh()
        for key in self._gangs.take_touched() | {split_name(name) for name, _ in fresh} | invalid.keys():
            why = why_of(key)
            if why is None and reasons.waits(key):
                continue  # it is written when it is explained
            if len(self.writes.tasks) > _MOST_UNDER_WAY:
                self._gangs.touched.add(key)
            else:
                self._write_gang(key, why, rejected)
        self._warn_late(why_of)
        self._pods.write(fresh.union(gang for key in invalid for gang in gangs_of(key)), reasons.gangs, why_of)
        self._write_queues(snapshot, shares, rejected)
        self._report_unread_queues()
        self._report_unread_objects()
        self._report_rejected(rejected)
        self._stuck.write(snapshot)
        if len(self._written) > _REMEMBERED:
            self._written.keep(lambda ref: self._written.is_recent(ref, 10 * _REWORD_S))
            self._waiting_events.keep(lambda uid: self._waiting_events.is_recent(uid, 10 * _REWORD_S))

    def _begin(self, ref: ObjectRef, work: Coroutine[Any, Any, bool]) -> None:
        async def write() -> None:
            if not await work:
                self._gangs.touched.add(ref[1])
                if ref[0] is JOBS:  # its controller wrote first: there is no need to wait
                    self._written.forget(ref)

        self._written.note(ref)
        self.writes.begin(write(), ref)

    # -- gangs

    def _write_gang(self, key: Key, why: Why | None, rejected: Rejected) -> None:
        seen = self._gangs.find(key)
        if seen is None:
            return
        ref = seen.ref
        if self.writes.is_busy(ref):
            self._gangs.touched.add(key)
            return
        if isinstance(seen.item, types.ElasticJob) and not self._gangs.ours.runs(seen.item):
            return
        if ref in rejected:
            why = why_invalid(rejected[ref])
        members = self._gangs.members(key)
        if members and not self._gangs.is_ours(key):
            return
        if not members and seen.source is not None and not self._is_unclaimed(key, seen):
            return
        change = self._change_of(seen, Count.of(members), why)
        if change is None:
            return
        if self._written.is_recent(ref, change.pause_s):
            self._gangs.touched.add(key)
            return
        self._begin(ref, self._patch_gang(seen, change.status))
        if why is not None and why.reason == NOT_ENOUGH and _is_being_made(seen.item, members):
            self._being_made.add(key)
        elif why is not None and why.reason != BACKING_OFF:
            self._warn(seen, why)
        if getattr(seen.source, "status", None) in ({}, UpstreamPodGroupStatus()):  # the first write to it
            self._report_unread(seen)

    async def _patch_gang(self, seen: Seen, status: dict[str, Any]) -> bool:
        """The server drops fields that its CRD does not know, without a word: they are not written again and again."""
        if not await self._patches.write(*seen.ref, _exactly(seen, status), "status"):
            return False
        after = self._mirror.seen(seen.resource).get(seen.key)
        item = None if after is None else after.item
        if "queue" in status and isinstance(item, _GANGS) and item.status.queue != status["queue"]:
            self._without_queue.add(seen.resource)
            log.warning("the CRD has no status.queue: renew it", extra={"crd": str(seen.resource)})
        return True

    def _queue_of(self, resource: Resource, gang: types.PodGroup | types.ElasticJob) -> str:
        return gang.status.queue if resource in self._without_queue else self._gangs.queue_of(gang)

    def _warn(self, seen: Seen, why: Why) -> None:
        if self._waiting_events.admit(seen.uid, why.reason, repeat_s=_REPEAT_EVENT_S):
            self._events.add(Regarding.of(*seen.ref, seen.uid), why.reason, why.message, "Schedule", "Warning")

    def _warn_late(self, why_of: WhyOf) -> None:
        """Gangs whose pods were being created, and no longer are: those that still lack some get their warning."""
        for key in list(self._being_made):
            seen, why = self._gangs.find(key), why_of(key)
            if seen is None or why is None or why.reason != NOT_ENOUGH:
                self._being_made.discard(key)
            elif not _is_being_made(seen.item, self._gangs.members(key)):
                self._being_made.discard(key)
                self._warn(seen, why)

    def _is_unclaimed(self, key: Key, seen: Seen) -> bool:
        """Another system's group without pods, whose own scheduler would have written something by now."""
        if isinstance(seen.source, UpstreamPodGroup):
            return False  # no controller waits for our status
        created = None if seen.item is None else seen.item.metadata.creation_timestamp
        if created is not None and _is_new(created.timestamp(), _UNCLAIMED_S):
            self._gangs.touched.add(key)
            return False
        status: dict[str, Any] = getattr(seen.source, "status", {})
        return status.get("phase", "Pending") in ("", "Pending") and not status.get("conditions")

    def _change_of(self, seen: Seen, count: Count, why: Why | None) -> _Change | None:
        """The status that the gang should have; None: it has it."""
        now, item, source = _now(), seen.item, seen.source
        if isinstance(item, types.ElasticJob):
            return self._change_of_job(seen, item, count, why, now)
        if not isinstance(item, types.PodGroup):
            return None
        if isinstance(source, UpstreamPodGroup):
            before, after = source.status.conditions, upstream_conditions(source, count, why, now)
            if set(after) == set(before):
                return None
            pause_s = _REWORD_S if only_reworded(before, after) else 0.0
            return _Change({"conditions": msgspec.to_builtins(after)}, pause_s)
        if source is not None:
            foreign = foreign_status(source, item.spec.min_member, count, why, now)
            return None if foreign is None else _Change(foreign, 0.0)
        status = pod_group_status(item, count, why, now, self._queue_of(seen.resource, item))
        if status == item.status:
            return None
        return _Change(msgspec.to_builtins(status), _REWORD_S if is_message_only(item.status, status) else 0.0)

    def _change_of_job(
        self, seen: Seen, job: types.ElasticJob, count: Count, why: Why | None, now: str
    ) -> _Change | None:
        """Of an ElasticJob only the condition Scheduled and the queue are ours. A job that is over keeps its queue."""
        before, after = job.status.conditions, job_conditions(job, count, why, now)
        queue = job.status.queue if job.status.phase in FINISHED else self._queue_of(seen.resource, job)
        # A controller here writes the queue together with the first phase.
        has_moved = queue != job.status.queue and not (self.makes_pods and not job.status.phase)
        status: dict[str, Any] = {"conditions": msgspec.to_builtins(after)} if after != before else {}
        if has_moved:
            return _Change({**status, "queue": queue}, 0.0)
        if not status:
            return None
        old, new = find_condition(before, SCHEDULED), find_condition(after, SCHEDULED)
        has_turned = (old and old.status) != (new and new.status)
        is_whole = count.is_whole(least(job))
        pause_s = 0.0 if has_turned else _REWORD_S
        if self.makes_pods and has_turned and job.status.phase in ("", "Pending"):
            # A controller here writes that all are bound together with the start of the job. About pods that it is
            # making there is nothing to write.
            is_being_made = not old and not is_whole and (why is None or why.reason == NOT_ENOUGH)
            if is_whole or is_being_made:
                pause_s = _HELD_S
                self._written.admit(seen.ref, None)  # the pause begins now, if nothing was written before
        return _Change(status, pause_s)

    def known_status(self, key: Key, job: types.ElasticJob) -> types.ElasticJobStatus:
        """Its status with our condition and queue as they are now, for the controller to write with its own."""
        count, conditions = Count.of(self._gangs.members(key)), job.status.conditions
        if count.is_whole(least(job)):
            conditions = job_conditions(job, count, None, _now())
        return msgspec.structs.replace(job.status, conditions=conditions, queue=self._queue_of(JOBS, job))

    def _report_unread(self, seen: Seen) -> None:
        """Fields of another system's object that have no counterpart here."""
        if seen.notes:
            self._events.add(Regarding.of(*seen.ref, seen.uid), "NotRead", "; ".join(seen.notes), "Read", "Warning")

    # -- queues

    def _write_queues(self, snapshot: Snapshot, shares: tuple[QueueShare, ...], rejected: Rejected) -> None:
        pending, running = jobs_by_queue(snapshot)
        by_name = {share.name: share for share in shares}
        for key, seen in self._mirror.seen(QUEUES).items():
            ref = seen.ref
            if self.writes.is_busy(ref) or self._written.is_recent(ref, _QUEUE_S):
                continue
            before = seen.item.status if isinstance(seen.item, types.Queue) else types.QueueStatus()
            generation = 0 if seen.item is None else seen.item.metadata.generation
            share = by_name.get(key[1])
            conditions = before.conditions
            if ref in rejected:
                conditions = condition_of(conditions, VALID, False, why_invalid(rejected[ref]), _now(), generation)
            else:
                conditions = tuple(condition for condition in conditions if condition.type != VALID)
            after = types.QueueStatus(
                deserved={} if share is None else dict(share.deserved),
                allocated={} if share is None else dict(share.allocated),
                pending_jobs=pending.get(key[1], 0),
                running_jobs=running.get(key[1], 0),
                conditions=conditions,
            )
            if after != before:
                status: dict[str, Any] = msgspec.to_builtins(after)
                for name in ("deserved", "allocated"):  # a merge patch leaves what is not named
                    gone = getattr(before, name).keys() - status[name].keys()
                    status[name] |= dict.fromkeys(gone)
                self._begin(ref, self._patches.write(*ref, _exactly(seen, status), "status"))

    def _report_unread_queues(self) -> None:
        for resource in self._mirror.rivals(types.Queue):
            for seen in self._mirror.seen(resource).values():
                if seen.notes and self._unread_events.admit(seen.ref, seen.notes):
                    self._report_unread(seen)

    def _on_change(self, resource: Resource, key: Key, _before: Seen | None, seen: Seen | None) -> None:
        """Remembers our objects with notes, and pods of ours."""
        item = None if seen is None else seen.item
        if seen is None or not seen.notes or resource.is_foreign:
            self._unread.discard((resource, key))
        elif not isinstance(item, kubernetes.Pod) or self._gangs.ours.claims(item):
            self._unread.add((resource, key))

    def _report_unread_objects(self) -> None:
        """Labels and annotations of ours that are not known."""
        for resource, key in sorted(self._unread, key=lambda ref: (ref[0].rank, ref[1])):
            seen = self._mirror.seen(resource).get(key)
            if seen is not None and self._unread_events.admit(seen.ref, seen.notes):
                self._report_unread(seen)
        self._unread.clear()
        if len(self._unread_events) > _REMEMBERED:
            self._unread_events.keep(lambda ref: ref[1] in self._mirror.seen(ref[0]))

    # -- objects that are set aside

    def _report_rejected(self, rejected: Rejected) -> None:
        self._invalid_events.keep(lambda ref: ref in rejected)
        for ref, problems in rejected.items():
            (resource, key), why = ref, why_invalid(problems)
            seen = self._mirror.seen(resource).get(key)
            if seen is None or not self._invalid_events.admit(ref, why.message):
                continue
            log.warning("set aside", extra={"object": resource.describe(key), "why": why.message})
            self._events.add(Regarding.of(*ref, seen.uid), INVALID, why.message, "Read", "Warning")
            if self.writes.is_busy(ref):
                continue
            if resource is PODS:
                self._pods.write_pod(key, why)
            elif (
                resource.read_as in (types.PodGroup, types.ElasticJob) and seen.item is None and not resource.is_foreign
            ):
                conditions = condition_of((), SCHEDULED, False, why, _now(), 0)
                body = {"status": {"conditions": msgspec.to_builtins(conditions)}}
                self._begin(ref, self._patches.write(*ref, body, "status"))


def _is_being_made(group: Object | None, members: Iterable[kubernetes.Pod]) -> bool:
    """Whether the group or one of its pods was created a moment ago: then more pods may still come."""
    created = [item.metadata.creation_timestamp for item in (group, *members) if item is not None]
    newest = max((moment.timestamp() for moment in created if moment is not None), default=0.0)
    return _is_new(newest, _BEING_MADE_S)


def _is_new(created: float, seconds: float) -> bool:
    """Of a time that is far ahead of our clock nothing is known: it does not stay new until our clock gets there."""
    return abs(time.time() - created) < seconds


def _exactly(seen: Seen, status: dict[str, Any]) -> dict[str, Any]:
    """A change of exactly the version that we have seen: lists are replaced, and another may have added to them."""
    return {"metadata": {"resourceVersion": str(seen.version)}, "status": status}


def _now() -> str:
    return format_timestamp(time.time())
