"""Kubernetes' own gangs (scheduling.k8s.io/v1beta1, gate GenericWorkload): PodGroups that pods name in their spec."""

from . import running
from .serving import Bench, Json, install_crds

GROUP = "/apis/scheduling.k8s.io/v1beta1/namespaces/test"
SCHEDULED = "PodGroupInitiallyScheduled"


def test_a_gang_of_kubernetes_itself(new_cluster: running.NewCluster) -> None:
    cluster = new_cluster(feature_gates="GenericWorkload=true", runtime_config="scheduling.k8s.io/v1beta1=true")
    install_crds(cluster)
    with cluster.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": "test"}})
    bench = Bench(cluster, "test")
    try:
        _run(bench)
    finally:
        bench.close()


def _run(bench: Bench) -> None:
    bench.nodes(1)
    policy = {"gang": {"minCount": 3}}
    version = "scheduling.k8s.io/v1beta1"
    workload = {"podGroupTemplates": [{"name": "workers", "schedulingPolicy": policy}]}
    bench.client.post(
        f"{GROUP}/workloads",
        {"apiVersion": version, "kind": "Workload", "metadata": {"name": "train"}, "spec": workload},
    )
    spec = {"workloadRef": {"workloadName": "train", "templateName": "workers"}, "schedulingPolicy": policy}
    bench.client.post(
        f"{GROUP}/podgroups", {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": spec}
    )
    bench.serve()
    pods = bench.pods("w", 2, schedulingGroup={"podGroupName": "gang"})
    bench.wait("the gang to say why it waits", lambda: _condition(bench)["status"] == "False")
    assert _condition(bench)["reason"] == "Unschedulable"
    assert bench.bound() == {}
    bench.client.post("/api/v1/namespaces/test/pods", bench.pod("w-2", schedulingGroup={"podGroupName": "gang"}))
    bench.wait_bound([*pods, "w-2"])
    bench.wait("the gang to say so", lambda: _condition(bench)["status"] == "True")


def _condition(bench: Bench) -> Json:
    return bench.condition_of(bench.get(f"{GROUP}/podgroups/gang"), SCHEDULED)
