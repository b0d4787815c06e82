"""Turns a finished session into a Plan: binds with their GPUs, evictions, resizes, nominations, and why gangs wait."""

from collections.abc import Iterator

from msgspec import UNSET

from maniple.api.gpu.requests import WHOLE
from maniple.api.moves import HOUR_S, Place
from maniple.model.pod_identity import JobKey
from maniple.model.snapshot import Snapshot
from maniple.scheduler.explain.unexplained import Unexplained
from maniple.scheduler.framework.due_rules import counted_of, share_of
from maniple.scheduler.framework.free_gpus import FreeGpus, GpuGrants
from maniple.scheduler.framework.plan import (
    MOVED,
    SHRUNK,
    Bind,
    Eviction,
    Explanations,
    Leaver,
    Move,
    MovedGang,
    Nomination,
    Plan,
    QueueShare,
    ReservedNodes,
    Resize,
    format_rounded_up,
)
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed


def make_plan(session: Session) -> Plan:
    leavers = _leavers(session)
    given_up = {leaver.pod for several in leavers.values() for leaver in several}
    evictions = (Eviction(e.pod.pod, e.reason, e.beneficiary) for e in session.evicted if e.pod.pod not in given_up)
    return Plan(
        binds=tuple(sorted(_binds(session))),
        evictions=tuple(sorted(evictions)),
        nominations=tuple(sorted(_nominations(session))),
        claimants=tuple(sorted(_claimants(session))),
        moves=tuple(sorted(_moves(session))),
        moved_gangs=tuple(sorted(_moved_gangs(session))),
        ended_moves=tuple(sorted(_ended_moves(session))),
        resizes=tuple(sorted(_resizes(session, leavers))),
        reservations=tuple(sorted(_reservations(session), key=lambda entry: entry.group)),
        explanations=Explanations(Unexplained(session)),
        queues=tuple(_shares(session)),
    )


def _leavers(session: Session) -> dict[tuple[JobKey, str], list[Leaver]]:
    """The replicas that elastic jobs give up when they shrink, by job and role. Surplus of a PodGroup is evicted."""
    leavers: dict[tuple[JobKey, str], list[Leaver]] = {}
    for evicted in session.evicted:
        role = (evicted.job.key, evicted.pod.role)
        if evicted.reason == SHRUNK and role in session.resized:
            leavers.setdefault(role, []).append(Leaver(evicted.pod.pod, evicted.beneficiary))
    return leavers


def _moves(session: Session) -> Iterator[Move]:
    names = session.snapshot.nodes.names
    before = {evicted.pod.pod: evicted.pod.node for evicted in session.evicted} if session.moved else {}
    for placed in session.moved:
        for pod, node, _ in _pods(placed):
            yield Move(pod, *placed.job.key, names[before[pod]], names[node], placed.moved_for)


def _moved_gangs(session: Session) -> Iterator[MovedGang]:
    """Amounts are those that the pods ask for: a pod that comes in their place asks for the same."""
    snapshot, places = session.snapshot, dict[JobKey, list[Place]]()
    jobs = {placed.job.key: placed.job for placed in session.moved}
    for placed in session.moved:
        requests = snapshot.axis.describe(placed.group.shape.requests)
        here = places.setdefault(placed.job.key, [])
        for node, count in zip(placed.spot.nodes.tolist(), placed.spot.counts.tolist(), strict=True):
            here.append(Place(snapshot.nodes.names[node], int(count), {**requests}, placed.group.role))
    moved = {done.pod.pod for done in session.evicted if done.reason == MOVED} if jobs else set()
    for key, several in places.items():
        job = jobs[key]
        yield MovedGang(
            *key,
            len(job.placed) + job.succeeded,
            tuple(sorted(several, key=lambda place: (place.node, place.role))),
            max(pod.grace_s for pod in job.placed if pod.pod in moved),
            () if job.moved is None else tuple(sorted(job.moved.times_since(snapshot.now - HOUR_S))),
        )


def _ended_moves(session: Session) -> Iterator[JobKey]:
    moved = {placed.job.key for placed in session.moved}  # their annotation is about to be replaced
    return (job.key for job in session.kept_places.are_back() if job.key not in moved)


def _resizes(session: Session, leavers: dict[tuple[JobKey, str], list[Leaver]]) -> Iterator[Resize]:
    jobs = {job.key: job for job in session.snapshot.jobs} if session.resized else {}
    for (key, role), size in session.resized.items():
        elastic = jobs[key].elastic
        if elastic is not None:
            leaves = tuple(sorted(leavers.get((key, role), ())))
            yield Resize(jobs[key].name, role, elastic.roles[role].size, size, leaves)


