"""The scheduler with its shipped account, in everything it does: no request is refused, and no right is unused.

Requests are recorded where they leave the client; everything else is real, except that the answer to the first
binding is lost after the server has sent it.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
import yaml
from deploy.rbac_rights import ROOT, Right, granted, needed_for

from e2e.clusters_of_this_run import NewCluster
from maniple.kube.jobs.agent_credentials import create
from maniple.kube.jobs.agent_endpoint import Endpoint
from maniple.kube.serve.server import Settings, serve
from maniple.kube.transport.http1 import Answer, Pool
from maniple.kube.transport.login import log_in
from maniple.kube.transport.resource_kinds import RESOURCES
from tools.cluster import Cluster, ClusterError, wait_until
from tools.cluster.client import PATIENCE_S, Client

GPU = "nvidia.com/gpu"
FOREIGN = [resource for resource in RESOURCES if resource.is_foreign]
KUBERNETES_OWN = "scheduling.k8s.io/v1beta1"

# Bindings of pods with this name prefix are refused, as by an admission policy.
REFUSED = "refused-"
REFUSING = f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: refuse-bindings}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], resources: [pods/binding], operations: [CREATE]}}
  validations:
  - expression: "!object.metadata.name.startsWith('{REFUSED}')"
    message: not this one
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: refuse-bindings}}
spec: {{policyName: refuse-bindings, validationActions: [Deny]}}
"""


class Noted:
    """The rights that requests needed, and the requests that were refused without them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: set[Right] = set()
        self.refused: list[str] = []
        self._has_lost_an_answer = False
        ask, listen = Pool.request, Pool.stream

        async def asked(pool: Pool, method: str, path: str, *rest: Any) -> Answer:
            answer = await ask(pool, method, path, *rest)
            self._note(method, path, answer.status)
            if path.endswith("/binding") and answer.status < 300 and not self._has_lost_an_answer:
                self._has_lost_an_answer = True
                raise ConnectionError("lost")
            return answer

        @asynccontextmanager
        async def listened(pool: Pool, path: str, *rest: Any) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
            async with listen(pool, path, *rest) as (head, blocks):
                self._note("GET", path, head.status)
                yield head, blocks

        monkeypatch.setattr(Pool, "request", asked)
        monkeypatch.setattr(Pool, "stream", listened)

    def _note(self, method: str, path: str, status: int) -> None:
        plain, _, query = path.partition("?")
        self.used.add(needed_for(method, plain, "watch=" in query))
        if status == 403:
            self.refused.append(f"{method} {plain}")


@contextmanager
def serving(cluster: Cluster) -> Iterator[None]:
    account = str(cluster.service_account_kubeconfig("maniple-system", "maniple"))
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    agents = Endpoint("127.0.0.1", 0, "https://maniple-agents.maniple-system.svc", ("kube-system", "maniple-agents"))
    settings = Settings(lease=("kube-system", "maniple"), identity="test", agents=agents)

    async def run() -> None:
        await serve(await log_in(account), settings, stop)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        loop.close()


def foreign_crds() -> list[dict[str, Any]]:
    """The CRDs of other systems, just enough for the API server to store their objects."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made = []
    for resource in FOREIGN:
        if resource.api_version == KUBERNETES_OWN:
            continue
        group, _, version = resource.api_version.partition("/")
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        made.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                # The API server requires this for groups below k8s.io.
                "metadata": {
                    "name": f"{resource.plural}.{group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
                },
                "spec": {
                    "group": group,
                    "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()},
                    "scope": "Namespaced" if resource.kind == "PodGroup" else "Cluster",
                    "versions": [served | {"subresources": {"status": {}}}],
                },
            }
        )
    return made


