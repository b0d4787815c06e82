"""A watcher that shares no code with the scheduler: lists all pods repeatedly and adds up what each node holds."""

import http.client
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tools.cluster import ApiError, Cluster, ClusterError

GPU = "nvidia.com/gpu"
GROUP = "maniple.dev/pod-group"

Pod = dict[str, Any]

# What a request may end with while servers are killed.
DOWN = (ApiError, ClusterError, OSError, ValueError, http.client.HTTPException)


def gpus_of(pod: Pod) -> int:
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def cpus_of(pod: Pod) -> int:
    return sum(int(one.get("resources", {}).get("requests", {}).get("cpu", 0)) for one in pod["spec"]["containers"])


def node_of(pod: Pod) -> str:
    """The node whose resources the pod holds; none once it has ended."""
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return "" if is_over else str(pod["spec"].get("nodeName", ""))


def group_of(pod: Pod) -> str:
    return str(pod["metadata"].get("labels", {}).get(GROUP, ""))


def over_committed(pods: list[Pod], gpus: dict[str, int], cpus: dict[str, int]) -> list[str]:
    """What is wrong at one moment: an over-committed node, a GPU that two pods have."""
    held_gpus, held_cpus = Counter[str](), Counter[str]()
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        node = node_of(pod)
        if not node:
            continue
        held_gpus[node] += gpus_of(pod)
        held_cpus[node] += cpus_of(pod)
        name = pod["metadata"]["name"]
        ids = [one for one in pod["metadata"].get("annotations", {}).get("maniple.dev/gpus", "").split(",") if one]
        if len(ids) != gpus_of(pod):
            owners[node, f"{name}: {len(ids)} GPUs written, {gpus_of(pod)} asked for"] += [name, name]
        for one in ids:
            owners[node, one].append(name)
    wrong = [f"{node} holds {held} of {gpus[node]} GPUs" for node, held in held_gpus.items() if held > gpus[node]]
    wrong += [f"{node} holds {held} of {cpus[node]} CPUs" for node, held in held_cpus.items() if held > cpus[node]]
    wrong += [f"{node}: GPU {gpu} is held by {who}" for (node, gpu), who in owners.items() if len(who) > 1]
    return wrong


@dataclass
class Watcher:
    """Watches in its own thread until it is stopped; `wrong` has the violations it saw."""

    cluster: Cluster
    namespace: str
    gpus: dict[str, int]
    cpus: dict[str, int]
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    pods: list[Pod] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watcher":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def look(self) -> list[Pod]:
        """All pods of one moment: a list without a resourceVersion is a quorum read from etcd."""
        with self.cluster.client() as client:
            found: list[Pod] = client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return found

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            try:
                self.pods = self.look()
            except DOWN:
                continue  # the server is down: that is what this run is about
            self.looks += 1
            self.wrong += [one for one in over_committed(self.pods, self.gpus, self.cpus) if one not in self.wrong]
