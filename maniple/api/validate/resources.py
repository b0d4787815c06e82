"""Rules for resource lists: quantities, requests and limits."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from maniple.api.errors import Problem
from maniple.api.meta import ResourceList
from maniple.api.quantity import parse_quantity

REQUESTS = ("requests", "limits")

Amount = str | int | float
Items = tuple[tuple[str, Amount], ...]
Wrong = tuple[tuple[str, str], ...]  # field, message


def check_quantities(resources: ResourceList, path: str, errors: list[Problem]) -> None:
    if resources:
        errors.extend(Problem(f"{path}{field}", message) for field, message in _parsed(tuple(resources.items()))[1])


def check_pair(names: tuple[str, str], low: ResourceList, high: ResourceList, path: str, errors: list[Problem]) -> None:
    """Two resource lists, fields of `path`. The first must not exceed the second in any resource."""
    wrong = _compared(names, tuple(low.items()), tuple(high.items()))
    if wrong:
        errors.extend(Problem(f"{path}.{field}", message) for field, message in wrong)


# A cluster's pods have few different requests, so thousands of pods share one result.
@lru_cache(maxsize=16384)
def _compared(names: tuple[str, str], low: Items, high: Items) -> Wrong:
    lower, upper = names
    least, wrong_low = _parsed(low)
    most, wrong_high = _parsed(high)
    wrong = [(lower + field, message) for field, message in wrong_low]
    wrong += [(upper + field, message) for field, message in wrong_high]
    if names == REQUESTS:
        # Kubernetes divides CPU, but no devices.
        for field, values, written in ((lower, least, dict(low)), (upper, most, dict(high))):
            wrong += [
                (f"{field}[{resource}]", f"expected a whole number, found {written[resource]}")
                for resource, value in values.items()
                if "/" in resource and value.denominator != 1
            ]
        wrong += _unequal(least, most, dict(low), dict(high))
    for resource, value in least.items():
        if value > most.get(resource, value):
            expected = f"at most {upper}[{resource}] ({dict(high)[resource]})"
            wrong.append((f"{lower}[{resource}]", f"expected {expected}, found {dict(low)[resource]}"))
    return tuple(wrong)


def _unequal(
    least: dict[str, Fraction], most: dict[str, Fraction], low: dict[str, Amount], high: dict[str, Amount]
) -> Iterator[tuple[str, str]]:
    """Requests of devices and huge pages that differ from their limits: Kubernetes lends neither."""
    for resource, value in least.items():
        if not _is_never_lent(resource):
            continue
        if resource not in high:
            yield f"limits[{resource}]", f"expected {low[resource]}, as requests[{resource}] says, found none"
        elif value < most.get(resource, value):  # if it is more, that is an error of any resource
            yield f"requests[{resource}]", f"expected {high[resource]}, as limits[{resource}], found {low[resource]}"


def _is_never_lent(resource: str) -> bool:
    return ("/" in resource and "kubernetes.io/" not in resource) or resource.startswith("hugepages-")


@lru_cache(maxsize=16384)
def _parsed(items: Items) -> tuple[dict[str, Fraction], Wrong]:
    values: dict[str, Fraction] = {}
    wrong: list[tuple[str, str]] = []
    for resource, written in items:
        try:
            value = parse_quantity(str(written))
        except ValueError as error:  # QuantityError, or str() of a number with thousands of digits
            wrong.append((f"[{resource}]", str(error)))
            continue
        if value < 0:
            wrong.append((f"[{resource}]", f"expected 0 or more, found {written}"))
        else:
            values[resource] = value
    return values, tuple(wrong)