def pod(name: str, labels: dict[str, str] | None = None, gpus: int = 1, priority: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: gpus}}}
    spec: dict[str, Any] = {"schedulerName": "maniple", "containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def gang(api_version: str, name: str, gpus: int = 1, priority: str = "") -> list[dict[str, Any]]:
    spec: dict[str, Any] = {"minMember": 1} | ({"priorityClassName": priority} if priority else {})
    member = pod(f"{name}-0", {"maniple.dev/pod-group": name}, gpus, priority)
    if api_version == KUBERNETES_OWN:
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        member = pod(f"{name}-0")
        member["spec"]["schedulingGroup"] = {"podGroupName": name}
    return [{"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}, member]


def elastic_job(name: str) -> dict[str, Any]:
    """A job of one replica. The controller creates its pod."""
    template = {"spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: 1}}}]}}
    role = {"name": "worker", "min": 1, "max": 1, "template": template}
    job = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
    return job | {"spec": {"roles": [role]}}


def short_job(name: str, framework: str) -> dict[str, Any]:
    """A job that creates every object a job can create, ends soon and is deleted."""
    job = elastic_job(name)
    ends = {"framework": framework, "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0}
    return job | {"spec": job["spec"] | ends}


def with_claim(name: str, provisioner: str) -> list[dict[str, Any]]:
    """A pod whose claim waits for a node, and a free volume for it; with a provisioner a new one has to be made."""
    meta, size, modes = {"metadata": {"name": name}}, {"storage": "1Gi"}, {"accessModes": ["ReadWriteOnce"]}
    late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    claim = {**modes, "storageClassName": name, "resources": {"requests": size}}
    source = {"csi": {"driver": "disks.example.com", "volumeHandle": name}}
    free = {**modes, "storageClassName": "" if "/made" in provisioner else name, "capacity": size, **source}
    user = pod(name)
    user["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **meta, **late},
        {"apiVersion": "v1", "kind": "PersistentVolume", **meta, "spec": free},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **meta, "spec": claim},
        user,
    ]


def apply(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))


def may_list_nodes(client: Client) -> bool:
    """A role binding takes a moment to take effect: until then the scheduler's requests would be refused."""
    wish = {"resource": "nodes", "verb": "list"}
    asked = {"spec": {"user": "system:serviceaccount:maniple-system:maniple", "resourceAttributes": wish}}
    return bool(client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)["status"]["allowed"])


def test_every_right_is_used_and_none_is_missing(new_cluster: NewCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = {"feature_gates": "GenericWorkload=true", "runtime_config": f"{KUBERNETES_OWN}=true"}
    cluster = new_cluster(nodes=1, gpus=16, **gates)
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    cluster.kubectl("apply", "--server-side", "-f", "-", text=REFUSING)
    apply(cluster, foreign_crds())
    cluster.kubectl("wait", "--for=condition=Established", "crds", "--all", "--timeout=180s")
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "install.yaml"))
    monkeypatch.setattr("maniple.kube.serve.kube_events._SERIES_S", 0.0)
    # Certificates for another address are renewed. A Service that is not ours is read and left alone.
    meta = {"name": "maniple-agents", "namespace": "kube-system"}
    stale = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": create(["elsewhere"]).to_secret()}
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "short-torch"}, "spec": {"clusterIP": "None"}}
    apply(cluster, [stale, taken])
    noted = Noted(monkeypatch)
    with cluster.client() as client:
        wait_until("the rights to count", lambda: may_list_nodes(client))
    with cluster.client() as client, serving(cluster):
        pods = "/api/v1/namespaces/default/pods"
        wait_until("the account", lambda: client.exists("/api/v1/namespaces/default/serviceaccounts/default"))

        apply(cluster, gang("maniple.dev/v1alpha1", "low", gpus=16, priority="maniple-low"))
        wait_until("low to run", lambda: client.get(f"{pods}/low-0")["status"]["phase"] == "Running")
        apply(cluster, gang("maniple.dev/v1alpha1", "high", gpus=2, priority="maniple-high"))
        wait_until("high to run", lambda: client.get(f"{pods}/high-0")["status"]["phase"] == "Running")

        apply(cluster, [*gang("maniple.dev/v1alpha1", f"{REFUSED}ours"), elastic_job(f"{REFUSED}job")])
        apply(cluster, [pod(f"{REFUSED}alone"), pod("too-large", gpus=99)])
        for number, resource in enumerate(one for one in FOREIGN if one.kind == "PodGroup"):
            apply(cluster, gang(resource.api_version, f"{REFUSED}{number}"))
        # The same gang bound to the same node once more is a repeated event, which is patched.
        client.delete(f"{pods}/high-0")
        wait_until("high to be gone", lambda: not client.exists(f"{pods}/high-0"))
        apply(cluster, gang("maniple.dev/v1alpha1", "high", gpus=2, priority="maniple-high"))
        apply(cluster, with_claim("on-free-volume", "kubernetes.io/no-provisioner"))
        apply(cluster, with_claim("on-new-volume", "disks.example.com/made"))
        apply(cluster, [short_job("short-horovod", "horovod"), short_job("short-torch", "torch")])
        jobs = "/apis/maniple.dev/v1alpha1/namespaces/default/elasticjobs"
        wait_until("the short job to be gone", lambda: not client.exists(f"{jobs}/short-horovod"))
        client.delete("/api/v1/namespaces/default/services/short-torch")
        with suppress(ClusterError):  # said better below
            wait_until("every right to be used", lambda: granted() <= noted.used)
    assert [request for request in noted.refused if REFUSED not in request] == []
    assert {str(right) for right in noted.used} == {str(right) for right in granted()}
