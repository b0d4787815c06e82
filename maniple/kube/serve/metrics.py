"""The metrics for Prometheus. Every name is in docs/serve.md; a test compares."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

_CYCLE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
_BIND_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series each, which nobody reads
        self.registry = registry = CollectorRegistry()
        self.queue_depth = Gauge("maniple_queue_jobs", "Jobs of a queue", ["queue", "state"], registry=registry)
        self.cycle = Histogram(
            "maniple_cycle_seconds", "Time of a cycle, by phase", ["phase"], buckets=_CYCLE_S, registry=registry
        )
        self.cycle_failures = Counter("maniple_cycle_failures", "Cycles that ended in an error", registry=registry)
        self.gang_wait = Histogram(
            "maniple_gang_wait_seconds",
            "From the creation of a gang until all of its minimum was bound",
            buckets=_WAIT_S,
            registry=registry,
        )
        self.binds = Counter("maniple_binds", "Bindings, by outcome", ["outcome"], registry=registry)
        self.bind_s = Histogram("maniple_bind_seconds", "Time of a binding", buckets=_BIND_S, registry=registry)
        self.evictions = Counter("maniple_evictions", "Evictions", ["reason", "outcome"], registry=registry)
        self.resizes = Counter("maniple_resizes", "Sizes decided for elastic jobs", registry=registry)
        self.gpus = Gauge("maniple_gpus", "GPUs of usable nodes", ["resource", "state"], registry=registry)
        self.pods_waiting = Gauge("maniple_pods_waiting", "Pods of ours without a node", registry=registry)
        self.invalid = Gauge("maniple_invalid_objects", "Objects set aside because wrong", registry=registry)
        self.drift = Counter(
            "maniple_drift", "Objects that were not as the server has them", ["kind"], registry=registry
        )
        self.drift_checks = Counter("maniple_drift_checks", "Comparisons with fresh lists", registry=registry)
        self.lists = Counter("maniple_lists", "Full lists read", ["resource"], registry=registry)
        self.watch_failures = Counter(
            "maniple_watch_failures", "Watches that ended in an error", ["resource", "why"], registry=registry
        )
        self.writes = Counter("maniple_status_writes", "Writes of status", ["kind", "outcome"], registry=registry)
        self.events = Counter("maniple_events", "Events", ["outcome"], registry=registry)
        self.leader = Gauge("maniple_leader", "1 while this replica leads", registry=registry)
