"""The tables that pods are read against: nodes, queues, priorities, topologies, shapes.

They are built once and stay valid until the cluster itself changes. Pods come and go without changing them.
"""

from collections.abc import Sequence

import numpy as np

from maniple.api import kubernetes, types
from maniple.model.building.queue_choice import QueueChoice
from maniple.model.disruption_budgets import Budget
from maniple.model.nodes import NodeTable
from maniple.model.plugin_reads import Reads
from maniple.model.pod_affinity import AffinityReader
from maniple.model.pod_requests import RequestTable
from maniple.model.pod_shape import Shapes
from maniple.model.pods_we_schedule import Ours
from maniple.model.priority import Priorities
from maniple.model.queues import build_queues
from maniple.model.resources import Axis, FloatArray
from maniple.model.topology_domains import Domains
from maniple.model.volume_claims import Storage


class ClusterTables:
    """`reader` and `budgets` depend on the pods, and are set later."""

    def __init__(
        self,
        ours: Ours,
        reads: Reads,
        requests: RequestTable,
        *,
        nodes: Sequence[kubernetes.Node],
        queues: Sequence[types.Queue],
        priority_classes: Sequence[kubernetes.PriorityClass],
        topologies: Sequence[types.Topology],
        storage: Storage,
        namespaces: Sequence[kubernetes.Namespace] = (),
        has_all_shapes: bool = False,
    ) -> None:
        """`queues`: sorted by name, with the default one, a sound tree. `requests`: of all pods. `has_all_shapes`:
        placed pods have their shapes whether they may be moved or not.
        """
        self.has_all_shapes = has_all_shapes
        self.ours = ours
        self.reads = reads
        self.requests = requests
        asked = {name for request in requests.requests for name in request.amounts}
        self.axis = Axis(fixed_names(nodes, queues), asked)
        self.topologies = topologies
        self.nodes = NodeTable(nodes, self.axis)
        self.gpus = self.nodes.gpus
        self.domains = Domains(topologies, self.nodes)
        levels: dict[str, str] = {}  # name -> node label; the first of a name counts, as in Domains
        for topology in sorted(topologies, key=lambda topology: topology.metadata.name):
            levels = {level.name: level.node_label for level in topology.spec.levels} | levels
        self.levels = set(levels)
        self.level_of_label = {label: name for name, label in levels.items()}
        self.priorities = Priorities(priority_classes)
        self.queues, queue_index = build_queues(queues, self.axis)
        self.queue_choice = QueueChoice(self.queues, queue_index, namespaces)
        self.shapes = Shapes(self.axis, requests, self.gpus, storage, reads)
        self.reader = AffinityReader({})
        self.budgets: Sequence[Budget] = ()
        self.volume_limits = _volume_limits(self.nodes, storage)

    def total(self, used: FloatArray, foreign: FloatArray) -> FloatArray:
        """What queues share: a node that takes no pods adds only what is used; other schedulers' pods are left out."""
        usable = self.nodes.ready & ~self.nodes.unschedulable
        held = np.where(usable, np.where(np.isfinite(self.nodes.allocatable), self.nodes.allocatable, 0.0), used)
        total: FloatArray = np.maximum((held - foreign).sum(axis=1), 0.0)
        return total


def _volume_limits(nodes: NodeTable, storage: Storage) -> dict[str, FloatArray]:
    """CSI driver -> the most volumes of it on each node; inf: no limit."""
    limits: dict[str, FloatArray] = {}
    for name, by_driver in storage.limits.items():
        node = nodes.index.get(name)
        if node is not None:
            for driver, most in by_driver.items():
                limits.setdefault(driver, np.full(len(nodes), np.inf))[node] = most
    return limits


def fixed_names(nodes: Sequence[kubernetes.Node], queues: Sequence[types.Queue]) -> set[str]:
    """Resources that exist whatever pods ask for."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.status.allocatable or node.status.capacity)
    for queue in queues:
        names.update(queue.spec.guaranteed, queue.spec.limit)
    return names
