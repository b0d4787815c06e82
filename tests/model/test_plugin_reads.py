"""Labels and annotations that plugins declare to read: they split groups, and reach jobs, groups and placed pods."""

from __future__ import annotations

from typing import Any

import msgspec

from maniple.api.decode.decode import decode
from maniple.cluster.cache import Cache
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.cluster.strip_unread_fields import stripped
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects, sort_objects
from maniple.model.job import Job
from maniple.model.plugin_reads import Reads

TIER, NOTE, TEAM, COST = "example.com/tier", "example.com/note", "example.com/team", "example.com/cost"
READS = Reads(pod_labels=(TIER,), pod_annotations=(NOTE,), job_labels=(TEAM,), job_annotations=(COST,))


def pod(name: str, tier: str, **spec: Any) -> dict[str, Any]:
    labels = {"maniple.dev/pod-group": "g", TIER: tier}
    meta = {"name": name, "namespace": "default", "labels": labels, "annotations": {NOTE: "n", "other": "x"}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"schedulerName": "maniple", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "pods": "110"}},
}
GROUP = {
    "apiVersion": "maniple.dev/v1alpha1",
    "kind": "PodGroup",
    "metadata": {
        "name": "g",
        "namespace": "default",
        "labels": {TEAM: "vision", "other": "x"},
        "annotations": {COST: "7", "other": "x"},
    },
    "spec": {"minMember": 2},
}


def typed(*objects: dict[str, Any]) -> Objects:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    return sort_objects(decode([("objects", msgspec.json.encode(listed))]), scheduler_name="maniple")


def job_with(reads: Reads | None, *pods: dict[str, Any]) -> Job:
    return build_snapshot(typed(NODE, GROUP, *pods), reads=reads).jobs[0]


def cache_of(objects: Objects) -> Cache:
    cache = Cache(reads=READS)
    for items in objects.by_kind().values():
        for item in items:
            cache.put(item)
    return cache


def test_declared_keys_are_sorted_and_merged() -> None:
    assert Reads(pod_labels=("b", "a", "b")).pod_labels == ("a", "b")
    assert Reads(pod_labels=("b",)) | Reads(pod_labels=("a",), job_labels=("c",)) == Reads(("a", "b"), (), ("c",))


def test_a_declared_label_splits_groups_and_no_other_does() -> None:
    pods = [pod("p0", "gold"), pod("p1", "silver")]
    split = job_with(READS, *pods)
    assert [(dict(group.labels), group.pods) for group in split.groups] == [
        ({TIER: "gold"}, ("default/p0",)),
        ({TIER: "silver"}, ("default/p1",)),
    ]
    assert len({group.shape.number for group in split.groups}) == 2
    assert [dict(group.annotations) for group in split.groups] == [{NOTE: "n"}, {NOTE: "n"}]
    whole = job_with(None, *pods)
    assert [(dict(group.labels), group.pods) for group in whole.groups] == [({}, ("default/p0", "default/p1"))]


def test_a_job_and_its_placed_pods_carry_declared_keys() -> None:
    job = job_with(READS, pod("p0", "gold", nodeName="n1"))
    assert (dict(job.labels), dict(job.annotations)) == ({TEAM: "vision"}, {COST: "7"})
    assert (job.placed[0].labels[TIER], dict(job.placed[0].annotations)) == ("gold", {NOTE: "n"})


def test_a_changed_label_of_a_live_object_is_seen() -> None:
    cache = cache_of(typed(NODE, GROUP, pod("p0", "gold"), pod("p1", "gold")))
    (job,) = cache.snapshot(0.0).waiting
    assert [group.pods for group in job.groups] == [("default/p0", "default/p1")]
    renamed = {**GROUP, "metadata": {**GROUP["metadata"], "labels": {TEAM: "speech"}}}  # type: ignore[dict-item]
    cache.put(typed(pod("p1", "silver")).pods[0])
    cache.put(typed(renamed).pod_groups[0])
    (job,) = cache.snapshot(0.0).waiting
    assert [(group.labels[TIER], group.pods) for group in job.groups] == [
        ("gold", ("default/p0",)),
        ("silver", ("default/p1",)),
    ]
    assert (dict(job.labels), dict(job.annotations)) == ({TEAM: "speech"}, {COST: "7"})


def test_stripping_keeps_declared_annotations() -> None:
    (item,) = typed(pod("p0", "gold")).pods
    assert stripped(item, READS).metadata.annotations == {NOTE: "n"}
    assert stripped(item).metadata.annotations == {}


def test_a_cluster_in_memory_reads_them_too() -> None:
    cluster = MemoryCluster(typed(NODE, GROUP, pod("p0", "gold")), reads=READS)
    assert cluster.snapshot().jobs[0].groups[0].labels == {TIER: "gold"}
