"""Promised pods whose rules need other pods: the company that their affinity asks for, or an even spread.

Such a promise can be broken without touching its room: by evicting the company, or by placing a pod in its domain. Then
its victims would be gone in vain. So before a placement or an eviction is committed, the promises of this cycle are
checked again. Pods that keep away from others need no such check: predicates see promised pods.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from maniple.model.job import TaskGroup

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session
    from maniple.scheduler.framework.statement import Placed


class PromisedPods:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._pods: dict[tuple[TaskGroup, int], None] = {}  # (group, node)

    def __bool__(self) -> bool:
        return bool(self._pods)

    def add(self, placed: "Placed") -> None:
        """Adds promised pods, except those whose rules hold only in the order in which the gang's pods were placed."""
        affinity = placed.group.pod_affinity
        if placed.later and affinity is not None and affinity.needs_pods:
            pods = [(placed.group, node) for node in placed.spot.nodes.tolist()]
            self._pods.update(dict.fromkeys(pod for pod in pods if self._hold([pod])))

    def hold(self) -> bool:
        """Whether every promised pod can still start where it is promised room."""
        return self._hold(self._pods)

    def _hold(self, pods: Iterable[tuple[TaskGroup, int]]) -> bool:
        return all(self._suits(group, node) for group, node in pods)

    def _suits(self, group: TaskGroup, node: int) -> bool:
        """Whether the rules of the pod hold, as if it came last."""
        session = self._session
        session.neighbours.come(group.pod_affinity, group.shape.exclusives, node, -1, later=True)
        is_suitable = all(check.passes[node] for check in session.pod_checks(group, later=True))
        session.neighbours.come(group.pod_affinity, group.shape.exclusives, node, 1, later=True)
        return is_suitable
