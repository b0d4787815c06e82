"""Kubernetes' own PodGroups: how they are read, which fields are not, and their errors."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.planning import plan_objects

from api.decode.minimal_objects import NODE, errors, names, read
from maniple.api import types

VERSION = "scheduling.k8s.io/v1beta1"
GANG = {"gang": {"minCount": 3}}
RACK = "topology.kubernetes.io/rack"
PodGroup = types.PodGroupSpec


def group(policy: Any = GANG, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def workload(template: dict[str, Any]) -> dict[str, Any]:
    spec = {"podGroupTemplates": [{"name": "workers", "schedulingPolicy": GANG, **template}]}
    return {"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}


READ: list[tuple[dict[str, Any], types.PodGroupSpec, list[str]]] = [
    (group(), PodGroup(min_member=3), []),
    (group({"basic": {}}), PodGroup(min_member=0), []),
    (group(priorityClassName="high", priority=1000), PodGroup(min_member=3, priority_class_name="high"), []),
    (group(workloadRef={"workloadName": "w", "templateName": "t"}), PodGroup(min_member=3), []),
    (
        group(schedulingConstraints={"topology": [{"key": RACK}]}),
        PodGroup(min_member=3, topology=types.TopologyRequest(required=RACK)),
        [],
    ),
    # what the API server fills in, where nobody has asked for it
    (
        group(disruptionMode={"single": {}}, priority=0, preemptionPolicy="PreemptLowerPriority"),
        PodGroup(min_member=3),
        [],
    ),
    (group(disruptionMode={"all": {}}), PodGroup(min_member=3), ["disruptionMode.all"]),
    (group(priority=7, preemptionPolicy="Never"), PodGroup(min_member=3), ["priority", "preemptionPolicy"]),
    (
        group(resourceClaims=[{"name": "c", "resourceClaimName": "c"}], parentCompositePodGroupName="p"),
        PodGroup(min_member=3),
        ["parentCompositePodGroupName", "resourceClaims"],
    ),
    (
        group({"basic": {}}, schedulingConstraints={"topology": [{"key": RACK}]}),
        PodGroup(min_member=0),
        ["schedulingConstraints.topology"],
    ),
]


@pytest.mark.parametrize(("written", "spec", "unread"), READ)
def test_a_group_is_read_as_ours_and_unread_fields_are_noted(
    written: dict[str, Any], spec: types.PodGroupSpec, unread: list[str]
) -> None:
    decoded = read(written)
    (item,) = decoded.objects
    assert isinstance(item, types.PodGroup)
    assert item.spec == spec
    assert item.metadata.namespace == "default"
    assert decoded.notes == [f"a.yaml: PodGroup g: spec.{f} has no counterpart here and is not read" for f in unread]


NEITHER = "expected either basic: {} or gang: {minCount: …}, found"
WRONG: list[tuple[dict[str, Any], str]] = [
    (group({}), f"PodGroup g: spec.schedulingPolicy: {NEITHER} neither"),
    (group({"basic": {}, **GANG}), f"PodGroup g: spec.schedulingPolicy: {NEITHER} both"),
    (group({"gang": {}}), "PodGroup g: spec.schedulingPolicy.gang.minCount: is required"),
    (
        group({"gang": {"minCount": 0}}),
        "PodGroup g: spec.schedulingPolicy.gang.minCount: expected a whole number >= 1, found 0",
    ),
    (
        group({"gang": {"minCount": 1, "minMember": 1}}),
        "PodGroup g: spec.schedulingPolicy.gang: unknown field 'minMember'; known: minCount",
    ),
    (
        group(prioritClassName="x"),
        "PodGroup g: spec: unknown field 'prioritClassName'; did you mean 'priorityClassName'?",
    ),
    (
        group(preemptionPolicy="Always"),
        "PodGroup g: spec.preemptionPolicy: expected Never or PreemptLowerPriority, found 'Always'",
    ),
    (
        {**group(), "apiVersion": "scheduling.k8s.io/v1alpha3"},
        "unknown kind 'PodGroup' of scheduling.k8s.io/v1alpha3; PodGroup is known as maniple.dev/v1alpha1, "
        "scheduling.incubator.k8s.io/v1alpha1, scheduling.k8s.io/v1beta1, scheduling.sigs.dev/v1alpha2, "
        "scheduling.volcano.sh/v1beta1, scheduling.x-k8s.io/v1alpha1",
    ),
    (
        workload({"disruptionmode": {}}),
        "Workload w: spec.podGroupTemplates[0]: unknown field 'disruptionmode'; did you mean 'disruptionMode'?",
    ),
    (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulingGroup": {"podGroup": "g"}}},
        "Pod p: spec.schedulingGroup: unknown field 'podGroup'; did you mean 'podGroupName'?",
    ),
]


@pytest.mark.parametrize(("written", "message"), WRONG)
def test_an_error_names_the_field_and_what_is_expected(written: dict[str, Any], message: str) -> None:
    assert errors(written) == [f"a.yaml: {message}"]


def test_a_workload_is_checked_and_does_not_change_the_plan() -> None:
    decoded = read(workload({"disruptionMode": {"single": {}}}), NODE)
    assert names(decoded) == ["Node n1"]
    assert decoded.notes == ["skipped, because scheduling does not read them: 1 Workload"]


# -- planned


def member(name: str, **more: Any) -> dict[str, Any]:
    spec = {
        "schedulerName": "maniple",
        "schedulingGroup": {"podGroupName": "g"},
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec | more}


def node(name: str, cpu: int, **labels: str) -> dict[str, Any]:
    return {
        **NODE,
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": str(cpu), "pods": "110"}},
    }


THREE = [member(f"p{index}") for index in range(3)]


def planned(*objects: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The node of each pod that starts, and the reason of each gang that waits."""
    round_ = plan_objects(list(objects))["rounds"][0]
    binds = {bind["pod"].removeprefix("default/"): bind["node"] for bind in round_["binds"]}
    return binds, {entry["group"].removeprefix("default/"): entry["reason"] for entry in round_["waiting"]}


