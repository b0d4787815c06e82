"""The scheduler itself in the placement benchmark: sessions of the real policy, one pod after another.

A policy knows only the pods that have arrived. A new session, as in a new cycle, is opened each time their number has
doubled. Opening one for every pod would measure nothing but that.
"""

from collections.abc import Sequence
from dataclasses import replace

from maniple.api import kubernetes
from maniple.api.labels import GPU_FRACTION_ANNOTATION, GPU_MODELS_ANNOTATION
from maniple.api.meta import ObjectMeta
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects
from maniple.model.gpu.devices import GpuPod, count_gpu_pods
from maniple.model.job import Job, TaskGroup
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import Policy
from maniple.scheduler.actions.allocate import start_gang
from maniple.scheduler.framework.policy import default_policy
from maniple.sim.openb_benchmark import WHOLE, Node, Pod

_PRODUCT = "nvidia.com/gpu.product"
_GPU = "nvidia.com/gpu"


class SchedulerPlacer:
    """Places pods as the scheduler does with this policy, each as a gang of one."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod], policy: Policy | None = None) -> None:
        self._policy = policy or default_policy()
        kinds: dict[tuple[object, ...], int] = {}
        self._kind = [
            kinds.setdefault((p.cpu_milli, p.memory_mib, p.gpus, p.gpu_milli, p.models), len(kinds)) for p in pods
        ]
        # One pod of each kind, to get its TaskGroup from the snapshot. These pods are never placed.
        models = [pods[self._kind.index(number)] for number in range(len(kinds))]
        objects = Objects(
            nodes=[_node(node) for node in nodes], pods=[_pod(number, pod) for number, pod in enumerate(models)]
        )
        snapshot = build_snapshot(objects, Ours(every_pod=True), reads=self._policy.reads)
        by_name = {job.name: job.groups[0] for job in snapshot.waiting}
        self._groups = [by_name[f"openb/pod-{number}"] for number in range(len(kinds))]
        self._arrived_kinds: dict[GpuPod, int] = {}
        self._arrived = 0
        self._next_session_at = 1
        self._session = self._policy.session(
            replace(snapshot, jobs=(), running=(), waiting=(), moved=(), incomplete=(), elastic=(), gpu_pods={})
        )

    def place(self, pod: int) -> bool:
        group = self._groups[self._kind[pod]]
        self._count_arrival(group)
        name = f"openb/{self._arrived}"
        job = Job(key=(name, "Pod"), queue=0, priority=0, created=float(self._arrived), min_member=1, role_min={})
        job.groups = [TaskGroup(group.number, "", 0, group.shape, None, "", (name,))]
        return start_gang(self._session, self._session.queue_of(job), job)

    def _count_arrival(self, group: TaskGroup) -> None:
        shape = group.shape
        self._arrived += 1
        count_gpu_pods(self._arrived_kinds, shape.requests, shape.gpus, shape.constraint.gpu_models, 1)
        if self._arrived >= self._next_session_at:
            self._next_session_at = 2 * self._arrived
            session = self._session
            self._session = self._policy.session(
                replace(
                    session.snapshot,
                    free=session.free,
                    gpus_free=session.gpus.free,
                    queue_allocated=session.queue_allocated,
                    gpu_pods=dict(self._arrived_kinds),
                )
            )


def _node(node: Node) -> kubernetes.Node:
    allocatable: dict[str, str | int | float] = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        _GPU: node.gpus,
        "pods": 1_000_000,  # the trace has no limit
    }
    return kubernetes.Node(
        metadata=ObjectMeta(name=node.name, labels={_PRODUCT: node.model} if node.model else {}),
        status=kubernetes.NodeStatus(allocatable=allocatable),
    )


def _pod(number: int, pod: Pod) -> kubernetes.Pod:
    requests: dict[str, str | int | float] = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    annotations: dict[str, str] = {}
    if pod.gpus:
        requests[_GPU] = pod.gpus
        if pod.gpu_milli < WHOLE:
            annotations[GPU_FRACTION_ANNOTATION] = f"{pod.gpu_milli / WHOLE:.3f}"
        if pod.models:
            annotations[GPU_MODELS_ANNOTATION] = ",".join(sorted(pod.models))
    return kubernetes.Pod(
        metadata=ObjectMeta(name=f"pod-{number}", namespace="openb", annotations=annotations),
        spec=kubernetes.PodSpec(
            containers=(kubernetes.Container(resources=kubernetes.ResourceRequirements(requests=requests)),)
        ),
    )
