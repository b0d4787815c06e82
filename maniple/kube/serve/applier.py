"""A Plan, done: binds, evictions, nominations, resizes, reservations. All that is on its way is in `under_way`.

Whatever is done counts in the Cache at once, so that the next cycle need not wait for the API server.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Set
from datetime import UTC, datetime
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.labels import BIND_FAILURES_ANNOTATION, LAST_BIND_FAILURE_ANNOTATION, RESERVED_ANNOTATION
from maniple.kube.serve.binds import Binder
from maniple.kube.serve.events import Events, Regarding
from maniple.kube.serve.evictions import Evictor
from maniple.kube.serve.gangs import Gangs, key_of
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.patches import Patches
from maniple.kube.transport.client import Client
from maniple.kube.transport.mirror import Key, Mirror, Seen
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.snapshot import Snapshot
from maniple.scheduler.eviction.units import SHRUNK
from maniple.scheduler.framework.plan import Bind, Eviction, Plan, Resize

log = logging.getLogger("maniple.apply")

GANG_TIMEOUT = "GangTimeout"
MANY = 128
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
        self._half_since: dict[tuple[str, str], float] = {}
        self._busy: set[tuple[Resource, Key] | None] = set()
        self._left: dict[str, tuple[Eviction, str, float]] = {}  # pod -> its eviction, its uid, when it is overdue
        self.runs_jobs = False  # whether a controller here carries out the sizes of elastic jobs
        self.under_way: set[asyncio.Task[None]] = set()

    def apply(self, snapshot: Snapshot, plan: Plan) -> None:
        """Begins everything; ends nothing."""
        bound = set()
        for job, binds in _by_gang(snapshot, plan.binds):
            there = self._binder.assume(binds)
            if there:
                bound.add(job.key)
                self._begin(self._start(job, there))
        for eviction in self._evictor.assume([*plan.evictions, *self._timed_out(snapshot, bound)]):
            if not self._is_left_to_its_job(eviction):
                self._begin(self._evictor.evict(eviction))
        for eviction in self._overdue():
            self._begin(self._evictor.evict(eviction))
        self._nominate(plan)
        self._resize(plan.resizes)
        self._reserve({entry.group for entry in plan.reservations})

    @property
    def is_busy(self) -> bool:
        """Whether more is to be bound than the server takes at once."""
        return self._binder.under_way > MANY

    def abdicate(self) -> None:
        """Another may lead now: what the last plan promised is no longer ours to say."""
        self._mirror.cache.promise(None)
        self._mirror.cache.mark_reserved(None)

    async def settle(self) -> None:
        """Until nothing is on its way."""
        while self.under_way:
            await asyncio.wait(self.under_way)

    def _begin(self, work: Coroutine[Any, Any, Any], place: tuple[Resource, Key] | None = None) -> None:
        """Two changes of one place are made one after the other: the second waits for the next cycle."""
        if place is not None and place in self._busy:
            work.close()
            return

        async def done() -> None:
            try:
                await work
            except Exception:
                log.exception("apply")
            finally:
                self._busy.discard(place)

        self._busy.add(place)

        task = asyncio.create_task(done())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    # -- replicas of elastic jobs

    def _is_left_to_its_job(self, eviction: Eviction) -> bool:
        """A replica that its job is to shrink by: the job's controller asks it for a checkpoint, waits, and deletes it.

        It counts as leaving all the same. If it is still there long after its grace, it is evicted after all.
        """
        found = self._mirror.find(kubernetes.Pod, _key(eviction.pod))
        replica = None if found is None else found[1].replica
        if not self.runs_jobs or eviction.reason != SHRUNK or replica is None:
            return False
        job = self._mirror.find(types.ElasticJob, (_key(eviction.pod)[0], replica.job))
        if job is None or not isinstance(job[1].item, types.ElasticJob):
            return False
        grace_s = job[1].item.spec.elastic.grace_seconds
        self._left[eviction.pod] = (eviction, replica.uid, time.monotonic() + grace_s + _LATE_S)
        return True

    def _overdue(self) -> list[Eviction]:
        """Those that were left to their jobs' controller, and should be gone by now."""
        now = time.monotonic()
        overdue = []
        for pod, (eviction, uid, at) in [*self._left.items()]:
            found = self._mirror.find(kubernetes.Pod, _key(pod))
            if found is None or found[1].uid != uid:
                del self._left[pod]
            elif now >= at:
                del self._left[pod]
                overdue.append(eviction)
        return overdue

    # -- gangs

    async def _start(self, job: Job, binds: list[Bind]) -> None:
        failed = await self._binder.bind_all(binds)
        found = self._object_of(job)
        if failed:
            log.warning("gang not bound whole", extra={"gang": job.name, "failed": len(failed), "of": len(binds)})
            if found is not None:
                self._note_failure(*found, job.bind_failures + 1, failed)
            return
        if found is not None and job.bind_failures:
            self._annotate(*found, dict.fromkeys((BIND_FAILURES_ANNOTATION, LAST_BIND_FAILURE_ANNOTATION)))
        if len(job.placed) < job.min_member:
            self._metrics.gang_wait.observe(max(0.0, time.time() - job.created))
        if found is not None:
            nodes = sorted({bind.node for bind in binds})
            shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            note = f"{len(binds)} pods bound to {shown}" if len(binds) > 1 else f"bound to {shown}"
            self._events.add(Regarding.of(found[0], found[1], found[2].uid), "Scheduled", note, "Bind")

    def _note_failure(self, resource: Resource, key: Key, seen: Seen, count: int, said: list[str]) -> None:
        noted: dict[str, str | None] = {
            BIND_FAILURES_ANNOTATION: str(count),
            LAST_BIND_FAILURE_ANNOTATION: _now(),
        }
        more = f" and {len(said) - 1} more" if len(said) > 1 else ""
        nth = f" (failure {count})" if count > 1 else ""
        note = f"binding failed{nth}, and will be tried again later: {said[0]}{more}"
        self._events.add(Regarding.of(resource, key, seen.uid), "BindFailed", note, "Bind", "Warning")
        self._annotate(resource, key, seen, noted)

    def _object_of(self, job: Job) -> tuple[Resource, Key, Seen] | None:
        key = key_of(job)
        kind: type = {"Pod": kubernetes.Pod, "PodGroup": types.PodGroup, "ElasticJob": types.ElasticJob}[job.key[1]]
        found = self._mirror.find(kind, key)
        return None if found is None else (found[0], key, found[1])

    def _timed_out(self, snapshot: Snapshot, bound: Set[JobKey]) -> list[Eviction]:
        """The pods of gangs that have been half bound for too long: they go, and the gang starts over.

        Not of those that are being `bound` now, at last.
        """
        halves = {job.key: job for job in self._gangs.halves(iter(snapshot.jobs))}
        now = time.monotonic()
        self._half_since = {key: self._half_since.get(key, now) for key in halves}
        late = [
            job
            for key, job in halves.items()
            if now - self._half_since[key] >= self._gang_timeout_s and key not in bound
        ]
        return [Eviction(pod.pod, GANG_TIMEOUT, job.name) for job in late for pod in job.placed if pod.is_ours]

    # -- small changes

    def _nominate(self, plan: Plan) -> None:
        """Pods say which node they are promised, and say it no longer when they are not."""
        wanted = {nomination.pod: nomination.node for nomination in plan.nominations}
        self._mirror.cache.promise(wanted)
        bound = {bind.pod for bind in plan.binds} if self._gangs.nominated else set()
        for pod in (*wanted, *(self._gangs.nominated - wanted.keys() - bound)):
            node = wanted.get(pod, "")
            found = self._mirror.find(kubernetes.Pod, _key(pod))
            if found is None or not isinstance(found[1].item, kubernetes.Pod):
                continue
            item = found[1].item
            if item.status.nominated_node_name != node and not item.spec.node_name:
                body = {"status": {"nominatedNodeName": node or None}}
                self._begin(self._patches.write(PODS, _key(pod), body, "status"), (PODS, _key(pod)))

    def _resize(self, resizes: Iterable[Resize]) -> None:
        decided: dict[str, dict[str, int]] = {}
        for resize in resizes:
            decided.setdefault(resize.job, {})[resize.role] = resize.to_size
        for name, sizes in decided.items():
            found = self._mirror.find(types.ElasticJob, _key(name))
            if found is None or not isinstance(found[1].item, types.ElasticJob):
                continue
            self._metrics.resizes.inc()
            log.info("resized", extra={"job": name, "sizes": sizes})
            self._mirror.cache.assume_size(name, sizes, time.time())
            self._begin(self._write_size(found[0], name, found[1].item, sizes))

    async def _write_size(self, resource: Resource, name: str, job: types.ElasticJob, sizes: dict[str, int]) -> None:
        target = {one.role: one.replicas for one in job.status.target} | sizes
        status = {
            "target": [{"role": role, "replicas": replicas} for role, replicas in target.items()],
            "lastResizeTime": _now(),
            "resizes": job.status.resizes + 1,
        }
        if not await self._patches.write(resource, _key(name), {"status": status}, "status"):
            self._mirror.cache.forget_size(name)

    def _reserve(self, groups: set[str]) -> None:
        """Gangs say of themselves whether nodes are kept for them."""
        self._mirror.cache.mark_reserved(groups)
        wanted = {_key(name) for name in groups}
        for key in sorted(wanted | self._gangs.reserved):
            found = self._gangs.find(key) or self._mirror.find(kubernetes.Pod, key)
            if found is None or found[1].item is None:
                continue
            is_noted = found[1].item.metadata.annotations.get(RESERVED_ANNOTATION) == "true"
            if is_noted != (key in wanted):
                noted: dict[str, str | None] = {RESERVED_ANNOTATION: "true" if key in wanted else None}
                body = {"metadata": {"annotations": noted}}
                self._begin(self._patches.write(found[0], key, body), (found[0], key))
        self._gangs.reserved = wanted

    def _annotate(self, resource: Resource, key: Key, seen: Seen, noted: dict[str, str | None]) -> None:
        if seen.item is None:
            return
        meta = seen.item.metadata
        annotations = {name: value for name, value in (meta.annotations | noted).items() if value is not None}
        item = msgspec.structs.replace(seen.item, metadata=msgspec.structs.replace(meta, annotations=annotations))
        self._mirror.cache.put(item)
        self._begin(self._patches.assume(resource, key, {"metadata": {"annotations": noted}}))


def _by_gang(snapshot: Snapshot, binds: Iterable[Bind]) -> Iterable[tuple[Job, list[Bind]]]:
    left = {bind.pod: bind for bind in binds}
    if not left:
        return
    for job in snapshot.waiting:
        found = [left[pod] for group in job.groups for pod in group.pods if pod in left]
        if found:
            yield job, found


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(name: str) -> Key:
    namespace, _, short = name.partition("/")
    return namespace, short
