"""What the mirror has of a job's pods, as the machine wants to see it."""

import time
from datetime import datetime

from maniple.api import kubernetes, types
from maniple.api.replica_pods import ReplicaFacts, is_index
from maniple.elastic.events import Replica, Stage
from maniple.kube.transport.mirror import Key, Mirror


def place_of(facts: ReplicaFacts) -> tuple[str, int] | None:
    """Role and index; None if its labels are no replica's, which the scheduler complains of."""
    return (facts.role, int(facts.index)) if facts.role and is_index(facts.index) else None


def replica_of(key: Key, facts: ReplicaFacts, job_uid: str, mirror: Mirror) -> Replica | None:
    place = place_of(facts)
    if place is None or key[1] != f"{facts.job}-{place[0]}-{place[1]}":
        return None  # its labels say something else than its name, which the scheduler complains of
    if not facts.owner:
        return None  # it says that it is one, and the job has not made it
    return Replica(
        role=place[0],
        index=place[1],
        uid=facts.uid,
        stage=_stage(facts),
        # One of an earlier job of the same name is in the way until it is gone.
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
    found = mirror.find(kubernetes.Node, ("", node))
    labels = found.item.metadata.labels if found is not None and found.item is not None else {}
    resource = mirror.rivals(types.Topology)[0]
    topologies = [seen.item for _, seen in sorted(mirror.seen(resource).items())]
    levels = next((one.spec.levels for one in topologies if isinstance(one, types.Topology)), ())
    return (*(labels.get(level.node_label, "") for level in levels), node)


def _seconds(moment: datetime | None) -> float:
    """A moment that nobody has noted is now: what is counted from it begins."""
    return time.time() if moment is None else moment.timestamp()
