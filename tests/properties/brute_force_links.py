"""How good a set of GPUs is, by trying everything: for nodes of eight GPUs at most."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations

Matrix = tuple[tuple[Fraction, ...], ...]
Places = tuple[int, ...]
GROUP_SIZES = (2, 4, 8)


@cache
def ring(links: Matrix, places: Places) -> Fraction:
    """The slowest link of the best cycle through all GPUs; for two, their link."""
    if len(places) < 2:
        return Fraction(0)
    first, *others = places
    best = Fraction(0)
    for order in permutations(others):
        cycle = (first, *order, first)
        slowest = min(links[one][next_one] for one, next_one in pairwise(cycle))
        best = max(best, slowest)
    return best


def inside(links: Matrix, places: Places) -> Fraction:
    return sum((links[one][other] for one, other in combinations(places, 2)), Fraction(0))


def value(links: Matrix, rest: Places) -> Fraction:
    """The value of the GPUs that are left: for each group size, the best total over disjoint groups of that size."""

    def most(left: Places, size: int) -> Fraction:
        if len(left) < size:
            return Fraction(0)
        first, *others = left
        best = most(tuple(others), size)  # the first one is in no group
        for company in combinations(others, size - 1):
            remaining = tuple(place for place in others if place not in company)
            best = max(best, size * ring(links, (first, *company)) + most(remaining, size))
        return best

    return sum((most(rest, size) for size in GROUP_SIZES), Fraction(0))


def rating(links: Matrix, free: Places, counts_rest: bool = True) -> Callable[[Places], tuple[Fraction, ...]]:
    """Higher is better: the ring, all links inside, and the value of what is left."""

    def rate(chosen: Places) -> tuple[Fraction, ...]:
        rest = tuple(place for place in free if place not in chosen)
        return ring(links, chosen), inside(links, chosen), value(links, rest) if counts_rest else Fraction(0)

    return rate