def _reservations(session: Session) -> Iterator[ReservedNodes]:
    names = session.snapshot.nodes.names
    for reservation in session.reservations.values():
        nodes = {names[node]: count for node, count in reservation.nodes.items()}
        yield ReservedNodes(reservation.job.name, nodes, format_rounded_up(reservation.expected))


def _nominations(session: Session) -> Iterator[Nomination]:
    """Promised and reserved nodes. The API server stores both until the next cycle."""
    names = session.snapshot.nodes.names
    for placed in session.placed:
        if placed.later:
            yield from (Nomination(pod, names[node]) for pod, node, _ in _pods(placed))
    for reservation in session.reservations.values():
        yield from (Nomination(pod, names[node]) for pod, node in reservation.pods)


def _claimants(session: Session) -> Iterator[str]:
    for placed in session.placed:
        if placed.later and session.promised_room.has_evicted(placed.job):
            yield from (pod for pod, _, _ in _pods(placed))


def _pods(placed: Placed) -> Iterator[tuple[str, int, GpuGrants]]:
    """Pods in order on nodes in order of choice: pods with neighbouring indices are together."""
    for number, (node, grants) in enumerate(placed.slots(), placed.start):
        yield placed.group.pods[number], node, grants


def _binds(session: Session) -> Iterator[Bind]:
    if not session.snapshot.domains.levels:
        for placed in session.placed:
            if not placed.later:
                for pod, node, grants in _pods(placed):
                    yield make_bind(session.snapshot, session.gpus, pod, node, grants, placed.backfill)
        return
    # Indices follow the topology: pods in order go to nodes in the order of their domains' names. Nodes where the gang
    # already runs come first, nodes in another gang's reservation last.
    together: dict[tuple[object, int], list[Placed]] = {}
    for placed in session.placed:
        if not placed.later:
            together.setdefault((placed.job.key, placed.group.number), []).append(placed)
    rank = session.snapshot.domains.rank
    for parts in together.values():
        pods = [pod for part in parts for pod in part.group.pods[part.start : part.start + part.spot.total]]
        home = {pod.node for pod in parts[0].job.placed}
        slots = [(part.backfill, *slot) for part in parts for slot in part.slots()]
        slots.sort(key=lambda slot: (slot[0] != "", slot[1] not in home, rank[slot[1]]))
        for pod, (backfill, node, grants) in zip(pods, slots, strict=True):
            yield make_bind(session.snapshot, session.gpus, pod, node, grants, backfill)


def make_bind(snapshot: Snapshot, room: FreeGpus, pod: str, node: int, grants: GpuGrants, backfill: str) -> Bind:
    """The bind names the ids of the pod's GPUs, its share of each if below 1, and the bandwidth of a ring over them."""
    name = snapshot.nodes.names[node]
    if not grants:
        return Bind(pod, name, backfill=backfill or UNSET)
    first = grants[0]
    if len(grants) == 1:
        ids, share, ring = [room.tables[first.row].ids[node][first.device]], first.milli, None
    else:
        is_mixed = any(grant.row != first.row for grant in grants)
        ids = []
        for grant in grants:
            table = room.tables[grant.row]
            ids.append(f"{table.resource}/" * is_mixed + table.ids[node][grant.device])
        # One number for all devices, even if their memory differs.
        share = max([grant.milli for grant in grants])
        ring = room.ring_gbs(node, grants)
    return Bind(
        pod,
        name,
        tuple(ids),
        UNSET if share == WHOLE else share / WHOLE,
        UNSET if ring is None else ring,
        backfill or UNSET,
    )


def _shares(session: Session) -> Iterator[QueueShare]:
    axis = session.snapshot.axis
    for queue in session.snapshot.queues:
        held = session.queue_allocated[queue.index]
        due = None if session.due is None else session.due.deserved[queue.index]
        # Amounts are as they are. The share counts GPUs as the policy does.
        counted = held if session.due is None else session.due.accounting.queue_held[queue.index]
        share = share_of(counted, session.snapshot.total if due is None else due, counted_of(session, queue))
        yield QueueShare(
            name=queue.name,
            deserved={} if due is None else axis.describe(due),
            allocated=axis.describe(held),
            share=round(share, 6),
        )
