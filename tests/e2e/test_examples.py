"""The examples, applied with kubectl to a real API server, end as `maniple plan` shows."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e import clusters_of_this_run
from e2e.serve_process import ROOT, Bench, Json, install_crds
from tools.cluster import Cluster, Spec, kwok

EXAMPLES = sorted((ROOT / "examples").glob("0[1-6]*.yaml"))
GROUP = "maniple.dev/pod-group"


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """A cluster for these tests alone: the examples have nodes, and a scheduler sees all of them."""
    spec = Spec(name=clusters_of_this_run.own_name(), owner_pid=clusters_of_this_run.run_pid())
    clusters_of_this_run.need(spec)
    cluster = Cluster.up(spec)
    install_crds(cluster)
    yield cluster
    cluster.down()


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_ends_as_planned(whole: Cluster, example: Path) -> None:
    namespace = example.stem
    whole.create_namespace(namespace)
    bench = Bench(whole, namespace)
    try:
        whole.create_nodes([simulated(item) for item in documents(example) if item["kind"] == "Node"])
        whole.kubectl(f"--namespace={namespace}", "apply", "--filename", str(example))
        bench.scheduler = "maniple"
        bench.serve()
        wanted = planned(bench, example)

        def is_as_planned() -> bool:
            return placed(bench) == wanted and all(is_told(pod) for pod in bench.all_pods())

        bench.wait(f"{wanted} to be bound, and all others to be told why not", is_as_planned)
    finally:
        bench.scheduler = f"maniple-{namespace}"
        bench.close()
        whole.kubectl(f"--namespace={namespace}", "delete", "--ignore-not-found", "--filename", str(example))


def documents(example: Path) -> list[Json]:
    return [item for item in yaml.safe_load_all(example.read_text()) if item]


def simulated(node: Json) -> Json:
    """The example's node, marked for KWOK."""
    return {**node, "metadata": {**node["metadata"], "annotations": dict(kwok.ANNOTATION)}}


def planned(bench: Bench, example: Path) -> Counter[tuple[str, str]]:
    """(gang or pod, node) -> pods, once the plan has settled."""
    done = bench.run("plan", "-f", str(example), "-o", "json", "--rounds", "4")
    assert done.returncode == 0, done.stderr
    groups, found = {}, Counter[tuple[str, str]]()
    for item in documents(example):
        if item["kind"] == "Pod":
            name = item["metadata"]["name"]
            groups[name] = item["metadata"].get("labels", {}).get(GROUP, name)
            if item["spec"].get("nodeName"):
                found[groups[name], item["spec"]["nodeName"]] += 1
    for one in json.loads(done.stdout)["rounds"]:
        leaves = [*one["evictions"], *(leaver for resize in one["resizes"] for leaver in resize.get("leaves", []))]
        assert not leaves, "an example that moves pods: this test does not follow them"
        for bind in one["binds"]:
            found[groups[bind["pod"].partition("/")[2]], bind["node"]] += 1
    return found


def placed(bench: Bench) -> Counter[tuple[str, str]]:
    """The same, from kubectl."""
    items = json.loads(bench.cluster.kubectl(f"--namespace={bench.namespace}", "get", "pods", "--output=json"))["items"]
    return Counter(
        (pod["metadata"].get("labels", {}).get(GROUP, pod["metadata"]["name"]), pod["spec"]["nodeName"])
        for pod in items
        if pod["spec"].get("nodeName")
    )


def is_told(pod: Json) -> bool:
    conditions = {one["type"]: one for one in pod["status"].get("conditions", ())}
    return bool(pod["spec"].get("nodeName")) or bool(conditions.get("PodScheduled", {}).get("message"))
