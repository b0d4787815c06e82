"""Jobs are moved for a gang that would not fit otherwise. The real controllers create their pods again."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from e2e.serve_process import ROOT, Bench, Json
from e2e.test_elastic import Jobs, jobs, uids, watching
from tools.cluster import ApiError

__all__ = ["jobs"]


class Nodes:
    """Two nodes of 4 GPUs, and pods that keep room on them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.first, self.second = bench.nodes(2, gpus=4)

    def fill(self, node: str, gpus: int) -> str:
        (name,) = self.bench.pods(f"fill-{gpus}-of-{node}", 1, gpus=gpus, nodeName=node)
        return name

    def empty(self, name: str) -> None:
        self.bench.delete_pods([name])


@pytest.fixture
def nodes(bench: Bench) -> Nodes:
    return Nodes(bench)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """Nobody shrinks or is preempted: whoever does not fit must be moved for."""
    written = yaml.safe_load((ROOT / "examples" / "policies" / "consolidate.yaml").read_text())
    written["actions"] = "allocate, consolidate, backfill, release, grow"
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(written))
    return f"--policy={path}"


def nodes_of(pods: dict[int, Json]) -> dict[int, str]:
    return {index: pod["spec"]["nodeName"] for index, pod in pods.items()}


def generations(seen: list[Json]) -> list[tuple[int, bool]]:
    """Of each generation in turn, how many members it has, and whether it asks all workers to stop."""
    found = {one["generation"]["number"]: one["generation"] for one in seen if one.get("generation")}
    return [(len(one["members"]), bool(one.get("stop"))) for _, one in sorted(found.items())]


def moved(bench: Bench) -> set[str]:
    """The pods that events say were moved, and for whom."""
    evicted = [(event["regarding"]["name"], event["note"]) for event in bench.events("Evicted")]
    assert all(note == f"Moved: a place elsewhere is kept for it, for {bench.namespace}/large-0" for _, note in evicted)
    return {name for name, _ in evicted}


def test_an_elastic_job_is_moved_whole_with_a_checkpoint_and_without_a_failure(
    bench: Bench, jobs: Jobs, nodes: Nodes, policy: str
) -> None:
    filled = nodes.fill(nodes.second, 4)
    bench.serve(policy)
    jobs.make("bert", 2, 2)
    jobs.wait_size("bert", 2)
    nodes.fill(nodes.second, 2)
    nodes.empty(filled)
    with watching(jobs, "bert") as seen:
        bench.wait_bound(bench.pods("large", 1, gpus=4))
        jobs.wait_size("bert", 2)
    assert bench.bound(["large-0"]) == {"large-0": nodes.first}
    assert nodes_of(jobs.pods("bert")) == {0: nodes.second, 1: nodes.second}
    assert generations(seen) == [(2, False), (0, True), (2, False)]
    status = jobs.get("bert")["status"]
    assert (status["restarts"], status.get("failures", {}).get("count", 0)) == (1, 0)
    bench.wait("the events", lambda: moved(bench) == {"bert-worker-0", "bert-worker-1"})


def test_surplus_of_an_elastic_job_is_moved_while_the_rest_goes_on(
    bench: Bench, jobs: Jobs, nodes: Nodes, policy: str
) -> None:
    filled = nodes.fill(nodes.first, 2), nodes.fill(nodes.second, 4)
    bench.serve(policy)
    jobs.make("bert", 2, 3)
    jobs.wait_size("bert", 2)
    nodes.empty(filled[1])
    jobs.wait_size("bert", 3)
    first = jobs.pods("bert")
    assert nodes_of(first) == {0: nodes.first, 1: nodes.first, 2: nodes.second}
    nodes.empty(filled[0])
    with watching(jobs, "bert") as seen:
        bench.wait_bound(bench.pods("large", 1, gpus=4))
        jobs.wait_size("bert", 3)
    assert bench.bound(["large-0"]) == {"large-0": nodes.second}
    after = jobs.pods("bert")
    assert nodes_of(after) == dict.fromkeys(range(3), nodes.first)
    assert [uids(after)[index] == uids(first)[index] for index in range(3)] == [True, True, False]
    assert generations(seen) == [(3, False), (2, False), (3, False)]
    status = jobs.get("bert")["status"]
    assert (status.get("restarts", 0), status.get("failures", {}).get("count", 0)) == (0, 0)
    bench.wait("the event", lambda: moved(bench) == {"bert-worker-2"})


class Pair:
    """A gang of two pods of a ReplicaSet, on the first node."""

    def __init__(self, bench: Bench, nodes: Nodes) -> None:
        self.bench, self.nodes = bench, nodes
        self._filled = nodes.fill(nodes.second, 4)

    def start(self) -> dict[str, str]:
        """Returns its pods and their nodes."""
        bench = self.bench
        bench.group("x", 2, movable=True)
        template = bench.pod("any", labels={"app": "x", "maniple.dev/pod-group": "x"})
        spec = {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
        }
        bench.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "x"}, "spec": spec})
        bench.wait("both to be bound", lambda: list(self.pods().values()) == [self.nodes.first] * 2)
        return self.pods()

    def pods(self) -> dict[str, str]:
        pods = [pod for pod in self.bench.all_pods() if pod["metadata"]["labels"].get("app") == "x"]
        there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in there}

    def make_room(self) -> None:
        """Half of the second node."""
        self.nodes.fill(self.nodes.second, 2)
        self.nodes.empty(self._filled)

    def annotation(self) -> str | None:
        found: str | None = self.bench.get_group("x")["metadata"].get("annotations", {}).get("maniple.dev/moved")
        return found


