"""Storage of the cluster: claims, volumes, classes and drivers; and what the claims of a pod require of a node.

The rules are kube-scheduler's. A claim whose volume is bound holds the pod to where the volume can be reached. A claim
of a class with `WaitForFirstConsumer` is bound after the pod has a node, so it holds the pod only to where a volume
exists or can be made. Any other unbound claim is bound by itself, and the pod waits until then.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from maniple.api.keys import Key, join_key
from maniple.api.kubernetes import (
    ClaimReference,
    CSINode,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    Pod,
    StorageClass,
    Volume,
)
from maniple.api.meta import LabelRequirement, ObjectMeta, ResourceList
from maniple.api.quantity import parse_quantity
from maniple.model.counting import discard
from maniple.model.late_claims import FreeVolume, LateClaim, Terms, reach
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
SELECTED_NODE = "volume.kubernetes.io/selected-node"
# Kubernetes' former own volume plugins -> the CSI drivers that serve their volumes.
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
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

    terms: tuple[Terms, ...] = ()  # a node must meet one of each
    zones: tuple[tuple[str, str], ...] = ()  # zone labels of the volumes
    obstacles: tuple[str, ...] = ()  # why the pod cannot go to any node yet
    late: tuple[LateClaim, ...] = ()


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
        terms: list[Terms] = []
        zones: list[tuple[str, str]] = []
        obstacles: list[str] = []
        for volume in pod.spec.volumes:
            name = _claim_name(pod, volume)
            claim = self._claim(pod, volume, name) if name else None
            if claim is None:
                continue
            if isinstance(claim, str):
                obstacles.append(claim)
            elif is_bound(claim):
                bound = self.volumes.get(claim.spec.volume_name)
                if bound is None:
                    obstacles.append(f"PersistentVolume {claim.spec.volume_name} does not exist")
                    continue
                where = _reach(bound)
                if where is not None:
                    terms.append(where)
                if volume.ephemeral is None:  # as in kube-scheduler
                    labels = bound.metadata.labels
                    zones.extend((key, labels[key]) for key in ZONE_LABELS if key in labels)
            elif (why := self._why_unbound(claim, is_made=_is_made_later(pod, volume, claim))) is not None:
                obstacles.append(why)
        late = tuple(claim for _, claim in self.late_claims(pod)) if not obstacles else ()
        return ClaimNeeds(tuple(terms), tuple(zones), tuple(obstacles), late)

    def late_claims(self, pod: Pod) -> list[tuple[PersistentVolumeClaim, LateClaim]]:
        """The pod's claims that get a volume once it has a node, in the order in which volumes are chosen for them."""
        late: dict[str, PersistentVolumeClaim] = {}
        made_later: set[str] = set()
        for volume in pod.spec.volumes:
            name = _claim_name(pod, volume)
            claim = self._claim(pod, volume, name) if name else None
            if claim is None or isinstance(claim, str) or is_bound(claim):
                continue
            if is_made := _is_made_later(pod, volume, claim):
                made_later.add(name)
            if self._why_unbound(claim, is_made=is_made) is None:
                late[name] = claim
        order = sorted(late.values(), key=lambda claim: (_size(claim.spec.resources.requests), claim.metadata.name))
        return [(claim, self._late(claim, is_made=claim.metadata.name in made_later)) for claim in order]

    def claims_of_one_pod(self, pod: Pod) -> list[str]:
        """The pod's claims that only one pod in the cluster may use. An ephemeral volume is its pod's anyway."""
        names = sorted({v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim})
        claims = ((key, self.claims.get(key)) for key in ((pod.metadata.namespace, name) for name in names))
        return [join_key(key) for key, claim in claims if claim is not None and _ONE_POD in claim.spec.access_modes]

    def attachments(self, pod: Pod) -> list[tuple[str, str]]:
        """(CSI driver, volume) of the pod's volumes whose number on a node is limited."""
        drivers = {driver for limits in self.limits.values() for driver in limits}
        found = []
        for volume in pod.spec.volumes if drivers else ():
            name = _claim_name(pod, volume)
            if not name:
                driver, handle = _migrated(volume) or ("", "")
            elif (claim := self._find(pod, volume, name)) is not None:
                driver, handle = self._driver(claim)
            else:
                continue
            if driver in drivers:
                found.append((driver, handle or f"claim {join_key((pod.metadata.namespace, name))}"))
        return list(dict.fromkeys(found))

    def _driver(self, claim: PersistentVolumeClaim) -> tuple[str, str]:
        """(driver, volume handle); the handle is empty while there is no volume."""
        volume = self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi is not None else _migrated(volume.spec) or ("", "")
        storage_class = self.classes.get(self._class_name(claim))
        if storage_class is None:
            return "", ""
        return _MIGRATED.get(storage_class.provisioner, storage_class.provisioner), ""

    def _find(self, pod: Pod, volume: Volume, name: str) -> PersistentVolumeClaim | None:
        meta = pod.metadata
        claim = self.claims.get((meta.namespace, name))
        if claim is None and volume.ephemeral is not None and not meta.uid:
            # A pod that does not exist yet: its claim comes with it.
            named = ObjectMeta(name=name, namespace=meta.namespace)
            return PersistentVolumeClaim(named, volume.ephemeral.volume_claim_template.spec)
        return claim

    def _claim(self, pod: Pod, volume: Volume, name: str) -> PersistentVolumeClaim | str:
        """The claim of a volume, or why the pod cannot use it."""
        meta = pod.metadata
        claim = self._find(pod, volume, name)
        called = f"PersistentVolumeClaim {meta.namespace}/{name}"
        if claim is None:
            if volume.ephemeral is None:
                return f"{called} does not exist"
            return f"{called} is not yet created for the pod's volume {volume.name}"
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

    def _why_unbound(self, claim: PersistentVolumeClaim, *, is_made: bool) -> str | None:
        """Why the pod has to wait for an unbound claim. None: the claim waits for the pod.

        `is_made`: the claim comes with its pod, so its binding is not waited for.
        """
        name, meta = self._class_name(claim), claim.metadata
        called = f"PersistentVolumeClaim {meta.namespace}/{meta.name}"
        storage_class = self.classes.get(name)
        if storage_class is None:
            missing = f"; its StorageClass {name} does not exist" if name else ""
            return None if is_made else f"{called} is not bound{missing}"
        if not is_made and (storage_class.volume_binding_mode != _LATE or claim.spec.volume_name):
            return f"{called} is not bound"
        late = self._late(claim, is_made=is_made)
        if late.made is None and not late.volumes:
            return f"{called} finds no free PersistentVolume of StorageClass {name}"
        return None

    def _late(self, claim: PersistentVolumeClaim, *, is_made: bool) -> LateClaim:
        name = self._class_name(claim)
        storage_class = self.classes.get(name)
        if storage_class is None:
            return LateClaim("", (), () if is_made else None)
        made: tuple[Terms, ...] | None = None
        if storage_class.provisioner not in _NO_PROVISIONER:
            made = (tuple(_allowed(storage_class)),) if storage_class.allowed_topologies else ()
        volumes = tuple(FreeVolume(volume.metadata.name, _reach(volume)) for volume in self._available(claim, name))
        return LateClaim(claim.metadata.annotations.get(SELECTED_NODE, ""), volumes, made)

    def _available(self, claim: PersistentVolumeClaim, class_name: str) -> list[PersistentVolume]:
        """Volumes that exist, are free, and that the claim accepts, the smallest first; only its own if it has one."""
        found = []
        for _, volume in sorted(self.volumes.items()):
            reference = volume.spec.claim_ref
            if reference is not None and not _is_for(reference, claim):
                continue
            if _class_of(volume) != class_name or volume.metadata.deletion_timestamp is not None:
                continue
            if not _has_form(claim.spec, volume):
                continue
            if reference is not None:
                return [volume]
            if volume.status.phase in ("", "Available") and _accepts(claim.spec, volume):
                found.append(volume)
        return sorted(found, key=lambda volume: _size(volume.spec.capacity))


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """On a cluster the binding is complete when the annotation is there; files may leave it out."""
    return bool(claim.spec.volume_name) and (not claim.metadata.uid or _BOUND_ANNOTATION in claim.metadata.annotations)


