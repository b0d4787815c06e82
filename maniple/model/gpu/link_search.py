"""Chooses GPUs of a node: exactly for up to 16 GPUs, by tables over all sets, and by a greedy search above that.

The value of a set is the slowest link of the best ring through it, because an all-reduce runs at that speed. Among
equally good sets, the one that leaves the best GPUs for later jobs is chosen.
"""

from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Matrix = tuple[tuple[int, ...], ...]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

EXACT_UP_TO = 16
GROUPS = (2, 4, 8)  # the job sizes that the remaining GPUs are rated for
_SUM_BITS = 40  # 120 links of at most 10^9 MB/s


class ExactSearch:
    """Tables over all 2^n sets of at most 16 GPUs. A choice is a look-up in them."""

    def __init__(self, matrix: Matrix) -> None:
        self.size = len(matrix)
        links = np.array(matrix, dtype=np.int64)
        values = np.unique(links[~np.eye(self.size, dtype=bool)])
        ranks = (np.searchsorted(values, links) + 1).astype(np.uint8)  # at most 120 pairs: a rank fits a byte
        np.fill_diagonal(ranks, 0)
        ring_ranks = _ring_ranks(ranks)
        self._rings = np.concatenate((np.zeros(1, np.int64), values))[ring_ranks]
        # One number to compare: the ring in the high bits, the sum of all links inside in the low bits.
        self._worth = (ring_ranks.astype(np.int64) << _SUM_BITS) + _link_sums(links)
        self._left = _pairs(links) + _quads(self._rings, self.size) + _eights(self._rings, self.size)

    def ring(self, mask: int) -> int:
        return int(self._rings[mask])

    def choose(self, free: int, count: int) -> int:
        sets = _sets(self.size)[count]
        sets = sets[(sets & ~free) == 0]
        worth = self._worth[sets]
        sets = sets[worth == worth.max()]
        left = self._left[free ^ sets]
        return int(sets[left.argmax()])  # of equal ones the first, which has the lowest ids


@cache
def _sets(size: int) -> tuple[Ints, ...]:
    """By count: all sets of that many GPUs, ordered by their lowest ids."""
    return tuple(
        np.array([sum(1 << gpu for gpu in chosen) for chosen in combinations(range(size), count)], dtype=np.int64)
        for count in range(size + 1)
    )


@cache
def _steps(top: int) -> tuple[tuple[int, Ints, Ints], ...]:
    """Steps that extend paths of GPUs below `top`: (last, sets with it, the same without), smaller sets first."""
    every = np.arange(1 << top, dtype=np.int64)
    counts = np.bitwise_count(every)
    steps = []
    for count in range(2, top + 1):
        sized = every[counts == count]
        for last in range(top):
            with_last = sized[(sized >> last) & 1 == 1]
            steps.append((last, with_last, with_last ^ (1 << last)))
    return tuple(steps)


def _ring_ranks(ranks: Bytes) -> Bytes:
    """By set: the rank of the slowest link of its best Hamiltonian cycle. For two GPUs, the rank of their link.

    Each cycle starts at its highest GPU, `top`: paths[v, s] is the slowest link of the best path that starts at top,
    visits all of s, and ends at v. Ranks are bytes, so that the tables fit the processor's cache.
    """
    size = len(ranks)
    best = np.zeros(1 << size, dtype=np.uint8)
    for top in range(1, size):
        paths = np.zeros((top, 1 << top), dtype=np.uint8)
        for last in range(top):
            paths[last, 1 << last] = ranks[top, last]
        for last, with_last, without in _steps(top):
            before = np.take(paths, without, axis=1)
            np.minimum(before, ranks[last, :top, None], out=before)
            paths[last, with_last] = before.max(axis=0)
        best[1 << top : 2 << top] = np.minimum(paths, ranks[top, :top, None]).max(axis=0)
    return best


