"""Time that passes between rounds: who is created later arrives then, and who has a deadline ends at it.

What will happen stands in the objects: a `creationTimestamp` in the future, and `activeDeadlineSeconds`. A gang arrives
whole: no pod before its PodGroup or ElasticJob. Whoever is past its deadline has failed, as in Kubernetes, and gives
its room back.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.labels import JOB_LABEL
from maniple.api.meta import ObjectMeta
from maniple.model.building.input_objects import Objects, pods_by_job
from maniple.model.pod_identity import group_name

_ARRIVING = ("nodes", "pods", "pod_groups", "elastic_jobs")


class Calendar:
    def __init__(self, objects: Objects, now: float) -> None:
        """Takes out of `objects` all that are created after `now`."""
        self._objects = objects
        gangs: list[types.PodGroup | types.ElasticJob] = [*objects.pod_groups, *objects.elastic_jobs]
        groups = {_key(item.metadata): _moment(item.metadata.creation_timestamp) for item in gangs}
        self._coming: list[tuple[float, str, Any]] = []
        for kind in _ARRIVING:
            items: list[Any] = getattr(objects, kind)
            moments = [_arrival(item, groups) for item in items]
            self._coming += [(at, kind, item) for at, item in zip(moments, items, strict=True) if at > now]
            items[:] = [item for at, item in zip(moments, items, strict=True) if at <= now]
        self._coming.sort(key=lambda entry: entry[0])

    def pass_to(self, now: float) -> None:
        """It is `now`: those who arrive until then are there, those who end until then are over."""
        while self._coming and self._coming[0][0] <= now:
            _, kind, item = self._coming.pop(0)
            getattr(self._objects, kind).append(item)
        objects = self._objects
        over = _failed_jobs(objects, now)
        objects.elastic_jobs = [over.get(_key(job.metadata), job) for job in objects.elastic_jobs]
        objects.pods = [_ended(pod, now) for pod in objects.pods if _job_of(pod) not in over]


def _arrival(
    item: kubernetes.Node | kubernetes.Pod | types.PodGroup | types.ElasticJob, groups: dict[Any, float]
) -> float:
    own = _moment(item.metadata.creation_timestamp)
    if not isinstance(item, kubernetes.Pod):
        return own
    meta = item.metadata
    gang = meta.labels.get(JOB_LABEL) or group_name(item)
    return max(own, groups.get((meta.namespace, gang), own))


def _failed_jobs(objects: Objects, now: float) -> dict[tuple[str, str], types.ElasticJob]:
    """ElasticJobs that have run for longer than they may, as they are then."""
    limited = [job for job in objects.elastic_jobs if job.spec.active_deadline_seconds is not None]
    there = pods_by_job(objects.pods) if limited else {}
    failed = {}
    for job in limited:
        started = min(map(_started, there.get(_key(job.metadata), [])), default=now)
        if started + (job.spec.active_deadline_seconds or 0) <= now and job.status.phase not in ("Succeeded", "Failed"):
            status = msgspec.structs.replace(job.status, phase="Failed")
            failed[_key(job.metadata)] = msgspec.structs.replace(job, status=status)
    return failed


def _ended(pod: kubernetes.Pod, now: float) -> kubernetes.Pod:
    deadline = pod.spec.active_deadline_seconds
    is_running = pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")
    if deadline is None or not is_running or _started(pod) + deadline > now:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))


def _started(pod: kubernetes.Pod) -> float:
    return _moment(pod.status.start_time or pod.metadata.creation_timestamp)


def _job_of(pod: kubernetes.Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.labels.get(JOB_LABEL, "")


def _key(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name


def _moment(moment: datetime | None) -> float:
    if moment is None:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
