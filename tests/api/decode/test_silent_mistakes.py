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
        ("maniple.io/v1alpha1", "Queue", "maniple.dev/v1alpha1"),
        ("maniple/v1alpha1", "PodGroup", "maniple.dev/v1alpha1"),
        ("batch.maniple.dev/v1alpha1", "Topology", "maniple.dev/v1alpha1"),
        ("Maniple.dev/v1alpha1", "Queue", "maniple.dev/v1alpha1"),
        ("manipledev/v1alpha1", "Topology", "maniple.dev/v1alpha1"),
        ("scheduling.volcno.sh/v1beta1", "PodGroup", "scheduling.volcano.sh/v1beta1"),
        ("polciy/v1", "PodDisruptionBudget", "policy/v1"),
        ("Batch/v1", "Job", "batch/v1"),
        ("app/v1", "Deployment", "apps/v1"),
        ("kubeflow.com/v1", "PyTorchJob", "kubeflow.org/v1"),
        ("ray.oi/v1", "RayCluster", "ray.io/v1alpha1"),
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
        ("longhorn.io/v1beta2", "Node"),
        ("maniples-and-more.org/v1", "Queue"),
        ("flink.example/v1", "Job"),
    ],
)
def test_kinds_of_other_systems_are_still_skipped(version: str, kind: str) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}})
    skipped = f"skipped, because scheduling does not read them: 1 {kind} ({version})"
    assert decode([("f", text.encode())]).notes == [skipped]


@pytest.mark.parametrize(
    ("version", "kind", "known"),
    [
        ("apps/v1", "Pod", "v1"),
        ("core/v1", "Node", "v1"),
        ("batch/v1", "StatefulSet", "apps/v1"),
        ("maniple.dev", "ElasticJob", "maniple.dev/v1alpha1"),
        ("v1alpha1", "Topology", "maniple.dev/v1alpha1"),
    ],
)
def test_a_kind_in_a_group_that_no_other_system_can_have_is_refused(version: str, kind: str, known: str) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}})
    assert refused(text) == [f"f: unknown kind {kind!r} of {version}; {kind} is known as {known}"]


def test_a_workload_in_small_letters_is_refused() -> None:
    text = json.dumps({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "job", "metadata": {"name": "a"}})
    assert refused(text) == ["f: unknown kind 'job' of batch.volcano.sh/v1alpha1; did you mean 'Job'?"]


def test_an_old_version_of_a_workload_is_refused() -> None:
    text = json.dumps({"apiVersion": "batch/v2", "kind": "Job", "metadata": {"name": "a"}})
    assert refused(text) == [
        "f: unknown kind 'Job' of batch/v2; Job is known as batch.volcano.sh/v1alpha1, batch/v1",
    ]


@pytest.mark.parametrize("group", ["manipel.dev", "maniple.io", "Maniple.dev", "maniple.dev.", "maniple"])
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Pod"),
        ("v1", "Node"),
        ("maniple.dev/v1alpha1", "Queue"),
        ("v1", "Namespace"),
        ("policy/v1", "PodDisruptionBudget"),
    ],
)
def test_a_label_of_ours_in_a_misspelt_group_is_refused(group: str, version: str, kind: str) -> None:
    item: dict[str, object] = {"apiVersion": version, "kind": kind}
    spec = {"spec": {"containers": [{"name": "c", "image": "i"}]}} if kind == "Pod" else {}
    text = json.dumps({**item, "metadata": {"name": "a", "labels": {f"{group}/queue": "x"}}, **spec})
    at = f"f: {kind} a: metadata.labels[{group}/queue]"
    assert refused(text) == [f"{at}: unknown label; did you mean 'maniple.dev/queue'?"]
    text = json.dumps({**item, "metadata": {"name": "a", "uid": "u", "labels": {f"{group}/queue": "x"}}, **spec})
    assert any(f"{at}: unknown label; did" in note for note in decode([("f", text.encode())]).notes)


@pytest.mark.parametrize("key", ["manifold.dev/queue", "example.com/queue", "maniples-and-more.org/x", "queue"])
def test_labels_of_others_are_left_alone(key: str) -> None:
    text = json.loads(pod())
    text["metadata"]["labels"] = {key: "x"}
    assert decode([("f", json.dumps(text).encode())]).notes == []


@pytest.mark.parametrize("kind", ["Queue", "Topology", "PodGroup"])
def test_an_unknown_label_of_ours_is_refused_on_every_kind(kind: str) -> None:
    spec = (
        {"minMember": 1}
        if kind == "PodGroup"
        else {"levels": [{"name": "a", "nodeLabel": "b"}]}
        if kind == "Topology"
        else {}
    )
    metadata = {"name": "a", "labels": {"maniple.dev/quue": "x"}}
    text = json.dumps({"apiVersion": "maniple.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    assert refused(text) == [
        f"f: {kind} a: metadata.labels[maniple.dev/quue]: unknown label; did you mean 'maniple.dev/queue'?"
    ]


def pod(**container: object) -> str:
    spec = {"initContainers": [{"name": "a", "image": "i", **container}], "containers": [{"name": "c", "image": "i"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


@pytest.mark.parametrize("policy", ["always", "ALWAYS", "Alway", "never"])
def test_an_unknown_restart_policy_of_a_container_is_refused(policy: str) -> None:
    at = "f: Pod p: spec.initContainers[0].restartPolicy"
    assert refused(pod(restartPolicy=policy)) == [f"{at}: expected Always, OnFailure or Never, found {policy!r}"]


@pytest.mark.parametrize("policy", ["always", "ALWAYS", "Alway", "never", "onfailure"])
def test_an_unknown_restart_policy_of_a_pod_is_refused(policy: str) -> None:
    spec = {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
    job = {"roles": [{"name": "w", "min": 1, "max": 1, "template": {"spec": spec}}]}
    for version, kind, outer, path in (
        ("v1", "Pod", spec, "spec"),
        ("batch/v1", "Job", {"template": {"spec": spec}}, "spec.template.spec"),
        ("maniple.dev/v1alpha1", "ElasticJob", job, "spec.roles[0].template.spec"),
    ):
        text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "spec": outer})
        expected = f"expected Always, OnFailure or Never, found {policy!r}"
        assert refused(text) == [f"f: {kind} p: {path}.restartPolicy: {expected}"]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "", None])
def test_a_known_restart_policy_of_a_pod_is_right(policy: str | None) -> None:
    text = json.loads(pod())
    text["spec"]["restartPolicy"] = policy
    assert len(decode([("f", json.dumps(text).encode())]).objects) == 1


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


def test_thousands_of_kinds_that_are_not_read_are_one_short_note() -> None:
    items = [{"apiVersion": "a.b/v1", "kind": f"K{number}", "metadata": {"name": "a"}} for number in range(1000)]
    (note,) = decode([("f", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode())]).notes
    assert note.startswith("skipped, because scheduling does not read them: 1 K0, 1 K1, 1 K10, ")
    assert note.endswith(", and 950 more kinds")


def test_thousands_of_objects_given_twice_are_fifty_lines() -> None:
    decoded = decode([("f", (LIST % ",".join([NODE % ""] * 1000)).encode())])
    with pytest.raises(InputError) as error:
        sort_objects(decoded, scheduler_name="maniple")
    assert len(error.value.messages) == 51
    assert error.value.messages[-1] == "… and 949 more"


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
