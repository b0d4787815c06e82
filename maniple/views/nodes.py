"""Nodes: how many GPUs each has, and how many its pods hold."""

from collections.abc import Iterable, Mapping

import msgspec

from maniple.kube.user.replica_pod import ObservedPod


class NodeView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    gpus: float
    used_gpus: float


class GpuUse(msgspec.Struct, frozen=True, rename="camel"):
    used: float
    total: float

    @property
    def idle(self) -> float:
        return self.total - self.used


def node_views(gpus: Mapping[str, float], pods: Iterable[ObservedPod]) -> tuple[NodeView, ...]:
    """By name. `gpus` are the allocatable GPUs of each node; pods of other nodes do not count.

    A deleted node takes its GPUs along, and its pods may remain for a while.
    """
    used = dict.fromkeys(gpus, 0.0)
    for pod in pods:
        if pod.node in used:
            used[pod.node] += pod.held_gpus
    return tuple(NodeView(name, gpus[name], used[name]) for name in sorted(gpus))


def gpu_use(nodes: Iterable[NodeView]) -> GpuUse:
    views = tuple(nodes)
    return GpuUse(sum(view.used_gpus for view in views), sum(view.gpus for view in views))
