"""What has been decided and written but not reported back yet: the cluster as it will be when the watch catches up.

Assumptions are laid over objects as reported. An assumption ends when its object says the same.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from maniple.api import kubernetes, types
from maniple.api.gpu.assignment import format_assignment
from maniple.api.keys import name_of
from maniple.api.labels import (
    BACKFILL_ANNOTATION,
    GPUS_ANNOTATION,
    HAS_EVICTED_ANNOTATION,
    MOVED_ANNOTATION,
    RESERVED_ANNOTATION,
)
from maniple.api.moves import format_move
from maniple.api.phases import FINISHED
from maniple.elastic.target_sizes import decided_sizes, resized
from maniple.model.stuck_pods import GRACE_UNKNOWN
from maniple.scheduler.framework.plan import Bind, MovedGang

Gang = TypeVar("Gang", bound=types.PodGroup | types.ElasticJob)
Marked = TypeVar("Marked", types.PodGroup, types.ElasticJob, kubernetes.Pod)

replace = msgspec.structs.replace


@dataclass(frozen=True)
class Assumed:
    """That the pod with this uid is bound, or is leaving, or both."""

    uid: str
    bind: Bind | None = None
    is_leaving: bool = False

    def against(self, pod: kubernetes.Pod) -> "Assumed | None":
        """What is still to be assumed of the pod as it is reported now; None: nothing."""
        if pod.metadata.uid != self.uid or pod.status.phase in FINISHED:
            return None
        bind = None if pod.spec.node_name else self.bind
        is_leaving = self.is_leaving and pod.metadata.deletion_timestamp is None
        return Assumed(self.uid, bind, is_leaving) if bind is not None or is_leaving else None


def bind_annotations(bind: Bind) -> dict[str, str]:
    """The annotations of a binding. The API server copies them to the pod in the same write."""
    annotations = {GPUS_ANNOTATION: format_assignment(bind.gpus)} if bind.gpus else {}
    if bind.backfill is not msgspec.UNSET:
        annotations[BACKFILL_ANNOTATION] = bind.backfill
    return annotations


def with_bind(pod: kubernetes.Pod, bind: Bind) -> kubernetes.Pod:
    """The pod as the API server has it once the binding is written."""
    annotations, metadata = bind_annotations(bind), pod.metadata
    if annotations:
        metadata = replace(metadata, annotations={**metadata.annotations, **annotations})
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))


def applied(pod: kubernetes.Pod, assumed: Assumed | None) -> kubernetes.Pod:
    if assumed is None:
        return pod
    if assumed.bind is not None:
        pod = with_bind(pod, assumed.bind)
    if assumed.is_leaving:
        pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=GRACE_UNKNOWN))
    return pod


def nominated(pod: kubernetes.Pod, node: str, *, has_evicted: bool) -> kubernetes.Pod:
    """The pod with this nominated node, or none, annotated if pods were evicted for its gang."""
    if pod.status.nominated_node_name != node:
        pod = replace(pod, status=replace(pod.status, nominated_node_name=node))
    if has_evicted != (HAS_EVICTED_ANNOTATION in pod.metadata.annotations):
        annotations = {key: value for key, value in pod.metadata.annotations.items() if key != HAS_EVICTED_ANNOTATION}
        if has_evicted:
            annotations[HAS_EVICTED_ANNOTATION] = "true"
        pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
    return pod


@dataclass(frozen=True)
class AssumedSize:
    """That some roles of an elastic job have been given these sizes."""

    sizes: Mapping[str, int]
    moment: datetime

    def is_seen(self, job: types.ElasticJob) -> bool:
        reported = decided_sizes(job.status)
        return all(reported.get(role) == size for role, size in self.sizes.items())


def with_sizes(job: types.ElasticJob, sizes: Mapping[str, int], now: datetime) -> types.ElasticJob:
    """The job after a resize of these roles. Every size that the scheduler decides is written by this function."""
    return replace(job, status=resized(job.status, {**decided_sizes(job.status), **sizes}, now))


def with_move(item: Gang, annotation: str) -> Gang:
    """The gang, annotated with the places that are kept for pods of it."""
    meta = item.metadata
    return replace(item, metadata=replace(meta, annotations=meta.annotations | {MOVED_ANNOTATION: annotation}))


def move_annotation(moved: MovedGang, now: float, leaving_s: float = 0.0) -> str:
    """`leaving_s`: how long the pods take to leave, if that is more than their grace."""
    leaving_s = max(moved.grace_s, leaving_s)
    return format_move(now, moved.size, moved.places, leaving_s=leaving_s, earlier=moved.earlier)


def marked(item: Marked, holders: Container[str]) -> Marked:
    """The item, annotated as reserved for if its namespace/name is among the holders, and not annotated otherwise."""
    meta = item.metadata
    is_holder = name_of(meta) in holders
    if is_holder == (meta.annotations.get(RESERVED_ANNOTATION) == "true"):
        return item
    annotations = {key: value for key, value in meta.annotations.items() if key != RESERVED_ANNOTATION}
    if is_holder:
        annotations[RESERVED_ANNOTATION] = "true"
    return replace(item, metadata=replace(meta, annotations=annotations))
