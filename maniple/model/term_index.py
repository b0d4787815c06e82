"""Finds the terms that select a pod, and the pods that a term selects, without comparing each with each.

Most terms name a value of a label (`app: web`). A pod without that label is not looked at.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Label = tuple[str, str]
Requirement = tuple[str, str, frozenset[str]]
T = TypeVar("T", bound=Hashable)


def labels_of(requirements: tuple[Requirement, ...] | None) -> list[Label] | None:
    """Labels of which a pod must have one to meet the requirements. None: any pod may meet them."""
    if requirements is None:
        return []  # they select nothing
    for operator, key, values in requirements:
        if operator == "In":
            return [(key, value) for value in sorted(values)]
    return None


class ByLabel(Generic[T]):
    """Items that are found by a label, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[T, None]] = {}
        self._others: dict[T, None] = {}

    def add(self, item: T, labels: Iterable[Label] | None) -> None:
        """`labels`: each of them finds the item. None: it is always found."""
        if labels is None:
            self._others[item] = None
            return
        for label in labels:
            self._by_label.setdefault(label, {})[item] = None

    def found(self, labels: Iterable[Label]) -> Iterator[T]:
        yield from self._others
        for label in labels:
            yield from self._by_label.get(label, ())
