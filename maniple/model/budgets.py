"""PodDisruptionBudgets as numbers: how many of the pods that a budget selects may be evicted now."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from maniple.api.kubernetes import Pod, PodDisruptionBudget
from maniple.api.meta import LabelSelector
from maniple.model.pod_affinity import matches_labels


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, pod: str, labels: dict[str, str]) -> bool:
        return pod.startswith(f"{self.namespace}/") and matches_labels(self.selector, labels)


def find_budgets(budgets: Iterable[PodDisruptionBudget], pods: Collection[Pod]) -> list[Budget]:
    return [Budget(budget.metadata.namespace, budget.spec.selector, _allowed(budget, pods)) for budget in budgets]


def _allowed(budget: PodDisruptionBudget, pods: Collection[Pod]) -> int:
    """What the disruption controller says; where it has said nothing, what it would say of these pods."""
    if budget.status.disruptions_allowed is not None:
        return budget.status.disruptions_allowed
    selected = [
        pod
        for pod in pods
        if pod.metadata.namespace == budget.metadata.namespace
        and pod.status.phase not in ("Succeeded", "Failed")
        and matches_labels(budget.spec.selector, pod.metadata.labels)
    ]
    healthy = sum(bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None for pod in selected)
    spec, expected = budget.spec, len(selected)
    if spec.max_unavailable is not None:
        return healthy - (expected - _number(spec.max_unavailable, expected))
    return healthy - _number(1 if spec.min_available is None else spec.min_available, expected)


def _number(value: int | str, of: int) -> int:
    """A count, or a percentage of `of` rounded up, as the disruption controller rounds."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * of / 100)
