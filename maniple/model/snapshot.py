"""The Snapshot: the state of the cluster that one scheduling cycle decides on. Immutable.

It contains the sums that a cycle needs (free resources of nodes, allocated resources of queues) as arrays, so that
opening a session copies a few arrays and never loops over pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from maniple.model.disruption_budgets import Budget
from maniple.model.gpu.devices import GpuPod, Gpus, Millis
from maniple.model.job import Job, Queue
from maniple.model.nodes import NodeTable
from maniple.model.pod_affinity import PodsOnNodes
from maniple.model.pod_shape import Exclusive
from maniple.model.resources import Axis, BoolArray, FloatArray
from maniple.model.stuck_pods import StuckPod
from maniple.model.topology_domains import Domains


@dataclass(frozen=True, eq=False)
class Snapshot:
    now: float
    axis: Axis
    nodes: NodeTable
    free: FloatArray  # [R, N] allocatable minus all pods on the node, terminating pods included
    releasing: FloatArray  # [R, N] held by terminating pods that are not stuck
    total: FloatArray  # [R] shared by the queues: usable allocatable minus what stuck pods and other schedulers' hold
    queues: Sequence[Queue]  # by name
    queue_allocated: FloatArray  # [Q, R] held by the queue's own jobs, without child queues
    queue_pending: FloatArray  # [Q, R] requested by waiting pods of its own jobs, and by those they may grow by
    indivisible: BoolArray  # [R] extended resources of which every job of a queue holds and requests whole units
    jobs: Sequence[Job]
    running: Sequence[Job]  # the jobs with pods on nodes
    waiting: Sequence[Job]  # the jobs with pods to place
    gpus: Gpus
    gpus_free: Mapping[int, Millis]  # row of the axis -> [N, G] free thousandths of each device
    gpus_releasing: Mapping[int, Millis]
    domains: Domains
    gpu_pods: Mapping[GpuPod, int]  # requests of pods with GPUs, placed and waiting -> number of pods
    moved: Sequence[Job] = ()  # the jobs that were moved at some time
    incomplete: Sequence[Job] = ()  # those that hold less than their minimum, or are marked so
    elastic: Sequence[Job] = ()  # the ElasticJobs
    guests: Sequence[Job] = ()  # those of which pods make way for a gang in whose reserved room they run
    # Placed pods, terminating pods included. Empty if no pod has affinity terms.
    pod_affinity: PodsOnNodes = field(default_factory=dict)
    # node -> ports, disks, claims and volumes in use
    exclusives: Mapping[int, tuple[Exclusive, ...]] = field(default_factory=dict)
    # The same of terminating pods only, and of those that are not stuck.
    leaving_affinity: PodsOnNodes = field(default_factory=dict)
    leaving_exclusives: Mapping[int, tuple[Exclusive, ...]] = field(default_factory=dict)
    # gang -> node -> [R] held by terminating pods that were evicted for it
    leaving_for: Mapping[str, Mapping[int, FloatArray]] = field(default_factory=dict)
    stuck: Mapping[int, tuple[StuckPod, ...]] = field(default_factory=dict)  # node -> by name
    owners: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # owner -> node -> pods
    budgets: Sequence[Budget] = ()
    # CSI driver -> [N] the most volumes of it on each node; inf: no limit
    volume_limits: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.free, self.releasing, self.total, self.queue_allocated, self.queue_pending):
            array.setflags(write=False)
        for devices in (*self.gpus_free.values(), *self.gpus_releasing.values()):
            devices.setflags(write=False)
