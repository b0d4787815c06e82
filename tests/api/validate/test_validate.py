"""Invalid objects with their problems, and a valid object of each kind."""

from typing import Any

import msgspec
import pytest

from maniple.api import kubernetes, types
from maniple.api.meta import Struct
from maniple.api.validate.ours import problems

KINDS: dict[str, type[Struct]] = {
    cls.__name__: cls
    for cls in (
        *(types.Queue, types.PodGroup, types.ElasticJob, types.Topology),
        *(kubernetes.Pod, kubernetes.Node, kubernetes.PriorityClass, kubernetes.PodDisruptionBudget),
        *(kubernetes.PersistentVolume, kubernetes.PersistentVolumeClaim, kubernetes.Namespace),
    )
}
A_LABEL = "a name of lower-case letters, digits and '-', at most 63, with a letter or digit at both ends"
A_NAME = "a name of lower-case letters, digits, '-' and '.', at most 253, with a letter or digit at both ends"
EFFECTS = "NoSchedule, PreferNoSchedule or NoExecute"
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}


def problems_of(kind: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    written = {"metadata": {"name": "x"}, **body}
    return [(problem.field, problem.message) for problem in problems(msgspec.convert(written, KINDS[kind]))]


def role(name: str = "worker", least: int = 1, most: int = 4, template: dict[str, Any] = TEMPLATE) -> dict[str, Any]:
    return {"name": name, "min": least, "max": most, "template": template}


def job(*roles: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"roles": roles or (role(),), **spec}}


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **(container or {})}], **spec}}


