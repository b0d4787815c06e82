"""Strips objects of all that no decision depends on, so that a heartbeat or a status update is not a change."""

from typing import TypeVar

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.meta import ObjectMeta, ResourceList
from maniple.api.phases import FINISHED
from maniple.api.quantity import parse_quantity
from maniple.model.nodes import PRESSURES
from maniple.model.plugin_reads import Reads
from maniple.model.pod_identity import OF_NO_GANG, READ_ANNOTATIONS
from maniple.model.pod_requests import RESIZE_PENDING, is_resized

_CONDITIONS = frozenset({"Ready", *PRESSURES})
_NO_READS = Reads()
Some = TypeVar("Some", kubernetes.Pod, kubernetes.Node, types.PodGroup, types.ElasticJob)

replace = msgspec.structs.replace


def stripped(item: Object, reads: Reads = _NO_READS) -> Object:
    """`reads`: the annotations that plugins declare, which are kept. Labels are always kept."""
    if isinstance(item, kubernetes.Pod):
        return _pod(_annotated(item, reads))
    if isinstance(item, kubernetes.Node):
        return _node(item)
    if isinstance(item, types.PodGroup):
        return replace(_annotated(item, reads), status=types.PodGroupStatus())
    if isinstance(item, types.ElasticJob):
        status = item.status
        phase = status.phase if status.phase in FINISHED else ""
        kept = types.ElasticJobStatus(
            phase=phase,
            target=status.target,
            last_resize_time=status.last_resize_time,
            speeds=status.speeds,
            grow_after=status.grow_after,
        )
        return replace(_annotated(item, reads), status=kept)
    if isinstance(item, types.Queue):
        return types.Queue(metadata=_named(item.metadata), spec=item.spec)
    return item


def _annotated(item: Some, reads: Reads) -> Some:
    """The object with only the annotations that are read."""
    annotations = item.metadata.annotations
    if not annotations or annotations.keys() <= READ_ANNOTATIONS:
        return item
    kept = {key: value for key, value in annotations.items() if key in READ_ANNOTATIONS or key in reads.annotations}
    if len(kept) == len(annotations):
        return item
    return replace(item, metadata=replace(item.metadata, annotations=kept))


def _pod(pod: kubernetes.Pod) -> kubernetes.Pod:
    """What containers have is read only while it differs from the spec: while the pod is resized in place."""
    status = pod.status
    if is_resized(pod):
        conditions = tuple(condition for condition in status.conditions if condition.type == RESIZE_PENDING)
        return pod if conditions == status.conditions else replace(pod, status=replace(status, conditions=conditions))
    if not (status.container_statuses or status.init_container_statuses or status.conditions):
        return pod
    kept = kubernetes.PodStatus(
        phase=status.phase, start_time=status.start_time, nominated_node_name=status.nominated_node_name
    )
    return replace(pod, status=kept)


def _named(meta: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)


def _node(node: kubernetes.Node) -> kubernetes.Node:
    status = node.status
    conditions = tuple(condition for condition in status.conditions if condition.type in _CONDITIONS)
    kept = kubernetes.NodeStatus(
        capacity={} if status.allocatable else status.capacity,
        allocatable=status.allocatable,
        conditions=conditions,
        images=status.images,
        declared_features=status.declared_features,
    )
    return replace(_annotated(node, _NO_READS), status=kept)


def countable(pod: kubernetes.Pod) -> kubernetes.Pod:
    """The pod without unreadable amounts. Its other resources must count even if the pod is invalid."""
    spec = pod.spec
    counted = replace(
        spec,
        containers=tuple(_container(container) for container in spec.containers),
        init_containers=tuple(_container(container) for container in spec.init_containers),
        resources=_resources(spec.resources),
        overhead=_readable(spec.overhead),
    )
    status = replace(
        pod.status,
        container_statuses=tuple(_status(container) for container in pod.status.container_statuses),
        init_container_statuses=tuple(_status(container) for container in pod.status.init_container_statuses),
        allocated_resources=_readable(pod.status.allocated_resources),
        resources=None if pod.status.resources is None else _resources(pod.status.resources),
    )
    return replace(pod, spec=counted, status=status)


def stranger(pod: kubernetes.Pod) -> kubernetes.Pod:
    """An invalid pod on a node: it holds its resources and has its labels, but belongs to no gang and no scheduler."""
    pod = countable(pod)
    meta, spec = pod.metadata, pod.spec
    return replace(
        pod,
        metadata=replace(meta, annotations={**meta.annotations, OF_NO_GANG: ""}),
        spec=replace(spec, scheduler_name="", priority_class_name=""),
    )


def _container(container: kubernetes.Container) -> kubernetes.Container:
    return replace(container, resources=_resources(container.resources))


def _status(container: kubernetes.ContainerStatus) -> kubernetes.ContainerStatus:
    resources = None if container.resources is None else _resources(container.resources)
    return replace(container, allocated_resources=_readable(container.allocated_resources), resources=resources)


def _resources(resources: kubernetes.ResourceRequirements) -> kubernetes.ResourceRequirements:
    return kubernetes.ResourceRequirements(_readable(resources.requests), _readable(resources.limits))


def _readable(resources: ResourceList) -> ResourceList:
    return {name: value for name, value in resources.items() if _is_amount(value)}


def _is_amount(value: str | int | float) -> bool:
    try:
        return parse_quantity(str(value)) >= 0
    except ValueError:
        return False
