"""A job's pods as the state machine sees them: replicas, from what the mirror has."""

import time
from datetime import datetime

from maniple.api import kubernetes, types
from maniple.api.keys import Key
from maniple.api.replica_pods import ReplicaFacts, is_index
from maniple.elastic.events import Replica, Stage
from maniple.elastic.job_spec import ReplicaKey
from maniple.kube.transport.mirror import Mirror


def place_of(facts: ReplicaFacts) -> ReplicaKey | None:
    """Role and index; None if its labels are invalid, which the scheduler reports."""
    return (facts.role, int(facts.index)) if facts.role and is_index(facts.index) else None


def replica_of(key: Key, facts: ReplicaFacts, job_uid: str, mirror: Mirror) -> Replica | None:
    place = place_of(facts)
    if place is None or key[1] != f"{facts.job}-{place[0]}-{place[1]}":
        return None  # its labels contradict its name, which the scheduler reports
    if not facts.owner:
        return None  # it has the labels, but the job has not created it
    return Replica(
        role=place[0],
        index=place[1],
        uid=facts.uid,
        stage=_stage(facts),
        # A replica of an earlier job of the same name blocks this one until it is gone.
        is_leaving=facts.is_leaving or facts.owner != job_uid,
        leaves_at=0.0 if facts.leaves_at is None else facts.leaves_at.timestamp(),
        node=facts.node,
        domains=_domains(facts.node, mirror),
        address=facts.address or f"{key[1]}.{facts.job}.{key[0]}.svc",  # simulated nodes give no addresses
        bound_at=_seconds(facts.bound_at),
        ready_at=_seconds(facts.ready_at),
        trouble=facts.trouble,
        exit=facts.exit,
        reason=facts.reason,
        is_disrupted=facts.is_disrupted,
        notified_generation=facts.notified_generation,
    )


def _stage(facts: ReplicaFacts) -> Stage:
    if facts.phase == "Succeeded":
        return "succeeded"
    if facts.phase == "Failed":
        return "failed"
    if not facts.node:
        return "pending"
    return "ready" if facts.is_ready else "starting"


def _domains(node: str, mirror: Mirror) -> tuple[str, ...]:
    if not node:
        return ()
    known = mirror.find(kubernetes.Node, ("", node))
    labels = known.item.metadata.labels if known is not None and known.item is not None else {}
    resource = mirror.rivals(types.Topology)[0]
    items = [seen.item for _, seen in sorted(mirror.seen(resource).items())]
    levels = next((item.spec.levels for item in items if isinstance(item, types.Topology)), ())
    return (*(labels.get(level.node_label, "") for level in levels), node)


def _seconds(timestamp: datetime | None) -> float:
    """Without a timestamp it is now: timeouts start counting."""
    return time.time() if timestamp is None else timestamp.timestamp()
