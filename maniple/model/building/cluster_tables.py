"""What pods stand in: the tables of nodes, queues, priorities and topologies, and which pods are ours.

A Frame is made once, and lives as long as the cluster itself does not change. Pods come and go inside of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.api import kubernetes, types
from maniple.api.labels import JOB_LABEL
from maniple.model.budgets import Budget
from maniple.model.domains import Domains
from maniple.model.nodes import NodeTable
from maniple.model.pod_affinity import PeerReader
from maniple.model.pod_identity import group_name
from maniple.model.priority import Priorities
from maniple.model.queues import build_queues
from maniple.model.resources import Axis, FloatArray, RequestTable
from maniple.model.shape import Shapes

DEFAULT_SCHEDULER = "maniple"
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Ours:
    """Which pods this scheduler plans."""

    scheduler_name: str = DEFAULT_SCHEDULER
    every_pod: bool = False

    def claims(self, pod: kubernetes.Pod) -> bool:
        return self.every_pod or pod.spec.scheduler_name == self.scheduler_name

    def runs(self, job: types.ElasticJob) -> bool:
        """Whether a live job is this scheduler's: the one that its first role names, maniple if it names none."""
        named = job.spec.roles[0].template.spec.scheduler_name if job.spec.roles else ""
        return self.every_pod or (named or DEFAULT_SCHEDULER) == self.scheduler_name


def matters(pod: kubernetes.Pod, ours: Ours) -> bool:
    """Whether the pod can make a difference: it is on a node, is ours to place, or counts for a gang."""
    phase, is_placed = pod.status.phase, bool(pod.spec.node_name)
    if JOB_LABEL in pod.metadata.labels:
        return True
    if phase == "Running" and is_placed:
        return True
    if phase == "Failed" or (phase == "Succeeded" and not is_placed):
        return False
    if phase != "Succeeded" and (is_placed or ours.claims(pod)):
        return is_placed or pod.metadata.deletion_timestamp is None
    return bool(group_name(pod))


class Frame:
    """`reader` and `budgets` follow the pods, and may be put in later."""

    def __init__(
        self,
        ours: Ours,
        requests: RequestTable,
        *,
        nodes: Sequence[kubernetes.Node],
        queues: Sequence[types.Queue],
        priority_classes: Sequence[kubernetes.PriorityClass],
        topologies: Sequence[types.Topology],
        claims: Mapping[tuple[str, str], kubernetes.PersistentVolumeClaim],
        volumes: Mapping[str, kubernetes.PersistentVolume],
    ) -> None:
        """`queues`: by name, the default one among them, and nothing wrong with the tree. `requests`: all there are."""
        self.ours = ours
        self.requests = requests
        asked = {name for request in requests.requests for name in request.amounts}
        self.axis = Axis(asked | fixed_names(nodes, queues))
        self.topologies = topologies
        self.nodes = NodeTable(nodes, self.axis)
        self.gpus = self.nodes.gpus
        self.domains = Domains(topologies, self.nodes)
        levels: dict[str, str] = {}  # name -> node label; of several of a name the first counts, as in Domains
        for topology in sorted(topologies, key=lambda topology: topology.metadata.name):
            levels = {level.name: level.node_label for level in topology.spec.levels} | levels
        self.levels = set(levels)
        self.level_of_label = {label: name for name, label in levels.items()}
        self.priorities = Priorities(priority_classes)
        self.queues, self.queue_index = build_queues(queues, self.axis)
        self.shapes = Shapes(self.axis, requests, self.gpus, claims, volumes)
        self.reader = PeerReader({})
        self.budgets: Sequence[Budget] = ()

    def total(self, used: FloatArray, foreign: FloatArray) -> FloatArray:
        """What queues share: of a node that takes no pods only what is in use counts, and nothing of others' pods."""
        usable = self.nodes.ready & ~self.nodes.unschedulable
        held = np.where(usable, np.where(np.isfinite(self.nodes.allocatable), self.nodes.allocatable, 0.0), used)
        total: FloatArray = np.maximum((held - foreign).sum(axis=1), 0.0)
        return total


def fixed_names(nodes: Sequence[kubernetes.Node], queues: Sequence[types.Queue]) -> set[str]:
    """Resources that there are whatever pods ask for."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.status.allocatable or node.status.capacity)
    for queue in queues:
        names.update(queue.spec.guaranteed, queue.spec.limit)
    return names
