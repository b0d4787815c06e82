"""Storage of the cluster: claims, volumes, classes and drivers; and what the claims of a pod require of a node.

The rules are kube-scheduler's. A claim whose volume is bound holds the pod to where the volume can be reached. A claim
of a class with `WaitForFirstConsumer` is bound after the pod has a node, so it holds the pod only to where a volume
exists or can be made. Any other unbound claim is bound by itself, and the pod waits until then.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from maniple.api.keys import Key, join_key
from maniple.api.kubernetes import (
    CSINode,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    StorageClass,
    Volume,
)
from maniple.api.meta import LabelRequirement, ObjectMeta
from maniple.api.quantity import parse_quantity
from maniple.model.counting import discard
from maniple.model.pod_affinity import matches_labels

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
STORAGE_KINDS = (PersistentVolume, PersistentVolumeClaim, StorageClass)
_ONE_POD = "ReadWriteOncePod"
_LATE = "WaitForFirstConsumer"
_NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
_BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_NO_CLAIMS: frozenset[Key] = frozenset()


def claims_of(pod: Pod) -> frozenset[Key]:
    """The claims of the pod's volumes."""
    if not pod.spec.volumes:
        return _NO_CLAIMS
    names = [name for volume in pod.spec.volumes if (name := _claim_name(pod, volume))]
    return frozenset([(pod.metadata.namespace, name) for name in names]) if names else _NO_CLAIMS


