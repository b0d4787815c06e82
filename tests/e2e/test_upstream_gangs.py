"""Kubernetes' own gangs (1.37, gate GenericWorkload) on an API server that has them, and on one that has not."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import clusters_of_this_run
from e2e.serve_process import ROOT, Bench, Json, install_crds
from tools.cluster import ApiError, Cluster, Spec

UPSTREAM = "/apis/scheduling.k8s.io/v1beta1"
EXAMPLE = ROOT / "examples" / "kubernetes-podgroup" / "gang.yaml"
INITIALLY, NOW = "PodGroupInitiallyScheduled", "maniple.dev/Scheduled"


@pytest.fixture(scope="module")
def gated() -> Iterator[Cluster]:
    """A cluster with the gate on."""
    spec = Spec(
        name=clusters_of_this_run.own_name(),
        owner_pid=clusters_of_this_run.run_pid(),
        nodes=2,
        feature_gates="GenericWorkload=true",
        runtime_config="scheduling.k8s.io/v1beta1=true",
    )
    clusters_of_this_run.need(spec)
    cluster = Cluster.up(spec)
    install_crds(cluster)
    yield cluster
    cluster.down()


@pytest.fixture
def corner(gated: Cluster) -> Iterator[Bench]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    gated.create_namespace(name)
    made = Bench(gated, name)
    yield made
    made.close()


def write_group(bench: Bench, name: str, policy: Json, **spec: Any) -> None:
    body = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    folder = f"{UPSTREAM}/namespaces/{bench.namespace}/podgroups"
    bench.client.post(folder, body | {"spec": {"schedulingPolicy": policy, **spec}})


def read_group(bench: Bench, name: str) -> Json:
    return bench.get(f"{UPSTREAM}/namespaces/{{}}/podgroups/{name}")


def condition(bench: Bench, name: str, kind: str) -> tuple[str, str]:
    found = bench.condition_of(read_group(bench, name), kind)
    return found["status"], found["reason"]


def members(bench: Bench, group: str, count: int, gpus: int, **more: Any) -> list[str]:
    return bench.pods(group, count, gpus, schedulingGroup={"podGroupName": group}, **more)


def test_a_gang_is_bound_whole_or_not_at_all_and_its_conditions_say_so(corner: Bench) -> None:
    corner.nodes(2, gpus=4)
    write_group(corner, "train", {"gang": {"minCount": 3}})
    pods = members(corner, "train", 3, gpus=4)
    corner.serve()

    def said() -> str:
        return str(corner.condition_of(read_group(corner, "train"), INITIALLY)["message"])

    corner.wait("a reason", lambda: said().startswith("InsufficientResources: "))
    assert condition(corner, "train", INITIALLY) == ("False", "Unschedulable")
    assert condition(corner, "train", NOW) == ("False", "InsufficientResources")
    assert corner.bound() == {}

    corner.nodes(1, gpus=4)
    corner.wait_bound(pods)
    corner.wait("its success", lambda: condition(corner, "train", INITIALLY) == ("True", "Scheduled"))
    assert condition(corner, "train", NOW) == ("True", "Scheduled")

    # A second start, without room: upstream's condition never changes, ours shows the present state.
    corner.delete_pods(pods)
    corner.wait("them to be gone", lambda: corner.all_pods() == [])
    corner.wait_bound(corner.pods("other", 1, gpus=4))
    members(corner, "train", 3, gpus=4)
    corner.wait("a new reason", lambda: condition(corner, "train", NOW) == ("False", "InsufficientResources"))
    assert condition(corner, "train", INITIALLY) == ("True", "Scheduled")
    assert corner.bound(pods) == {}


def test_pods_of_a_basic_group_start_independently(corner: Bench) -> None:
    corner.nodes(2, gpus=4)
    write_group(corner, "loose", {"basic": {}})
    corner.serve()
    members(corner, "loose", 3, gpus=4)
    corner.wait("two of three", lambda: len(corner.bound()) == 2)
    corner.wait("its success", lambda: condition(corner, "loose", INITIALLY) == ("True", "Scheduled"))
    (left,) = {pod["metadata"]["name"] for pod in corner.all_pods()} - corner.bound().keys()
    corner.wait("a reason", lambda: corner.condition_of(corner.get_pod(left), "PodScheduled")["status"] == "False")


def test_unread_fields_are_reported_and_groups_of_other_schedulers_are_left_alone(corner: Bench) -> None:
    corner.nodes(1)
    write_group(corner, "whole", {"gang": {"minCount": 2}}, disruptionMode={"all": {}})
    write_group(corner, "theirs", {"gang": {"minCount": 2}})
    members(corner, "theirs", 2, gpus=1, schedulerName="default-scheduler")
    corner.serve()
    corner.wait_bound(members(corner, "whole", 2, gpus=1))
    corner.wait("a word", lambda: len(corner.events("NotRead")) == 1)
    assert "spec.disruptionMode.all" in corner.events("NotRead")[0]["note"]
    corner.wait("its success", lambda: condition(corner, "whole", INITIALLY) == ("True", "Scheduled"))
    assert "conditions" not in read_group(corner, "theirs").get("status", {})


def test_the_example_applies_unchanged(corner: Bench) -> None:
    corner.serve("--scheduler-name=maniple")
    corner.cluster.kubectl("apply", f"--namespace={corner.namespace}", f"--filename={EXAMPLE}")
    corner.wait_bound([f"bert-workers-{index}" for index in range(3)])
    corner.wait("its success", lambda: condition(corner, "bert-workers", INITIALLY) == ("True", "Scheduled"))


def test_everything_else_works_with_the_gate_off(bench: Bench) -> None:
    with pytest.raises(ApiError, match="404"):
        bench.get(f"{UPSTREAM}/podgroups")
    bench.nodes(1)
    bench.serve()
    bench.wait_bound(bench.gang("train", 2))
