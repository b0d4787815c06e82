"""The live view of a cluster: its GPUs, queues and jobs."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from maniple.api import types
from maniple.kube.user.replica_pod import ObservedPod
from maniple.views.jobs import JobView, job_views
from maniple.views.nodes import NodeView, node_views
from maniple.views.queues import QueueView, queue_views


class ClusterView(msgspec.Struct, frozen=True, rename="camel"):
    nodes: tuple[NodeView, ...]  # empty: there are none, or the user may not read all nodes and pods
    queues: tuple[QueueView, ...]
    jobs: tuple[JobView, ...]  # finished jobs last


def cluster_view(
    jobs: Iterable[types.ElasticJob],
    queues: Iterable[types.Queue],
    node_gpus: Mapping[str, float],
    pods: Collection[ObservedPod],
    only_queues: Collection[str] = (),
) -> ClusterView:
    """`node_gpus`: as for `node_views`. `only_queues`: show these queues and their jobs; empty: all."""
    views = job_views(jobs, (pod.replica for pod in pods if pod.replica is not None))
    return ClusterView(
        nodes=node_views(node_gpus, pods),
        queues=tuple(queue for queue in queue_views(queues) if not only_queues or queue.name in only_queues),
        jobs=tuple(
            sorted(
                (job for job in views if not only_queues or job.queue in only_queues),
                key=lambda job: (job.is_finished, job.key),
            )
        ),
    )
