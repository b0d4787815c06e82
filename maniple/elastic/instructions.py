"""The instructions that the machine returns, to be carried out in order."""

from dataclasses import dataclass
from typing import Literal

from maniple.api import types


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Always the first. If it fails, no other may be carried out."""

    status: types.ElasticJobStatus


@dataclass(frozen=True, slots=True)
class Publish:
    """Tells every replica of this generation. It may be told again."""

    generation: types.JobGeneration


@dataclass(frozen=True, slots=True)
class CreateReplica:
    role: str
    index: int


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Deletes the pod with this uid and no other. `grace_s` of None: as the pod's spec says."""

    role: str
    index: int
    uid: str
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    pass


@dataclass(frozen=True, slots=True)
class RecordEvent:
    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Arm:
    """Send TimePassed at this time. Replaces any earlier Arm."""

    at: float


Instruction = WriteStatus | Publish | CreateReplica | DeleteReplica | DeleteJob | RecordEvent | Arm
