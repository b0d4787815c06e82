"""Names the stuck pods on whose nodes more pods of a gang would fit without them. Their room is promised to nobody.

It must name no pod on a node that would refuse the gang's pods anyway.
"""

import numpy as np

from maniple.model.job import TaskGroup
from maniple.scheduler.explain.fit_view import usable_room
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.session import Session

_MOST_NAMED = 2


def stuck_in_the_way(session: Session, group: TaskGroup) -> str:
    """`; pod default/a, stuck on node n1 since 2026-01-01T10:30:00Z, holds room that it needs`"""
    stuck = session.snapshot.stuck
    nodes = np.array(sorted(stuck), dtype=np.intp)
    if not len(nodes):
        return ""
    held = np.array([np.sum([pod.requests for pod in stuck[node]], axis=0) for node in nodes.tolist()]).T
    usable, requests = usable_room(session)[:, nodes], group.shape.requests
    gains = capacity(requests, usable + held) > capacity(requests, usable)
    names = session.snapshot.nodes.names
    found = [
        pod.on(names[node])
        for node in nodes[gains & session.capacity.allowed(group)[nodes]].tolist()
        for pod in stuck[node]
        if (pod.requests[requests > 0] > 0).any()
    ]
    if not found:
        return ""
    others = len(found) - _MOST_NAMED
    more = f"; so do {others:,} other stuck pod{'s' * (others > 1)}" * (others > 0)
    return "".join(f"; {text}, holds room that it needs" for text in found[:_MOST_NAMED]) + more
