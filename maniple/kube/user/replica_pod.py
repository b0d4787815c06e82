"""A replica of a job as users see it: its pod, and what the kubelet reports of its containers."""

from dataclasses import dataclass
from functools import cache

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import read_live
from maniple.api.gpu.assignment import read_assignment
from maniple.api.keys import Key
from maniple.api.labels import JOB_LABEL
from maniple.api.phases import FINISHED
from maniple.api.replica_pods import PodStatus, read_pod_status
from maniple.model.elastic import replica_index
from maniple.model.pod_identity import pod_role
from maniple.model.pod_requests import RequestTable


@dataclass(frozen=True)
class ReplicaPod:
    pod: kubernetes.Pod
    status: PodStatus

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def job(self) -> Key:
        return self.pod.metadata.namespace, self.pod.metadata.labels[JOB_LABEL]

    @property
    def role(self) -> str:
        return pod_role(self.pod.metadata)

    @property
    def index(self) -> int:
        return replica_index(self.pod)

    @property
    def node(self) -> str:
        return self.pod.spec.node_name

    @property
    def gpus(self) -> str:
        """The ids of its GPUs, as annotated."""
        return read_assignment(self.pod.metadata.annotations)

    @property
    def is_finished(self) -> bool:
        return self.pod.status.phase in FINISHED

    @property
    def is_terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_running(self) -> bool:
        return self.pod.status.phase == "Running" and not self.is_terminating

    @property
    def held_gpus(self) -> float:
        return held_gpus(self.pod)

    @property
    def has_started(self) -> bool:
        """Whether it can have a log."""
        states = [container.state for container in self.status.container_statuses]
        return any(state.running is not None or state.terminated is not None for state in states)

    @property
    def state(self) -> str:
        """One word, as kubectl has it: the phase, or what keeps it from running."""
        if self.is_terminating:
            return "Terminating"
        for container in self.status.container_statuses:
            waiting, terminated = container.state.waiting, container.state.terminated
            if waiting is not None and waiting.reason not in ("", "ContainerCreating"):
                return waiting.reason
            if terminated is not None and self.is_finished and terminated.exit_code:
                return f"{terminated.reason or 'Error'} (exit {terminated.exit_code})"
        if self.pod.status.phase == "Failed" and self.status.reason:
            return self.status.reason
        return self.pod.status.phase

    @property
    def message(self) -> str:
        """Why it does not run, if the kubelet or the scheduler reported it."""
        if self.status.message:
            return self.status.message
        for container in self.status.container_statuses:
            if container.state.waiting is not None and container.state.waiting.message:
                return container.state.waiting.message
        for condition in self.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.message
        return ""


@dataclass(frozen=True)
class ObservedPod:
    """Any pod of the cluster, and the GPUs that it holds."""

    replica: ReplicaPod | None  # None: it belongs to no ElasticJob
    held_gpus: float
    node: str


def read_replica_pod(raw: msgspec.Raw) -> ReplicaPod | None:
    """None if the pod cannot be read, or belongs to no job."""
    observed = read_observed_pod(raw)
    return None if observed is None else observed.replica


def read_observed_pod(raw: msgspec.Raw) -> ObservedPod | None:
    """None if the pod cannot be read."""
    pod = read_live(raw, kubernetes.Pod).item
    if not isinstance(pod, kubernetes.Pod):
        return None
    is_replica = JOB_LABEL in pod.metadata.labels
    replica = ReplicaPod(pod, read_pod_status(raw)) if is_replica else None
    return ObservedPod(replica, held_gpus(pod), pod.spec.node_name)


@cache
def _requests() -> RequestTable:
    return RequestTable()


def held_gpus(pod: kubernetes.Pod) -> float:
    """The GPUs that a bound pod requests, until it has finished; a share counts as its part."""
    if not pod.spec.node_name or pod.status.phase in FINISHED:
        return 0.0
    table = _requests()
    amounts = table.requests[table.number(pod)].amounts
    return sum(amounts.get(name, 0) for name in types.GPU_RESOURCES) / 1000
