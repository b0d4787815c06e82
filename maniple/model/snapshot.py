"""The Snapshot: everything a decision may look at, as of one moment (`now`). Immutable for the cycle.

Sums that a cycle needs (what nodes have free, what queues hold) are in it as arrays, so that opening a session costs a
few copies of arrays and never a loop over pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from maniple.model.budgets import Budget
from maniple.model.domains import Domains
from maniple.model.gpu.devices import GpuPod, Gpus, Millis
from maniple.model.job import Job, Queue
from maniple.model.nodes import NodeTable
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.resources import Axis, FloatArray
from maniple.model.shape import Exclusive


@dataclass(frozen=True, eq=False)
class Snapshot:
    now: float
    axis: Axis
    nodes: NodeTable
    free: FloatArray  # [R, N] allocatable minus all pods that are there, also those that are leaving
    releasing: FloatArray  # [R, N] what leaving pods will give back
    total: FloatArray  # [R] what queues share: usable allocatable minus what other schedulers' pods hold
    queues: Sequence[Queue]  # by name
    queue_allocated: FloatArray  # [Q, R] held by jobs of that queue itself
    queue_pending: FloatArray  # [Q, R] asked for by its waiting pods
    jobs: Sequence[Job]
    waiting: Sequence[Job]  # those of `jobs` with pods to place
    gpus: Gpus
    gpus_free: Mapping[int, Millis]  # row of the axis -> [N, G] thousandths of each device
    gpus_releasing: Mapping[int, Millis]
    domains: Domains
    gpu_pods: Mapping[GpuPod, int]  # what pods with GPUs ask for, placed and waiting -> how many do
    # What placed pods are to others, with their node -> how many such pods; empty where nobody has terms.
    pod_affinity: Mapping[tuple[AffinityInfo, int], int] = field(default_factory=dict)
    exclusives: Mapping[int, tuple[Exclusive, ...]] = field(default_factory=dict)  # node -> ports and disks in use
    owners: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # owner -> node -> pods
    budgets: Sequence[Budget] = ()

    def __post_init__(self) -> None:
        for array in (self.free, self.releasing, self.total, self.queue_allocated, self.queue_pending):
            array.setflags(write=False)
        for devices in (*self.gpus_free.values(), *self.gpus_releasing.values()):
            devices.setflags(write=False)
