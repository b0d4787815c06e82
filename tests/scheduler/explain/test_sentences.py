"""What people read about a gang that waits: short, true, and in words of the field."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.planning import plan_objects

from scheduler.small_clusters import Object, group, member, node, pod

GPU = "nvidia.com/gpu"


def gpu_node(name: str, gpus: int = 8, **more: Any) -> Object:
    return node(name, allocatable={"cpu": "64", "memory": "512Gi", GPU: gpus}, **more)


def gpu_pod(name: str, gpus: int = 0, metadata: Object | None = None, **more: Any) -> Object:
    """Without a number of GPUs it requests nothing."""
    labels = more.pop("labels", {})
    limits = {GPU: gpus} if gpus else {}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return pod(name, "", labels, metadata, **{"containers": containers, **more})


def waits(*objects: Object, gang: str = "p") -> tuple[str, str]:
    """Why the gang waits, and what would start it."""
    (first,) = plan_objects(list(objects))["rounds"]
    (entry,) = [entry for entry in first["waiting"] if entry["group"] == f"default/{gang}"]
    return entry["message"], entry["wouldStartIf"]


def test_a_single_pod_is_not_counted() -> None:
    full = [gpu_node("n1"), gpu_pod("o", 8, nodeName="n1")]
    assert waits(*full, gpu_pod("p", 4)) == (
        f"needs 1 pod of 4 {GPU}; no node can take it now",
        f"4 {GPU} on node n1 came free (held by default/o)",
    )
    why, _ = waits(gpu_node("n1"), gpu_pod("p", 16))
    assert why == f"needs 1 pod of 16 {GPU}; no node could take it, even an empty one"
    assert waits(gpu_pod("p", 1))[0] == f"needs 1 pod of 1 {GPU}; there are no nodes"


def test_pods_that_ask_for_the_same_count_together_whatever_their_role() -> None:
    roles = [{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 3}]
    pods = [
        gpu_pod(f"g-{number}", 8, labels={**member("g"), "maniple.dev/role": "worker" if number else "master"})
        for number in range(4)
    ]
    why, would = waits(gpu_node("n1"), gpu_node("n2"), group("g", 4, roles=roles), *pods, gang="g")
    assert why == f"needs 4 pods of 8 {GPU}; even an empty cluster has room for 2"
    assert would == "2 nodes like n1 were added"


def test_parts_that_fit_alone_are_all_named() -> None:
    pods = [gpu_pod(f"g-{number}", 4 if number == 2 else 8, labels=member("g")) for number in range(3)]
    why, _ = waits(gpu_node("n1"), gpu_node("n2"), group("g", 3), *pods, gang="g")
    assert why == f"needs 2 pods of 8 {GPU} and 1 pod of 4 {GPU}; each part fits alone, but not all at once"


def test_a_gate_on_a_pod_is_all_that_is_said_of_it() -> None:
    gated = gpu_pod("p", 1, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert waits(gpu_node("n1"), gated) == ("it is held by scheduling gates", "its scheduling gates were removed")


def test_a_share_is_said_as_a_part_of_a_gpu() -> None:
    half = gpu_pod("p", 1, {"annotations": {"maniple.dev/gpu-fraction": "0.5"}})
    most = gpu_pod("o", 1, {"annotations": {"maniple.dev/gpu-fraction": "0.7"}}, nodeName="n1")
    assert waits(gpu_node("n1", 1), most, half)[0] == "needs 1 pod of 0.5 of a GPU; no node can take it now"
    big = gpu_pod("p", 1, {"annotations": {"maniple.dev/gpu-memory": "20Gi"}})
    for labels in ({}, {"nvidia.com/gpu.memory": "16384"}):
        why, _ = waits(gpu_node("n1", labels=labels), big)
        assert why.endswith("no node could take it, even an empty one: no GPU is known to have so much memory")


@pytest.mark.parametrize(
    ("spec", "would"),
    [
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
            "this were not so: PersistentVolumeClaim default/data does not exist",
        ),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
            "this were not so: resourceClaims (dynamic resource allocation) are not supported yet",
        ),
        ({"nodeSelector": {"zone": "b"}}, "node n1 did not refuse it (node lacks label zone=b)"),
    ],
)
def test_a_node_is_not_blamed_for_what_the_pod_lacks(spec: Object, would: str) -> None:
    assert waits(gpu_node("n1"), gpu_pod("p", **spec)) == (
        "needs 1 pod without requests; no node could take it, even an empty one",
        would,
    )


def test_what_protects_a_holder_is_said() -> None:
    high: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    budget: Object = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    holder = gpu_pod("o", 8, labels={"app": "x"}, nodeName="n1")
    _, would = waits(gpu_node("n1"), high, budget, holder, gpu_pod("p", 8, priorityClassName="high"))
    assert would == f"8 {GPU} on node n1 came free (held by default/o, which a PodDisruptionBudget protects)"


def test_reserved_room_that_is_in_use_is_held_by_its_user_too() -> None:
    old = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    new = {"creationTimestamp": "2026-01-01T05:00:00Z"}  # now
    large = [group("large", 2), *(gpu_pod(f"large-{i}", 8, old, labels=member("large")) for i in range(2))]
    users = [gpu_pod(f"o{i}", 8, nodeName=f"n{i}") for i in (1, 2)]
    cluster = [gpu_node("n1"), gpu_node("n2"), *users, *large, gpu_pod("p", 4, new)]
    _, would = waits(*cluster)
    assert would == f"4 {GPU} on node n1 came free (held by the reservation of default/large and default/o1)"


def test_a_level_that_no_node_has_is_named() -> None:
    topology: Object = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"name": "rack", "nodeLabel": "rack"}]},
    }
    gang = [group("g", 2, topology={"required": "rack"}), *(gpu_pod(f"g-{i}", 8, labels=member("g")) for i in (0, 1))]
    why, would = waits(gpu_node("n1"), gpu_node("n2"), topology, *gang, gang="g")
    assert why == "must be in one rack, and no node has the labels that say in which it is"
    assert would == "nodes had the node label of level rack"


def test_amounts_are_those_that_people_write() -> None:
    real = node("n1", allocatable={"cpu": "7910m", "memory": "16264000Ki", GPU: 8})
    asks = {"resources": {"requests": {"cpu": "1500m", "memory": "3Gi"}}, "name": "main"}
    holds = {"resources": {"requests": {"cpu": "7500m", "memory": "14Gi"}}, "name": "main"}
    why, would = waits(real, gpu_pod("o", containers=[holds], nodeName="n1"), gpu_pod("p", containers=[asks]))
    assert why == "needs 1 pod of 1.5 cpu, 3Gi memory; no node can take it now"
    # 1.4899… Gi are missing. What is said is enough.
    assert would == "1.09 cpu and 1.5Gi memory on node n1 came free (held by default/o)"


def test_json_keeps_exact_amounts() -> None:
    asks = {"name": "main", "resources": {"requests": {"cpu": "1500m"}}}
    (queue,) = plan_objects([node("n1"), gpu_pod("p", containers=[asks])])["queues"]
    assert queue["allocated"] == {"cpu": "1500m"}


def test_a_reason_with_brackets_has_none_within_others() -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    there = gpu_pod("o", 1, labels={"app": "x"}, nodeName="n1", affinity=rule)
    host = {"kubernetes.io/hostname": "n1"}
    _, would = waits(gpu_node("n1", labels=host), there, gpu_pod("p", 1, labels={"app": "x"}))
    assert would == "node n1 did not refuse it (pod anti-affinity: a pod there keeps others away)"


def test_holders_on_more_nodes_than_are_looked_at_are_not_counted() -> None:
    nodes = [gpu_node(f"n{number}") for number in range(20)]
    users = [gpu_pod(f"o{number}", number % 7 + 1, nodeName=f"n{number}") for number in range(20)]
    gang = [group("g", 20), *(gpu_pod(f"g-{number}", 8, labels=member("g")) for number in range(20))]
    _, would = waits(*nodes, *users, *gang, gang="g")
    assert "(held by default/o0, default/o1 and others)" in would


def test_gpus_are_what_is_missing_where_all_is() -> None:
    containers = [{"name": "main", "resources": {"limits": {GPU: 8, "cpu": "60", "memory": "500Gi"}}}]
    gang = [group("g", 3), *(gpu_pod(f"g-{i}", labels=member("g"), containers=containers) for i in range(3))]
    (first,) = plan_objects([gpu_node("n1"), gpu_node("n2"), *gang])["rounds"]
    nearest = first["waiting"][0]["nearest"]
    assert (nearest["resource"], nearest["needs"], nearest["free"], nearest["lacks"]) == (GPU, "24", "16", "8")


def test_many_nodes_that_only_refuse_are_counted() -> None:
    nodes = [gpu_node(f"n{i}", spec={"taints": [{"key": f"k{i}", "effect": "NoSchedule"}]}) for i in range(6)]
    gang = [group("g", 6), *(gpu_pod(f"g-{i}", 8, labels=member("g")) for i in range(6))]
    why, would = waits(*nodes, *gang, gang="g")
    assert why == f"needs 6 pods of 8 {GPU}; no node could take one of them, even an empty one"
    taints = "; ".join(f"taint k{i}:NoSchedule is not tolerated" for i in range(3))
    assert would == f"6 nodes such as n0 did not refuse it ({taints}; …)"


def claim(name: str) -> list[Object]:
    """A claim for one pod, and its volume."""
    spec = {"accessModes": ["ReadWriteOncePod"]}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": {**spec, **more}}
        for kind, more in (("PersistentVolumeClaim", {"volumeName": name}), ("PersistentVolume", {}))
    ]


def test_a_claim_for_one_pod_is_named_once() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    user = gpu_pod("o", 1, nodeName="n1", volumes=volumes)
    _, would = waits(gpu_node("n1"), *claim("data"), user, gpu_pod("p", 1, volumes=volumes))
    assert would == "this were not so: another pod uses the ReadWriteOncePod claim"


def test_a_gang_that_shares_a_claim_for_one_pod_is_not_told_to_add_nodes() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = [gpu_pod(f"g-{number}", 1, labels=member("g"), volumes=volumes) for number in range(2)]
    assert waits(gpu_node("n1"), *claim("data"), group("g", 2), *pods, gang="g") == (
        f"needs 2 pods of 1 {GPU}; its pods share a ReadWriteOncePod claim, which one pod at a time may use",
        "each of its pods had a claim of its own",
    )


@pytest.mark.parametrize(("company", "rule"), [("n1", ", as far as its pod affinity lets it"), ("n2", "")])
def test_room_that_the_needed_pod_holds_is_not_promised_to_help(company: str, rule: str) -> None:
    """`q` holds the room, and on n1 it is also the only pod that `p` may run beside."""
    zone: Object = {"labels": {"zone": "z"}}
    term = {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [
        gpu_pod("q", 8, nodeName="n1", labels={"app": "w"} if company == "n1" else {}),
        gpu_pod("o", 1, nodeName="n2", labels={"app": "w"} if company == "n2" else {}),
    ]
    _, would = waits(gpu_node("n1", **zone), gpu_node("n2", 1, **zone), *pods, gpu_pod("p", 8, affinity=affinity))
    assert would == f"8 {GPU} on node n1 came free (held by default/q){rule}"
