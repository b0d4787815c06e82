"""Users of kube-batch, Volcano and scheduler-plugins change the schedulerName and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.planning import plan_objects

from api.decode.minimal_objects import NODE, read
from maniple.api import types

# -- other systems' objects


def foreign(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec, "status": {"any": 1}}


INCUBATOR, SIGS = "scheduling.incubator.k8s.io/v1alpha1", "scheduling.sigs.dev/v1alpha2"
VOLCANO, PLUGINS = "scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"
PodGroup, Queue = types.PodGroupSpec, types.QueueSpec

Case = tuple[dict[str, Any], types.PodGroupSpec | types.QueueSpec, list[str]]


def kube_batch(version: str) -> list[Case]:
    return [
        (
            foreign(version, "PodGroup", minMember=3, queue="q", priorityClassName="c"),
            PodGroup(min_member=3, queue="q", priority_class_name="c"),
            [],
        ),
        (foreign(version, "PodGroup", minMember=2, minResources={"cpu": 4}), PodGroup(min_member=2), ["minResources"]),
        (foreign(version, "PodGroup"), PodGroup(), []),
        (foreign(version, "Queue", weight=4, capability={"cpu": "8"}), Queue(weight=4, limit={"cpu": "8"}), []),
        (foreign(version, "Queue"), Queue(), []),
    ]


READ_AS_OURS: list[Case] = [
    *kube_batch(INCUBATOR),
    *kube_batch(SIGS),
    (
        foreign(VOLCANO, "PodGroup", minMember=3, queue="q", priorityClassName="c", minTaskMember={"w": 2, "ps": 1}),
        PodGroup(
            min_member=3,
            queue="q",
            priority_class_name="c",
            roles=(types.PodGroupRole("ps", 1), types.PodGroupRole("w", 2)),
        ),
        [],
    ),
    (
        foreign(VOLCANO, "PodGroup", minMember=1, minTaskMember={"w": 2}),
        PodGroup(min_member=2, roles=(types.PodGroupRole("w", 2),)),
        [],
    ),
    (
        foreign(
            VOLCANO,
            "PodGroup",
            minMember=2,
            minResources={"cpu": 1},
            networkTopology={"mode": "hard"},
            subGroupPolicy=[{}],
        ),
        PodGroup(min_member=2),
        ["minResources", "networkTopology", "subGroupPolicy"],
    ),
    (
        foreign(
            VOLCANO,
            "Queue",
            weight=2,
            capability={"cpu": "8"},
            guarantee={"resource": {"cpu": "2"}},
            reclaimable=False,
            parent="company",
            priority=7,
        ),
        Queue(parent="company", weight=2, guaranteed={"cpu": "2"}, limit={"cpu": "8"}, reclaimable=False, priority=7),
        [],
    ),
    (foreign(VOLCANO, "Queue", parent="root"), Queue(), []),
    # What a queue deserves it gets first, within its capability, and never less than its guarantee.
    (foreign(VOLCANO, "Queue", deserved={"cpu": 4}), Queue(guaranteed={"cpu": 4}), []),
    (
        foreign(
            VOLCANO,
            "Queue",
            deserved={"cpu": "4", "memory": "8Gi", "pods": 9},
            capability={"cpu": "2000m"},
            guarantee={"resource": {"memory": "16Gi", "nvidia.com/gpu": 1}},
        ),
        Queue(guaranteed={"memory": "16Gi", "nvidia.com/gpu": 1, "cpu": "2000m", "pods": 9}, limit={"cpu": "2000m"}),
        [],
    ),
    (
        foreign(
            VOLCANO,
            "Queue",
            type="x",
            dequeueStrategy="fifo",
            affinity={"a": 1},
            extendClusters=[{"name": "c"}],
        ),
        Queue(),
        ["type", "dequeueStrategy", "affinity", "extendClusters"],
    ),
    (foreign(PLUGINS, "PodGroup", minMember=3, scheduleTimeoutSeconds=10), PodGroup(min_member=3), []),
    (foreign(PLUGINS, "PodGroup", minMember=1, minResources={"cpu": 1}), PodGroup(), ["minResources"]),
]


@pytest.mark.parametrize(("written", "spec", "unread"), READ_AS_OURS)
def test_groups_and_queues_of_other_systems_are_read_as_ours(
    written: dict[str, Any], spec: types.PodGroupSpec | types.QueueSpec, unread: list[str]
) -> None:
    decoded = read(written)
    (item,) = decoded.objects
    assert isinstance(item, types.PodGroup | types.Queue)
    assert item.spec == spec
    assert item.metadata.namespace == ("default" if isinstance(item, types.PodGroup) else "")
    assert decoded.notes == [
        f"a.yaml: {written['kind']} x: spec.{field} has no counterpart here and is not read" for field in unread
    ]


# -- joining a gang


LABELS = {"maniple.dev/pod-group", "scheduling.x-k8s.io/pod-group"}
JOINING = [
    ("maniple.dev/pod-group", "maniple.dev/v1alpha1"),
    ("scheduling.k8s.io/group-name", INCUBATOR),
    ("scheduling.k8s.io/group-name", SIGS),
    ("scheduling.volcano.sh/group-name", VOLCANO),
    ("scheduling.x-k8s.io/pod-group", PLUGINS),
]


def gang(key: str, api_version: str, room: int) -> list[dict[str, Any]]:
    """Three pods that join a group of three by `key`, and room for some of them."""
    place = "labels" if key in LABELS else "annotations"
    return [
        {**NODE, "status": {"allocatable": {"cpu": str(room), "pods": "110"}}},
        {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 3}},
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", place: {key: "g"}},
                "spec": {
                    "schedulerName": "maniple",
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
                },
            }
            for number in range(3)
        ),
    ]


def first_round(objects: list[dict[str, Any]]) -> dict[str, Any]:
    round_: dict[str, Any] = plan_objects(objects)["rounds"][0]
    return round_


@pytest.mark.parametrize(("key", "api_version"), JOINING)
def test_a_gang_of_three_with_room_for_two_does_not_start_however_its_pods_join(key: str, api_version: str) -> None:
    planned = first_round(gang(key, api_version, room=2))
    assert planned["binds"] == []
    assert [waiting["group"] for waiting in planned["waiting"]] == ["default/g"]
    assert planned["waiting"][0]["needs"]["pods"] == "3"


@pytest.mark.parametrize(("key", "api_version"), JOINING)
def test_a_gang_of_three_with_room_for_three_starts_whole_however_its_pods_join(key: str, api_version: str) -> None:
    planned = first_round(gang(key, api_version, room=3))
    assert [bind["pod"] for bind in planned["binds"]] == ["default/p0", "default/p1", "default/p2"]
    assert planned["waiting"] == []


def test_a_pod_without_a_group_is_a_gang_of_one() -> None:
    planned = first_round(
        [{**item, "metadata": {"name": item["metadata"]["name"]}} for item in gang("x", INCUBATOR, 2)]
    )
    assert len(planned["binds"]) == 2


def test_pods_of_a_missing_group_wait_and_say_why() -> None:
    objects = [item for item in gang("maniple.dev/pod-group", "v1", 3) if item["kind"] != "PodGroup"]
    planned = first_round(objects)
    assert planned["binds"] == []
    assert [waiting["reason"] for waiting in planned["waiting"]] == ["GroupNotFound"]


def test_volcanos_root_is_the_cluster_and_no_queue() -> None:
    decoded = read({**foreign(VOLCANO, "Queue"), "metadata": {"name": "root"}})
    assert not decoded.objects
    assert not decoded.notes


def test_a_closed_queue_is_noted() -> None:
    (note,) = read({**foreign(VOLCANO, "Queue"), "status": {"state": "Closed"}}).notes
    assert note.endswith("status.state (Closed) has no counterpart here and is not read")
    assert not read({**foreign(VOLCANO, "Queue"), "status": {"state": "Open"}}).notes
