"""A dump of a real cluster is planned whatever one of its objects looks like; a person's own mistake is an error."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from cli.run_maniple import run_here

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler.framework.plan import Plan

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
STRANGE: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**63, 10**30, 1e300, "", "x", "\x1b[31m", "a" * 300, "1x", "-1", "9999-12-31T23:59:59Z"),
    *("0001-01-01T00:00:00+14:00", [], {}, [None], [[]], [{}], {"a": None}, {"": ""}, ["x", 1], {"cpu": "1x"}),
]


def made(kind: str, name: str, version: str = "v1", namespace: str = "ml", **fields: Any) -> Object:
    """An object as an API server writes it."""
    metadata: Object = {
        "name": name,
        "uid": f"0e0a6c7a-{kind}-{name}",
        "resourceVersion": "123",
        "creationTimestamp": "2026-03-01T10:00:00Z",
        "labels": {"app": name},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}],
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def node(name: str) -> Object:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "4"}
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T10:00:00Z"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
    taints = [{"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"}]
    item = made("Node", name, namespace="", spec={"taints": taints, "podCIDR": "10.0.0.0/24"}, status=status)
    item["metadata"]["labels"] = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "A100"}
    return item


def pod(name: str, where: str = "", only: str = "", **more: Any) -> Object:
    resources = {"requests": {"cpu": "1", GPU: "1"}, "limits": {"cpu": "2", GPU: "1"}}
    container = {"name": "main", "image": "i:1", "resources": resources, "ports": [{"containerPort": 80}]}
    spec: Object = {
        "schedulerName": "maniple",
        "containers": [container],
        "restartPolicy": "Never",
        "priority": 0,
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
        **more,
    }
    if where:
        spec["nodeName"] = where
    if only:
        spec["nodeSelector"] = {"kubernetes.io/hostname": only}
    item = made("Pod", name, spec=spec, status={"phase": "Running" if where else "Pending", "qosClass": "Burstable"})
    if where:
        item["status"]["startTime"] = "2026-03-01T10:00:00Z"
    return item


def dump() -> list[Object]:
    in_gang = {"annotations": {"scheduling.k8s.io/group-name": "gang"}}
    gang = [pod(f"gang-{number}") for number in range(2)]
    for member in gang:
        member["metadata"] |= in_gang
    volcano = "scheduling.volcano.sh/v1beta1"
    selector = {"matchLabels": {"app": "running-0"}}
    return [
        *(node(f"n{number}") for number in range(3)),
        made("PriorityClass", "high", "scheduling.k8s.io/v1", "", value=1000, globalDefault=False),
        made("Queue", "research", volcano, "", spec={"weight": 2, "reclaimable": True, "capability": {GPU: 12}}),
        made("PodGroup", "gang", volcano, spec={"minMember": 2, "queue": "research"}, status={"phase": "Pending"}),
        made("PodDisruptionBudget", "guard", "policy/v1", spec={"selector": selector, "minAvailable": 1}),
        made("Namespace", "ml", namespace=""),
        made("ConfigMap", "settings", data={"a": "b"}),
        *(pod(f"running-{number}", f"n{number}") for number in range(2)),
        *gang,
        pod("high", priority=1000, priorityClassName="high"),
        pod("witness", only="n2"),
    ]


def plan(items: list[Object], *, strict: bool = False) -> tuple[Plan, list[str]]:
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    decoded = decode([("dump.json", data)], strict=strict)
    objects = sort_objects(decoded, scheduler_name="maniple", strict=strict)
    cluster = MemoryCluster(objects, Ours())
    notes = [*decoded.notes, *cluster.notes()]
    return run_rounds(cluster, None, 1).rounds[0].plan, notes


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in paths(each, (*path, key)))]


def mutate(item: Object, random_: random.Random, *, keeps_uid: bool = False) -> None:
    """Replaces or removes something anywhere in the object. Its apiVersion and kind say what it is, and stay."""
    kept = [("apiVersion",), ("kind",), ("metadata", "uid")] if keeps_uid else [("apiVersion",), ("kind",)]
    path = random_.choice([path for path in paths(item) if path and path not in kept])
    owner: Any = item
    for key in path[:-1]:
        owner = owner[key]
    if random_.random() < 0.2 and isinstance(owner, dict):
        del owner[path[-1]]
    else:
        owner[path[-1]] = copy.deepcopy(random_.choice(STRANGE))


def test_the_dump_itself_is_planned_without_notes_but_on_what_is_not_read() -> None:
    decided, notes = plan(dump(), strict=True)
    assert {bind.pod for bind in decided.binds} == {"ml/gang-0", "ml/gang-1", "ml/high", "ml/witness"}
    assert notes == ["skipped, because scheduling does not read them: 1 ConfigMap"]


@pytest.mark.parametrize("batch", range(30))
def test_one_odd_object_never_fails_a_dump(batch: int) -> None:
    """And the pod that depends on nothing else is placed, as before."""
    random_ = random.Random(batch)
    for _ in range(40):
        items = dump()
        odd = random_.randrange(len(items))
        mutate(items[odd], random_)
        decided, notes = plan(items)
        assert all(note.strip() for note in notes)
        if items[odd]["kind"] != "Node" and odd < len(items) - 1:
            assert "ml/witness" in {bind.pod for bind in decided.binds}, items[odd]


@pytest.mark.parametrize("batch", range(10))
def test_many_odd_objects_never_fail_a_dump_and_make_few_notes(batch: int) -> None:
    random_ = random.Random(1000 + batch)
    for _ in range(20):
        items = dump()
        for item in items:
            if random_.random() < 0.6:
                mutate(item, random_, keeps_uid=True)
        _, notes = plan(items)
        assert len(notes) < 50


@pytest.mark.parametrize("odd", [None, 5, "x", [], {"metadata": None}])
def test_an_item_of_a_dump_that_is_no_object_is_set_aside(odd: Any) -> None:
    _, notes = plan([*dump(), odd])
    assert any("set aside" in note for note in notes)


def test_strict_makes_it_an_error() -> None:
    items = dump()
    items[-1]["spec"]["tolerations"][0]["operator"] = ["Gt"]
    with pytest.raises(InputError, match=r"items\[14\]: Pod ml/witness: spec.tolerations\[0\].operator: expected"):
        plan(items, strict=True)


def test_notes_of_one_kind_are_one_line_with_a_count() -> None:
    items = dump()
    for number in range(500):
        item = pod(f"odd-{number}")
        item["spec"]["priority"] = "high"
        items.append(item)
    _, notes = plan(items)
    assert [note for note in notes if "odd" in note] == [
        "dump.json, items[15]: Pod ml/odd-0: set aside: spec.priority: expected a whole number, got a string "
        "(499 more like it)"
    ]


def test_a_pod_on_a_node_that_is_set_aside_still_holds_its_resources() -> None:
    holder = pod("holder", "n2", affinity="none")
    holder["spec"]["containers"][0]["resources"] = {"limits": {GPU: "4", "cpu": "x"}}
    decided, notes = plan([*dump(), holder])
    assert [waiting.group for waiting in decided.waiting] == ["ml/witness"]
    assert any("Pod ml/holder: set aside, but holds its node's resources" in note for note in notes)


def test_a_budget_that_cannot_be_read_protects_its_pods() -> None:
    items = [node("n0"), *(pod(f"low-{number}", "n0") for number in range(4)), pod("high", priority=1000)]
    items.append(made("PriorityClass", "high", "scheduling.k8s.io/v1", "", value=1000))
    assert plan(items)[0].evictions
    budget = made("PodDisruptionBudget", "guard", "policy/v1", spec={"selector": {}, "minAvailable": "many"})
    decided, notes = plan([*items, budget])
    assert not decided.evictions
    assert any("set aside, and no pod that it may cover is evicted" in note for note in notes)
    budget["spec"]["selector"] = {"matchLabels": {"app": ["low-0"]}}
    assert not plan([*items, budget])[0].evictions


def test_what_depends_on_an_object_that_is_set_aside_waits() -> None:
    items = dump()
    items[5]["spec"]["minMember"] = "two"
    decided, _ = plan(items)
    assert {bind.pod for bind in decided.binds} == {"ml/high", "ml/witness"}


def test_contradictions_between_objects_of_a_cluster_are_set_aside_too() -> None:
    items = dump()
    items[5]["spec"]["queue"] = "reserch"
    items[13]["spec"] |= {"priorityClassName": "hihg", "priority": None}
    decided, notes = plan(items)
    assert {bind.pod for bind in decided.binds} == {"ml/witness"}
    assert any("PodGroup ml/gang: set aside: spec.queue: unknown queue 'reserch'" in note for note in notes)
    assert any("Pod ml/high: set aside: spec.priorityClassName" in note for note in notes)
    with pytest.raises(InputError):
        plan(items, strict=True)


def test_an_object_in_two_dumps_counts_once() -> None:
    decided, notes = plan([*dump(), *dump()])
    assert len(decided.binds) == 4
    assert sum("given twice; the last counts" in note for note in notes) == 7  # a line for each kind


def test_a_dump_given_twice_keeps_its_order() -> None:
    """Each object was looked for among all others."""
    items = [made("Node", f"n{number}", namespace="") for number in range(50)]
    newer = [{**item, "spec": {"unschedulable": True}} for item in items[10:20]]
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, *reversed(newer)]}).encode()
    nodes = sort_objects(decode([("f", data)], strict=False), scheduler_name="maniple", strict=False).nodes
    assert [node.metadata.name for node in nodes] == [f"n{number}" for number in range(50)]
    assert [node.spec.unschedulable for node in nodes] == [10 <= number < 20 for number in range(50)]


@pytest.mark.parametrize("where", ["", "items"])
def test_what_a_person_writes_is_still_an_error(where: str) -> None:
    """Without a uid nobody but its author has seen it, also in a list."""
    odd: Any = pod("odd", priority="high")
    del odd["metadata"]["uid"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [odd]} if where else odd)
    done = run_here("plan", "-f", "-", stdin=text)
    assert done.returncode == 2
    assert "spec.priority: expected a whole number" in done.stderr


def test_the_option_strict_refuses_what_is_set_aside_without_it() -> None:
    odd = pod("odd", priority="high")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*dump(), odd]})
    done = run_here("plan", "-f", "-", stdin=text)
    assert done.returncode == 0
    assert "note: <stdin>, items[15]: Pod ml/odd: set aside: spec.priority" in done.stderr
    done = run_here("plan", "-f", "-", "--strict", stdin=text)
    assert done.returncode == 2
    assert "error: <stdin>, items[15]: Pod ml/odd: spec.priority" in done.stderr


def test_a_pod_on_a_node_that_is_not_there_is_noted_with_a_count() -> None:
    items = [*dump(), *(pod(f"lost-{number}", f"n1{number}") for number in range(3))]
    _, notes = plan(items)
    assert notes[-1] == (
        "Pod ml/lost-0: its node 'n10' is not in the input, so that it holds nothing there; did you mean 'n1'? "
        "(2 more like it)"
    )
