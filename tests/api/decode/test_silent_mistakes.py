"""Mistakes that a decoder passes over in silence are errors; small texts that stand for large ones are refused."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest

from maniple.api.decode.decode import decode
from maniple.api.decode.documents import load_one
from maniple.api.errors import InputError
from maniple.api.gpu.topology_annotation import TopologyError, parse_topology
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.implied_pods import MAX_IMPLIED
from maniple.model.building.input_objects import sort_objects


def refused(text: str, name: str = "f") -> list[str]:
    with pytest.raises(InputError) as error:
        decode([(name, text.encode())])
    return error.value.messages


# -- keys that stand twice

NODE = '{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}%s}'
TWICE = NODE % ',"metadata":{"name":"n2"}'
DEEP = NODE % ',"status":{"allocatable":{"cpu":"1","cpu":"9", "pods": "110"}}'
LIST = '{"apiVersion":"v1","kind":"List","items":[%s]}'


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (TWICE, ["f: not valid JSON: the key 'metadata' stands twice in one map"]),
        (DEEP, ["f: not valid JSON: the key 'cpu' stands twice in one map"]),
        (NODE % ',"k\\u0069nd":"Pod"', ["f: not valid JSON: the key 'kind' stands twice in one map"]),
        (
            LIST % f"{NODE % ''},{DEEP},{TWICE}",
            [
                "f, items[1]: not valid JSON: the key 'cpu' stands twice in one map",
                "f, items[2]: not valid JSON: the key 'metadata' stands twice in one map",
            ],
        ),
        (LIST[:-1] % (NODE % "") + ',"items":[]}', ["f: not valid JSON: the key 'items' stands twice in one map"]),
        ((NODE % "") + "\n" + DEEP, ["f, document 2: not valid JSON: the key 'cpu' stands twice in one map"]),
        (NODE % ',"\\u001b[31m":1,"\\u001b[31m":2', ["f: not valid JSON: the key '\\x1b[31m' stands twice in one map"]),
    ],
)
def test_a_key_that_stands_twice_in_json_is_refused_with_its_place(text: str, messages: list[str]) -> None:
    assert refused(text) == messages


def test_the_same_key_in_two_maps_is_none_twice() -> None:
    assert len(decode([("f", (LIST % f"{NODE % ''},{(NODE % '').replace('n1', 'n2')}").encode())]).objects) == 2


def test_a_policy_and_a_gpu_topology_in_json_are_checked_too() -> None:
    with pytest.raises(InputError, match="the key 'actions' stands twice"):
        load_one(b'{"actions":"allocate","tiers":[],"actions":"allocate"}', "p.json")
    with pytest.raises(TopologyError, match="the key 'devices' stands twice"):
        parse_topology('{"version":1,"devices":[],"devices":[{"id":"0"}]}')


# -- merges

BASE = "base: &b {" + ", ".join(f"k{number}: {number}" for number in range(2000)) + "}\n"


@pytest.mark.parametrize(
    "text",
    [
        BASE + "".join(f"m{number}: {{<<: *b}}\n" for number in range(3000)),
        BASE + "m: {<<: [" + ", ".join(["*b"] * 3000) + "]}\n",
        BASE + "".join(f"m{number}: &m{number} {{<<: [*b, *b, *b, *b]}}\n" for number in range(1000)),
    ],
    ids=["many maps", "one map", "maps of four"],
)
def test_a_merge_bomb_is_refused_before_it_takes_memory(text: str) -> None:
    tracemalloc.start()
    messages = refused(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(messages) == 1
    assert "the maps that << merges have too many entries together for a file of this size" in messages[0]
    assert peak < 150e6


def test_merges_as_people_write_them_are_read_as_kubectl_does() -> None:
    text = """
