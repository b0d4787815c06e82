"""Which budgets cover a pod: the index answers as the selectors do, and each pod is looked at once."""

from __future__ import annotations

import random
import time

import pytest

from maniple.api.meta import LabelRequirement, LabelSelector
from maniple.model.disruption_budgets import Budget, BudgetCover

KEYS, VALUES, NAMESPACES = ["app", "tier"], ["a", "b", "c"], ["ml", "web"]


def random_selector(random_: random.Random) -> LabelSelector | None:
    if random_.random() < 0.1:
        return None
    labels = {key: random_.choice(VALUES) for key in KEYS if random_.random() < 0.4}
    expressions: tuple[LabelRequirement, ...] = ()
    if random_.random() < 0.3:
        operator = random_.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = tuple(random_.sample(VALUES, 2)) if operator.endswith("In") else ()
        expressions = (LabelRequirement(random_.choice(KEYS), operator, values),)
    return LabelSelector(labels, expressions)


@pytest.mark.parametrize("seed", range(50))
def test_the_index_finds_exactly_the_budgets_whose_selectors_select_the_pod(seed: int) -> None:
    random_ = random.Random(seed)
    budgets = [Budget(random_.choice(NAMESPACES), random_selector(random_), 1) for _ in range(8)]
    cover = BudgetCover(budgets)
    for number in range(20):
        pod = f"{random_.choice(NAMESPACES)}/p{number}"
        labels = {key: random_.choice(VALUES) for key in KEYS if random_.random() < 0.7}
        expected = tuple(index for index, budget in enumerate(budgets) if budget.covers(pod, labels))
        assert cover.of(pod, labels) == cover.of(pod, labels) == expected


def test_a_thousand_budgets_cost_little_more_than_one() -> None:
    pods = [(f"ml/p{number}", {"app": f"a{number % 1000}"}) for number in range(20_000)]

    def cost(count: int) -> float:
        budgets = [Budget("ml", LabelSelector({"app": f"a{number}"}), 1) for number in range(count)]
        cover = BudgetCover(budgets)
        start = time.process_time()
        cover.count(pods)
        return time.process_time() - start

    assert min(cost(1000) for _ in range(3)) < 20 * min(cost(1) for _ in range(3))
