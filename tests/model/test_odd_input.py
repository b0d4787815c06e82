"""What an outside review tripped over: odd but possible clusters, each small."""

import json

from cluster.planning import plan_objects

GPU = "nvidia.com/gpu"
Object = dict[str, object]


def node(name: str, gpus: int | str = 0, labels: dict[str, str] | None = None, topology: object = None) -> Object:
    annotations = {} if topology is None else {"maniple.dev/gpu-topology": json.dumps(topology)}
    allocatable: dict[str, object] = {"cpu": 64, "memory": "256Gi", "pods": 110}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations},
        "status": {"allocatable": {**allocatable, **({GPU: gpus} if gpus != "" else {})}},
    }


def pod(name: str, *, gpus: int = 0, node_name: str = "", group: str = "", **annotations: str) -> Object:
    keys = {f"maniple.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    requests = {"cpu": 1, **({GPU: gpus} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"maniple.dev/pod-group": group} if group else {},
            "annotations": keys,
        },
        "spec": {
            "schedulerName": "maniple",
            "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
            **({"nodeName": node_name} if node_name else {}),
        },
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def gang(name: str, pods: int, **topology: str) -> Object:
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": pods, "topology": topology},
    }


def levels(name: str, **labels: str) -> Object:
    spec = {"levels": [{"name": level, "nodeLabel": label} for level, label in labels.items()]}
    return {"apiVersion": "maniple.dev/v1alpha1", "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def first_round(*objects: Object) -> dict[str, list[dict[str, object]]]:
    plan: dict[str, list[dict[str, object]]] = plan_objects(objects)["rounds"][0]
    return plan


def test_a_level_of_two_topologies_is_that_of_the_first() -> None:
    """Equal values of two labels are not one rack, and the second's rack does not lie in the first's block."""
    two = [levels("a", block="lb", rack="la"), levels("b", rack="lo")]
    nodes = [node("n1", 1, {"lb": "b1", "lo": "x"}), node("n2", 1, {"lb": "b2", "lo": "x"})]
    pods = [pod("p-0", gpus=1, group="g"), pod("p-1", gpus=1, group="g")]
    for level in ("rack", "block"):
        plan = first_round(*two, *nodes, gang("g", 2, required=level), *pods)
        assert not plan["binds"]
        assert [entry["reason"] for entry in plan["waiting"]] == ["NoDomainFits"]


def test_a_pod_that_asks_by_memory_on_a_node_that_has_lost_its_gpus() -> None:
    for gpus in (0, ""):
        plan = first_round(
            node("n1", gpus), node("n2", 1), pod("old", node_name="n1", gpu_memory="8Gi"), pod("new", gpus=1)
        )
        assert [bind["node"] for bind in plan["binds"]] == ["n2"]


def test_requests_by_memory_keep_to_the_number_of_gpus_that_a_node_lets_us_use() -> None:
    devices = [{"id": str(device), "memory": "16Gi"} for device in range(3)]
    small = node("n1", 1, topology={"version": 1, "devices": devices})
    large = node("n2", 1, topology={"version": 1, "devices": [{"id": "0", "memory": "80Gi"}]})
    taken = pod("x", gpus=1, node_name="n2")
    pods = [pod(f"p-{index}", gpu_memory="8Gi", group="g") for index in range(3)]
    plan = first_round(small, large, taken, gang("g", 3), *pods)
    assert not plan["binds"]  # two of them are all that one GPU is
    assert plan["waiting"][0]["reason"] == "InsufficientResources"


def test_running_pods_that_name_no_gpu_are_counted_in_the_order_of_their_names() -> None:
    running = [pod("a", gpus=1, node_name="n1"), pod("b", gpus=1, node_name="n1", gpu_fraction="0.3")]
    new = pod("c", gpus=1, gpu_fraction="0.3")
    there = node("n1", 3)
    assert first_round(there, *running, new) == first_round(there, *reversed(running), new)


def test_amd_writes_its_models_with_underscores() -> None:
    amd = node("n1", "", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"})
    amd["status"] = {"allocatable": {"cpu": 8, "memory": "8Gi", "pods": 9, "amd.com/gpu": 1}}
    wants = pod("p", gpu_models="MI300X")
    wants["spec"] = {
        "schedulerName": "maniple",
        "containers": [{"name": "main", "resources": {"limits": {"amd.com/gpu": 1}}}],
    }
    assert [bind["node"] for bind in first_round(amd, wants)["binds"]] == ["n1"]


def test_a_memory_label_that_is_no_number_of_mebibytes_says_nothing() -> None:
    plan = first_round(node("n1", 1, {"nvidia.com/gpu.memory": "40Gi"}), pod("p", gpu_memory="8Gi"))
    assert not plan["binds"]
    assert "GPU memory unknown" in str(plan["waiting"])


def test_a_member_on_a_node_that_nobody_described_is_in_no_domain() -> None:
    rack = levels("t", rack="r")
    members = [pod("p-0", gpus=1, node_name="elsewhere", group="g"), pod("p-1", gpus=1, group="g")]
    plan = first_round(rack, node("n1", 2, {"r": "r1"}), gang("g", 2, required="rack"), *members)
    assert not plan["binds"]
    assert plan["waiting"][0]["reason"] == "NoDomainFits"


def test_a_rack_that_is_too_small_even_when_empty_is_no_hope() -> None:
    rack = levels("t", rack="r")
    nodes = [node("n1", 1, {"r": "r1"}), node("n2", 1, {"r": "r2"})]
    running = [pod("x", gpus=1, node_name="n1"), pod("y", gpus=1, node_name="n2")]
    pods = [pod("p-0", gpus=1, group="g"), pod("p-1", gpus=1, group="g")]
    plan = first_round(rack, *nodes, *running, gang("g", 2, required="rack"), *pods)
    assert plan["waiting"][0]["reason"] == "NoDomainFits"
    assert "even an empty one has room for 1" in str(plan["waiting"][0]["message"])
