"""Claims, volumes, classes and limits count whenever they arrive: before the pods, after them, or again."""

import random
from datetime import UTC, datetime

import msgspec
import pytest

from maniple.api import kubernetes
from maniple.api.decode.decode import Object
from maniple.api.meta import ObjectMeta
from maniple.model.building.incremental import SnapshotBuilder, key_of_object
from maniple.model.building.input_objects import describe
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import schedule

DRIVER = "disks.example.com"
CPU = kubernetes.ResourceRequirements({"cpu": "1"})


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default")


def node(name: str) -> kubernetes.Node:
    labels = {"zone": name}
    status = kubernetes.NodeStatus(allocatable={"cpu": "8", "memory": "8Gi", "pods": "9"})
    return kubernetes.Node(ObjectMeta(name=name, labels=labels), status=status)


def pod(name: str, *claims: str, node_name: str = "") -> kubernetes.Pod:
    volumes = tuple(kubernetes.Volume(c, persistent_volume_claim=kubernetes.ClaimSource(c)) for c in claims)
    spec = kubernetes.PodSpec(
        containers=(kubernetes.Container("main", resources=CPU),),
        scheduler_name="maniple",
        node_name=node_name,
        volumes=volumes,
    )
    return kubernetes.Pod(meta(name), spec, kubernetes.PodStatus("Running" if node_name else "Pending"))


def claim(name: str, *modes: str, volume: str = "", late: str = "") -> kubernetes.PersistentVolumeClaim:
    spec = kubernetes.PersistentVolumeClaimSpec(volume, modes or ("ReadWriteOnce",), late or None)
    return kubernetes.PersistentVolumeClaim(meta(name), spec)


def volume(name: str) -> kubernetes.PersistentVolume:
    spec = kubernetes.PersistentVolumeSpec(csi=kubernetes.CSIVolume(DRIVER, name))
    return kubernetes.PersistentVolume(ObjectMeta(name=name), spec)


def csi_node(name: str, most: int) -> kubernetes.CSINode:
    driver = kubernetes.CSIDriverOnNode(DRIVER, kubernetes.VolumeCount(most))
    return kubernetes.CSINode(ObjectMeta(name=name), kubernetes.CSINodeSpec((driver,)))


def late_class(zone: str) -> kubernetes.StorageClass:
    term = kubernetes.TopologySelectorTerm((kubernetes.TopologyRequirement("zone", (zone,)),))
    return kubernetes.StorageClass(ObjectMeta(name="late"), "other.example.com", "WaitForFirstConsumer", (term,))


OBJECTS: tuple[Object, ...] = (
    *(node(name) for name in ("a", "b")),
    *(volume(name) for name in ("v1", "v2", "v3")),
    claim("alone", "ReadWriteOncePod", volume="v1"),
    claim("two", volume="v2"),
    claim("three", volume="v3"),
    claim("later", late="late"),
    late_class("b"),
    csi_node("a", 1),
    csi_node("b", 2),
    pod("holder", "alone", node_name="a"),
    pod("second", "alone"),  # waits: the claim is in use
    pod("p2", "two"),  # b: a has a volume already
    pod("p3", "three"),  # b: its second
    pod("p4", "later"),  # b: the class says so
)
EXPECTED = {("default/p2", "b"), ("default/p3", "b"), ("default/p4", "b")}


def binds(builder: SnapshotBuilder) -> set[tuple[str, str]]:
    return {(bind.pod, bind.node) for bind in schedule(builder.snapshot()).binds}


@pytest.mark.parametrize("seed", range(12))
def test_the_order_in_which_objects_arrive_does_not_matter(seed: int) -> None:
    order = list(OBJECTS)
    random.Random(seed).shuffle(order)
    builder = SnapshotBuilder(Ours())
    for item in order:
        builder.put(item)
        if seed % 2:
            builder.snapshot()
    assert binds(builder) == EXPECTED


@pytest.mark.parametrize("lost", [item for item in OBJECTS if not isinstance(item, kubernetes.Pod)], ids=describe)
def test_an_object_that_goes_and_comes_back_counts_again(lost: Object) -> None:
    builder, fresh = SnapshotBuilder(Ours()), SnapshotBuilder(Ours())
    for item in OBJECTS:
        builder.put(item)
        if item is not lost:
            fresh.put(item)
    builder.snapshot()
    builder.remove(key_of_object(lost))
    assert binds(builder) == binds(fresh)
    builder.put(lost)
    assert binds(builder) == EXPECTED


def test_a_claim_that_is_being_deleted_is_noticed() -> None:
    builder = SnapshotBuilder(Ours())
    for item in OBJECTS:
        builder.put(item)
    builder.snapshot()
    two = claim("two", volume="v2")
    deleted = msgspec.structs.replace(two.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    builder.put(msgspec.structs.replace(two, metadata=deleted))
    assert binds(builder) == EXPECTED - {("default/p2", "b")}