@pytest.mark.parametrize(
    ("policy", "room", "bound", "waiting"),
    [
        (GANG, 2, set(), {"g": "InsufficientResources"}),
        (GANG, 3, {"p0", "p1", "p2"}, {}),
        ({"gang": {"minCount": 2}}, 2, {"p0", "p1"}, {"g": "SurplusWaiting"}),
        ({"basic": {}}, 2, {"p0", "p1"}, {"p2": "InsufficientResources"}),
    ],
)
def test_a_gang_starts_whole_or_not_at_all_and_a_basic_group_is_not_a_gang(
    policy: Any, room: int, bound: set[str], waiting: dict[str, str]
) -> None:
    binds, waits = planned(node("n1", room), group(policy), *THREE)
    assert (set(binds), waits) == (bound, waiting)


def test_a_pod_of_a_basic_group_may_take_the_room_of_another() -> None:
    """Surplus pods of a gang may not. Here each pod has its own priority and its own place in the queue."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    running = [member(f"r{index}", nodeName="n1", schedulingGroup={}) for index in range(2)]
    running = [{**pod, "status": {"phase": "Running"}} for pod in running]
    wanting = [{**pod, "spec": {**pod["spec"], "priorityClassName": "high"}} for pod in THREE[:2]]
    objects = [node("n1", 2), high, group({"basic": {}}), *running, *wanting]
    round_ = plan_objects(objects)["rounds"][0]
    assert {entry["for"] for entry in round_["evictions"]} == {"default/p0", "default/p1"}


def test_a_topology_key_is_the_level_with_that_node_label() -> None:
    topology = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"name": "rack", "nodeLabel": RACK}]},
    }
    close = group(schedulingConstraints={"topology": [{"key": RACK}]})
    nodes = [node("n1", 2, **{RACK: "a"}), node("n2", 2, **{RACK: "b"})]
    assert planned(*nodes, topology, close, *THREE) == ({}, {"g": "NoDomainFits"})
    binds, _ = planned(*nodes, node("n3", 1, **{RACK: "b"}), topology, close, *THREE)
    assert set(binds.values()) == {"n2", "n3"}


def test_our_label_wins_over_the_scheduling_group() -> None:
    both = [{**pod, "metadata": {**pod["metadata"], "labels": {"maniple.dev/pod-group": "mine"}}} for pod in THREE]
    mine = {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "mine"}}
    _, waits = planned(node("n1", 2), group({"basic": {}}), {**mine, "spec": {"minMember": 3}}, *both)
    assert waits == {"mine": "InsufficientResources"}