def _claim_name(pod: Pod, volume: Volume) -> str:
    """Empty: the volume has no claim."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


@dataclass(frozen=True, slots=True)
class ClaimNeeds:
    """What the claims of a pod require. Equal for pods that may go to the same nodes."""

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()  # a node must meet one of each
    zones: tuple[tuple[str, str], ...] = ()  # zone labels of the volumes
    obstacles: tuple[str, ...] = ()  # why the pod cannot go to any node yet


NO_NEEDS = ClaimNeeds()


class Storage:
    def __init__(self) -> None:
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.limits: dict[str, dict[str, int]] = {}  # node -> CSI driver -> the most volumes
        self._bound: dict[str, set[Key]] = {}  # volume -> claims that are bound to it, "": unbound claims

    # -- objects

    def put(self, kind: type, key: Key, item: Any) -> set[Key]:
        """Adds, replaces or (None) removes an object. Returns the claims whose pods may be affected."""
        unbound = self._bound.get("", set())
        if kind is PersistentVolumeClaim:
            self._put_claim(key, item)
            return {key}
        objects: dict[str, Any] = self.volumes if kind is PersistentVolume else self.classes
        objects.pop(key[1], None)
        if item is not None:
            objects[key[1]] = item
        # An unbound claim may take a new volume, or get one by its class.
        return unbound if kind is StorageClass else unbound | self._bound.get(key[1], set())

    def _put_claim(self, key: Key, claim: PersistentVolumeClaim | None) -> None:
        old = self.claims.pop(key, None)
        if old is not None:
            discard(self._bound, old.spec.volume_name, key)
        if claim is not None:
            self.claims[key] = claim
            self._bound.setdefault(claim.spec.volume_name, set()).add(key)

    def put_csi_node(self, name: str, node: CSINode | None) -> bool:
        """Whether the limits of the node have changed."""
        before = self.limits.pop(name, {})
        drivers = node.spec.drivers if node is not None else ()
        limits = {d.name: d.allocatable.count for d in drivers if d.allocatable and d.allocatable.count is not None}
        if limits:
            self.limits[name] = limits
        return limits != before

    # -- pods

    def needs(self, pod: Pod) -> ClaimNeeds:
        """What the pod's claims require of a node."""
        terms: list[tuple[NodeSelectorTerm, ...]] = []
        zones: list[tuple[str, str]] = []
        obstacles: list[str] = []
        for volume in pod.spec.volumes:
            name = _claim_name(pod, volume)
            claim = self._claim(pod, volume, name) if name else None
            if claim is None:
                continue
            if isinstance(claim, str):
                obstacles.append(claim)
            elif _is_bound(claim):
                bound = self.volumes.get(claim.spec.volume_name)
                if bound is None:
                    obstacles.append(f"PersistentVolume {claim.spec.volume_name} does not exist")
                    continue
                affinity = bound.spec.node_affinity
                if affinity and affinity.required:
                    terms.append(affinity.required.node_selector_terms)
                labels = bound.metadata.labels
                zones.extend((key, labels[key]) for key in ZONE_LABELS if key in labels)
            else:
                places = self._places(claim, is_made=_is_made_later(pod, volume, claim))
                if isinstance(places, str):
                    obstacles.append(places)
                elif places:
                    terms.append(places)
        return ClaimNeeds(tuple(terms), tuple(zones), tuple(obstacles))

    def claims_of_one_pod(self, pod: Pod) -> list[str]:
        """The pod's claims that only one pod in the cluster may use."""
        claims = ((key, self.claims.get(key)) for key in sorted(claims_of(pod)))
        return [join_key(key) for key, claim in claims if claim is not None and _ONE_POD in claim.spec.access_modes]

    def attachments(self, pod: Pod) -> list[tuple[str, str]]:
        """(CSI driver, volume) of the pod's volumes whose number on a node is limited."""
        drivers = {driver for limits in self.limits.values() for driver in limits}
        found = []
        for volume in pod.spec.volumes if drivers else ():
            name = _claim_name(pod, volume)
            claim = self._claim(pod, volume, name) if name else None
            if claim is None or isinstance(claim, str):
                continue
            driver, handle = self._driver(claim)
            if driver in drivers:
                found.append((driver, handle or f"claim {join_key((pod.metadata.namespace, name))}"))
        return list(dict.fromkeys(found))

    def _driver(self, claim: PersistentVolumeClaim) -> tuple[str, str]:
        """(driver, volume handle); the handle is empty while there is no volume."""
        volume = self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi is not None else ("", "")
        storage_class = self.classes.get(self._class_name(claim))
        return (storage_class.provisioner, "") if storage_class is not None else ("", "")

    def _claim(self, pod: Pod, volume: Volume, name: str) -> PersistentVolumeClaim | str:
        """The claim of a volume, or why the pod cannot use it."""
        meta = pod.metadata
        claim = self.claims.get((meta.namespace, name))
        called = f"PersistentVolumeClaim {meta.namespace}/{name}"
        if claim is None:
            if volume.ephemeral is None:
                return f"{called} does not exist"
            if meta.uid:
                return f"{called} is not yet created for the pod's volume {volume.name}"
            # A pod that does not exist yet: its claim comes with it.
            named = ObjectMeta(name=name, namespace=meta.namespace)
            return PersistentVolumeClaim(named, volume.ephemeral.volume_claim_template.spec)
        if claim.metadata.deletion_timestamp is not None:
            return f"{called} is being deleted"
        if claim.status.phase == "Lost":
            return f"{called} has lost its volume"
        owners = claim.metadata.owner_references
        if volume.ephemeral is not None and meta.uid and not any(o.controller and o.uid == meta.uid for o in owners):
            return f"{called} was not created for this pod; delete or rename it"
        return claim

    def _class_name(self, claim: PersistentVolumeClaim) -> str:
        name = claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name)
        if name is None and not claim.metadata.uid:
            # The API server writes the default class into a claim when it is created.
            marked = (item.metadata for item in self.classes.values())
            defaults = (m for m in marked if any(m.annotations.get(a) == "true" for a in _DEFAULT_CLASS_ANNOTATIONS))
            name = min((meta.name for meta in defaults), default=None)
        return name or ""

    def _places(self, claim: PersistentVolumeClaim, *, is_made: bool) -> tuple[NodeSelectorTerm, ...] | str:
        """Where an unbound claim can get a volume: one of these terms, (): anywhere; or why it cannot.

        `is_made`: the claim comes with its pod, so its binding is not waited for.
        """
        name, meta = self._class_name(claim), claim.metadata
        called = f"PersistentVolumeClaim {meta.namespace}/{meta.name}"
        storage_class = self.classes.get(name)
        if storage_class is None:
            if is_made:
                return ()
            missing = f"; its StorageClass {name} does not exist" if name else ""
            return f"{called} is not bound{missing}"
        if not is_made and (storage_class.volume_binding_mode != _LATE or claim.spec.volume_name):
            return f"{called} is not bound"
        places: list[NodeSelectorTerm] = []
        for volume in self._available(claim, name):
            affinity = volume.spec.node_affinity
            if affinity is None or affinity.required is None:
                return ()
            places.extend(affinity.required.node_selector_terms)
        if storage_class.provisioner not in _NO_PROVISIONER:
            if not storage_class.allowed_topologies:
                return ()
            places.extend(_allowed(storage_class))
        return tuple(places) or f"{called} finds no free PersistentVolume of StorageClass {name}"

    def _available(self, claim: PersistentVolumeClaim, class_name: str) -> Iterator[PersistentVolume]:
        """Volumes that exist, are free, and that the claim accepts."""
        for _, volume in sorted(self.volumes.items()):
            spec, meta = volume.spec, volume.metadata
            if spec.storage_class_name != class_name or meta.deletion_timestamp is not None:
                continue
            reference = spec.claim_ref
            if reference is not None:
                is_for_it = (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
                if not is_for_it or (reference.uid and reference.uid != claim.metadata.uid):
                    continue
            elif volume.status.phase not in ("", "Available") or not _accepts(claim.spec, volume):
                continue
            yield volume


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    """On a cluster the binding is complete when the annotation is there; files may leave it out."""
    return bool(claim.spec.volume_name) and (not claim.metadata.uid or _BOUND_ANNOTATION in claim.metadata.annotations)


def _is_made_later(pod: Pod, volume: Volume, claim: PersistentVolumeClaim) -> bool:
    return volume.ephemeral is not None and not pod.metadata.uid and not claim.metadata.uid


def _accepts(claim: PersistentVolumeClaimSpec, volume: PersistentVolume) -> bool:
    spec = volume.spec
    if claim.volume_mode != spec.volume_mode or not set(claim.access_modes) <= set(spec.access_modes):
        return False
    if claim.selector is not None and not matches_labels(claim.selector, volume.metadata.labels):
        return False
    asked, size = claim.resources.requests.get("storage", 0), spec.capacity.get("storage", 0)
    try:
        return parse_quantity(str(asked)) <= parse_quantity(str(size))
    except ValueError:
        return False


def _allowed(storage_class: StorageClass) -> Iterable[NodeSelectorTerm]:
    for term in storage_class.allowed_topologies:
        expressions = term.match_label_expressions
        yield NodeSelectorTerm(tuple(LabelRequirement(e.key, "In", e.values) for e in expressions))
