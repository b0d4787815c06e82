"""Documents to objects: every form that people and kubectl write, and which kinds are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from cluster.planning import plan_objects

from api.decode.minimal_objects import NODE, NODE_YAML, POD, POD_YAML, QUEUE, bare, errors, many, names, pod_with, read
from maniple.api import kubernetes, types
from maniple.api.errors import InputError
from maniple.model.building.input_objects import sort_objects


def sorted_keys(obj: dict[str, Any]) -> str:
    """As kubectl writes JSON: keys by name, so that `kind` comes after `items`."""
    return json.dumps(obj, sort_keys=True, indent=4)


# -- the forms of input


PADDING: list[dict[str, Any]] = [
    {**POD, "metadata": {"name": f"pad-{number}", "labels": {"x": "y" * 60}}} for number in range(100)
]

FORMS: list[tuple[str, str | bytes, list[str]]] = [
    ("yaml", NODE_YAML, ["Node n1"]),
    ("json", json.dumps(NODE), ["Node n1"]),
    ("json with tabs", json.dumps(NODE, indent="\t"), ["Node n1"]),
    ("yaml in flow style", "{apiVersion: v1, kind: Node, metadata: {name: n1}}", ["Node n1"]),
    ("yaml stream", f"---\n{NODE_YAML}---\n{POD_YAML}...\n", ["Node n1", "Pod p1"]),
    ("json stream", json.dumps(NODE) + json.dumps(POD), ["Node n1", "Pod p1"]),
    ("json stream by lines", f"{json.dumps(NODE)}\n\n{json.dumps(POD)}\n", ["Node n1", "Pod p1"]),
    ("json stream with separators", f"{json.dumps(NODE)}\n---\n{json.dumps(POD)}\n", ["Node n1", "Pod p1"]),
    ("list", json.dumps(many("v1", "List", NODE, POD)), ["Node n1", "Pod p1"]),
    ("list in yaml", yaml.safe_dump(many("v1", "List", NODE, POD)), ["Node n1", "Pod p1"]),
    ("list as kubectl writes it", sorted_keys(many("v1", "List", NODE, POD)), ["Node n1", "Pod p1"]),
    ("list of nothing", json.dumps(many("v1", "List")), []),
    ("list of null", '{"apiVersion": "v1", "kind": "PodList", "items": null}', []),
    ("list of null in yaml", "apiVersion: v1\nkind: PodList\nitems:\n", []),
    ("list in a list", json.dumps(many("v1", "List", many("v1", "List", NODE), POD)), ["Node n1", "Pod p1"]),
    (
        "large list in a list as kubectl writes it",
        sorted_keys(many("v1", "List", many("v1", "List", *PADDING), NODE)),
        [*(f"Pod {pod['metadata']['name']}" for pod in PADDING), "Node n1"],
    ),
    ("typed list", json.dumps(many("v1", "PodList", bare(POD))), ["Pod p1"]),
    ("typed list of ours", json.dumps(many("maniple.dev/v1alpha1", "QueueList", bare(QUEUE))), ["Queue q1"]),
    ("typed list whose items say their kind", json.dumps(many("v1", "PodList", POD)), ["Pod p1"]),
    ("typed list that holds another kind", json.dumps(many("v1", "PodList", NODE, bare(POD))), ["Node n1", "Pod p1"]),
    (
        "typed list in a list",
        json.dumps(many("v1", "List", many("v1", "PodList", bare(POD)), NODE)),
        ["Pod p1", "Node n1"],
    ),
    ("nothing", "", []),
    ("blank lines", "\n  \n\t\n".replace("\t", ""), []),
    ("comments only", "# nothing\n---\n# here\n", []),
    ("empty documents", f"---\n---\n{NODE_YAML}---\n---\nnull\n---\n{POD_YAML}---\n", ["Node n1", "Pod p1"]),
    ("comments", f"# a node\n{NODE_YAML}# and\n--- # a pod\n{POD_YAML}", ["Node n1", "Pod p1"]),
    ("byte order mark, yaml", b"\xef\xbb\xbf" + NODE_YAML.encode(), ["Node n1"]),
    ("byte order mark, json", b"\xef\xbb\xbf" + json.dumps(NODE).encode(), ["Node n1"]),
    ("utf-16", NODE_YAML.encode("utf-16"), ["Node n1"]),
    ("windows line ends", NODE_YAML.replace("\n", "\r\n"), ["Node n1"]),
    ("anchors", "apiVersion: v1\nkind: Node\nmetadata: &m {name: n1}\nstatus: {images: []}\n", ["Node n1"]),
]


@pytest.mark.parametrize(("text", "expected"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_objects_are_read_from(text: str | bytes, expected: list[str]) -> None:
    assert names(read(text)) == expected


def test_several_files_are_one_input_in_their_order() -> None:
    assert names(read(POD_YAML, "", NODE_YAML)) == ["Pod p1", "Node n1"]


def test_yaml_and_json_are_read_alike() -> None:
    written = many("v1", "List", NODE, POD, QUEUE)
    assert read(yaml.safe_dump(written)).objects == read(json.dumps(written)).objects


def test_anchors_and_merge_keys_are_followed() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: p1, labels: &labels {app: web, tier: a}, annotations: {<<: *labels, tier: b}}
spec:
  nodeSelector: {<<: [{zone: x}, *labels], zone: y}
  containers: [{name: main}]
"""
    pod = read(text).objects[0]
    assert isinstance(pod, kubernetes.Pod)
    assert pod.metadata.annotations == {"app": "web", "tier": "b"}
    assert pod.spec.node_selector == {"app": "web", "tier": "a", "zone": "y"}