def _is_made_later(pod: Pod, volume: Volume, claim: PersistentVolumeClaim) -> bool:
    return volume.ephemeral is not None and not pod.metadata.uid and not claim.metadata.uid


def _is_for(reference: ClaimReference, claim: PersistentVolumeClaim) -> bool:
    meta = claim.metadata
    is_named = (reference.namespace, reference.name) == (meta.namespace, meta.name)
    return is_named and (not reference.uid or reference.uid == meta.uid)


def _class_of(volume: PersistentVolume) -> str:
    return volume.metadata.annotations.get(_CLASS_ANNOTATION, volume.spec.storage_class_name)


def _reach(volume: PersistentVolume) -> Terms | None:
    affinity = volume.spec.node_affinity
    return reach(affinity.required.node_selector_terms) if affinity and affinity.required else None


def _size(resources: ResourceList) -> Fraction:
    try:
        return parse_quantity(str(resources.get("storage", 0)))
    except ValueError:
        return Fraction(0)


def _has_form(claim: PersistentVolumeClaimSpec, volume: PersistentVolume) -> bool:
    """Whether the volume is large enough and of the right kind. This must hold of the claim's own volume, too."""
    spec = volume.spec
    if (claim.volume_mode, claim.volume_attributes_class_name) != (spec.volume_mode, spec.volume_attributes_class_name):
        return False
    return _size(claim.resources.requests) <= _size(spec.capacity)


def _accepts(claim: PersistentVolumeClaimSpec, volume: PersistentVolume) -> bool:
    if claim.selector is not None and not matches_labels(claim.selector, volume.metadata.labels):
        return False
    return set(claim.access_modes) <= set(volume.spec.access_modes)


def _migrated(source: Volume | PersistentVolumeSpec) -> tuple[str, str] | None:
    """(CSI driver, volume) of a disk that is written as for a former plugin of Kubernetes."""
    if source.aws_elastic_block_store is not None:
        return _MIGRATED["kubernetes.io/aws-ebs"], source.aws_elastic_block_store.volume_id.rsplit("/", 1)[-1]
    if source.gce_persistent_disk is not None:
        return _MIGRATED["kubernetes.io/gce-pd"], source.gce_persistent_disk.pd_name
    if source.azure_disk is not None:
        return _MIGRATED["kubernetes.io/azure-disk"], source.azure_disk.disk_uri
    if source.cinder is not None:
        return _MIGRATED["kubernetes.io/cinder"], source.cinder.volume_id
    if source.portworx_volume is not None:
        return _MIGRATED["kubernetes.io/portworx-volume"], source.portworx_volume.volume_id
    return None


def _allowed(storage_class: StorageClass) -> Iterable[NodeSelectorTerm]:
    for term in storage_class.allowed_topologies:
        expressions = term.match_label_expressions
        yield NodeSelectorTerm(tuple(LabelRequirement(e.key, "In", e.values) for e in expressions))
