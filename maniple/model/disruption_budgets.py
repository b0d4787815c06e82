"""PodDisruptionBudgets: how many of the pods that a budget selects may be evicted now."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from maniple.api.keys import split_name
from maniple.api.kubernetes import Pod, PodDisruptionBudget
from maniple.api.meta import LabelSelector
from maniple.api.phases import FINISHED
from maniple.model.pod_affinity import matches_labels


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, pod: str, labels: dict[str, str]) -> bool:
        return split_name(pod)[0] == self.namespace and matches_labels(self.selector, labels)


def find_budgets(budgets: Iterable[PodDisruptionBudget], pods: Collection[Pod]) -> list[Budget]:
    return [Budget(budget.metadata.namespace, budget.spec.selector, _allowed(budget, pods)) for budget in budgets]


def _allowed(budget: PodDisruptionBudget, pods: Collection[Pod]) -> int:
    """The number in the budget's status. If there is none, the number that the disruption controller would compute."""
    if budget.status.disruptions_allowed is not None:
        return budget.status.disruptions_allowed
    selected = [
        pod
        for pod in pods
        if pod.metadata.namespace == budget.metadata.namespace
        and pod.status.phase not in FINISHED
        and matches_labels(budget.spec.selector, pod.metadata.labels)
    ]
    healthy = sum(bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None for pod in selected)
    spec, expected = budget.spec, len(selected)
    if spec.max_unavailable is not None:
        return healthy - (expected - _number(spec.max_unavailable, expected))
    return healthy - _number(1 if spec.min_available is None else spec.min_available, expected)


def _number(value: int | str, total: int) -> int:
    """A count, or a percentage of `total`, rounded up as the disruption controller does."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * total / 100)