def test_a_map_with_overrides_may_be_merged_by_an_earlier_map() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: p1, labels: {app: x}}
spec:
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: zone
        labelSelector: {matchLabels: &selected {<<: {app: a}, app: b}}
  nodeSelector: {<<: *selected}
  containers: [{name: main}]
"""
    pod = read(text).objects[0]
    assert isinstance(pod, kubernetes.Pod)
    assert pod.spec.node_selector == {"app": "b"}


# -- values as kubectl reads them


@pytest.mark.parametrize(
    "text",
    [
        "metadata: {name: p1, creationTimestamp: null}\nspec: {containers: [{name: main, resources: null}]}",
        "metadata: {name: p1, labels: null, annotations: ~}\nspec: {containers: [{name: main}], affinity: null}",
        "metadata: {name: p1, namespace: null}\nspec: {containers: [{name: main}], priority: null}\nstatus:",
    ],
)
def test_null_is_absent_in_yaml_and_in_json(text: str) -> None:
    header = {"apiVersion": "v1", "kind": "Pod"}
    for form in (f"apiVersion: v1\nkind: Pod\n{text}", json.dumps(header | yaml.safe_load(text))):
        pod = read(form).objects[0]
        assert isinstance(pod, kubernetes.Pod)
        assert pod == read(POD_YAML).objects[0]


def test_null_is_absent_although_a_string_contains_null() -> None:
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": '{"metadata":{"creationTimestamp":null}}'}
    pod = {**POD, "metadata": {"name": "null", "annotations": annotation}}
    pod["spec"] = {"containers": [{"name": "main", "resources": None}], "affinity": None}
    assert names(read(pod)) == ["Pod null"]


def test_null_in_a_list_is_not_an_object() -> None:
    assert errors({**POD, "spec": {"containers": [None]}}) == [
        "a.yaml: Pod p1: spec.containers[0]: expected a map, got null"
    ]


@pytest.mark.parametrize(
    ("written", "label"),
    [
        *(("2026-01-31", "2026-01-31"), ("12:30:45", "12:30:45"), ("08", "08"), ("1_000", "1_000"), ("0b1", "0b1")),
        *(("=", "="), ("1.2.3", "1.2.3"), ("'1'", "1"), ('"true"', "true"), ("1e", "1e"), ("-x", "-x")),
    ],
)
def test_scalars_that_other_yaml_dialects_interpret_are_strings(written: str, label: str) -> None:
    node = read(f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    x: {written}\n").objects[0]
    assert node.metadata.labels == {"x": label}


@pytest.mark.parametrize("written", ["1", "0x10", "1.5", "true", "yes", "null"])
def test_scalars_that_are_not_strings_are_not_read_as_strings(written: str) -> None:
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p1}}\nspec: {{containers: [{{name: {written}, image: a}}]}}\n"
    if written == "null":
        assert names(read(text)) == ["Pod p1"]
    else:
        (message,) = errors(text)
        assert message.startswith("a.yaml, document 1: Pod p1: spec.containers[0].name: expected a string, got ")


@pytest.mark.parametrize(("written", "number"), [("0x1F", 31), ("0o17", 15), ("0400", 256), ("00", 0), ("+10", 10)])
def test_octal_and_hexadecimal_numbers_are_read_as_kubectl_reads_them(written: str, number: int) -> None:
    head = "apiVersion: maniple.dev/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\n"
    group = read(f"{head}spec: {{minRuntimeSeconds: {written}}}\n")
    assert isinstance(group.objects[0], types.PodGroup)
    assert group.objects[0].spec.min_runtime_seconds == number


def test_a_number_with_a_leading_zero_that_is_not_octal_is_a_string() -> None:
    (message,) = errors("apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {priority: 08}\n")
    assert "spec.priority: expected" in message


def test_objects_without_a_namespace_are_in_default_and_cluster_scoped_ones_in_none() -> None:
    kinds = {(type(item).__name__, item.metadata.namespace) for item in read(POD, NODE, QUEUE).objects}
    assert kinds == {("Pod", "default"), ("Node", ""), ("Queue", "")}


# -- kinds


def test_kinds_that_scheduling_does_not_read_are_skipped_with_one_note() -> None:
    others = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {}},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "j"}},
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}},
        {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "n"}},
    ]
    decoded = read(many("v1", "List", *others, NODE), many("v1", "ServiceList", {"metadata": {"name": "s"}}))
    assert names(decoded) == ["Node n1"]
    assert decoded.notes == [
        "skipped, because scheduling does not read them: "
        "2 ConfigMap, 1 CronJob, 1 DaemonSet, 1 ElasticQuota, 1 Node (longhorn.io/v1beta2), 1 Service"
    ]


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("v1", "Pods", "unknown kind 'Pods' of v1; did you mean 'Pod'?"),
        ("v1", "pod", "unknown kind 'pod' of v1; did you mean 'Pod'?"),
        ("v1", "PodGroup", "unknown kind 'PodGroup' of v1; PodGroup is known as "),
        ("V1", "Pod", "unknown kind 'Pod' of V1; Pod is known as v1"),
        ("maniple.dev/v1alpha1", "Que", "unknown kind 'Que' of maniple.dev/v1alpha1; did you mean 'Queue'?"),
        (
            "maniple.dev/v1",
            "Queue",
            "unknown kind 'Queue' of maniple.dev/v1; Queue is known as maniple.dev/v1alpha1, ",
        ),
        (
            "policy/v1beta1",
            "PodDisruptionBudget",
            "unknown kind 'PodDisruptionBudget' of policy/v1beta1; PodDisruptionBudget is known as policy/v1",
        ),
        (
            "scheduling.volcano.sh/v1alpha1",
            "PodGroup",
            "unknown kind 'PodGroup' of scheduling.volcano.sh/v1alpha1; PodGroup is known as ",
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClas",
            "unknown kind 'PriorityClas' of scheduling.k8s.io/v1; did you mean 'PriorityClass'?",
        ),
        ("", "Pod", "apiVersion is missing for kind Pod; expected v1"),
        ("v1", "", "kind is missing; expected an object with apiVersion, kind and metadata"),
        ("v1", "PodList", "items: expected a list of objects"),
        ("v1", "List", "items: expected a list of objects"),
    ],
)
def test_a_misspelt_kind_is_an_error_that_suggests_the_nearest(api_version: str, kind: str, message: str) -> None:
    header = {key: value for key, value in (("apiVersion", api_version), ("kind", kind)) if value}
    (error,) = errors({**header, "metadata": {"name": "x"}})
    assert error.startswith(f"a.yaml: {message}")


def test_a_duplicate_object_is_an_error_that_names_both_places() -> None:
    decoded = read(f"{POD_YAML}---\n{NODE_YAML}", {**POD, "metadata": {"name": "p1", "namespace": "default"}})
    with pytest.raises(InputError) as error:
        sort_objects(decoded, scheduler_name="maniple")
    (message,) = error.value.messages
    assert "b.yaml" in message
    assert "Pod default/p1: given twice" in message


def test_the_same_name_in_two_namespaces_or_kinds_is_not_a_duplicate() -> None:
    elsewhere = {**POD, "metadata": {"name": "p1", "namespace": "other"}}
    node = {**NODE, "metadata": {"name": "p1"}}
    assert len(sort_objects(read(POD, elsewhere, node), scheduler_name="maniple").pods) == 2


# -- what objects say about each other


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            [{**QUEUE, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"queue": "defualt"}}],
            "objects, items[0]: PodGroup default/g: spec.queue: unknown queue 'defualt'; did you mean 'default'?",
        ),
        (
            [{**QUEUE, "spec": {"parent": "compny"}}, {**QUEUE, "metadata": {"name": "company"}}],
            "objects, items[0]: Queue q1: spec.parent: unknown queue 'compny'; did you mean 'company'?",
        ),
        (
            [
                pod_with(schedulerName="maniple", priorityClassName="hihg"),
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": "high"},
                    "value": 1,
                },
            ],
            "objects, items[0]: Pod default/p1: spec.priorityClassName: unknown PriorityClass 'hihg'; "
            "did you mean 'high'?",
        ),
        (
            [{**QUEUE, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"topology": {"required": "rack"}}}],
            "objects, items[0]: PodGroup default/g: spec.topology.required: unknown level 'rack'; "
            "no Topology object defines any level",
        ),
    ],
)
def test_unknown_names_are_errors_that_suggest_the_nearest(objects: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError) as error:
        plan_objects(objects)
    assert set(error.value.messages) == {message}
