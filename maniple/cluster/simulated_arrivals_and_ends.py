"""Passing time between rounds: objects arrive at their creationTimestamp, pods and jobs end at their deadline.

The deadline is `activeDeadlineSeconds`. No pod arrives before its PodGroup or ElasticJob. As in Kubernetes, a pod or
job past its deadline fails and frees its resources.
"""

from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.keys import Key, key_of, split_name
from maniple.api.phases import FINISHED
from maniple.api.timestamps import to_seconds
from maniple.model.building.implied_pods import pods_by_job
from maniple.model.building.input_objects import Objects
from maniple.model.pod_identity import named_gangs

_ARRIVING = ("nodes", "pods", "pod_groups", "elastic_jobs")


class Arrivals:
    def __init__(self, objects: Objects, now: float) -> None:
        """Removes from `objects` all that are created after `now`."""
        self._objects = objects
        gangs: list[types.PodGroup | types.ElasticJob] = [*objects.pod_groups, *objects.elastic_jobs]
        created = {key_of(item.metadata): to_seconds(item.metadata.creation_timestamp) for item in gangs}
        self._coming: list[tuple[float, str, Any]] = []
        for kind in _ARRIVING:
            items: list[Any] = getattr(objects, kind)
            times = [_arrival(item, created) for item in items]
            self._coming += [(time, kind, item) for time, item in zip(times, items, strict=True) if time > now]
            items[:] = [item for time, item in zip(times, items, strict=True) if time <= now]
        self._coming.sort(key=lambda arrival: arrival[0])

    def pass_to(self, now: float) -> None:
        """Adds the objects that have arrived by `now`, and ends the pods and jobs past their deadline."""
        while self._coming and self._coming[0][0] <= now:
            _, kind, item = self._coming.pop(0)
            getattr(self._objects, kind).append(item)
        objects = self._objects
        failed = _failed_jobs(objects, now)
        objects.elastic_jobs = [failed.get(key_of(job.metadata), job) for job in objects.elastic_jobs]
        objects.pods = [_ended(pod, now) for pod in objects.pods if not _is_of(pod, failed)]


def _arrival(
    item: kubernetes.Node | kubernetes.Pod | types.PodGroup | types.ElasticJob, created: dict[Key, float]
) -> float:
    """The time when the object arrives. `created`: the creation times of the gangs."""
    own = to_seconds(item.metadata.creation_timestamp)
    gangs = named_gangs(item) if isinstance(item, kubernetes.Pod) else ()
    return max(own, created.get(split_name(gangs[0][0]), own)) if gangs else own


def _failed_jobs(objects: Objects, now: float) -> dict[Key, types.ElasticJob]:
    """ElasticJobs past their deadline, marked as failed."""
    limited = [job for job in objects.elastic_jobs if job.spec.active_deadline_seconds is not None]
    by_job = pods_by_job(objects.pods) if limited else {}
    failed = {}
    for job in limited:
        started = min(map(_started, by_job.get(key_of(job.metadata), [])), default=now)
        if started + (job.spec.active_deadline_seconds or 0) <= now and job.status.phase not in FINISHED:
            status = msgspec.structs.replace(job.status, phase="Failed")
            failed[key_of(job.metadata)] = msgspec.structs.replace(job, status=status)
    return failed


def _ended(pod: kubernetes.Pod, now: float) -> kubernetes.Pod:
    deadline = pod.spec.active_deadline_seconds
    is_running = pod.spec.node_name and pod.status.phase not in FINISHED
    if deadline is None or not is_running or _started(pod) + deadline > now:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))


def _started(pod: kubernetes.Pod) -> float:
    return to_seconds(pod.status.start_time or pod.metadata.creation_timestamp)


def _is_of(pod: kubernetes.Pod, jobs: dict[Key, types.ElasticJob]) -> bool:
    return bool(jobs) and any(kind == "ElasticJob" and split_name(name) in jobs for name, kind in named_gangs(pod))
