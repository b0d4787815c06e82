"""Applies a Plan: binds, evictions, nominations, resizes, reservations. It starts writes and never waits for them.

Every write counts in the Cache at once, so that the next cycle need not wait for the API server.
"""

import asyncio
import logging
import time
from collections.abc import Hashable, Iterable, Mapping, Set
from datetime import UTC, datetime
from math import inf

import msgspec

from maniple.api import kubernetes, types
from maniple.api.keys import join_key, split_name
from maniple.api.labels import (
    BIND_FAILURES_ANNOTATION,
    INCOMPLETE_SINCE_ANNOTATION,
    LAST_BIND_FAILURE_ANNOTATION,
    RESERVED_ANNOTATION,
)
from maniple.api.timestamps import format_timestamp
from maniple.cluster.assumed_writes import with_sizes
from maniple.kube.serve.background_writes import Background
from maniple.kube.serve.binds import Binder
from maniple.kube.serve.evictions import GANG_TIMEOUT, Evictor
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.moves import Mover
from maniple.kube.serve.object_patches import Patches
from maniple.kube.serve.volume_binds import VolumeBinder
from maniple.kube.transport.client import Client, NotLeadingError
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import ObjectRef
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import Bind, Eviction, Plan, Resize

log = logging.getLogger("maniple.apply")

_KINDS: dict[str, type] = {"Pod": kubernetes.Pod, "PodGroup": types.PodGroup, "ElasticJob": types.ElasticJob}
_LATE_S = 30.0