def test_a_gang_of_a_replica_set_is_moved_whole_or_not_at_all(bench: Bench, nodes: Nodes, policy: str) -> None:
    """The API server evicts no pod that two budgets select, whatever they allow."""
    pair = Pair(bench, nodes)
    bench.serve(policy)
    before = pair.start()
    guarded = max(before)
    pods = f"/api/v1/namespaces/{bench.namespace}/pods"
    bench.client.patch(f"{pods}/{guarded}", {"metadata": {"labels": {"guarded": "yes"}}})
    for name in ("a", "b"):
        budget = {"minAvailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}}
        meta = {"name": name}
        bench.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
    folder = f"/apis/policy/v1/namespaces/{bench.namespace}/poddisruptionbudgets"

    def healthy() -> list[int]:
        return [budget["status"]["currentHealthy"] for budget in bench.get(folder)["items"]]

    bench.wait("them to count", lambda: healthy() == [1, 1])
    pair.make_room()
    large = bench.pods("large", 1, gpus=4)
    bench.wait("a refusal", lambda: bool(bench.events("EvictionRefused")))
    assert {event["regarding"]["name"] for event in bench.events("EvictionRefused")} == {guarded}
    assert (pair.pods(), pair.annotation(), moved(bench)) == (before, None, set())

    bench.client.delete(f"{folder}/b")
    bench.wait_bound(large)
    assert bench.bound(large) == {"large-0": nodes.first}
    bench.wait("both to be back", lambda: list(pair.pods().values()) == [nodes.second] * 2)
    assert not pair.pods().keys() & before.keys()
    bench.wait("the events", lambda: moved(bench) == before.keys())


@pytest.fixture
def refusal(bench: Bench) -> Iterator["Refusal"]:
    made = Refusal(bench)
    yield made
    made.end()


class Refusal:
    """A policy of the API server that refuses evictions, but not when it is only asked whether it would."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._name = f"stay-{bench.namespace}"
        self._folder = "/apis/admissionregistration.k8s.io/v1"

    def begin(self) -> None:
        """For all pods of the test's namespace."""
        kind, version = "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}]
        here = {"matchLabels": {"kubernetes.io/metadata.name": self._bench.namespace}}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": here},
            "validations": [{"expression": "request.dryRun", "message": "stay"}],
        }
        item = {"apiVersion": version, "kind": kind, "metadata": {"name": self._name}}
        self._bench.client.post(f"{self._folder}/validatingadmissionpolicies", item | {"spec": spec})
        bound = item | {"kind": f"{kind}Binding", "spec": {"policyName": self._name, "validationActions": ["Deny"]}}
        self._bench.client.post(f"{self._folder}/validatingadmissionpolicybindings", bound)
        self._wait(422)

    def only_of(self, pod: str) -> None:
        path = f"{self._folder}/validatingadmissionpolicies/{self._name}"
        expression = f"request.dryRun || object.metadata.name != '{pod}'"
        self._bench.client.patch(path, {"spec": {"validations": [{"expression": expression, "message": "stay"}]}})
        self._wait(404)

    def end(self) -> None:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            with suppress(ApiError):
                self._bench.client.delete(f"{self._folder}/{kind}/{self._name}")

    def _wait(self, code: int) -> None:
        """A policy takes a moment to take effect. No pod is called `none`."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "none"}}
        path = f"/api/v1/namespaces/{self._bench.namespace}/pods/none/eviction"
        self._bench.wait("the policy to count", lambda: self._bench.client.raw("POST", path, body)[0] == code)


def test_a_scheduler_that_is_killed_while_it_moves_a_gang_loses_nothing_and_moves_nobody_twice(
    bench: Bench, nodes: Nodes, policy: str, refusal: Refusal
) -> None:
    """First between the annotation and the evictions, then when one of two pods is evicted. The first clock is ahead:
    the pods are older than the move."""
    refusal.begin()
    pair = Pair(bench, nodes)
    server = bench.serve(policy, "--no-leader-elect", ahead_s=120.0)
    before = pair.start()
    stays = max(before)
    pair.make_room()
    large = bench.pods("large", 1, gpus=4)
    bench.wait("the evictions to fail", lambda: server.counts(2, "maniple_evictions_total", outcome="failed"))
    server.kill()
    bench.forget(server)
    first = pair.annotation()
    assert (pair.pods(), first is None) == (before, False)

    refusal.only_of(stays)
    server = bench.serve(policy, "--no-leader-elect")
    bench.wait("one to be evicted", lambda: server.counts(1, "maniple_evictions_total", outcome="evicted"))
    server.kill()
    bench.forget(server)
    second = pair.annotation()
    assert second != first

    refusal.end()
    server = bench.serve(policy, "--no-leader-elect")

    def others() -> list[str]:
        return [node for name, node in pair.pods().items() if name not in before]

    bench.wait("its successor to be bound", lambda: others() == [nodes.second])
    assert pair.pods()[stays] == before[stays]
    cycles = server.metric("maniple_cycle_seconds_count", phase="apply")
    bench.wait("some cycles", lambda: server.metric("maniple_cycle_seconds_count", phase="apply") >= cycles + 3)
    assert server.metric("maniple_evictions_total") == 0
    # The gang has two pods again, so its places are taken out. The time of the move stays.
    bench.wait("the end of the move", lambda: json.loads(pair.annotation() or "{}").get("places") == [])
    assert json.loads(pair.annotation() or "{}")["at"] == json.loads(second or "{}")["at"]
    assert bench.bound(large) == {}
