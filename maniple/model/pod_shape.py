"""What a pod requires of a node, interned. Pods with equal requirements share one Shape and what is computed for it.

A Shape is requests plus a Constraint (requirements that are not amounts). Masks over nodes are cached by Constraint,
capacity and scores by Shape. Ten thousand equal pods therefore cost as much as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from maniple.api.gpu.requests import WHOLE
from maniple.api.kubernetes import (
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
)
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import GpuAsk, Gpus
from maniple.model.plugin_reads import Reads, pick
from maniple.model.resources import Axis, FloatArray, Request, RequestTable
from maniple.model.volume_claims import claims_of

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


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
    missing_volumes: tuple[str, ...]
    images: tuple[str, ...]
    gpu_models: tuple[GpuModel, ...]  # the preferred one first. Empty: any model
    labels: Mapping[str, str]  # of the pod, only the keys that plugins declare to read
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Exclusive:
    """A host port or a disk that pods on one node cannot share."""

    kind: str  # "port" or "disk"
    name: str
    address: str = ""  # ports: the host IP. Empty: all addresses
    shareable: bool = False  # disks: mounted read-only

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


class Shapes:
    """Interns shapes and constraints. Resolves claims to volumes."""

    def __init__(
        self,
        axis: Axis,
        requests: RequestTable,
        gpus: Gpus,
        claims: Mapping[tuple[str, str], PersistentVolumeClaim],
        volumes: Mapping[str, PersistentVolume],
        reads: Reads,
    ) -> None:
        self._axis = axis
        self._requests = requests
        self._gpus = gpus
        self._asks: dict[int, tuple[GpuAsk, ...]] = {}
        self._claims = claims
        self._volumes = volumes
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
        exclusives = exclusives_of(pod.spec)
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

    def _constraint(
        self, pod: Pod, models: tuple[GpuModel, ...], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> Constraint:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        claims = tuple([v.persistent_volume_claim.claim_name for v in spec.volumes if v.persistent_volume_claim])
        # The key contains the resolved volumes: once a claim is bound, the pod gets another constraint.
        resolved = self._resolve(pod.metadata.namespace, claims) if claims else None
        selector = tuple(sorted(spec.node_selector.items())) if spec.node_selector else ()
        key = (
            selector,
            msgspec.json.encode(affinity) if affinity else None,
            spec.tolerations,
            resolved,
            tuple([container.image for container in spec.containers]),
            models,
            tuple(labels.items()),  # in the order of the sorted keys
            tuple(annotations.items()),
        )
        constraint = self._constraints.get(key)
        if constraint is None:
            terms, zones, missing = resolved or ((), (), ())
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
                volumes=terms,
                volume_zones=zones,
                missing_volumes=missing,
                images=tuple(container.image for container in spec.containers),
                gpu_models=models,
                labels=labels,
                annotations=annotations,
            )
        return constraint

    def _resolve(
        self, namespace: str, claims: tuple[str, ...]
    ) -> tuple[tuple[tuple[NodeSelectorTerm, ...], ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Where the volumes of `claims` can be reached: selector terms, zone labels, and errors for missing objects.

        An unbound claim does not restrict the node: its volume is provisioned where the pod is placed.
        """
        terms: list[tuple[NodeSelectorTerm, ...]] = []
        zones: list[tuple[str, str]] = []
        missing: list[str] = []
        for name in claims:
            claim = self._claims.get((namespace, name))
            if claim is None:
                missing.append(f"PersistentVolumeClaim {namespace}/{name} does not exist")
                continue
            if not claim.spec.volume_name:
                continue
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                missing.append(f"PersistentVolume {claim.spec.volume_name} does not exist")
                continue
            affinity = volume.spec.node_affinity
            if affinity and affinity.required:
                terms.append(affinity.required.node_selector_terms)
            labels = volume.metadata.labels
            zones.extend((key, labels[key]) for key in ZONE_LABELS if key in labels)
        return tuple(terms), tuple(zones), tuple(missing)


def _only_node(required: tuple[NodeSelectorTerm, ...] | None) -> str:
    """The node that the terms name by `metadata.name`. Empty if they require anything else."""
    if required is None or len(required) != 1 or required[0].match_expressions or len(required[0].match_fields) != 1:
        return ""
    field = required[0].match_fields[0]
    return field.values[0] if field.operator == "In" and len(field.values) == 1 else ""


def exclusives_of(spec: PodSpec) -> tuple[Exclusive, ...]:
    """The host ports that a pod binds, and its disks that other pods on the node cannot mount."""
    exclusives: list[Exclusive] = []
    for container in spec.containers:
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                address = "" if port.host_ip in ("", "0.0.0.0", "::") else port.host_ip
                exclusives.append(Exclusive("port", f"{port.protocol}/{number}", address))
    for volume in spec.volumes:
        if gce := volume.gce_persistent_disk:
            exclusives.append(Exclusive("disk", f"gce/{gce.pd_name}", shareable=gce.read_only))
        if aws := volume.aws_elastic_block_store:
            exclusives.append(Exclusive("disk", f"aws/{aws.volume_id}"))
        if rbd := volume.rbd:
            name = f"rbd/{','.join(sorted(rbd.monitors))}/{rbd.pool}/{rbd.image}"
            exclusives.append(Exclusive("disk", name, shareable=rbd.read_only))
        if iscsi := volume.iscsi:
            exclusives.append(Exclusive("disk", f"iscsi/{iscsi.iqn}", shareable=iscsi.read_only))
    return tuple(dict.fromkeys(exclusives)) if exclusives else ()
