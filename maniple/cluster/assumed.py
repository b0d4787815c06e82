"""What has been decided and written, but not been seen yet: the cluster as it will be when the news arrives.

Assumptions are laid over what the API server says. An object that says so itself needs them no longer.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from maniple.api import kubernetes, types
from maniple.api.labels import BACKFILL_ANNOTATION, GPUS_ANNOTATION, RESERVED_ANNOTATION
from maniple.scheduler.framework.plan import Bind

_LEAVES = datetime.fromtimestamp(0, UTC)  # when does not matter, only that it does
_OVER = ("Succeeded", "Failed")
Marked = TypeVar("Marked", types.PodGroup, types.ElasticJob, kubernetes.Pod)

replace = msgspec.structs.replace


@dataclass(frozen=True)
class Assumed:
    """Of one pod, the one with this uid: that it is bound, or that it is leaving, or both."""

    uid: str
    bind: Bind | None = None
    is_leaving: bool = False

    def against(self, pod: kubernetes.Pod) -> "Assumed | None":
        """What is still to be assumed, now that the pod is as it is; None: nothing."""
        if pod.metadata.uid != self.uid or pod.status.phase in _OVER:
            return None
        bind = None if pod.spec.node_name else self.bind
        is_leaving = self.is_leaving and pod.metadata.deletion_timestamp is None
        return Assumed(self.uid, bind, is_leaving) if bind is not None or is_leaving else None


def with_bind(pod: kubernetes.Pod, bind: Bind) -> kubernetes.Pod:
    """As the API server will have it when the binding is written."""
    made = {GPUS_ANNOTATION: ",".join(bind.gpus)} if bind.gpus else {}
    if bind.backfill is not msgspec.UNSET:
        made[BACKFILL_ANNOTATION] = bind.backfill
    metadata = pod.metadata
    if made:
        metadata = replace(metadata, annotations={**metadata.annotations, **made})
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))


def applied(pod: kubernetes.Pod, assumed: Assumed | None) -> kubernetes.Pod:
    if assumed is None:
        return pod
    if assumed.bind is not None:
        pod = with_bind(pod, assumed.bind)
    if assumed.is_leaving:
        pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=_LEAVES))
    return pod


@dataclass(frozen=True)
class AssumedSize:
    """Of one elastic job: that these of its roles have been given these sizes."""

    sizes: Mapping[str, int]
    moment: datetime

    def is_seen(self, job: types.ElasticJob) -> bool:
        seen = {target.role: target.replicas for target in job.status.target}
        return all(seen.get(role) == size for role, size in self.sizes.items())


def with_size(job: types.ElasticJob, assumed: AssumedSize | None) -> types.ElasticJob:
    if assumed is None:
        return job
    target = {one.role: one.replicas for one in job.status.target} | dict(assumed.sizes)
    status = replace(
        job.status,
        target=tuple(types.RoleTarget(role, replicas) for role, replicas in target.items()),
        last_resize_time=assumed.moment,
    )
    return replace(job, status=status)


def marked(item: Marked, holders: Container[str]) -> Marked:
    """The item saying of itself whether nodes are kept for it: whether its ns/name is among the holders."""
    meta = item.metadata
    is_holder = f"{meta.namespace}/{meta.name}" in holders
    if is_holder == (meta.annotations.get(RESERVED_ANNOTATION) == "true"):
        return item
    annotations = {key: value for key, value in meta.annotations.items() if key != RESERVED_ANNOTATION}
    if is_holder:
        annotations[RESERVED_ANNOTATION] = "true"
    return replace(item, metadata=replace(meta, annotations=annotations))