class Applier:
    def __init__(
        self, client: Client, mirror: Mirror, gangs: Gangs, metrics: Metrics, events: Events, gang_timeout_s: float
    ) -> None:
        self._mirror = mirror
        self._gangs = gangs
        self._metrics = metrics
        self._events = events
        self._gang_timeout_s = gang_timeout_s
        self._binder = Binder(client, mirror, metrics)
        self._evictor = Evictor(client, mirror, metrics, events)
        self._patches = Patches(client, mirror, metrics)
        self.volumes = VolumeBinder(self._patches, mirror)
        self._due: dict[Hashable, float] = {}
        # Replicas that their job's controller is to stop: uid -> how to evict it, and the seconds that it has.
        self._shrinking: dict[str, tuple[Eviction, float]] = {}
        self.runs_jobs = False  # whether a controller here carries out the sizes of elastic jobs
        self.writes = Background(log, "apply")
        self._mover = Mover(mirror, self._patches, self._evictor, self.writes)

    def apply(self, snapshot: Snapshot, plan: Plan) -> None:
        bound = set()
        for job, binds in self._by_gang(plan.binds):
            there = self._binder.assume(binds)
            if there:
                bound.add(job.key)
                self.writes.begin(self._start(job, there))
        self._shrink(plan.resizes)
        moved = self._mover.begin(plan, snapshot.now)
        evictions = [eviction for eviction in plan.evictions if eviction.pod not in moved]
        evictions += self._late(snapshot, bound)
        for eviction in self._evictor.assume(self._mover.end(plan, evictions, snapshot.now)):
            self.writes.begin(self._evictor.evict(eviction))
        self._nominate(plan)
        self._resize(plan.resizes)
        self._reserve({entry.group for entry in plan.reservations})
        self._note_incomplete(snapshot)

    def _by_gang(self, binds: Iterable[Bind]) -> Iterable[tuple[Job, list[Bind]]]:
        by_gang: dict[JobKey, tuple[Job, list[Bind]]] = {}
        for bind in binds:
            job = self._mirror.cache.job_of(bind.pod)
            if job is not None:  # else the pod is gone
                by_gang.setdefault(job.key, (job, []))[1].append(bind)
        return by_gang.values()

    @property
    def is_busy(self) -> bool:
        """Whether more is to be bound than the server takes at once."""
        return not self.is_calm.is_set()

    @property
    def is_calm(self) -> asyncio.Event:
        """Set while the server takes at once what is to be bound."""
        return self._binder.is_calm

    def abdicate(self) -> None:
        """Drops what the last plan promised: another replica may lead now."""
        self.volumes.give_up()
        self._mirror.cache.promise(None)
        self._mirror.cache.mark_reserved(None)

    # -- deadlines

    def _late(self, snapshot: Snapshot, bound: Set[JobKey]) -> list[Eviction]:
        """Evictions of gangs that have been half bound for too long, and of replicas that should have stopped by now.

        A gang of which pods are `bound` in this cycle is spared. A gang that is evicted starts over.
        """
        halves = {job.key: job for job in self._gangs.halves(snapshot)}
        self._shrinking = {uid: entry for uid, entry in self._shrinking.items() if self._is_there(entry[0].pod, uid)}
        limits: dict[Hashable, float] = {uid: limit_s for uid, (_, limit_s) in self._shrinking.items()}
        overdue = self._overdue(limits | dict.fromkeys(halves, self._gang_timeout_s))
        gangs = [job for key, job in halves.items() if key in overdue and key not in bound]
        replicas = [self._shrinking.pop(uid)[0] for uid in [*self._shrinking] if uid in overdue]
        return [
            *(Eviction(pod.pod, GANG_TIMEOUT, job.name) for job in gangs for pod in job.placed if pod.is_ours),
            *replicas,
        ]

    def _overdue(self, limits: Mapping[Hashable, float]) -> set[Hashable]:
        """What has lasted longer than its limit, in seconds. What is not in `limits` any more is over."""
        now = time.monotonic()
        self._due = {what: self._due.get(what, now + limit_s) for what, limit_s in limits.items()}
        return {what for what, due in self._due.items() if now >= due}

    def _is_there(self, pod: str, uid: str) -> bool:
        seen = self._mirror.find(kubernetes.Pod, split_name(pod))
        return seen is not None and seen.uid == uid

    # -- gangs

    async def _start(self, job: Job, binds: list[Bind]) -> None:
        failures: list[str] = []
        if self.volumes.are_needed(binds):
            try:
                with self._binder.held_up(binds):
                    failures = await self.volumes.bind(binds)
            except NotLeadingError:
                self._binder.forget(binds, "not leading")
                return
            except Exception:
                self._binder.forget(binds, "failed")
                raise
        if failures:
            self._binder.forget(binds, "failed")
        else:
            failures = await self._binder.bind_all(binds)
        gang = self._object_of(job)
        if failures:
            log.warning("gang not bound whole", extra={"gang": job.name, "failed": len(failures), "of": len(binds)})
            if gang is not None:
                self._note_failure(gang, job.bind_failures + 1, failures)
            return
        if gang is not None and job.bind_failures:
            self._annotate(gang, dict.fromkeys((BIND_FAILURES_ANNOTATION, LAST_BIND_FAILURE_ANNOTATION)))
        if len(job.placed) < job.min_member:
            self._metrics.gang_wait.observe(max(0.0, time.time() - job.created))
        if gang is not None:
            nodes = sorted({bind.node for bind in binds})
            shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            note = f"{len(binds)} pods bound to {shown}" if len(binds) > 1 else f"bound to {shown}"
            self._events.add(Regarding.of(*gang.ref, gang.uid), "Scheduled", note, "Bind")

    def _note_failure(self, seen: Seen, count: int, failures: list[str]) -> None:
        more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
        nth = f" (failure {count})" if count > 1 else ""
        note = f"binding failed{nth}, and will be tried again later: {failures[0]}{more}"
        self._events.add(Regarding.of(*seen.ref, seen.uid), "BindFailed", note, "Bind", "Warning")
        annotations: dict[str, str | None] = {
            BIND_FAILURES_ANNOTATION: str(count),
            LAST_BIND_FAILURE_ANNOTATION: format_timestamp(time.time()),
        }
        self._annotate(seen, annotations)

    def _object_of(self, job: Job) -> Seen | None:
        return self._mirror.find(_KINDS[job.key[1]], split_name(job.name))

    # -- elastic jobs

    def _shrink(self, resizes: Iterable[Resize]) -> None:
        """Replicas that leave with a resize count as leaving at once.

        A job's own controller asks them for a checkpoint, waits, and deletes them. They are evicted if there is no
        such controller, or if they are still there long after their grace.
        """
        for resize in resizes:
            job = self._mirror.find(types.ElasticJob, split_name(resize.job))
            grace_s = job.item.spec.elastic.grace_seconds if job and isinstance(job.item, types.ElasticJob) else None
            for eviction in self._evictor.assume(resize.evictions()):
                pod = self._mirror.find(kubernetes.Pod, split_name(eviction.pod))
                if self.runs_jobs and grace_s is not None and pod is not None:
                    self._shrinking[pod.uid] = (eviction, grace_s + _LATE_S)
                else:
                    self.writes.begin(self._evictor.evict(eviction))

    def _resize(self, resizes: Iterable[Resize]) -> None:
        decided: dict[str, dict[str, int]] = {}
        for resize in resizes:
            decided.setdefault(resize.job, {})[resize.role] = resize.to_size
        for name, sizes in decided.items():
            job = self._mirror.find(types.ElasticJob, split_name(name))
            if job is not None and isinstance(job.item, types.ElasticJob):
                self._metrics.resizes.inc()
                log.info("resized", extra={"job": name, "sizes": sizes})
                self._mirror.cache.assume_size(name, sizes, time.time())
                self.writes.begin(self._write_size(job.ref, job.item, sizes))

    async def _write_size(self, ref: ObjectRef, job: types.ElasticJob, sizes: dict[str, int]) -> None:
        resized = msgspec.to_builtins(with_sizes(job, sizes, datetime.now(UTC).replace(microsecond=0)).status)
        status = {field: resized[field] for field in ("target", "lastResizeTime", "resizes")}
        if not await self._patches.write(*ref, {"status": status}, "status"):
            self._mirror.cache.forget_size(join_key(ref[1]))

    # -- nominations and annotations

    def _nominate(self, plan: Plan) -> None:
        """Writes the nominated node of pods that are promised one, and clears that of pods that no longer are."""
        wanted = {nomination.pod: nomination.node for nomination in plan.nominations}
        self._mirror.cache.promise(wanted, plan.claimants)
        bound = {bind.pod for bind in plan.binds} if self._gangs.nominated else set()
        for pod in (*wanted, *(self._gangs.nominated - wanted.keys() - bound)):
            node, seen = wanted.get(pod, ""), self._mirror.find(kubernetes.Pod, split_name(pod))
            if seen is None or not isinstance(seen.item, kubernetes.Pod):
                continue
            if seen.item.status.nominated_node_name != node and self._mirror.waits(seen.key):
                body = {"status": {"nominatedNodeName": node or None}}
                self.writes.begin(self._patches.write(*seen.ref, body, "status"), seen.ref)

    def _reserve(self, groups: set[str]) -> None:
        """Annotates the gangs that nodes are reserved for, and no others."""
        self._mirror.cache.mark_reserved(groups)
        wanted = {split_name(name) for name in groups}
        for key in sorted(wanted | self._gangs.reserved):
            seen = self._gangs.find(key) or self._mirror.find(kubernetes.Pod, key)
            if seen is None or seen.item is None:
                continue
            is_annotated = seen.item.metadata.annotations.get(RESERVED_ANNOTATION) == "true"
            if is_annotated != (key in wanted):
                annotations = {RESERVED_ANNOTATION: "true" if key in wanted else None}
                body = {"metadata": {"annotations": annotations}}
                self.writes.begin(self._patches.write(*seen.ref, body), seen.ref)
        self._gangs.reserved = wanted

    def _note_incomplete(self, snapshot: Snapshot) -> None:
        """Annotates our PodGroups that were whole and are not any more, until they are whole again or hold nothing."""
        for job in snapshot.incomplete:
            if job.key[1] != "PodGroup" or not job.exists:
                continue
            is_short = bool(job.placed) and not job.is_whole
            if is_short == (job.stale_at < inf):
                continue
            seen = self._mirror.find(types.PodGroup, split_name(job.name))
            if seen is None or seen.source is not None or not isinstance(seen.item, types.PodGroup):
                continue
            if not is_short and (job.placed or not self._gangs.holds(seen.key)):
                self._annotate(seen, {INCOMPLETE_SINCE_ANNOTATION: None})
            elif is_short and seen.item.spec.stale_seconds and self._gangs.was_whole(job):
                self._annotate(seen, {INCOMPLETE_SINCE_ANNOTATION: format_timestamp(snapshot.now)})

    def _annotate(self, seen: Seen, changes: dict[str, str | None]) -> None:
        if seen.item is None:
            return
        meta = seen.item.metadata
        annotations = {name: value for name, value in (meta.annotations | changes).items() if value is not None}
        item = msgspec.structs.replace(seen.item, metadata=msgspec.structs.replace(meta, annotations=annotations))
        # A failure counts here even if the server refuses to have it written: otherwise the next cycle tries again.
        self._mirror.cache.put(item)
        self.writes.begin(self._patches.write(*seen.ref, {"metadata": {"annotations": changes}}))