def affinity(**kinds: Any) -> dict[str, Any]:
    return pod(affinity=kinds)


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("Queue", {}),
    ("Queue", {"spec": {"weight": 0, "weights": {"nvidia.com/gpu": 1_000_000, "cpu": 0}}}),
    (
        "Queue",
        {
            "spec": {
                "parent": "research",
                "guaranteed": {"cpu": 4, "memory": "10Gi", "nvidia.com/gpu": "8"},
                "limit": {"cpu": "4000m", "memory": "0.01Ti", "pods": 10},
            }
        },
    ),
    ("PodGroup", {}),
    ("PodGroup", {"spec": {"minMember": 5, "roles": [{"name": "ps", "minMember": 1}, {"name": "w", "minMember": 4}]}}),
    (
        "ElasticJob",
        job(role("ps", 1, 1), role("w", 0, 7), elastic={"speedup": [{"replicas": 2, "speedup": 1.9}]}),
    ),
    *(("ElasticJob", {"metadata": {"name": name}, **job()}) for name in ("1bert", "a.b", "a" * 63)),
    ("ElasticJob", {"metadata": {"name": "a" * 54}, **job(role("worker", 1, 10), framework="torchrun")}),
    ("Topology", {"spec": {"levels": [{"name": "block", "nodeLabel": "b"}, {"name": "rack", "nodeLabel": "r"}]}}),
    (
        "Pod",
        {
            "metadata": {"name": "job-0.a", "namespace": "team-a", "annotations": {"maniple.dev/gpus": "0,1"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "requests": {"cpu": 0.5, "nvidia.com/gpu": 1},
                            "limits": {"cpu": "500m", "nvidia.com/gpu": "1"},
                        },
                        "ports": [{"containerPort": 80, "hostPort": 8080}],
                    }
                ],
                "overhead": {"memory": "100Mi"},
                "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
                "preemptionPolicy": "Never",
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}]},
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                            ]
                        }
                    }
                },
            },
        },
    ),
    (
        "Node",
        {
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "64"}, "allocatable": {"cpu": "63500m", "pods": "110"}},
        },
    ),
    ("PriorityClass", {"value": 1_000_000_000}),
    ("PriorityClass", {"value": -2_000_000_000}),
    ("PriorityClass", {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
    ("PodDisruptionBudget", {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
    ("PodDisruptionBudget", {"spec": {"maxUnavailable": 0}}),
    ("PersistentVolume", {}),
    ("PersistentVolumeClaim", {"metadata": {"name": "data", "namespace": "team-a"}}),
    ("Namespace", {}),
]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_OPERATORS = "In, NotIn, Exists, DoesNotExist, Gt or Lt"
LABEL_OPERATORS = "In, NotIn, Exists or DoesNotExist"

BAD: list[tuple[str, dict[str, Any], str, str]] = [
    # our own kinds
    ("Queue", {"metadata": {"name": "Team_A"}}, "metadata.name", f"expected {A_NAME}, found 'Team_A'"),
    ("Queue", {"metadata": {}}, "metadata.name", f"expected {A_NAME}, found ''"),
    ("Queue", {"metadata": {"name": "a\n"}}, "metadata.name", f"expected {A_NAME}, found 'a\\n'"),
    ("Queue", {"metadata": {"name": "a" * 254}}, "metadata.name", f"expected {A_NAME}, found '{'a' * 76}…"),
    ("Queue", {"spec": {"parent": "x"}}, "spec.parent", "expected another queue, found 'x', the queue itself"),
    (
        "Queue",
        {"spec": {"guaranteed": {"cpu": 4}, "limit": {"cpu": "3900m"}}},
        "spec.guaranteed[cpu]",
        "expected at most limit[cpu] (3900m), found 4",
    ),
    ("Queue", {"spec": {"limit": {"cpu": -1}}}, "spec.limit[cpu]", "expected 0 or more, found -1"),
    ("Queue", {"spec": {"weights": {"cpu": -1}}}, "spec.weights[cpu]", "expected 0 to 1000000, found -1"),
    (
        "Queue",
        {"spec": {"weights": {"nvidia.com/gpu": 1_000_001, "cpu": 0}}},
        "spec.weights[nvidia.com/gpu]",
        "expected 0 to 1000000, found 1000001",
    ),
    (
        "Queue",
        {"spec": {"guaranteed": {"memory": "4 GB"}}},
        "spec.guaranteed[memory]",
        "'4 GB' is not a quantity; expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3",
    ),
    (
        "PodGroup",
        {"spec": {"minMember": 4, "roles": [{"name": "ps", "minMember": 1}, {"name": "w", "minMember": 4}]}},
        "spec.minMember",
        "expected at least 5, the sum of its roles' minMember, found 4",
    ),
    (
        "PodGroup",
        {"spec": {"roles": [{"name": "w", "minMember": 0}, {"name": "w", "minMember": 1}]}},
        "spec.roles[1].name",
        "expected a value of its own, found 'w' a second time",
    ),
    (
        "PodGroup",
        {"metadata": {"name": "x", "namespace": "a.b"}},
        "metadata.namespace",
        f"expected {A_LABEL}, found 'a.b'",
    ),
    (
        "ElasticJob",
        {**job(), "status": {"target": [{"role": "wroker", "replicas": 3}]}},
        "status.target[0].role",
        "unknown role 'wroker'; did you mean 'worker'?",
    ),
    (
        "ElasticJob",
        {**job(), "status": {"target": [{"role": "worker", "replicas": 3}, {"role": "worker", "replicas": 2}]}},
        "status.target[1].role",
        "expected a value of its own, found 'worker' a second time",
    ),
    *(
        (
            kind,
            {**body, "metadata": {"name": "x", "annotations": {"maniple.dev/reserved": "banana"}}},
            "metadata.annotations[maniple.dev/reserved]",
            "expected 'true' or 'false', found 'banana'",
        )
        for kind, body in (("PodGroup", {}), ("ElasticJob", job()), ("Pod", pod()))
    ),
    ("ElasticJob", job(role(), role("b", 4, 2)), "spec.roles[1].max", "expected at least min (4), found 2"),
    (
        "ElasticJob",
        job(role(), role()),
        "spec.roles[1].name",
        "expected a value of its own, found 'worker' a second time",
    ),
    # `$` in the pattern of the type lets a line end pass; a pod's name does not.
    ("ElasticJob", job(role("w\n")), "spec.roles[0].name", f"expected {A_LABEL}, found 'w\\n'"),
    (
        "ElasticJob",
        job(role("a", 0, 0), role("b", 0, 0)),
        "spec.roles",
        "expected at least one role with a min of 1 or more, found none",
    ),
    (
        "ElasticJob",
        job(role("a", 1, 60_000), role("b", 0, 60_000)),
        "spec.roles",
        "expected a max of at most 100000 for all roles together, found 120000",
    ),
    (
        "ElasticJob",
        {"metadata": {"name": "a" * 64}, **job()},
        "metadata.name",
        "expected at most 63 characters, found 64",
    ),
    *(
        (
            "ElasticJob",
            {"metadata": {"name": name}, **job(framework="torchrun")},
            "metadata.name",
            "expected a name of lower-case letters, digits and '-' that begins with a letter, or another framework "
            f"than torchrun, whose replicas look for each other by name, found '{name}'",
        )
        for name in ("1bert", "a.b")
    ),
    (
        "ElasticJob",
        {"metadata": {"name": "a" * 53}, **job(role("ps", 1, 11), role("worker", 1, 101), framework="torchrun")},
        "spec.roles[1].name",
        "expected one with which the pods' names have at most 63 characters, or another framework than torchrun, whose "
        f"replicas look for each other by name, found 'worker': '{'a' * 53}-worker-100' has 64",
    ),
    (
        "ElasticJob",
        job(elastic={"speedup": [{"replicas": 2, "speedup": 1.5}, {"replicas": 2, "speedup": 1.9}]}),
        "spec.elastic.speedup[1].replicas",
        "expected a value of its own, found 2 a second time",
    ),
    (
        "ElasticJob",
        job(role(template={"spec": {}})),
        "spec.roles[0].template.spec.containers",
        "expected at least one container, found none",
    ),
    (
        "Topology",
        {"spec": {"levels": [{"name": "rack", "nodeLabel": "b"}, {"name": "rack", "nodeLabel": "r"}]}},
        "spec.levels[1].name",
        "expected a value of its own, found 'rack' a second time",
    ),
    (
        "Topology",
        {"spec": {"levels": [{"name": "block", "nodeLabel": "r"}, {"name": "rack", "nodeLabel": "r"}]}},
        "spec.levels[1].nodeLabel",
        "expected a value of its own, found 'r' a second time",
    ),
    # pods
    ("Pod", {}, "spec.containers", "expected at least one container, found none"),
    ("Pod", pod({"name": "Main"}), "spec.containers[0].name", f"expected {A_LABEL}, found 'Main'"),
    (
        "Pod",
        pod({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}),
        "spec.containers[0].resources.requests[cpu]",
        "expected at most limits[cpu] (1500m), found 2",
    ),
    (
        "Pod",
        pod({"resources": {"limits": {"nvidia.com/gpu": -1}}}),
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
        "expected 0 or more, found -1",
    ),
    (
        "Pod",
        pod(initContainers=[{"resources": {"requests": {"cpu": float("nan")}}}]),
        "spec.initContainers[0].resources.requests[cpu]",
        "'nan' is not a quantity; expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3",
    ),
    (
        "Pod",
        pod(resources={"requests": {"cpu": "-1m"}}),
        "spec.resources.requests[cpu]",
        "expected 0 or more, found -1m",
    ),
    ("Pod", pod(overhead={"cpu": -1}), "spec.overhead[cpu]", "expected 0 or more, found -1"),
    (
        "Pod",
        pod({"ports": [{"hostPort": 80}, {"hostPort": 65536}]}),
        "spec.containers[0].ports[1].hostPort",
        "expected a port between 1 and 65535, found 65536",
    ),
    (
        "Pod",
        pod({"ports": [{"containerPort": -1}]}),
        "spec.containers[0].ports[0].containerPort",
        "expected a port between 1 and 65535, found -1",
    ),
    (
        "Pod",
        pod({"ports": [{"protocol": "tcp"}]}),
        "spec.containers[0].ports[0].protocol",
        "expected TCP, UDP or SCTP, found 'tcp'",
    ),
    (
        "Pod",
        pod(tolerations=[{"key": "a", "operator": "Equals"}]),
        "spec.tolerations[0].operator",
        "expected Equal, Exists, Gt or Lt, found 'Equals'",
    ),
    (
        "Pod",
        pod(tolerations=[{"key": "a", "operator": "Gt", "value": "007"}]),
        "spec.tolerations[0].value",
        "expected a whole number, such as 900, found '007'",
    ),
    (
        "Pod",
        pod(tolerations=[{"operator": "Lt", "value": "7"}]),
        "spec.tolerations[0].key",
        "expected the key of a taint for the operator Lt, found none",
    ),
    (
        "Pod",
        pod(tolerations=[{"key": "a", "effect": "NoScheduling"}]),
        "spec.tolerations[0].effect",
        f"expected {EFFECTS}, found 'NoScheduling'",
    ),
    (
        "Pod",
        pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.tolerations[0].value",
        "expected none for the operator Exists, found 'b'",
    ),
    (
        "Pod",
        pod(tolerations=[{"value": "b"}]),
        "spec.tolerations[0].operator",
        "expected Exists where no key is given, found 'Equal'",
    ),
    (
        "Pod",
        pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]),
        "spec.topologySpreadConstraints[0].maxSkew",
        "expected at least 1, found 0",
    ),
    (
        "Pod",
        pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "Never"}]),
        "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        "expected DoNotSchedule or ScheduleAnyway, found 'Never'",
    ),
    (
        "Pod",
        affinity(
            nodeAffinity={
                REQUIRED: {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}]
                }
            }
        ),
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        f"expected {NODE_OPERATORS}, found 'in'",
    ),
    (
        "Pod",
        affinity(nodeAffinity={REQUIRED: {"nodeSelectorTerms": []}}),
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        "expected at least one term, found none",
    ),
    (
        "Pod",
        affinity(nodeAffinity={PREFERRED: [{"weight": 101, "preference": {}}]}),
        f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight",
        "expected 1 to 100, found 101",
    ),
    (
        "Pod",
        affinity(
            podAntiAffinity={
                REQUIRED: [
                    {
                        "topologyKey": "zone",
                        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
                    }
                ]
            }
        ),
        f"spec.affinity.podAntiAffinity.{REQUIRED}[0].labelSelector.matchExpressions[0].operator",
        f"expected {LABEL_OPERATORS}, found 'Gt'",
    ),
    (
        "Pod",
        affinity(podAffinity={PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": ""}}]}),
        f"spec.affinity.podAffinity.{PREFERRED}[0].podAffinityTerm.topologyKey",
        "expected a node label, found none",
    ),
    (
        "Pod",
        pod(preemptionPolicy="Nevr"),
        "spec.preemptionPolicy",
        "expected PreemptLowerPriority or Never, found 'Nevr'",
    ),
    (
        "Pod",
        {"metadata": {"name": "x", "annotations": {"maniple.dev/gpus": "0, 1"}}, **pod()},
        "metadata.annotations[maniple.dev/gpus]",
        "expected GPU ids with commas between them, such as 0,1, found '0, 1'",
    ),
    (
        "Pod",
        {**pod(), "status": {"phase": "Runing"}},
        "status.phase",
        "expected Pending, Running, Succeeded, Failed or Unknown, found 'Runing'",
    ),
    # Kubernetes' other kinds
    (
        "Node",
        {"status": {"allocatable": {"memory": "64GB"}}},
        "status.allocatable[memory]",
        "'64GB' is not a quantity; expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3",
    ),
    ("Node", {"status": {"capacity": {"cpu": -1}}}, "status.capacity[cpu]", "expected 0 or more, found -1"),
    (
        "Node",
        {"spec": {"taints": [{"key": "a", "effect": "noschedule"}]}},
        "spec.taints[0].effect",
        f"expected {EFFECTS}, found 'noschedule'",
    ),
    ("PriorityClass", {"value": 10**9 + 1}, "value", "expected -2147483648 to 1000000000, found 1000000001"),
    (
        "PriorityClass",
        {"metadata": {"name": "system-x"}, "value": 2**31},
        "value",
        "expected -2147483648 to 2147483647, found 2147483648",
    ),
    (
        "PriorityClass",
        {"value": 1, "preemptionPolicy": "Always"},
        "preemptionPolicy",
        "expected PreemptLowerPriority or Never, found 'Always'",
    ),
    *(
        (
            "PodDisruptionBudget",
            {"spec": {"minAvailable": value}},
            "spec.minAvailable",
            f"expected a number of pods, or 0% to 100%, found {value!r}",
        )
        for value in ("half", "50", "101%", "-1%", -1)
    ),
    (
        "PodDisruptionBudget",
        {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
        "spec",
        "expected one of minAvailable and maxUnavailable, found both",
    ),
    (
        "PodDisruptionBudget",
        {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "spec.selector.matchExpressions[0].values",
        "expected at least one value for the operator In, found none",
    ),
    (
        "PersistentVolume",
        {
            "spec": {
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [{"matchFields": [{"key": "spec", "operator": "In", "values": ["a"]}]}]
                    }
                }
            }
        },
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].key",
        "expected metadata.name, found 'spec'",
    ),
    ("Namespace", {"metadata": {"name": "a.b"}}, "metadata.name", f"expected {A_LABEL}, found 'a.b'"),
]


