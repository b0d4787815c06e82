"""A replica of a job as a person wants to see it: its pod, and what the kubelet says of its containers."""

from dataclasses import dataclass
from functools import cache

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import read_live
from maniple.api.labels import GPUS_ANNOTATION, JOB_LABEL
from maniple.model.elastic import replica_index
from maniple.model.pod_identity import pod_role
from maniple.model.resources import RequestTable

_OVER = ("Succeeded", "Failed")


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Ended(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Ended | None = None
    running: dict[str, object] | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    ready: bool = False
    state: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    container_statuses: tuple[_Container, ...] = ()
    conditions: tuple[_Condition, ...] = ()


class _Facts(msgspec.Struct, frozen=True):
    status: _Status = _Status()


@dataclass(frozen=True)
class Replica:
    pod: kubernetes.Pod
    facts: _Status

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def job(self) -> tuple[str, str]:
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
        """The GPUs that it was given."""
        return self.pod.metadata.annotations.get(GPUS_ANNOTATION, "")

    @property
    def is_over(self) -> bool:
        return self.pod.status.phase in _OVER

    @property
    def is_leaving(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_running(self) -> bool:
        return self.pod.status.phase == "Running" and not self.is_leaving

    @property
    def holds_gpus(self) -> float:
        return 0.0 if self.is_over or not self.node else gpus_of(self.pod)

    @property
    def has_started(self) -> bool:
        """Whether there can be a log of it."""
        return any(one.state.running is not None or one.state.terminated is not None for one in self._containers)

    @property
    def state(self) -> str:
        """One word, as kubectl has it: the phase, or what keeps it from running."""
        if self.is_leaving:
            return "Terminating"
        for one in self._containers:
            if one.state.waiting is not None and one.state.waiting.reason not in ("", "ContainerCreating"):
                return one.state.waiting.reason
            if one.state.terminated is not None and self.is_over and one.state.terminated.exit_code:
                return f"{one.state.terminated.reason or 'Error'} (exit {one.state.terminated.exit_code})"
        if self.pod.status.phase == "Failed" and self.facts.reason:
            return self.facts.reason
        return self.pod.status.phase

    @property
    def why(self) -> str:
        """Why it does not run, as far as somebody has said it."""
        if self.facts.message:
            return self.facts.message
        for one in self._containers:
            if one.state.waiting is not None and one.state.waiting.message:
                return one.state.waiting.message
        held = (one.message for one in self.facts.conditions if one.type == "PodScheduled" and one.status == "False")
        return next(held, "")

    @property
    def _containers(self) -> tuple[_Container, ...]:
        return self.facts.container_statuses


def read_replica(raw: msgspec.Raw) -> Replica | None:
    """None: a pod that nothing can be made of, or one of no job."""
    item = read_live(raw, kubernetes.Pod).item
    if not isinstance(item, kubernetes.Pod) or JOB_LABEL not in item.metadata.labels:
        return None
    return Replica(item, msgspec.json.decode(raw, type=_Facts).status)


@cache
def _requests() -> RequestTable:
    return RequestTable()


def gpus_of(pod: kubernetes.Pod) -> float:
    """GPUs that the pod asks for; a share counts as its part."""
    table = _requests()
    amounts = table.requests[table.number(pod)].amounts
    return sum(amounts.get(name, 0) for name in types.GPU_RESOURCES) / 1000
