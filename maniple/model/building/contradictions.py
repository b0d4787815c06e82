"""Objects of the input that contradict each other or themselves, and what counts. None of them stops a plan: each is a
note.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from maniple.api import kubernetes, types
from maniple.api.errors import did_you_mean, shown
from maniple.api.gpu.topology_annotation import GpuTopology, TopologyError, parse_topology
from maniple.api.labels import GPU_TOPOLOGY_ANNOTATION, INDEX_LABEL, JOB_LABEL
from maniple.api.quantity import parse_quantity
from maniple.api.types import GPU_RESOURCES
from maniple.model.pod_identity import group_names

Note = tuple[object, str]  # its kind, and the text


def node_notes(node: kubernetes.Node) -> Iterator[Note]:
    annotation = node.metadata.annotations.get(GPU_TOPOLOGY_ANNOTATION)
    if annotation is None:
        return
    try:
        topology = _parsed(annotation)
    except TopologyError:
        return  # reported elsewhere
    resource = topology.resource or GPU_RESOURCES[0]
    amounts = node.status.allocatable or node.status.capacity
    count, found = parse_quantity(str(amounts.get(resource, 0))), len(topology.devices)
    path = f"metadata.annotations[{GPU_TOPOLOGY_ANNOTATION}]"
    if count > found:
        text = f"{path}: names {found} GPUs, and status.allocatable[{resource}] is {count}: the rest are not used"
        yield "fewer GPUs", text
    elif not count:
        yield "no GPUs", f"{path}: names {found} GPUs, and status.allocatable[{resource}] has none: none is used"


@lru_cache(maxsize=1024)
def _parsed(annotation: str) -> GpuTopology:
    return parse_topology(annotation)


def pod_notes(pod: kubernetes.Pod, classes: Mapping[str, int]) -> Iterator[Note]:
    """`classes`: the values of the PriorityClasses of the input."""
    groups = group_names(pod)
    if len(groups) > 1:
        first, other = groups[0], next(group for group in groups[1:])
        yield "two groups", f"is in PodGroup {shown(first)}; that it also names {shown(other)} is not read"
    job, index = pod.metadata.labels.get(JOB_LABEL), pod.metadata.labels.get(INDEX_LABEL)
    if job and groups:
        yield "job and group", f"names ElasticJob {shown(job)} and PodGroup {shown(groups[0])}; expected one of them"
    if index is not None and not (index.isascii() and index.isdecimal()):
        text = f"metadata.labels[{INDEX_LABEL}]: expected a number such as '0', found {shown(index)}; it is not read"
        yield "index", text
    spec = pod.spec
    value = classes.get(spec.priority_class_name)
    if spec.priority is not None and value is not None and spec.priority != value:
        name = shown(spec.priority_class_name)
        yield "priority", f"spec.priority: is {spec.priority}, which counts; PriorityClass {name} has {value}"


def queue_notes(queues: Sequence[types.Queue], resources: Mapping[str, Fraction]) -> Iterator[tuple[types.Queue, Note]]:
    """`resources`: those that nodes have, and how much of each they have together."""
    known = set(resources)
    parents = {queue.metadata.name: queue for queue in queues}
    children: dict[str, list[types.Queue]] = {}
    for queue in queues:
        children.setdefault(queue.spec.parent, []).append(queue)
        spec = queue.spec
        for field, named in (("guaranteed", spec.guaranteed), ("limit", spec.limit), ("weights", spec.weights)):
            for name in named:
                hint = did_you_mean(name, known) if name not in known and known else ""
                if hint:
                    yield queue, ("queue resource", f"spec.{field}[{name}]: no node has this resource{hint}")
        for name, written in spec.guaranteed.items():
            amount = parse_quantity(str(written))
            if "/" in name and amount != int(amount):
                text = f"counts as {int(amount)}: it is divided in whole units"
                yield queue, ("part of a unit", f"spec.guaranteed[{name}]: {written} {text}")
            elif amount > resources.get(name, amount):
                text = f"all nodes have {float(resources[name]):g} together, which is all that can be kept"
                yield queue, ("guarantee of more", f"spec.guaranteed[{name}]: is {written}, but {text}")
    for name, below in children.items():
        parent = parents.get(name)
        for resource, limit in parent.spec.limit.items() if parent is not None else ():
            promised = sum(parse_quantity(str(queue.spec.guaranteed.get(resource, 0))) for queue in below)
            if parent is not None and promised > parse_quantity(str(limit)):
                promise = f"its children are guaranteed {float(promised):g} together"
                yield parent, ("guarantees", f"spec.limit[{resource}]: is {limit}, but {promise}, which cannot be kept")
