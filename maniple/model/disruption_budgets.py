"""PodDisruptionBudgets: how many of the pods that a budget selects may be evicted now."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from maniple.api.keys import name_of, split_name
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


class BudgetCover:
    """Which budgets cover a pod. Each pod is looked at once, and only with budgets that name one of its labels."""

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self.budgets = budgets
        self._by_label: dict[tuple[str, str, str], list[int]] = {}  # (namespace, key, value), of one label each
        self._others: dict[str, list[int]] = {}  # by namespace
        self._known: dict[str, tuple[int, ...]] = {}
        for number, budget in enumerate(budgets):
            labels = {} if budget.selector is None else budget.selector.match_labels
            if labels:
                key = (budget.namespace, *next(iter(labels.items())))
                self._by_label.setdefault(key, []).append(number)
            else:
                self._others.setdefault(budget.namespace, []).append(number)

    def of(self, pod: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The numbers of the budgets that cover the pod, ascending. A pod's labels do not change in its lifetime."""
        if not self.budgets:
            return ()
        numbers = self._known.get(pod)
        if numbers is None:
            numbers = self._known[pod] = self._find(split_name(pod)[0], labels)
        return numbers

    def _find(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        candidates = list(self._others.get(namespace, ()))
        for key, value in labels.items():
            candidates += self._by_label.get((namespace, key, value), ())
        return tuple(number for number in sorted(candidates) if matches_labels(self.budgets[number].selector, labels))

    def count(self, pods: Iterable[tuple[str, Mapping[str, str]]]) -> list[int]:
        """How many of the pods, given by name and labels, each budget covers."""
        counts = [0] * len(self.budgets)
        if counts:
            for pod, labels in pods:
                for number in self.of(pod, labels):
                    counts[number] += 1
        return counts


def find_budgets(budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> list[Budget]:
    given = list(budgets)
    if not given:
        return []
    found = [
        Budget(item.metadata.namespace, item.spec.selector, item.status.disruptions_allowed or 0) for item in given
    ]
    if all(item.status.disruptions_allowed is not None for item in given):
        return found
    cover, expected, healthy = BudgetCover(found), [0] * len(given), [0] * len(given)
    for pod in pods:
        if pod.status.phase in FINISHED:
            continue
        is_healthy = bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None
        for number in cover.of(name_of(pod.metadata), pod.metadata.labels):
            expected[number] += 1
            healthy[number] += is_healthy
    return [
        replace(budget, allowed=_allowed(item, *counts)) if item.status.disruptions_allowed is None else budget
        for item, budget, counts in zip(given, found, zip(expected, healthy, strict=True), strict=True)
    ]


def _allowed(budget: PodDisruptionBudget, expected: int, healthy: int) -> int:
    """What the disruption controller would compute: `healthy` of the `expected` pods that it selects are running."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return healthy - (expected - _number(spec.max_unavailable, expected))
    return healthy - _number(1 if spec.min_available is None else spec.min_available, expected)


def _number(value: int | str, total: int) -> int:
    """A count, or a percentage of `total`, rounded up as the disruption controller does."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * total / 100)
