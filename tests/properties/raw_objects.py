"""How the referee reads plain Kubernetes objects: paths into them, and quantities, exactly.

It must never import anything of maniple: a mistake shared by the judge and the judged is invisible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import TypeAlias

Object: TypeAlias = dict[str, object]
Resources: TypeAlias = dict[str, Fraction]

_SUFFIXES = {
    **{
        suffix: Fraction(1000) ** power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|(n|u|m|k|[KMGTPE]i|[MGTPE])?)")


def quantity(written: object) -> Fraction:
    """A Kubernetes quantity, exactly. YAML may have read it as a number already."""
    return _quantity(str(written).strip())


@cache  # the same few amounts are read all the time
def _quantity(written: str) -> Fraction:
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise ValueError(f"not a quantity: {written!r}")
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(number) * Fraction(10) ** int(exponent[1:])
    return Fraction(number) * _SUFFIXES[suffix or ""]


def resources(written: object) -> Resources:
    return {str(name): quantity(amount) for name, amount in table(written).items()}


def add(total: Resources, more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def at(value: object, *path: str) -> object:
    for key in path:
        if not isinstance(value, dict):  # not Mapping: asking that is slow, and this is asked all the time
            return None
        value = value.get(key)
    return value


def table(value: object, *path: str) -> Object:
    found = at(value, *path)
    return {str(key): item for key, item in found.items()} if isinstance(found, dict) else {}


def rows(value: object, *path: str) -> list[object]:
    found = at(value, *path)
    return list(found) if isinstance(found, list | tuple) else []


def text(value: object, *path: str, default: str = "") -> str:
    found = at(value, *path)
    return default if found is None else str(found)


def number(value: object, *path: str, default: int = 0) -> int:
    found = at(value, *path)
    return default if found is None else int(str(found))


def strings(value: object, *path: str) -> dict[str, str]:
    return {key: str(item) for key, item in table(value, *path).items()}


def flat(objects: Iterable[object]) -> Iterator[object]:
    for item in objects:
        if text(item, "kind").endswith("List") and at(item, "items") is not None:
            yield from flat(rows(item, "items"))
        else:
            yield item


def key_of(item: object) -> str:
    return f"{text(item, 'metadata', 'namespace', default='default')}/{text(item, 'metadata', 'name')}"
