"""Which GPUs of a node to take: exact up to 16 of them, by tables over all sets; a search that is good above.

What a set is worth is the slowest link of the best ring through it: that is what an all-reduce runs at. Among equally
good sets the one is taken whose absence hurts those least who come later.
"""

from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Matrix = tuple[tuple[int, ...], ...]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

EXACT_UP_TO = 16
GROUPS = (2, 4, 8)  # the sizes of jobs that what is left should be good for
_SUM_BITS = 40  # 120 links of at most 10^9 MB/s


class ExactSearch:
    """Tables over all 2^n sets of at most 16 GPUs; a choice is then a look-up in them."""

    def __init__(self, matrix: Matrix) -> None:
        self.size = len(matrix)
        links = np.array(matrix, dtype=np.int64)
        values = np.unique(links[~np.eye(self.size, dtype=bool)])
        ranks = (np.searchsorted(values, links) + 1).astype(np.uint8)  # 120 pairs: ranks fit a byte
        np.fill_diagonal(ranks, 0)
        ring_ranks = _ring_ranks(ranks)
        self._rings = np.concatenate((np.zeros(1, np.int64), values))[ring_ranks]
        # Ring first, then the sum of all links inside: one number to compare.
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
        return int(sets[left.argmax()])  # the first of the best: sets come lowest ids first


@cache
def _sets(size: int) -> tuple[Ints, ...]:
    """By count, all sets of so many GPUs, ordered by their lowest ids."""
    return tuple(
        np.array([sum(1 << at for at in chosen) for chosen in combinations(range(size), count)], dtype=np.int64)
        for count in range(size + 1)
    )


@cache
def _steps(top: int) -> tuple[tuple[int, Ints, Ints], ...]:
    """How paths through GPUs below `top` grow: (last, sets with it, the same sets without it), smaller sets first."""
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
    """For each set the rank of the slowest link of its best Hamiltonian cycle; of two GPUs, of their link.

    Each cycle is counted from its highest GPU, `top`: paths[v, s] is the slowest link of the best path that starts at
    top, visits all of s, and ends at v. Comparing ranks in bytes keeps the whole of it in the processor's cache.
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
    """For each set the sum of the links inside it."""
    sums = np.zeros(1, dtype=np.int64)
    for top in range(len(links)):
        to_top = np.zeros(1, dtype=np.int64)
        for other in range(top):
            to_top = np.concatenate((to_top, to_top + links[top, other]))
        sums = np.concatenate((sums, sums + to_top))
    return sums


def _split(table: Ints, *members: int) -> tuple[Ints, Ints]:
    """Views of a table over sets: those with all `members` (ascending), and the same sets without any of them."""
    shape: list[int] = []
    above = len(table)
    for member in reversed(members):
        shape += [above >> (member + 1), 2]
        above = 1 << member
    view = table.reshape(*shape, above)
    every = slice(None)
    inside = tuple(at for _ in members for at in (every, 1))
    outside = tuple(at for _ in members for at in (every, 0))
    return view[inside], view[outside]


def _pairs(links: Ints) -> Ints:
    """For each set the best total of 2 × link over disjoint pairs in it."""
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
    """For each set the best total of 4 × ring over disjoint fours in it."""
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
    """For each set the best total of 8 × ring over disjoint eights in it: one, or two if it is all 16 GPUs."""
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
    """For more than 16 GPUs: a set is grown from each of them; the best set found is taken. Rings are lower bounds."""

    def __init__(self, matrix: Matrix) -> None:
        self.size = len(matrix)
        self._links = np.array(matrix, dtype=np.int64)
        self._rings: dict[int, int] = {}

    def ring(self, mask: int) -> int:
        if mask not in self._rings:
            if len(self._rings) > 1 << 14:
                self._rings.clear()
            members = _positions(mask)
            self._rings[mask] = _found_ring(self._links[np.ix_(members, members)])
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
        for at in sorted(range(len(grown)), key=lambda at: (-bounds[at], -sums[at], at)):
            if (bounds[at], sums[at]) < best_worth:
                continue
            ring = self.ring(_mask(members[grown[at]])) if count > 1 else 0
            if (ring, sums[at]) > best_worth:
                best, best_worth = [], (ring, sums[at])
            if (ring, sums[at]) == best_worth:
                best.append(at)
        if len(best) > 1:
            best.sort(key=lambda at: (-_left_over(links, grown[at]), grown[at].tolist()))
        return _mask(members[grown[best[0]]])


def _positions(mask: int) -> list[int]:
    return [at for at, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def _mask(members: Ints) -> int:
    return sum(1 << int(at) for at in members)


def _grown(links: Ints, count: int) -> list[Ints]:
    """Sets of `count`, each grown from one GPU: always the one whose slowest link to the set, then sum, is best."""
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
    """No ring is faster: every GPU has two neighbours in it."""
    if len(links) < 2:
        return 0
    place = min(2, len(links) - 1)
    return int(np.partition(links, len(links) - place, axis=1)[:, -place].min())


def _left_over(links: Ints, chosen: Ints) -> int:
    """A cheap stand-in for what the rest is worth: how fast a group of 2, 4, 8 around each of them could be at most."""
    rest = np.delete(np.arange(len(links)), chosen)
    ordered = -np.sort(-links[np.ix_(rest, rest)], axis=1)
    return sum(int(ordered[:, size - 2].sum()) for size in GROUPS if len(rest) >= size)


def _found_ring(links: Ints) -> int:
    """The fastest ring that a short search finds."""
    if len(links) < 3:
        return int(links.max(initial=0))
    values = np.unique(links[np.triu_indices(len(links), 1)])
    values = values[values <= _ring_bound(links)]
    low, high = 0, len(values) - 1
    at = high  # the bound is mostly reached
    while low < high:
        if _has_ring(links >= values[at]):
            low = at
        else:
            high = at - 1
        at = (low + high + 1) // 2
    return int(values[low])


def _has_ring(is_linked: npt.NDArray[np.bool_]) -> bool:
    """Whether a Hamiltonian cycle is found before patience ends; GPUs with few ways out are visited first."""
    size = len(is_linked)
    np.fill_diagonal(is_linked, False)
    degrees = is_linked.sum(axis=1)
    if degrees.min() < 2:
        return False
    if 2 * degrees.min() >= size:  # Dirac's theorem
        return True
    ways = [_mask(np.flatnonzero(row)) for row in is_linked]
    start = int(degrees.argmin())
    unvisited = (1 << size) - 1 ^ 1 << start

    def onward(last: int) -> list[int]:
        """Where to go next, the best last."""
        return sorted(_positions(ways[last] & unvisited), key=lambda to: -(ways[to] & unvisited).bit_count())

    path, choices = [start], [onward(start)]
    for _ in range(20 * size):
        if not unvisited and ways[path[-1]] >> start & 1:
            return True
        while not choices[-1]:
            choices.pop()
            unvisited |= 1 << path.pop()
            if not choices:
                return False
        path.append(choices[-1].pop())
        unvisited &= ~(1 << path[-1])
        choices.append(onward(path[-1]))
    return False
