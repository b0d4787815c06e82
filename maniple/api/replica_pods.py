"""What the controller of elastic jobs reads in their pods, beyond what scheduling does: kept apart, because a scheduler
that saw every change of a container's state would plan anew for each of them."""

import re
from datetime import datetime

import msgspec

from maniple.api.labels import GENERATION_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import Labels, ObjectMeta, OwnerReference, Struct

_GENERATION = re.compile(r'"generation":\s*(\d{1,18})')
_STILL_STARTING = ("", "ContainerCreating", "PodInitializing")
_LONGEST_INDEX = 9  # digits
_SAY_NOTHING = ("Error", "Completed")


class ReplicaFacts(Struct, frozen=True):
    """Who made a pod and under which name cannot be changed, labels can: they count where no job is its owner."""

    job: str
    role: str
    index: str  # as it is written
    uid: str
    owner: str  # uid of its controller
    leaves_at: datetime | None  # it is being deleted, and should be gone then
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
    told: int  # the generation that its annotation tells of

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


class _Condition(Struct, frozen=True):
    type: str
    status: str = ""
    last_transition_time: datetime | None = None


class _Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Terminated(Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""


class _State(Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _Container(Struct, frozen=True):
    state: _State = _State()


class _Status(Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()


class _Pod(Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_PODS = msgspec.json.Decoder(_Pod)


def read_replica(raw: bytes | msgspec.Raw) -> ReplicaFacts:
    pod = _PODS.decode(raw)
    meta, status = pod.metadata, pod.status
    conditions = {one.type: one for one in status.conditions if one.status == "True"}
    told = _GENERATION.search(meta.annotations.get(GENERATION_ANNOTATION, ""))
    states = [one.state for one in (*status.init_container_statuses, *status.container_statuses)]
    code, ended = _end(states)
    bound, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    owner = next((one for one in meta.owner_references if one.controller), OwnerReference())
    job, role, index = _place(meta, owner)
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
        exit=code,
        reason=status.reason or ended,
        is_disrupted="DisruptionTarget" in conditions,
        told=0 if told is None else int(told[1]),
    )


def is_index(text: str) -> bool:
    """Whether it is a replica's number, as a label has it."""
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_INDEX


def is_replica(meta: ObjectMeta) -> bool:
    """Whether an ElasticJob has made it, or it says that it belongs to one."""
    return JOB_LABEL in meta.labels or any(one.controller and one.kind == "ElasticJob" for one in meta.owner_references)


def _place(meta: _Meta, owner: OwnerReference) -> tuple[str, str, str]:
    """Job, role and index."""
    if owner.kind == "ElasticJob" and meta.name.startswith(f"{owner.name}-"):
        role, _, index = meta.name[len(owner.name) + 1 :].rpartition("-")
        return owner.name, role, index
    labels = meta.labels
    return labels.get(JOB_LABEL, ""), labels.get(ROLE_LABEL, ""), labels.get(INDEX_LABEL, "")


def _end(states: list[_State]) -> tuple[int | None, str]:
    """Exit code and reason of the first container that failed, else of any that ended."""
    ended = [one.terminated for one in states if one.terminated is not None]
    ended.sort(key=lambda one: one.exit_code == 0)
    if not ended:
        return None, ""
    return ended[0].exit_code, "" if ended[0].reason in _SAY_NOTHING else ended[0].reason


def _trouble(states: list[_State]) -> str:
    for one in states:
        if one.waiting is not None and one.waiting.reason not in _STILL_STARTING:
            return f"{one.waiting.reason}: {one.waiting.message}" if one.waiting.message else one.waiting.reason
    return ""
