"""Errors are one line each, with the place, the problem and what to write. Hostile input is an error too."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml

from api.decode.minimal_objects import NODE, NODE_YAML, POD, POD_YAML, QUEUE, bare, errors, many, names, pod_with, read

# -- fields: each error names file, document, object and field, and says what is expected


ELASTIC = {
    "apiVersion": "maniple.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "j", "namespace": "ml"},
}
ROLE = {"name": "worker", "min": 1, "max": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}

WRONG: list[tuple[dict[str, Any], str]] = [
    # unknown fields
    (pod_with(nodeSelctor={"a": "b"}), "Pod p1: spec: unknown field 'nodeSelctor'; did you mean 'nodeSelector'?"),
    (
        pod_with(containers=[{"name": "main", "resource": {}}]),
        "Pod p1: spec.containers[0]: unknown field 'resource'; did you mean 'resources'?",
    ),
    (
        pod_with(containers=[{"name": "main"}, {"name": "b", "resources": {"request": {"cpu": 1}}}]),
        "Pod p1: spec.containers[1].resources: unknown field 'request'; did you mean 'requests'?",
    ),
    (
        pod_with(affinity={"nodeAffinity": {"requiredDuringScheduling": {}}}),
        "Pod p1: spec.affinity.nodeAffinity: unknown field 'requiredDuringScheduling'; "
        "did you mean 'requiredDuringSchedulingIgnoredDuringExecution'?",
    ),
    (
        pod_with(initContainers=[{"name": "i", "imagePullPolicies": "Always"}]),
        "Pod p1: spec.initContainers[0]: unknown field 'imagePullPolicies'; did you mean 'imagePullPolicy'?",
    ),
    (
        {**POD, "metadata": {"name": "p1", "label": {}}},
        "Pod p1: metadata: unknown field 'label'; did you mean 'labels'?",
    ),
    ({**POD, "sepc": {}}, "Pod p1: unknown field 'sepc'; did you mean 'spec'?"),
    (
        {**NODE, "status": {"allocatble": {}}},
        "Node n1: status: unknown field 'allocatble'; did you mean 'allocatable'?",
    ),
    (
        {**QUEUE, "spec": {"wieght": 2}},
        "Queue q1: spec: unknown field 'wieght'; did you mean 'weight'?",
    ),
    (
        {**QUEUE, "spec": {"zzz": 2}},
        "Queue q1: spec: unknown field 'zzz'; known: guaranteed, limit, minRuntimeSeconds, parent, priority, "
        "reclaimable, weight, weights",
    ),
    (
        {**ELASTIC, "spec": {"roles": [{**ROLE, "minimum": 2}]}},
        "ElasticJob ml/j: spec.roles[0]: unknown field 'minimum'; did you mean 'min'?",
    ),
    (
        {
            **ELASTIC,
            "spec": {
                "roles": [{**ROLE, "template": {"spec": {"containers": [{"name": "m"}], "tolerations": [{"ky": "a"}]}}}]
            },
        },
        "ElasticJob ml/j: spec.roles[0].template.spec.tolerations[0]: unknown field 'ky'; did you mean 'key'?",
    ),
    (
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMembers": 3},
        },
        "PodGroup g: spec: unknown field 'minMembers'; did you mean 'minMember'?",
    ),
    # missing fields
    ({**ELASTIC, "spec": {}}, "ElasticJob ml/j: spec.roles: is required"),
    (
        {**ELASTIC, "spec": {"roles": [{"name": "worker", "min": 1, "max": 2}]}},
        "ElasticJob ml/j: spec.roles[0].template: is required",
    ),
    ({"apiVersion": "v1", "kind": "Node"}, "Node (no name): metadata: is required"),
    (
        {**NODE, "spec": {"taints": [{"key": "a"}]}},
        "Node n1: spec.taints[0].effect: is required",
    ),
    (
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}},
        "PriorityClass c: value: is required",
    ),
    # wrong types
    (pod_with(containers={"name": "main"}), "Pod p1: spec.containers: expected a list, got a map"),
    (pod_with(nodeSelector=["a"]), "Pod p1: spec.nodeSelector: expected a map, got a list"),
    (pod_with(hostNetwork="yes"), "Pod p1: spec.hostNetwork: expected true or false, got a string"),
    (pod_with(priority="high"), "Pod p1: spec.priority: expected a whole number, got a string"),
    (pod_with(priority=2**31), "Pod p1: spec.priority: expected a whole number <= 2147483647, found 2147483648"),
    ({**POD, "spec": []}, "Pod p1: spec: expected a map, got a list"),
    ({**POD, "metadata": {"name": 7}}, "Pod (no name): metadata.name: expected a string, got a whole number"),
    (
        {**NODE, "metadata": {"name": "n1", "creationTimestamp": "yesterday"}},
        "Node n1: metadata.creationTimestamp: expected a time such as 2026-01-31T12:00:00Z, found 'yesterday'",
    ),
    (
        {**NODE, "metadata": {"name": "n1", "creationTimestamp": "9999-12-31T23:59:59-12:00"}},
        "Node n1: metadata.creationTimestamp: expected a time before the year 9999, found 9999-12-31T23:59:59-12:00",
    ),
    (
        {**ELASTIC, "spec": {"roles": [ROLE], "framework": "jax"}},
        "ElasticJob ml/j: spec.framework: expected torch, torchrun, horovod or none, found 'jax'",
    ),
    (
        {**QUEUE, "spec": {"weight": -1}},
        "Queue q1: spec.weight: expected a whole number >= 0, found -1",
    ),
    (
        {**QUEUE, "spec": {"limit": {"cpu": [1]}}},
        "Queue q1: spec.limit[...]: expected a whole number or a number or a string, got a list",
    ),
    # wrong values
    (
        {**NODE, "status": {"allocatable": {"memory": "64GB"}}},
        "Node n1: status.allocatable[memory]: '64GB' is not a quantity; "
        "expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3",
    ),
    (
        {**QUEUE, "spec": {"parent": "q1"}},
        "Queue q1: spec.parent: expected another queue, found 'q1', the queue itself",
    ),
]


@pytest.mark.parametrize(("written", "message"), WRONG, ids=[message.split(": ", 1)[1][:60] for _, message in WRONG])
def test_an_error_names_the_place_the_problem_and_the_remedy(written: dict[str, Any], message: str) -> None:
    assert errors(written) == [f"a.yaml: {message}"]


def test_all_problems_of_one_object_are_reported() -> None:
    """Also problems after a required field: its owner is removed, and decoding continues."""
    elastic = {
        "speedup": [{"replicas": 1, "speedup": -1}],
        "cooldownSeconds": -2,
        "restartSeconds": "soon",
        "horizon": 5,
    }
    roles = [{**ROLE, "min": "two", "mx": 3}]
    written = {**ELASTIC, "spec": {"minRuntimeSeconds": -1, "elastic": elastic, "roles": roles, "sspend": True}}
    messages = [message.removeprefix("a.yaml: ElasticJob ml/j: ") for message in errors(written)]
    assert sorted(messages) == [
        "spec.elastic.cooldownSeconds: expected a whole number >= 0, found -2",
        "spec.elastic.restartSeconds: expected a whole number, got a string",
        "spec.elastic.speedup[0].speedup: expected a number > 0.0, found -1",
        "spec.elastic: unknown field 'horizon'; known: cooldownSeconds, graceSeconds, restartSeconds, speedup",
        "spec.minRuntimeSeconds: expected a whole number >= 0, found -1",
        "spec.roles[0].min: expected a whole number, got a string",
        "spec.roles[0]: unknown field 'mx'; did you mean 'max'?",
        "spec: unknown field 'sspend'; did you mean 'suspend'?",
    ]


@pytest.mark.parametrize(
    ("theirs", "value", "ours"),
    [("preemptible", False, "preemptable"), ("protectSeconds", 60, "minRuntimeSeconds")],
)
def test_words_of_others_are_answered_with_ours(theirs: str, value: object, ours: str) -> None:
    said = f"spec: unknown field {theirs!r}; did you mean {ours!r}?"
    assert errors({**ELASTIC, "spec": {"roles": [ROLE], theirs: value}}) == [f"a.yaml: ElasticJob ml/j: {said}"]
    group = {**ELASTIC, "kind": "PodGroup", "spec": {theirs: value}}
    assert errors(group) == [f"a.yaml: PodGroup ml/j: {said}"]


def test_words_of_others_are_answered_with_ours_in_queues() -> None:
    (message,) = errors({**QUEUE, "spec": {"protectSeconds": 60}})
    assert message.endswith("spec: unknown field 'protectSeconds'; did you mean 'minRuntimeSeconds'?")


def test_documents_are_counted_from_one() -> None:
    text = f"# one\n{NODE_YAML}---\n---\n{POD_YAML.replace('containers', 'container')}"
    assert errors(NODE_YAML, text) == [
        "b.yaml, document 3: Pod p1: spec: unknown field 'container'; did you mean 'containers'?"
    ]


def test_items_of_lists_are_named_by_their_index() -> None:
    bad = pod_with(nodeNam="n1")
    assert errors(many("v1", "List", NODE, many("v1", "List", NODE, bad))) == [
        "a.yaml, items[1], items[1]: Pod p1: spec: unknown field 'nodeNam'; did you mean 'nodeName'?"
    ]
    assert errors(json.dumps(NODE) + json.dumps(many("v1", "PodList", bare(bad)))) == [
        "a.yaml, document 2, items[0]: Pod p1: spec: unknown field 'nodeNam'; did you mean 'nodeName'?"
    ]


def test_every_wrong_object_is_reported_and_nothing_is_returned() -> None:
    messages = errors(many("v1", "List", pod_with(a=1), NODE, {**QUEUE, "spec": {"weight": -1}}), "kind: [", POD_YAML)
    assert [message.split(": ")[0] for message in messages] == ["a.yaml, items[0]", "a.yaml, items[2]", "b.yaml"]


def test_of_ten_thousand_errors_fifty_are_shown_and_the_rest_counted() -> None:
    messages = errors(many("v1", "List", *[{**POD, "spec": {}}] * 10_000))
    assert len(messages) == 51
    assert messages[-1] == "… and 9950 more"


def test_a_dump_of_a_newer_api_server_may_have_unknown_fields() -> None:
    future = {"name": "p1", "uid": "9f1c", "brandNew": 1}
    spec = {"containers": [{"name": "main", "gpuMode": "x", "resources": {"quantum": 1}}], "orbit": "low"}
    assert names(read({**POD, "metadata": future, "spec": spec})) == ["Pod p1"]


def test_fields_of_kubernetes_that_scheduling_does_not_read_are_allowed() -> None:
    spec = {
        "containers": [{"name": "main", "env": [{"name": "a"}], "securityContext": {}, "volumeMounts": []}],
        "terminationGracePeriodSeconds": 5,
        "serviceAccountName": "x",
        "dnsPolicy": "Default",
    }
    assert names(read({**POD, "spec": spec, "status": {"qosClass": "Burstable"}})) == ["Pod p1"]


# -- input that is meant to break the reader


def bomb(inner: str) -> str:
    """Nine lines of aliases that expand to nine to the ninth values."""
    lines = [f"a0: &a0 {inner.format(x='x')}"]
    lines += [f"a{n}: &a{n} {inner.format(x=', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, 10)]
    return "\n".join(lines) + "\n"


LOOP = "a.yaml, document 1: the document is too large or nested too deeply (an alias loop?)"
LYING = "a.yaml: not valid YAML: a value does not have the form that its tag demands"
HOSTILE: list[tuple[str, str | bytes, str]] = [
    ("alias bomb", bomb("[{x}]"), LOOP),
    ("loop in a list", "&a [*a]", LOOP),
    ("loop in a map", "a: &a {b: *a}", LOOP),
    ("deep yaml", "a: " + "[" * 1_000_000, "a.yaml: not valid YAML: nested too deeply"),
    ("deep yaml, closed", "[" * 50_000 + "]" * 50_000, "a.yaml: "),
    ("deep block yaml", "- " * 200_000, "a.yaml: not valid YAML: nested too deeply"),
    ("deep json", '{"a":' * 200_000, "a.yaml: nested too deeply"),
    ("deep json, closed", '{"a":' * 5000 + "1" + "}" * 5000, "a.yaml: nested too deeply"),
    (
        "deep json with a null",
        json.dumps({**POD, "spec": None}).replace("null", '{"containers":null,"x":' + "[" * 700 + "]" * 700 + "}"),
        "a.yaml: Pod p1: nested too deeply",
    ),
    (
        "nested a hundred times and once",
        "a: " + "{a: " * 101 + "1" + "}" * 101,
        "a.yaml, document 1: the document is too",
    ),
    ("nan in json", '{"apiVersion": NaN}', "a.yaml, document 1: not valid JSON: JSON is malformed"),
    (
        "nan in yaml",
        f"{NODE_YAML}status: {{allocatable: {{cpu: .nan}}}}\n",
        "a.yaml, document 1: nan is not a number Kubernetes",
    ),
    (
        "infinity in yaml",
        f"{NODE_YAML}status: {{allocatable: {{cpu: -.inf}}}}\n",
        "a.yaml, document 1: -inf is not a number",
    ),
    (
        "infinity in json",
        json.dumps(NODE).replace('"4"', "1e999"),
        "a.yaml: Node n1: status.allocatable[...]: expected a number",
    ),
    (
        "65 bits in yaml",
        f"{NODE_YAML}spec: {{x: {2**64}}}",
        f"a.yaml, document 1: the number {2**64} does not fit into 64 bits",
    ),
    (
        "30 digits in yaml",
        f"{NODE_YAML}spec: {{x: {'9' * 30}}}",
        "a.yaml: line 4, column 11: not valid YAML: a number of more than 25",
    ),
    (
        "30 digits in json",
        json.dumps(pod_with(priority=10**30)),
        "a.yaml: Pod p1: spec.priority: expected a whole number <= ",
    ),
    (
        "5000 digits in json",
        json.dumps(POD)[:-1] + ', "status": {"phase": ' + "9" * 5000 + "}}",
        "a.yaml: Pod p1: status.phase: ",
    ),
    (
        "a key twice",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  name: b\n",
        "a.yaml: line 5, column 3: not valid YAML: the key 'name' stands twice in one map",
    ),
    (
        "a key twice in a merged map",
        "a: &a {x: 1, x: 2}\nb: {<<: *a}",
        "a.yaml: line 1, column 14: not valid YAML: the key 'x' stands twice",
    ),
    (
        "a number and a string as keys",
        "1: a\n'1': b\n",
        "a.yaml: line 2, column 1: not valid YAML: the key '1' stands twice in one map",
    ),
    ("a boolean as key", "true: a\n", "a.yaml, document 1: the map key True is not a string; put it in quotes"),
    ("a list as key", "? [a]\n: b\n", "a.yaml: line 1, column 3: not valid YAML: found unhashable key"),
    (
        "a tag of Python",
        "!!python/object/apply:os.system ['true']",
        "a.yaml: line 1, column 1: not valid YAML: could not determine a constructor",
    ),
    ("a tag that lies, bool", "a: !!bool perhaps", LYING),
    ("a tag that lies, time", "a: !!timestamp soon", LYING),
    ("a tag that lies, float", "a: !!float ''", LYING),
    ("a tag that lies, int", "a: !!int x", "a.yaml: not valid YAML: invalid literal for int() with base 10: 'x'"),
    ("bytes", "a: !!binary aGVsbG8=", "a.yaml, document 1: a value of type bytes has no JSON form; put it in quotes"),
    ("a set", "a: !!set {b, c}", "a.yaml, document 1: a value of type set has no JSON form; put it in quotes"),
    (
        "a date",
        "a: !!timestamp 2026-01-01",
        "a.yaml, document 1: a value of type date has no JSON form; put it in quotes",
    ),
    ("an alias of nothing", "a: *b", "a.yaml: line 1, column 4: not valid YAML: found undefined alias"),
    ("a tab", "a:\n\tb: c\n", "a.yaml: line 2, column 1: not valid YAML: found character that cannot start any token"),
    (
        "half a file",
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"na',
        "a.yaml: line 1, column 53: not valid YAML: found unexpected end of stream",
    ),
    ("not utf-8 in yaml", b"apiVersion: v1\nkind: \xff\n", "a.yaml: not valid YAML: "),
    ("not utf-8 in json", json.dumps(POD).encode().replace(b"p1", b"\xff"), "a.yaml: Pod (no name): not valid UTF-8"),
    ("not utf-8 in a json kind", b'{"kind": "\xff"}', "a.yaml: not valid JSON: "),
    (
        "half a surrogate pair",
        '{"apiVersion": "v1", "kind": "\\ud800 ........"}',
        "a.yaml, document 1: not valid JSON: JSON is malformed",
    ),
    ("a zero byte", "apiVersion: v1\x00", "a.yaml: not valid YAML: "),
    ("random bytes", bytes(range(256)), "a.yaml: not valid YAML: "),
    ("a word", "hello", "a.yaml, document 1: expected a map, got a string"),
    ("a number", "42", "a.yaml, document 1: expected a map, got a whole number"),
    ("a list", "[]", "a.yaml: expected a map, got a list"),
    ("a list of objects", json.dumps([POD]), "a.yaml: expected a map, got a list"),
    (
        "items that are a map",
        '{"apiVersion": "v1", "kind": "List", "items": {}}',
        "a.yaml: items: expected a list of objects",
    ),
    (
        "items that are no objects",
        '{"apiVersion": "v1", "kind": "List", "items": [1]}',
        "a.yaml, items[0]: expected a map, got a whole number",
    ),
    (
        "a name with a line break",
        json.dumps(POD).replace("p1", "a\\nb\\u001b[31m"),
        r"a.yaml: Pod a\nb\x1b[31m: metadata.name: expected a name",
    ),
    (
        "a resource with a line break",
        json.dumps(NODE).replace("cpu", "c\\npu").replace('"4"', '"x"'),
        r"a.yaml: Node n1: status.allocatable[c\npu]: 'x' is",
    ),
    (
        "a kind with a line break",
        '{"apiVersion": "v1", "kind": "Po\\nd"}',
        r"a.yaml: unknown kind 'Po\nd' of v1; did you mean 'Pod'?",
    ),
    (
        "a megabyte of a field name",
        json.dumps(pod_with(**{"x" * 1_000_000: 1})),
        "a.yaml: Pod p1: spec: unknown field 'xxxxx",
    ),
    ("a megabyte of a kind", json.dumps({"apiVersion": "v1", "kind": "x" * 1_000_000}), "a.yaml: unknown kind 'xxxxx"),
]


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_hostile_input_is_refused_in_one_line(text: str | bytes, message: str) -> None:
    start = time.process_time()
    (error,) = errors(text)
    assert error.startswith(message)
    assert error.isprintable()
    assert len(error) <= 2000
    assert time.process_time() - start < 3


def test_maps_that_merge_maps_that_merge_maps_do_not_grow() -> None:
    """If all were kept, there would be nine to the ninth merged keys. This returns at once."""
    text = bomb("{{<<: [{x}]}}").replace("[x]", "{x: y}")
    assert errors(text) == [
        "a.yaml, document 1: kind is missing; expected an object with apiVersion, kind and metadata"
    ]


def test_a_large_file_is_not_mistaken_for_an_alias_bomb() -> None:
    labels = {f"l{number}": "x" for number in range(20)}
    items = [{**NODE, "metadata": {"name": f"n{number}", "labels": labels}} for number in range(700)]
    assert len(read(yaml.safe_dump(many("v1", "List", *items))).objects) == 700