a: &a {x: 1, y: 1}
b: &b {y: 2, z: 2}
c: &c {<<: *a, z: 3}
d: {w: 4, <<: [*b, *c], y: 4}
e: {<<: [], v: 5}
"""
    loaded = load_one(text.encode(), "f")
    assert isinstance(loaded, dict)
    assert loaded["c"] == {"x": 1, "y": 1, "z": 3}
    assert loaded["d"] == {"x": 1, "y": 4, "z": 2, "w": 4}
    assert loaded["e"] == {"v": 5}


@pytest.mark.parametrize("text", ["a: {<<: 5}", "a: {<<: [5]}", "a: {<<: {b: 1}, <<: {c: 1}}", "a: &a {<<: *a}"])
def test_what_cannot_be_merged_is_refused(text: str) -> None:
    assert "not valid YAML" in refused(text)[0]


# -- names and values


@pytest.mark.parametrize(
    ("version", "kind", "meant"),
    [
        ("manipel.dev/v1alpha1", "ElasticJob", "maniple.dev/v1alpha1"),
        ("maniple.io/v1alpha1", "ElasticJob", "maniple.dev/v1alpha1"),
        ("Maniple.dev/v1alpha1", "Queue", "maniple.dev/v1alpha1"),
        ("manipledev/v1alpha1", "Topology", "maniple.dev/v1alpha1"),
        ("scheduling.volcno.sh/v1beta1", "PodGroup", "scheduling.volcano.sh/v1beta1"),
        ("polciy/v1", "PodDisruptionBudget", "policy/v1"),
    ],
)
def test_a_kind_of_ours_in_a_misspelt_group_is_refused(version: str, kind: str, meant: str) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}})
    group = version.partition("/")[0]
    assert refused(text) == [f"f: apiVersion: {kind} is not known in the group {group!r}; did you mean {meant!r}?"]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("scheduling.run.ai/v2alpha2", "PodGroup"),
        ("sqs.example/v1", "Queue"),
        ("kueue.x-k8s.io/v1beta1", "Topology"),
    ],
)
def test_kinds_of_other_systems_are_still_skipped(version: str, kind: str) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}})
    skipped = f"skipped, because scheduling does not read them: 1 {kind} ({version})"
    assert decode([("f", text.encode())]).notes == [skipped]


def pod(**container: object) -> str:
    spec = {"initContainers": [{"name": "a", "image": "i", **container}], "containers": [{"name": "c", "image": "i"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


@pytest.mark.parametrize("policy", ["always", "ALWAYS", "Alway", "never"])
def test_an_unknown_restart_policy_of_a_container_is_refused(policy: str) -> None:
    at = "f: Pod p: spec.initContainers[0].restartPolicy"
    assert refused(pod(restartPolicy=policy)) == [f"{at}: expected Always, OnFailure or Never, found {policy!r}"]


@pytest.mark.parametrize(
    ("requests", "limits", "message"),
    [
        ({"nvidia.com/gpu": 1}, {}, "limits[nvidia.com/gpu]: expected 1, as requests[nvidia.com/gpu] says, found none"),
        (
            {"nvidia.com/gpu": 1},
            {"nvidia.com/gpu": 2},
            "requests[nvidia.com/gpu]: expected 2, as limits[nvidia.com/gpu], found 1",
        ),
        (
            {"hugepages-2Mi": "2Mi"},
            {},
            "limits[hugepages-2Mi]: expected 2Mi, as requests[hugepages-2Mi] says, found none",
        ),
    ],
)
def test_devices_must_be_requested_as_they_are_limited(
    requests: dict[str, object], limits: dict[str, object], message: str
) -> None:
    text = pod(resources={"requests": requests, "limits": limits})
    assert refused(text) == [f"f: Pod p: spec.initContainers[0].resources.{message}"]


@pytest.mark.parametrize(
    ("requests", "limits"),
    [({"cpu": 1}, {"cpu": 2}), ({}, {"nvidia.com/gpu": 2}), ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": 1.0})],
)
def test_equal_or_left_out_requests_are_right(requests: dict[str, object], limits: dict[str, object]) -> None:
    assert len(decode([("f", pod(resources={"requests": requests, "limits": limits}).encode())]).objects) == 1


def test_more_pods_than_can_be_planned_are_refused_before_they_are_made() -> None:
    role = {"name": "w", "min": 100_000, "max": 100_000, "template": {"spec": {"containers": [{"name": "c"}]}}}
    jobs = [
        {
            "apiVersion": "maniple.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": f"a{number}"},
            "spec": {"roles": [role]},
        }
        for number in range(10)
    ]
    decoded = decode([("f", json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}).encode())])
    with pytest.raises(InputError, match=f"have more than {MAX_IMPLIED} pods to create; .* default/a0 is 100000"):
        sort_objects(decoded, scheduler_name="maniple")


def test_thousands_of_mistakes_of_one_kind_take_no_time_each_and_few_lines() -> None:
    queues = [
        {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": f"queue-{number}"}}
        for number in range(1000)
    ]
    groups = [
        {
            "apiVersion": "maniple.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": f"g{number}"},
            "spec": {"minMember": 1, "queue": f"queue-{number}x"},
        }
        for number in range(1000)
    ]
    decoded = decode([("f", json.dumps({"apiVersion": "v1", "kind": "List", "items": [*queues, *groups]}).encode())])
    start = time.process_time()
    with pytest.raises(InputError) as error:
        build_snapshot(sort_objects(decoded, scheduler_name="maniple"))
    assert len(error.value.messages) == 51
    assert "unknown queue 'queue-0x'; did you mean 'queue-0'?" in error.value.messages[0]
    assert time.process_time() - start < 10
