"""A Snapshot out of the tables, the usage of nodes and queues, and the jobs. It shares no array that changes later."""

from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.building.node_usage import NodeUsage
from maniple.model.building.queue_usage import QueueUsage
from maniple.model.building.sorted_jobs import JobLists
from maniple.model.snapshot import Snapshot


def assemble_snapshot(tables: ClusterTables, usage: NodeUsage, queue_usage: QueueUsage, jobs: JobLists) -> Snapshot:
    """The time is left open: `now` is 0."""
    vectors = usage.vectors()
    queue_allocated, queue_pending = queue_usage.sums(vectors)
    return Snapshot(
        now=0.0,
        axis=tables.axis,
        nodes=tables.nodes,
        free=tables.nodes.allocatable - usage.used,
        releasing=usage.releasing.copy(),
        total=tables.total(usage.used, usage.foreign),
        queues=tables.queues,
        queue_allocated=queue_allocated,
        queue_pending=queue_pending,
        indivisible=tables.axis.extended & queue_usage.in_whole_units(vectors),
        jobs=jobs.all.jobs(),
        running=jobs.running.jobs(),
        waiting=jobs.waiting.jobs(),
        moved=jobs.moved.jobs(),
        incomplete=jobs.incomplete.jobs(),
        elastic=jobs.elastic.jobs(),
        guests=jobs.guests.jobs(),
        gpus=tables.gpus,
        gpus_free={row: free.copy() for row, free in usage.gpus_free.items()},
        gpus_releasing={row: releasing.copy() for row, releasing in usage.gpus_releasing.items()},
        domains=tables.domains,
        gpu_pods=queue_usage.gpu_pods(),
        pod_affinity=dict(usage.pod_affinity),
        exclusives=dict(usage.exclusives),
        leaving_affinity=dict(usage.leaving_affinity),
        leaving_exclusives=dict(usage.leaving_exclusives),
        leaving_for=usage.leaving_for(),
        stuck=usage.stuck(),
        owners={owner: dict(usage.owners.get(owner, {})) for owner in queue_usage.owners},
        budgets=tables.budgets,
        volume_limits=tables.volume_limits,
    )
