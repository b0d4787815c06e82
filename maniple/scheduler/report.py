"""A finished session as a Plan: binds with their GPUs, nominations, evictions, and why the rest waits."""

from collections.abc import Iterator

from maniple.model.occupancy import take_lowest
from maniple.scheduler.explain import Explainer
from maniple.scheduler.plan import Bind, Eviction, Nomination, Plan, QueueShare
from maniple.scheduler.session import Session
from maniple.scheduler.shares import counted_of, share_of
from maniple.scheduler.statement import Placed


def make_plan(session: Session) -> Plan:
    explainer = Explainer(session)
    waiting = (explainer.explain(job) for job in session.snapshot.waiting)
    nodes = session.snapshot.nodes.names
    return Plan(
        binds=tuple(sorted(_binds(session))),
        evictions=tuple(sorted(Eviction(e.pod.pod, e.reason, e.beneficiary) for e in session.evicted)),
        nominations=tuple(
            sorted(Nomination(pod, nodes[node]) for done in session.placed if done.later for pod, node in _pods(done))
        ),
        waiting=tuple(sorted((entry for entry in waiting if entry), key=lambda entry: (entry.group, entry.reason))),
        queues=tuple(_shares(session)),
    )


def _pods(done: Placed) -> Iterator[tuple[str, int]]:
    """Pods in order to nodes in order of choice, so that neighbours by index sit together."""
    at = done.start
    for node, count in zip(done.spot.nodes.tolist(), done.spot.counts.tolist(), strict=True):
        for pod in done.group.pods[at : at + int(count)]:
            yield pod, node
        at += int(count)


def _binds(session: Session) -> Iterator[Bind]:
    names = session.snapshot.nodes.names
    taken = dict(session.snapshot.gpus_taken)
    for done in session.placed:
        if done.later:
            continue
        wanted = session.snapshot.axis.devices(done.group.shape.requests)
        for pod, node in _pods(done):
            gpus: list[int] = []
            for row, count in wanted:
                found, taken[node, row] = take_lowest(taken.get((node, row), 0), count)
                gpus += found
            yield Bind(pod, names[node], tuple(map(str, gpus)))


def _shares(session: Session) -> Iterator[QueueShare]:
    axis = session.snapshot.axis
    for queue in session.snapshot.queues:
        held = session.queue_allocated[queue.index]
        due = None if session.due is None else session.due.deserved[queue.index]
        share = share_of(held, session.snapshot.total if due is None else due, counted_of(session, queue))
        yield QueueShare(
            name=queue.name,
            deserved={} if due is None else axis.describe(due),
            allocated=axis.describe(held),
            share=round(share, 6),
        )
