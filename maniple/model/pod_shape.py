"""What a pod requires of a node, interned. Pods with equal requirements share one Shape and what is computed for it.

A Shape is requests plus a Constraint (requirements that are not amounts). Masks over nodes are cached by Constraint,
capacity and scores by Shape. Ten thousand equal pods therefore cost as much as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from maniple.api.gpu.requests import WHOLE
from maniple.api.keys import join_key
from maniple.api.kubernetes import (
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
)
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import GpuAsk, Gpus
from maniple.model.late_claims import LateClaim
from maniple.model.plugin_reads import Reads, pick
from maniple.model.pod_requests import Request, RequestTable
from maniple.model.resources import Axis, FloatArray
from maniple.model.volume_claims import NO_NEEDS, Storage, claims_of


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """Requirements on a node that are not amounts. Equal requirements are one object, compared by identity."""

    number: int
    node_name: str  # the only node that the pod may run on. Empty: any node
    node_selector: tuple[tuple[str, str], ...]
    required: tuple[NodeSelectorTerm, ...] | None
    preferred: tuple[PreferredSchedulingTerm, ...]
    tolerations: tuple[Toleration, ...]
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...]
    volume_zones: tuple[tuple[str, str], ...]
    late_claims: tuple[LateClaim, ...]  # that get a volume once the pod has a node
    obstacles: tuple[str, ...]  # claims that are not ready: the pod cannot go to any node yet
    features: tuple[str, ...]  # of Kubernetes that the node must declare
    claims_resources: bool  # by dynamic resource allocation, which is not supported yet
    images: tuple[str, ...]
    gpu_models: tuple[GpuModel, ...]  # the preferred one first. Empty: any model
    labels: Mapping[str, str]  # of the pod, only the keys that plugins declare to read
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Exclusive:
    """A host port or a disk that pods on one node cannot share, a claim that pods of the whole cluster cannot share, an
    attached volume of a CSI driver, or a free volume that a claim is about to take. Attached volumes are shared; a node
    holds a limited number of different ones.
    """

    kind: str  # "port", "disk", "claim", "volume" or "late" claim
    name: str
    address: str = ""  # ports: the host IP. Empty: all addresses
    shareable: bool = False  # disks: mounted read-only; volumes; late claims
    driver: str = ""  # volumes: of CSI
    late: LateClaim | None = None  # late claims: what it accepts

    def clashes(self, other: "Exclusive") -> bool:
        if (self.kind, self.name) != (other.kind, other.name) or (self.shareable and other.shareable):
            return False
        return not self.address or not other.address or self.address == other.address


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    number: int
    request: int  # in the RequestTable
    requests: FloatArray
    constraint: Constraint
    exclusives: tuple[Exclusive, ...]
    gpus: tuple[GpuAsk, ...]
    is_best_effort: bool

    @property
    def is_one_per_node(self) -> bool:
        """Whether two of its pods would need the same port or disk."""
        return any(exclusive.clashes(exclusive) for exclusive in self.exclusives)

    @property
    def is_one_per_cluster(self) -> bool:
        """Whether two of its pods would need the same claim."""
        return any(exclusive.kind == "claim" for exclusive in self.exclusives)


class Shapes:
    """Interns shapes and constraints."""

    def __init__(
        self,
        axis: Axis,
        requests: RequestTable,
        gpus: Gpus,
        storage: Storage,
        reads: Reads,
    ) -> None:
        self._axis = axis
        self._requests = requests
        self._gpus = gpus
        self._asks: dict[int, tuple[GpuAsk, ...]] = {}
        self._storage = storage
        self._reads = reads
        self._vectors: dict[int, FloatArray] = {}
        self._constraints: dict[Any, Constraint] = {}
        self._shapes: dict[Any, Shape] = {}
        self._last: tuple[object, Shape] | None = None

    def __len__(self) -> int:
        return len(self._shapes)

    def vector(self, request: int) -> FloatArray:
        vector = self._vectors.get(request)
        if vector is None:
            vector = self._axis.vector({**self._requests.requests[request].amounts, "pods": 1})
            for ask in self.asks(request):
                vector[ask.row] = ask.count * ask.milli
            vector.setflags(write=False)
            self._vectors[request] = vector
        return vector

    def asks(self, request: int) -> tuple[GpuAsk, ...]:
        """The GPUs that the request asks for."""
        asks = self._asks.get(request)
        if asks is None:
            amounts = self._requests.requests[request]
            asks = self._asks[request] = tuple(self._ask(amounts, name, count) for name, count in amounts.gpus)
        return asks

    def _ask(self, request: Request, name: str, count: int) -> GpuAsk:
        row = self._axis.index[name]
        if not request.memory:
            return GpuAsk(row, count, request.share)
        table = self._gpus.tables.get(row)
        least = int(table.milli_for(request.memory).min(initial=WHOLE)) if table is not None else WHOLE
        return GpuAsk(row, count, least, request.memory)

    def of(self, pod: Pod, request: int, models: tuple[GpuModel, ...] = ()) -> Shape:
        """`request`: the number of the pod's request in the RequestTable."""
        reads, meta = self._reads, pod.metadata
        labels, annotations = pick(reads.pod_labels, meta.labels), pick(reads.pod_annotations, meta.annotations)
        written = (request, models, labels, annotations, pod.spec)
        if self._last is not None and written == self._last[0]:  # equal pods mostly follow each other
            return self._last[1]
        shape = self._intern(pod, request, models, labels, annotations)
        if not claims_of(pod):  # what claims are bound to may change
            self._last = written, shape
        return shape

    def _intern(
        self,
        pod: Pod,
        request: int,
        models: tuple[GpuModel, ...],
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
    ) -> Shape:
        constraint = self._constraint(pod, models, labels, annotations)
        exclusives = self.exclusives(pod)
        key = (request, constraint.number, exclusives)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(
                number=len(self._shapes),
                request=request,
                requests=self.vector(request),
                constraint=constraint,
                exclusives=exclusives,
                gpus=self.asks(request),
                is_best_effort=not self._requests.requests[request].amounts,
            )
        return shape

    def exclusives(self, pod: Pod) -> tuple[Exclusive, ...]:
        """What the pod holds that others cannot have, or only a limited number of them."""
        exclusives = exclusives_of(pod.spec)
        if not pod.spec.volumes:
            return exclusives
        claims = [Exclusive("claim", name) for name in self._storage.claims_of_one_pod(pod)]
        volumes = [
            Exclusive("volume", name, shareable=True, driver=driver) for driver, name in self._storage.attachments(pod)
        ]
        # Pods whose claims can only be made new do not compete, and their claims are not told apart.
        late = [
            Exclusive("late", join_key((pod.metadata.namespace, claim.metadata.name)), shareable=True, late=accepts)
            for claim, accepts in self._storage.late_claims(pod)
            if accepts.volumes
        ]
        return (*exclusives, *claims, *volumes, *late)

    def _constraint(
        self, pod: Pod, models: tuple[GpuModel, ...], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> Constraint:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        # The key contains what the claims need: once a claim is bound, the pod gets another constraint.
        needs = self._storage.needs(pod) if spec.volumes and claims_of(pod) else NO_NEEDS
        selector = tuple(sorted(spec.node_selector.items())) if spec.node_selector else ()
        features = _features(spec)
        key = (
            selector,
            msgspec.json.encode(affinity) if affinity else None,
            spec.tolerations,
            needs,
            features,
            bool(spec.resource_claims),
            tuple([container.image for container in spec.containers]),
            models,
            tuple(labels.items()),  # in the order of the sorted keys
            tuple(annotations.items()),
        )
        constraint = self._constraints.get(key)
        if constraint is None:
            selection = affinity.required_during_scheduling_ignored_during_execution if affinity else None
            required = selection.node_selector_terms if selection else None
            node_name = _only_node(required)
            constraint = self._constraints[key] = Constraint(
                number=len(self._constraints),
                node_name=node_name,
                node_selector=selector,
                required=None if node_name else required,
                preferred=affinity.preferred_during_scheduling_ignored_during_execution if affinity else (),
                tolerations=spec.tolerations,
                volumes=needs.terms,
                volume_zones=needs.zones,
                late_claims=needs.late,
                obstacles=needs.obstacles,
                features=features,
                claims_resources=bool(spec.resource_claims),
                images=tuple(container.image for container in spec.containers),
                gpu_models=models,
                labels=labels,
                annotations=annotations,
            )
        return constraint


def _only_node(required: tuple[NodeSelectorTerm, ...] | None) -> str:
    """The node that the terms name by `metadata.name`. Empty if they require anything else."""
    if required is None or len(required) != 1 or required[0].match_expressions or len(required[0].match_fields) != 1:
        return ""
    field = required[0].match_fields[0]
    return field.values[0] if field.operator == "In" and len(field.values) == 1 else ""


def _features(spec: PodSpec) -> tuple[str, ...]:
    """The features of Kubernetes that the pod uses and that not every node has."""
    features = []
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    rules = [rule for container in (*spec.containers, *spec.init_containers) for rule in container.restart_policy_rules]
    if any(rule.action == "RestartAllContainers" for rule in rules):
        features.append("RestartAllContainersOnContainerExits")
    return tuple(features)


def exclusives_of(spec: PodSpec) -> tuple[Exclusive, ...]:
    """The host ports that a pod binds, and its disks that other pods on the node cannot mount."""
    exclusives: list[Exclusive] = []
    sidecars = [container for container in spec.init_containers if container.restart_policy == "Always"]
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                # As in kube-scheduler, only 0.0.0.0 stands for all addresses: "::" does not.
                address = "" if port.host_ip == "0.0.0.0" else port.host_ip
                exclusives.append(Exclusive("port", f"{port.protocol or 'TCP'}/{number}", address))
    for volume in spec.volumes:
        if gce := volume.gce_persistent_disk:
            exclusives.append(Exclusive("disk", f"gce/{gce.pd_name}", shareable=gce.read_only))
        if aws := volume.aws_elastic_block_store:
            exclusives.append(Exclusive("disk", f"aws/{aws.volume_id}"))
        if rbd := volume.rbd:
            # Two images are the same if they have one monitor in common.
            names = [f"rbd/{monitor}/{rbd.pool}/{rbd.image}" for monitor in rbd.monitors]
            exclusives.extend(Exclusive("disk", name, shareable=rbd.read_only) for name in names)
        if iscsi := volume.iscsi:
            exclusives.append(Exclusive("disk", f"iscsi/{iscsi.iqn}", shareable=iscsi.read_only))
    return tuple(dict.fromkeys(exclusives)) if exclusives else ()
