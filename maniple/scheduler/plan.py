"""The outcome of a cycle: who goes where, who leaves, who is promised what, who waits and why. Sorted, serialisable.

A Plan is a value: applying it is somebody else's job.
"""

from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType, field


class Bind(msgspec.Struct, frozen=True, order=True):
    pod: str
    node: str
    gpus: tuple[str, ...] = ()
    gpu_share: float | UnsetType = field(default=UNSET, name="gpuShare")  # of each GPU, where it is not all of it
    ring_gbs: float | UnsetType = field(default=UNSET, name="ringGBs")  # of a ring over its GPUs, where links are known


class Eviction(msgspec.Struct, frozen=True, order=True):
    pod: str
    reason: str
    beneficiary: str = field(name="for")


class Nomination(msgspec.Struct, frozen=True, order=True):
    pod: str
    node: str


class Resize(msgspec.Struct, frozen=True, order=True):
    job: str
    role: str
    from_size: int = field(name="from")
    to_size: int = field(name="to")


class NodeCount(msgspec.Struct, frozen=True):
    """So many nodes do not take the gang, for this reason. Every node is counted once."""

    reason: str
    count: int


class Waiting(msgspec.Struct, frozen=True):
    group: str
    queue: str
    reason: str  # a word for programs, such as InsufficientResources
    message: str
    needs: dict[str, str]
    nodes: tuple[NodeCount, ...]
    would_start_if: str = field(name="wouldStartIf")


class QueueShare(msgspec.Struct, frozen=True):
    name: str
    deserved: dict[str, str]
    allocated: dict[str, str]
    share: float


@dataclass(frozen=True, slots=True)
class Plan:
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    resizes: tuple[Resize, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    queues: tuple[QueueShare, ...] = ()