@pytest.mark.parametrize(("kind", "body"), GOOD)
def test_valid_objects_have_no_problems(kind: str, body: dict[str, Any]) -> None:
    assert problems_of(kind, body) == []


@pytest.mark.parametrize(("kind", "body", "field", "message"), BAD, ids=[f"{case[0]}-{case[2]}" for case in BAD])
def test_invalid_fields_are_named(kind: str, body: dict[str, Any], field: str, message: str) -> None:
    assert problems_of(kind, body) == [(field, message)]


def test_all_problems_are_reported_at_once() -> None:
    body = {"metadata": {"name": "A"}, **pod({"resources": {"requests": {"cpu": "x", "memory": -1}}})}
    assert [field for field, _ in problems_of("Pod", body)] == [
        "metadata.name",
        "spec.containers[0].resources.requests[cpu]",
        "spec.containers[0].resources.requests[memory]",
    ]


@pytest.mark.parametrize("number", [10**5000, -(10**5000)], ids=["large", "small"])
def test_numbers_too_long_to_print_are_problems_and_do_not_crash(number: int) -> None:
    assert problems_of("PriorityClass", {"value": number}) == [
        ("value", "expected -2147483648 to 1000000000, found a very long number")
    ]
    assert [field for field, _ in problems_of("Queue", {"spec": {"limit": {"cpu": number}}})] == ["spec.limit[cpu]"]


def test_a_kind_without_rules_has_no_problems() -> None:
    assert problems(kubernetes.Taint(key="a", effect="b")) == []
