"""Evictions, nominations, sizes, and gangs that were bound only in part, through the API server."""

from typing import Any

import pytest

from e2e.serve_process import OURS, Bench, Json


@pytest.fixture
def important(bench: Bench) -> Any:
    """A PriorityClass above all others of the test."""
    name = f"important-{bench.namespace}"
    item = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    bench.client.post("/apis/scheduling.k8s.io/v1/priorityclasses", item)
    yield name
    bench.client.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def test_a_gang_of_higher_priority_evicts_and_is_nominated(bench: Bench, important: str) -> None:
    bench.nodes(1)
    low = bench.pods("low", 2, gpus=4)
    server = bench.serve()
    bench.wait_bound(low)
    high = bench.pods("high", 1, gpus=6, priorityClassName=important, preemptionPolicy="PreemptLowerPriority")
    bench.wait_bound(high)
    bench.wait("both to be counted", lambda: server.counts(2, "maniple_evictions_total", outcome="evicted"))
    bench.wait("the events", lambda: len(bench.events("Evicted")) == 2)
    evicted = bench.events("Evicted")
    assert {event["regarding"]["name"] for event in evicted} <= set(low)
    assert f"{bench.namespace}/{high[0]}" in evicted[0]["note"]


def test_an_evicted_pod_has_a_condition_and_its_grace_period(bench: Bench, important: str) -> None:
    """On a node without a kubelet, where pods never end by themselves."""
    node = bench.slow_node()
    (low,) = bench.pods("low", 1, gpus=8, terminationGracePeriodSeconds=40)
    bench.serve()
    bench.wait_bound([low])
    (high,) = bench.pods("high", 1, gpus=8, priorityClassName=important)
    bench.wait("the pod to be leaving", lambda: "deletionTimestamp" in bench.get_pod(low)["metadata"])
    leaving = bench.get_pod(low)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 40
    assert bench.condition_of(leaving, "DisruptionTarget")["status"] == "True"
    bench.wait("the promise", lambda: bench.get_pod(high)["status"].get("nominatedNodeName") == node)
    assert bench.bound([high]) == {}
    bench.client.delete(f"/api/v1/namespaces/{bench.namespace}/pods/{low}", {"gracePeriodSeconds": 0})
    bench.wait_bound([high])


def test_a_disruption_budget_delays_evictions_until_it_allows_them(bench: Bench, important: str) -> None:
    (node,) = bench.nodes(1)
    low = bench.pods("low", 1, gpus=8, labels={"app": "low"})
    server = bench.serve()
    bench.wait_bound(low)
    folder = f"/apis/policy/v1/namespaces/{bench.namespace}/poddisruptionbudgets"
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}},
    }
    bench.client.post(folder, budget)
    bench.wait("the budget to count", lambda: bench.get(f"{folder}/keep")["status"].get("currentHealthy") == 1)
    high = bench.pods("high", 1, gpus=8, priorityClassName=important)
    bench.wait("a reason", lambda: bench.condition_of(bench.get_pod(high[0]), "PodScheduled")["status"] == "False")
    assert bench.bound() == {low[0]: node}
    assert server.metric("maniple_evictions_total", outcome="evicted") == 0
    bench.client.patch(f"{folder}/keep", {"spec": {"minAvailable": 0}})
    bench.wait_bound(high)


def test_a_half_bound_gang_is_evicted_and_starts_over(bench: Bench) -> None:
    """A policy of the API server refuses the binding of one pod."""
    bench.nodes(1)
    policy = _refuse_binding(bench, "train-1")
    pods = bench.gang("train", 3)
    server = bench.serve("--gang-timeout=4")
    bench.wait("a failure to be noted", lambda: _annotations(bench).get("maniple.dev/bind-failures") == "1")
    first = {name: bench.get_pod(name)["metadata"]["uid"] for name in pods if name != "train-1"}
    bench.wait("the others to be evicted", lambda: _gone(bench, first))
    evicted = {"reason": "GangTimeout", "outcome": "evicted"}
    bench.wait("both to be counted", lambda: server.counts(2, "maniple_evictions_total", **evicted))
    assert bench.bound() == {}
    bench.wait("an event", lambda: bool(bench.events("BindFailed")))

    bench.client.delete(policy)
    bench.pods("train", 1, labels={"maniple.dev/pod-group": "train"})
    folder = f"/api/v1/namespaces/{bench.namespace}/pods"
    bench.client.post(folder, bench.pod("train-2", labels={"maniple.dev/pod-group": "train"}))
    bench.wait_bound(pods)
    bench.wait("the failures to be forgotten", lambda: "maniple.dev/bind-failures" not in _annotations(bench))


