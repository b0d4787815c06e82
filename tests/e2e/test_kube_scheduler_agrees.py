"""Maniple finds a node for a pod exactly when kube-scheduler does: random clusters before the real one.

The cases are created side by side in one cluster (rule_cases.py) without a controller manager, so that nothing changes
them. Then each gets its pending pod. Both sides judge the objects as the API server has them.
`MANIPLE_RULE_CASES=500` compares more cases, `MANIPLE_RULE_SEED` others.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from e2e import rules_of_pods, rules_of_volumes
from e2e.clusters_of_this_run import NewCluster
from e2e.rule_cases import CLAIMS, NAMESPACE, OTHER_NAMESPACE, PODS, RUNTIME_CLASS, Case, Object, Step, make_case
from e2e.rules_of_volumes import STORAGE, VOLUMES
from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import schedule
from tools.cluster import ApiError, Cluster
from tools.cluster.client import Client, wait_until

CASES = int(os.environ.get("MANIPLE_RULE_CASES", "160"))
SEED = int(os.environ.get("MANIPLE_RULE_SEED", "1"))
SCHEDULER = "default-scheduler"
RULES = {rule.__name__: rule for rule in (*rules_of_pods.RULES, *rules_of_volumes.RULES)}
_WORKERS = 4


class Verdict(NamedTuple):
    """Whether a node was found, and why, for messages."""

    finds: bool
    why: str


@pytest.fixture
def scheduled(new_cluster: NewCluster) -> Cluster:
    """A cluster with kube-scheduler, in which nobody else changes objects."""
    cluster = new_cluster(kube_scheduler=True, feature_gates="TaintTolerationComparisonOperators=true")
    for namespace in (NAMESPACE, OTHER_NAMESPACE):
        cluster.create_namespace(namespace)
    with cluster.client() as client:
        label = {"metadata": {"labels": {"team": "other"}}}
        client.request("PATCH", f"/api/v1/namespaces/{OTHER_NAMESPACE}", label, "application/merge-patch+json")
        overhead = {"handler": "some", "overhead": {"podFixed": {"cpu": "500m"}}}
        client.post("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": RUNTIME_CLASS}, **overhead})
    for component in ("kube-controller-manager", "kwok"):
        cluster.kill(component)
    return cluster


def test_both_find_a_node_or_none(scheduled: Cluster) -> None:
    with scheduled.client() as client:
        compares_taints = _takes_comparing_tolerations(client)

    def compare(seeds: list[int], first: int) -> dict[int, str]:
        made = [
            make_case(seed, first + index, RULES, compares_taints=compares_taints) for index, seed in enumerate(seeds)
        ]
        return {seeds[case.number - first]: text for case, text in _differences(scheduled, made)}

    seeds = [SEED * 100_000 + number for number in range(CASES)]
    differing = compare(seeds, 0)
    # Once more under new names: kube-scheduler may have seen a pod before the objects that it depends on.
    differing = compare(sorted(differing), CASES)
    texts = [f"seed {seed}: {text}" for seed, text in differing.items()]
    assert not differing, f"{len(differing)} of {CASES} cases differ:\n" + "\n".join(texts)


def test_cases_are_of_all_kinds() -> None:
    """Needs no cluster: most rules are in the cases of a normal run, and equal seeds give equal cases."""
    cases = [make_case(SEED * 100_000 + number, number, RULES) for number in range(CASES)]
    assert len(Counter(rule for case in cases for rule in case.rules)) >= 15
    assert cases == [make_case(SEED * 100_000 + number, number, RULES) for number in range(CASES)]


def _takes_comparing_tolerations(client: Client) -> bool:
    """Whether the API server knows the operators Gt and Lt: they have a feature gate."""
    toleration = {"key": "k", "operator": "Gt", "value": "1"}
    spec = {"containers": [{"name": "main", "image": "training:1"}], "tolerations": [toleration]}
    try:
        client.post(f"{PODS}?dryRun=All", {"metadata": {"name": "probe"}, "spec": spec})
    except ApiError:
        return False
    return True


def _differences(cluster: Cluster, cases: list[Case]) -> Iterator[tuple[Case, str]]:
    """The cases in which the two verdicts differ, with both."""
    with cluster.client() as client, ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda case: _create(cluster, case), cases))
        before = _list_all(client)
        pods = dict(
            zip([case.number for case in cases], pool.map(lambda case: _start(cluster, case), cases), strict=True)
        )
        wait_until("kube-scheduler to decide", lambda: len(_their_verdicts(client, cases)) == len(cases), 120.0)
        theirs = _their_verdicts(client, cases)
        for case in cases:
            own, their = _our_verdict(case, before, pods[case.number]), theirs[case.number]
            if own.finds != their.finds:
                yield case, _text(case, own, their)


def _text(case: Case, own: Verdict, their: Verdict) -> str:
    words = {True: "finds a node", False: "finds none"}
    return (
        f"{' + '.join(case.rules)}\n  kube-scheduler {words[their.finds]}: {their.why}\n"
        f"  maniple {words[own.finds]}: {own.why}\n  {json.dumps([*map(_shown, case.steps), case.pod])}"
    )


def _shown(step: Step) -> list[Any]:
    return [step.method, step.path, step.body]


def _create(cluster: Cluster, case: Case) -> None:
    with cluster.client() as client:
        for step in case.steps:
            kind = "application/merge-patch+json" if step.method == "PATCH" else "application/json"
            client.request(step.method, step.path, step.body, kind)


def _start(cluster: Cluster, case: Case) -> Object:
    with cluster.client() as client:
        created: Object = client.post(PODS, case.pod)
        return created


# -- kube-scheduler


def _their_verdicts(client: Client, cases: list[Case]) -> dict[int, Verdict]:
    """By number of the case; cases that are not decided are missing."""
    pods = {pod["metadata"]["name"]: pod for pod in client.get(PODS)["items"]}
    verdicts = ((case.number, _their_verdict(pods[case.pod["metadata"]["name"]])) for case in cases)
    return {number: verdict for number, verdict in verdicts if verdict is not None}


def _their_verdict(pod: Object) -> Verdict | None:
    # A node that it has chosen and not bound to yet: it waits for the volumes of claims, and nobody here makes them.
    if node := pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"):
        return Verdict(True, node)
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Verdict(False, condition.get("message", ""))
    return None


# -- maniple


def _list_all(client: Client) -> list[Object]:
    paths = {
        "Node": "/api/v1/nodes",
        "Namespace": "/api/v1/namespaces",
        "Pod": "/api/v1/pods",
        "PersistentVolume": VOLUMES,
        "PersistentVolumeClaim": CLAIMS,
        "StorageClass": f"{STORAGE}/storageclasses",
        "CSINode": f"{STORAGE}/csinodes",
    }
    items = []
    for kind, path in paths.items():
        listed = client.get(path)
        items += [{"apiVersion": listed["apiVersion"], "kind": kind, **item} for item in listed["items"]]
    return items


def _our_verdict(case: Case, objects: list[Object], pod: Object) -> Verdict:
    own = [
        item for item in objects if item["kind"] == "Namespace" or f"-{case.number}-" in f"{item['metadata']['name']}-"
    ]
    whole = {"apiVersion": "v1", "kind": "List", "items": [*own, {"apiVersion": "v1", "kind": "Pod", **pod}]}
    decoded = decode([("case", json.dumps(whole).encode())])
    ours = Ours(scheduler_name=SCHEDULER)
    plan = schedule(build_snapshot(sort_objects(decoded, scheduler_name=SCHEDULER), ours))
    name = f"{NAMESPACE}/{pod['metadata']['name']}"
    nodes = [bind.node for bind in plan.binds if bind.pod == name]
    if nodes:
        return Verdict(True, nodes[0])
    waiting = [each for each in plan.waiting if each.group == name]
    return Verdict(False, "; ".join(f"{each.message} {[*each.nodes]}" for each in waiting))