def _link_sums(links: Ints) -> Ints:
    """By set: the sum of the links inside it."""
    sums = np.zeros(1, dtype=np.int64)
    for top in range(len(links)):
        to_top = np.zeros(1, dtype=np.int64)
        for other in range(top):
            to_top = np.concatenate((to_top, to_top + links[top, other]))
        sums = np.concatenate((sums, sums + to_top))
    return sums


def _split(table: Ints, *members: int) -> tuple[Ints, Ints]:
    """Views of a table over sets: the sets with all `members` (ascending), and the same sets without any of them."""
    shape: list[int] = []
    above = len(table)
    for member in reversed(members):
        shape += [above >> (member + 1), 2]
        above = 1 << member
    view = table.reshape(*shape, above)
    every = slice(None)
    inside = (every, 1) * len(members)
    outside = (every, 0) * len(members)
    return view[inside], view[outside]


def _pairs(links: Ints) -> Ints:
    """By set: the best total of 2 × link over disjoint pairs in it."""
    best = np.zeros(1, dtype=np.int64)
    for top in range(len(links)):
        with_top = best.copy()  # top is in no pair
        for other in range(top):
            here, _ = _split(with_top, other)
            _, rest = _split(best, other)
            np.maximum(here, rest + 2 * links[top, other], out=here)
        best = np.concatenate((best, with_top))
    return best


def _quads(rings: Ints, size: int) -> Ints:
    """By set: the best total of 4 × ring over disjoint quads in it."""
    best = np.zeros(1, dtype=np.int64)
    for top in range(size):
        with_top = best.copy()
        for a, b, c in combinations(range(top), 3):
            here, _ = _split(with_top, a, b, c)
            _, rest = _split(best, a, b, c)
            np.maximum(here, rest + 4 * rings[1 << top | 1 << a | 1 << b | 1 << c], out=here)
        best = np.concatenate((best, with_top))
    return best


def _eights(rings: Ints, size: int) -> Ints:
    """By set: the best total of 8 × ring over disjoint eights in it. Only the set of all 16 GPUs has two."""
    every = np.arange(1 << size)
    single = np.where(np.bitwise_count(every) == 8, 8 * rings, 0)
    best = single.copy()
    for member in range(size):
        here, rest = _split(best, member)
        np.maximum(here, rest, out=here)
    if size == 16:
        is_eight = np.bitwise_count(every) == 8
        best[-1] = max(best[-1], (single + single[::-1])[is_eight].max())  # a set and its complement
    return best


_MAX_STARTS = 64


class GreedySearch:
    """For more than 16 GPUs: grows a set from each GPU and takes the best. Rings are lower bounds."""

    def __init__(self, matrix: Matrix) -> None:
        self.size = len(matrix)
        self._links = np.array(matrix, dtype=np.int64)
        self._rings: dict[int, int] = {}

    def ring(self, mask: int) -> int:
        if mask not in self._rings:
            if len(self._rings) > 1 << 14:
                self._rings.clear()
            members = _positions(mask)
            self._rings[mask] = _search_ring(self._links[np.ix_(members, members)])
        return self._rings[mask]

    def choose(self, free: int, count: int) -> int:
        members = np.array(_positions(free))
        links = self._links[np.ix_(members, members)]
        grown = _grown(links, count)
        insides = [links[np.ix_(chosen, chosen)] for chosen in grown]
        bounds = [_ring_bound(inside) for inside in insides]
        sums = [int(inside.sum()) for inside in insides]
        best: list[int] = []
        best_worth = (-1, -1)
        for number in sorted(range(len(grown)), key=lambda number: (-bounds[number], -sums[number], number)):
            if (bounds[number], sums[number]) < best_worth:
                continue
            ring = self.ring(_mask(members[grown[number]])) if count > 1 else 0
            worth = (ring, sums[number])
            if worth > best_worth:
                best, best_worth = [], worth
            if worth == best_worth:
                best.append(number)
        if len(best) > 1:
            best.sort(key=lambda number: (-_left_over(links, grown[number]), grown[number].tolist()))
        return _mask(members[grown[best[0]]])


