"""What is to be done for a job: the instructions that `step` returns, to be done in the order in which they stand."""

from dataclasses import dataclass
from typing import Literal

from maniple.api import types


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """The first of all, and nothing that follows may be done without it."""

    status: types.ElasticJobStatus


@dataclass(frozen=True, slots=True)
class Publish:
    """Every replica is to hear of this generation. It may be told again."""

    generation: types.JobGeneration


@dataclass(frozen=True, slots=True)
class CreateReplica:
    role: str
    index: int


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Exactly the pod with this uid. `grace_s`: None: as the pod says."""

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
    """TimePassed is wanted at this moment; it takes the place of any earlier wish."""

    at: float


Instruction = WriteStatus | Publish | CreateReplica | DeleteReplica | DeleteJob | RecordEvent | Arm
