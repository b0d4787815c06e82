"""The gangs that are promised room in this cycle, where rules of one need other pods: company, or an even spread.

Such a promise can be broken without touching its room: by evicting the company, or by placing a pod in its domain. Then
its victims would be gone in vain. So before a placement or an eviction is committed, the promises of this cycle are
checked again. Pods that keep away from others need no such check: predicates see promised pods.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from maniple.model.pod_affinity import AffinityInfo, Term
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.arrival_order import Pods, arrive, needs_pods, put_back, remove

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session
    from maniple.scheduler.framework.statement import Placed

Gangs = dict[JobKey, Pods]


class PromisedPods:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._gangs: Gangs = {}  # in the order of their promises
        self._needs_pods = False

    def __bool__(self) -> bool:
        """Whether there is a promise that needs other pods."""
        return self._needs_pods

    def add(self, placed: "Placed") -> None:
        if placed.later and placed.group.pod_affinity is not None:
            _add(self._gangs, placed)
            self._needs_pods |= needs_pods(placed.group)

    def hold(self, more: Iterable["Placed"] = ()) -> bool:
        """Whether every promised gang can still start where it is promised room, together with `more` promises.

        The gangs start one after another, each whole. So no two of them may need each other. And each must be able to
        start last: which of them starts first depends on shares, which change.
        """
        session = self._session
        new: Gangs = {}
        for placed in more:
            if placed.later and placed.group.pod_affinity is not None:
                _add(new, placed)
        if not self._needs_pods and not (self._gangs and _terms(new)):
            return True
        gangs = _related({**self._gangs, **new})
        earlier = [pods for job, pods in gangs.items() if job not in new]  # the new ones have just come last
        if not all(_can_be_last(session, pods) for pods in earlier):
            return False
        return len(gangs) < 2 or _can_follow(session, [*gangs.values()])


def _add(gangs: Gangs, placed: "Placed") -> None:
    pods = gangs.setdefault(placed.job.key, Counter())
    for node, count in zip(placed.spot.nodes.tolist(), placed.spot.counts.tolist(), strict=True):
        pods[placed.group, node] += int(count)


def _terms(gangs: Gangs) -> set[Term]:
    """Returns the terms by which the gangs need other pods."""
    terms: set[Term] = set()
    for affinity in _affinities(gangs.values()):
        terms.update(affinity.affinity)
        terms.update(spread.term for spread in affinity.spread if spread.is_required)
    return terms


def _affinities(gangs: Iterable[Pods]) -> set[AffinityInfo]:
    return {group.pod_affinity for pods in gangs for group, _ in pods if group.pod_affinity is not None}


def _related(gangs: Gangs) -> Gangs:
    """Returns the gangs that need other pods, and those that they may need."""
    terms = _terms(gangs)
    is_related = {
        affinity: affinity.needs_pods or any(map(affinity.match, terms)) for affinity in _affinities(gangs.values())
    }
    return {
        job: pods
        for job, pods in gangs.items()
        if any(group.pod_affinity is not None and is_related[group.pod_affinity] for group, _ in pods)
    }


def _can_be_last(session: "Session", pods: Pods) -> bool:
    """Whether the gang can start when all others have."""
    if not any(needs_pods(group) for group, _ in pods):
        return True
    remove(session, pods)
    if arrive(session, pods, later=True) is not None:
        return True
    put_back(session, pods)
    return False


def _can_follow(session: "Session", gangs: list[Pods]) -> bool:
    """Whether all can start one after another. One that cannot start yet is tried again after the others."""
    for pods in gangs:
        remove(session, pods)
    left = gangs
    while left:
        waiting = [pods for pods in left if arrive(session, pods, later=True) is None]
        if len(waiting) == len(left):
            break
        left = waiting
    for pods in left:
        put_back(session, pods)
    return not left