def _positions(mask: int) -> list[int]:
    return [position for position, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def _mask(members: Ints) -> int:
    return sum(1 << int(position) for position in members)


def _grown(links: Ints, count: int) -> list[Ints]:
    """Sets of `count` GPUs, each grown from one GPU.

    Each step adds the GPU with the best slowest link to the set, then with the best sum of links.
    """
    size = len(links)
    starts = np.unique(np.linspace(0, size - 1, min(size, _MAX_STARTS)).astype(np.int64))
    rows = np.arange(len(starts))
    slowest, total = links[starts].copy(), links[starts].copy()
    taken = np.zeros(slowest.shape, dtype=bool)
    newest = starts
    for _ in range(count - 1):
        taken[rows, newest] = True
        open_ = np.where(taken, -1, slowest)
        is_best = open_ == open_.max(axis=1, keepdims=True)
        newest = np.where(is_best, total, -1).argmax(axis=1)
        slowest = np.minimum(slowest, links[newest])
        total = total + links[newest]
    taken[rows, newest] = True
    distinct = dict.fromkeys(tuple(np.flatnonzero(row).tolist()) for row in taken)
    return [np.array(chosen, dtype=np.int64) for chosen in distinct]


def _ring_bound(links: Ints) -> int:
    """An upper bound for rings: every GPU has two neighbours in a ring."""
    if len(links) < 2:
        return 0
    neighbours = min(2, len(links) - 1)
    return int(np.partition(links, len(links) - neighbours, axis=1)[:, -neighbours].min())


def _left_over(links: Ints, chosen: Ints) -> int:
    """A cheap estimate of the value of the rest: upper bounds for groups of 2, 4 and 8 around each GPU."""
    rest = np.delete(np.arange(len(links)), chosen)
    ordered = -np.sort(-links[np.ix_(rest, rest)], axis=1)
    return sum(int(ordered[:, size - 2].sum()) for size in GROUPS if len(rest) >= size)


def _search_ring(links: Ints) -> int:
    """The fastest ring that a bisection over the link speeds finds."""
    if len(links) < 3:
        return int(links.max(initial=0))
    values = np.unique(links[np.triu_indices(len(links), 1)])
    values = values[values <= _ring_bound(links)]
    low, high = 0, len(values) - 1
    middle = high  # most rings reach the bound
    while low < high:
        if _has_ring(links >= values[middle]):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return int(values[low])


def _has_ring(is_linked: npt.NDArray[np.bool_]) -> bool:
    """Whether a bounded search finds a Hamiltonian cycle. It visits GPUs with few unvisited neighbours first."""
    size = len(is_linked)
    np.fill_diagonal(is_linked, False)
    degrees = is_linked.sum(axis=1)
    if degrees.min() < 2:
        return False
    if 2 * degrees.min() >= size:  # Dirac's theorem
        return True
    neighbours = [_mask(np.flatnonzero(row)) for row in is_linked]
    start = int(degrees.argmin())
    unvisited = (1 << size) - 1 ^ 1 << start

    def next_gpus(last: int) -> list[int]:
        """Unvisited neighbours, the best last."""
        candidates = _positions(neighbours[last] & unvisited)
        return sorted(candidates, key=lambda gpu: -(neighbours[gpu] & unvisited).bit_count())

    path, choices = [start], [next_gpus(start)]
    for _ in range(20 * size):
        if not unvisited and neighbours[path[-1]] >> start & 1:
            return True
        while not choices[-1]:
            choices.pop()
            unvisited |= 1 << path.pop()
            if not choices:
                return False
        path.append(choices[-1].pop())
        unvisited &= ~(1 << path[-1])
        choices.append(next_gpus(path[-1]))
    return False
