"""Maps of a scenario in which every key must be read: a typing mistake must not make a scenario pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Table = dict[str, Any]

RESOURCES = {"gpu": "nvidia.com/gpu"}
_RANGE = re.compile(r"(.*)\[(\d+)-(\d+)\](.*)")


class Fields:
    """A map that must be used up: a key that is not read is a mistake in the scenario."""

    def __init__(self, where: str, given: Mapping[str, Any] | None) -> None:
        self.where = where
        self.given: Table = dict(given or {})

    def take(self, key: str, default: Any = None) -> Any:
        return self.given.pop(key, default)

    def take_some(self, keys: Iterable[str]) -> Table:
        return {key: self.given.pop(key) for key in keys if key in self.given}

    def amounts(self) -> Table:
        names = [key for key in self.given if key in ("cpu", "memory", "gpu") or "/" in key or "-storage" in key]
        names += [key for key in self.given if key.startswith("hugepages-")]
        return amounts(self.take_some(names))

    def finish(self) -> None:
        if self.given:
            raise ValueError(f"{self.where}: unknown: {', '.join(map(str, self.given))}")


def amounts(given: Mapping[str, Any] | None) -> Table:
    return {RESOURCES.get(name, name): str(value) for name, value in (given or {}).items()}


def unrolled(given: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Entries by name, with `x[1-3]` as x1, x2 and x3."""
    for name, value in (given or {}).items():
        match = _RANGE.fullmatch(str(name))
        if match:
            head, first, last, tail = match.groups()
            yield from ((f"{head}{number}{tail}", value) for number in range(int(first), int(last) + 1))
        else:
            yield str(name), value


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> Table:
    """`base` with `change` put over it, map by map."""
    made = dict(base)
    for key, value in change.items():
        old = made.get(key)
        made[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return made
