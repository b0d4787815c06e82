"""What the controller of elastic jobs reads of their pods and the scheduler does not.

It is kept apart from kubernetes.Pod because a scheduler that saw every change of a container's state would plan again
for each of them.
"""

import re
from datetime import datetime

import msgspec

from maniple.api.labels import GENERATION_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import Labels, ObjectMeta, OwnerReference, Struct

_GENERATION = re.compile(r'"generation":\s*(\d{1,18})')
_STILL_STARTING = ("", "ContainerCreating", "PodInitializing")
_LONGEST_INDEX = 9  # digits
_MEANINGLESS_REASONS = ("Error", "Completed")


class ReplicaFacts(Struct, frozen=True):
    """A pod as a replica of an ElasticJob.

    Job, role and index come from the owner and the pod's name, which cannot be changed. Labels can, so they count only
    if no ElasticJob owns the pod.
    """

    job: str
    role: str
    index: str  # as written; see is_index
    uid: str
    owner: str  # uid of its controller
    leaves_at: datetime | None  # if it is being deleted: when it should be gone
    phase: str
    node: str
    address: str
    is_ready: bool
    bound_at: datetime | None
    ready_at: datetime | None
    trouble: str
    exit: int | None
    reason: str
    is_disrupted: bool
    notified_generation: int  # the generation in its annotation

    @property
    def is_leaving(self) -> bool:
        return self.leaves_at is not None


class _Meta(Struct, frozen=True):
    name: str = ""
    uid: str = ""
    labels: Labels = {}
    annotations: Labels = {}
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class _Spec(Struct, frozen=True):
    node_name: str = ""


class PodCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""


class ContainerState(Struct, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None
    running: dict[str, object] | None = None


class ContainerStatus(Struct, frozen=True):
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True):
    """What the kubelet reports of a pod and its containers."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class _Pod(Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: PodStatus = PodStatus()


_PODS = msgspec.json.Decoder(_Pod)


def read_pod_status(raw: bytes | msgspec.Raw) -> PodStatus:
    return _PODS.decode(raw).status


def read_replica_facts(raw: bytes | msgspec.Raw) -> ReplicaFacts:
    pod = _PODS.decode(raw)
    meta, status = pod.metadata, pod.status
    conditions = {condition.type: condition for condition in status.conditions if condition.status == "True"}
    generation = _GENERATION.search(meta.annotations.get(GENERATION_ANNOTATION, ""))
    states = [container.state for container in (*status.init_container_statuses, *status.container_statuses)]
    exit_code, exit_reason = _exit(states)
    bound, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    owner = next((owner for owner in meta.owner_references if owner.controller), OwnerReference())
    job, role, index = _identity(meta, owner)
    return ReplicaFacts(
        job=job,
        role=role,
        index=index,
        uid=meta.uid,
        owner=owner.uid,
        leaves_at=meta.deletion_timestamp,
        phase=status.phase,
        node=pod.spec.node_name,
        address=status.pod_ip,
        is_ready=ready is not None,
        bound_at=None if bound is None else bound.last_transition_time,
        ready_at=None if ready is None else ready.last_transition_time,
        trouble=_trouble(states),
        exit=exit_code,
        reason=status.reason or exit_reason,
        is_disrupted="DisruptionTarget" in conditions,
        notified_generation=0 if generation is None else int(generation[1]),
    )


def is_index(text: str) -> bool:
    """Whether the text is a replica's index, as in its label."""
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_INDEX


def is_replica(meta: ObjectMeta) -> bool:
    """Whether an ElasticJob owns the pod, or its label names one."""
    return JOB_LABEL in meta.labels or any(
        owner.controller and owner.kind == "ElasticJob" for owner in meta.owner_references
    )


def _identity(meta: _Meta, owner: OwnerReference) -> tuple[str, str, str]:
    """Job, role and index."""
    if owner.kind == "ElasticJob" and meta.name.startswith(f"{owner.name}-"):
        role, _, index = meta.name[len(owner.name) + 1 :].rpartition("-")
        return owner.name, role, index
    labels = meta.labels
    return labels.get(JOB_LABEL, ""), labels.get(ROLE_LABEL, ""), labels.get(INDEX_LABEL, "")


def _exit(states: list[ContainerState]) -> tuple[int | None, str]:
    """Exit code and reason of the first container that failed, else of the first that ended."""
    terminated = [state.terminated for state in states if state.terminated is not None]
    terminated.sort(key=lambda end: end.exit_code == 0)
    if not terminated:
        return None, ""
    first = terminated[0]
    return first.exit_code, "" if first.reason in _MEANINGLESS_REASONS else first.reason


def _trouble(states: list[ContainerState]) -> str:
    """Why the first container that cannot start does not; empty if all can."""
    for state in states:
        if state.waiting is not None and state.waiting.reason not in _STILL_STARTING:
            reason, message = state.waiting.reason, state.waiting.message
            return f"{reason}: {message}" if message else reason
    return ""
