"""The order in which pods come to the nodes that they are promised, if their rules about each other need one.

A promise names a node for each pod, and no order. A pod that wants company comes after that company. A pod that wants
an even spread comes before or after others of its gang. Only such rules depend on the order: two pods that must not be
together clash in any order. So only these are checked here, never resources.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from maniple.model.job import TaskGroup

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

Pod = tuple[TaskGroup, int]  # one of the equal pods of a group, and its node
Pods = Counter[Pod]

_MOST_STEPS = 100  # beyond one for each pod; the first choice is hardly ever wrong


def needs_pods(group: TaskGroup) -> bool:
    """Whether the pods of the group need other pods, by affinity or spread."""
    return group.pod_affinity is not None and group.pod_affinity.needs_pods


def arrive(session: "Session", pods: Pods, *, later: bool) -> list[Pod] | None:
    """Adds the pods, one by one, to those that rules between pods see on nodes, and returns them in that order.

    Returns None and adds none if it finds no order in which the rules of each pod hold when it comes.
    """
    left, order = Counter(pods), list[Pod]()
    choices = [_next(session, left, later=later)]
    tried: set[frozenset[tuple[Pod, int]]] = set()  # what was left
    steps = pods.total() + (_MOST_STEPS if any(_can_be_hindered(group) for group, _ in pods) else 0)
    while choices and left:
        pod = next(choices[-1], None) if steps else None
        if pod is None:
            choices.pop()
        else:
            _move(session, pod, 1, later=later)
            order.append(pod)
            left[pod] -= 1
            left += Counter()  # drops zeros
            state = frozenset(left.items())
            if state not in tried:
                tried.add(state)
                choices.append(_next(session, left, later=later))
                steps -= 1
                continue
        if order:
            _move(session, order[-1], -1, later=later)
            left[order.pop()] += 1
    return None if left else order


def arrival_order(session: "Session", pods: Pods, *, later: bool) -> list[Pod] | None:
    """Returns an order in which the pods can come, or None. Changes nothing."""
    order = arrive(session, pods, later=later)
    if order is not None:
        for pod, count in pods.items():
            _move(session, pod, -count, later=later)
    return order


def remove(session: "Session", pods: Pods) -> None:
    """Removes promised pods from those that rules between pods see on nodes."""
    for pod, count in pods.items():
        _move(session, pod, -count, later=True)


def put_back(session: "Session", pods: Pods) -> None:
    """Adds promised pods again, whether or not their rules hold."""
    for pod, count in pods.items():
        _move(session, pod, count, later=True)


def _move(session: "Session", pod: Pod, change: int, *, later: bool) -> None:
    group, node = pod
    session.neighbours.come(group.pod_affinity, group.shape.exclusives, node, change, later=later)


def _can_be_hindered(group: TaskGroup) -> bool:
    """Whether a pod that comes earlier can close a node for the group; company only opens nodes.

    The exception is the first of the pods with affinity to each other: it needs no company if there is none anywhere.
    """
    affinity = group.pod_affinity
    if affinity is None:
        return False
    return any(spread.is_required for spread in affinity.spread) or any(map(affinity.match, affinity.affinity[:1]))


def _next(session: "Session", left: Pods, *, later: bool) -> Iterator[Pod]:
    """Yields the pods that may come next: those that need others first, because the rest can come at any time."""
    for group in sorted(dict.fromkeys(group for group, _ in left), key=needs_pods, reverse=True):
        checks = session.pod_checks(group, later=later) if needs_pods(group) else []
        nodes = [node for other, node in left if other is group]
        yield from [(group, node) for node in nodes if all(check.passes[node] for check in checks)]
