"""`maniple serve` as a process with only its shipped rights, and helpers for tests of it.

Every test has its own namespace, nodes for its pods only, schedulerName and lease.
"""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tools.cluster import ApiError, Cluster, free_port, kwok, wait_until
from tools.cluster.client import PATIENCE_S, TRANSIENT

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = "nvidia.com/gpu"
OURS = "/apis/maniple.dev/v1alpha1"
Json = dict[str, Any]


class Process:
    """A running `maniple serve`."""

    def __init__(self, arguments: list[str], port: int, log: Path, ahead_s: float = 0.0) -> None:
        """Its clock is ahead by `ahead_s`."""
        self.port, self.log = port, log
        maniple = ["tests/e2e/serve_later.py", str(ahead_s)] if ahead_s else ["-m", "maniple"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *maniple, "serve", f"--listen=127.0.0.1:{port}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            )
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kills it as the kernel does when memory is short: it cannot clean up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Asks it to end, as the kubelet does. Returns its exit code."""
        self._process.terminate()
        return self._process.wait(timeout=PATIENCE_S)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def page(self, path: str) -> str:
        assert self.is_running, f"maniple serve ended:\n{self.log.read_text()[-3000:]}"
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        try:
            return self.page("/readyz") == "ok\n"
        except OSError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all series of this name that have these labels."""
        total = 0.0
        for line in self.page("/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
                total += float(value)
        return total

    def counts(self, number: float, name: str, **labels: str) -> bool:
        """A write is counted when its answer arrives, a moment after others can see it."""
        return self.metric(name, **labels) == number

    def is_leading(self) -> bool:
        return self.metric("maniple_leader") == 1


class Bench:
    """A test's own corner of a cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.scheduler = f"maniple-{namespace}"
        self.client = cluster.client()
        self._processes: list[Process] = []
        self._nodes: list[str] = []
        try:
            self._account = self._make_account()
        except BaseException:
            self.client.close()
            raise

    def _make_account(self) -> Path:
        """Creates an account with the shipped rights in the test's namespace."""
        text = (ROOT / "deploy" / "rbac.yaml").read_text()
        for shipped in ("maniple-system", "kube-system"):
            text = text.replace(shipped, self.namespace)
        for item in yaml.safe_load_all(text):
            if item["kind"] == "Namespace":
                continue
            if item["kind"].startswith("ClusterRole"):
                item["metadata"]["name"] = self.scheduler
                if "roleRef" in item:
                    item["roleRef"]["name"] = self.scheduler
            self.create(item)
        return self.cluster.service_account_kubeconfig(self.namespace, "maniple")

    def create(self, item: Json) -> Json:
        made: Json = self.client.post(self._folder(item), item)
        return made

    def _folder(self, item: Json) -> str:
        kinds = {
            "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
            "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
            "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
            "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
            "Queue": f"{OURS}/queues",
            "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
        }
        return kinds[item["kind"]].format(self.namespace)

    # -- objects

    def nodes(self, count: int, gpus: int = 8) -> list[str]:
        first = len(self._nodes)
        names = [f"{self.namespace}-{index}" for index in range(first, first + count)]
        self._nodes += names
        self.cluster.create_nodes([kwok.node(name, gpus, {"bench": self.namespace}) for name in names])
        return names

    def slow_node(self) -> str:
        """A ready node without a kubelet: pods on it stay as they are."""
        name = f"{self.namespace}-slow"
        item = kwok.node(name, 8, {"bench": self.namespace})
        del item["metadata"]["annotations"]
        item["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self.client.post("/api/v1/nodes", item)
        self._nodes.append(name)
        return name

    def group(self, name: str, minimum: int, **spec: Any) -> Json:
        body = {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        folder = f"{OURS}/namespaces/{self.namespace}/podgroups"
        made: Json = self.client.post(folder, body | {"spec": {"minMember": minimum, **spec}})
        return made

    def pods(
        self, name: str, count: int, gpus: int = 1, labels: dict[str, str] | None = None, **more: Any
    ) -> list[str]:
        """`name`-0 and so on; `labels` name their gang."""
        names = [f"{name}-{index}" for index in range(count)]
        for each in names:
            self.client.post(self._pods(), self.pod(each, gpus, labels, **more))
        return names

    def pod(self, name: str, gpus: int = 1, labels: dict[str, str] | None = None, **more: Any) -> Json:
        metadata = {"name": name, "labels": {"bench": self.namespace, **(labels or {})}, **more.pop("metadata", {})}
        container = {"name": "main", "image": "pause", "resources": {"limits": {GPU: str(gpus)}}}
        spec = {
            "schedulerName": self.scheduler,
            "nodeSelector": {"bench": self.namespace},
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            # Simulated nodes may be slow to be called ready.
            "tolerations": [{"operator": "Exists"}],
            **more,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def gang(self, name: str, size: int, gpus: int = 1, **spec: Any) -> list[str]:
        """A PodGroup and as many pods as it needs."""
        self.group(name, size, **spec)
        return self.pods(name, size, gpus, {"maniple.dev/pod-group": name})

    def _pods(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    # -- state

    def all_pods(self) -> list[Json]:
        items: list[Json] = self.client.get(self._pods())["items"]
        return items

    def get_pod(self, name: str) -> Json:
        found: Json = self.client.get(self._pods(name))
        return found

    def get(self, path: str) -> Json:
        found: Json = self.client.get(path.format(self.namespace))
        return found

    def get_group(self, name: str) -> Json:
        return self.get(f"{OURS}/namespaces/{{}}/podgroups/{name}")

    def delete_pods(self, names: Iterable[str]) -> None:
        for name in names:
            self.client.delete(self._pods(name))

    def bound(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Pod -> node, for bound pods."""
        wanted = None if names is None else set(names)
        found = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.all_pods()}
        return {name: node for name, node in found.items() if node and (wanted is None or name in wanted)}

    def wait_bound(self, names: Iterable[str], timeout_s: float = PATIENCE_S) -> None:
        wanted = set(names)
        self.wait(f"{sorted(wanted)} to be bound", lambda: self.bound(wanted).keys() == wanted, timeout_s)

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        def holds() -> bool:
            for process in self._processes:
                assert process.is_running or process.log.name.endswith("over"), process.log.read_text()[-3000:]
            try:
                return condition()
            except (ApiError, urllib.error.URLError, KeyError, *TRANSIENT):
                return False

        try:
            wait_until(what, holds, timeout_s)
        except Exception as error:
            logs = "\n".join(process.log.read_text()[-3000:] for process in self._processes)
            raise AssertionError(f"{error}\n{logs}") from None

    def gpus_by_node(self) -> dict[str, list[str]]:
        """Every GPU that a running pod holds; a duplicate is assigned twice."""
        found: dict[str, list[str]] = {}
        for pod in self.all_pods():
            gpus = pod["metadata"].get("annotations", {}).get("maniple.dev/gpus", "")
            if pod["spec"].get("nodeName") and gpus and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                found.setdefault(pod["spec"]["nodeName"], []).extend(gpus.split(","))
        return found

    def condition_of(self, item: Json, kind: str) -> Json:
        found: dict[str, Json] = {one["type"]: one for one in item["status"]["conditions"]}
        return found[kind]

    def events(self, reason: str) -> list[Json]:
        items = self.get("/apis/events.k8s.io/v1/namespaces/{}/events")["items"]
        return [event for event in items if event["reason"] == reason]

    def restart(self, component: str) -> None:
        """Kills a part of the cluster and starts it again."""
        self.client.close()
        self.cluster.restart(component)

    # -- processes

    def arguments(self, *more: str) -> list[str]:
        """The shipped rights, this test's pods, this test's lease; `more` replaces what it names."""
        usual = {
            "--kubeconfig": str(self._account),
            "--scheduler-name": self.scheduler,
            "--lease": f"{self.namespace}/maniple",
        }
        named = {option.partition("=")[0] for option in more}
        return [*(f"{option}={value}" for option, value in usual.items() if option not in named), *more]

    def serve(self, *more: str, wait: bool = True, ahead_s: float = 0.0) -> Process:
        log = self.cluster.layout.folder / "logs" / f"serve-{self.namespace}-{len(self._processes)}.log"
        process = Process(self.arguments(*more), free_port(), log, ahead_s)
        self._processes.append(process)
        if wait:
            self.wait("maniple serve to be ready", process.is_ready)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a maniple command that ends by itself."""
        return subprocess.run(
            [sys.executable, "-m", "maniple", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
        )

    def forget(self, process: Process) -> None:
        """Forgets a process that has ended as intended."""
        process.end()
        self._processes.remove(process)

    def close(self) -> None:
        """Also after a failed test, perhaps without a server: a connection left open would fail a later test."""
        for process in self._processes:
            process.end()
        try:
            self._clean_up()
        finally:
            self.client.close()

    def _clean_up(self) -> None:
        # Pods before their nodes: others may look at the GPUs of the whole cluster, and pods without a node hold some.
        for pod in self.all_pods():
            self._remove(self._pods(pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        self.cluster.delete_nodes(self._nodes)
        for kind in ("clusterrolebindings", "clusterroles"):
            self._remove(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{self.scheduler}")

    def _remove(self, path: str, body: Json | None = None) -> None:
        """Deletes an object that may be gone already."""
        with suppress(ApiError):
            self.client.delete(path, body)


def install_crds(cluster: Cluster) -> None:
    """Installs our CRDs; existing ones stay."""
    folder = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    with cluster.client() as client:
        for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
            item = yaml.safe_load(path.read_text())
            names.append(item["spec"]["names"]["plural"])
            try:
                client.post(folder, item)
            except ApiError as error:
                if error.code != 409:
                    raise
        for name in names:
            wait_until(f"{name} to be served", lambda name=name: client.exists(f"{OURS}/{name}"))  # type: ignore[misc]