def test_a_gang_that_was_whole_is_not_evicted_when_it_loses_a_pod(bench: Bench) -> None:
    bench.nodes(1, gpus=2)
    pods = bench.gang("train", 2)
    server = bench.serve("--gang-timeout=2")
    bench.wait_bound(pods)
    bench.wait("the gang to say so", lambda: bench.get_group("train")["status"].get("phase") == "Running")
    bench.delete_pods(pods[:1])
    bench.wait("the loss to be seen", lambda: bench.get_group("train")["status"].get("phase") == "Unknown")
    cycles = server.metric("maniple_cycle_seconds_count", phase="apply")
    bench.wait("some cycles", lambda: server.metric("maniple_cycle_seconds_count", phase="apply") >= cycles + 4)
    bench.wait("the lost one to be gone", lambda: bench.bound().keys() == {pods[1]})
    assert server.metric("maniple_evictions_total") == 0


def test_sizes_are_written_to_elastic_jobs(bench: Bench) -> None:
    bench.nodes(1, gpus=4)
    container = bench.pod("x")["spec"]["containers"][0]
    spec = {"schedulerName": bench.scheduler, "containers": [container], "nodeSelector": {"bench": bench.namespace}}
    template = {"spec": spec}
    role = {"name": "worker", "min": 1, "max": 4, "template": template}
    elastic = {"cooldownSeconds": 0, "restartSeconds": 0}
    job = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "job"},
        "spec": {"roles": [role], "elastic": elastic},
    }
    bench.client.post(f"{OURS}/namespaces/{bench.namespace}/elasticjobs", job)
    labels = {"maniple.dev/job": "job", "maniple.dev/role": "worker", "maniple.dev/index": "0"}
    folder = f"/api/v1/namespaces/{bench.namespace}/pods"
    bench.client.post(folder, bench.pod("job-worker-0", labels=labels))
    bench.serve("--no-jobs")
    bench.wait_bound(["job-worker-0"])

    def status() -> Json:
        found: Json = bench.get(f"{OURS}/namespaces/{{}}/elasticjobs/job")["status"]
        return found

    bench.wait("a size", lambda: status()["target"] == [{"role": "worker", "replicas": 4}])
    assert status()["resizes"] == 1
    assert status()["lastResizeTime"]
    bench.wait("the condition", lambda: bench.condition_of({"status": status()}, "Scheduled")["status"] == "True")


def _refuse_binding(bench: Bench, pod: str) -> str:
    """Creates the policy that refuses it. Returns its path."""
    name = f"refuse-{bench.namespace}"
    group = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
        },
        "validations": [{"expression": f"object.metadata.name != '{pod}'", "message": "not this one"}],
    }
    kind = "ValidatingAdmissionPolicy"
    version = "admissionregistration.k8s.io/v1"
    meta = {"name": name}
    bench.client.post(
        f"{group}/validatingadmissionpolicies", {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
    )
    binding = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": meta,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    path = f"{group}/validatingadmissionpolicybindings"
    bench.client.post(path, binding)
    _wait_for_policy(bench, pod)
    return f"{path}/{name}"


def _wait_for_policy(bench: Bench, pod: str) -> None:
    """A policy takes a moment to take effect: then it refuses a trial binding of a pod that does not exist."""
    binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "none"}}

    def refused() -> bool:
        path = f"/api/v1/namespaces/{bench.namespace}/pods/{pod}/binding"
        code, _ = bench.client.raw("POST", path, binding)
        return code == 422

    bench.wait("the policy to count", refused)


def _annotations(bench: Bench) -> dict[str, str]:
    found: dict[str, str] = bench.get_group("train")["metadata"].get("annotations", {})
    return found


def _gone(bench: Bench, uids: dict[str, str]) -> bool:
    return not {pod["metadata"]["uid"] for pod in bench.all_pods()} & set(uids.values())
