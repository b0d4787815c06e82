"""Golden topologies written out by hand, and a judge of choices that shares no code with maniple.

The judge knows the definition only: it tries all sets, all orders and all packings, and remembers what it has tried.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations, permutations

SPEED = {"SYS": 9000, "NODE": 9500, "PHB": 9900, "PXB": 10200, "PIX": 10600, "PSB": 11000}
NVLINK = 25000

Rows = tuple[tuple[int, ...], ...]


def speed(word: str) -> int:
    if word == "X":
        return 0
    return int(word[2:]) * NVLINK if word.startswith("NV") else SPEED[word]


def matrix(text: str) -> Rows:
    """Words in rows; of the two directions of a pair the slower counts."""
    rows = [[speed(word) for word in line.split()] for line in text.strip().splitlines()]
    size = range(len(rows))
    return tuple(tuple(0 if a == b else min(rows[a][b], rows[b][a]) for b in size) for a in size)


FOUR_PAIRS = matrix("""
X    NV4  NODE NODE SYS  SYS  SYS  SYS
NV4  X    NODE NODE SYS  SYS  SYS  SYS
NODE NODE X    NV4  SYS  SYS  SYS  SYS
NODE NODE NV4  X    SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS  X    NV4  NODE NODE
SYS  SYS  SYS  SYS  NV4  X    NODE NODE
SYS  SYS  SYS  SYS  NODE NODE X    NV4
SYS  SYS  SYS  SYS  NODE NODE NV4  X
""")

DGX_1V = matrix("""
X    NV1  NV1  NV2  NV2  SYS  SYS  SYS
NV1  X    NV2  NV1  SYS  NV2  SYS  SYS
NV1  NV2  X    NV2  SYS  SYS  NV1  SYS
NV2  NV1  NV2  X    SYS  SYS  SYS  NV1
NV2  SYS  SYS  SYS  X    NV1  NV1  NV2
SYS  NV2  SYS  SYS  NV1  X    NV2  NV1
SYS  SYS  NV1  SYS  NV1  NV2  X    NV2
SYS  SYS  SYS  NV1  NV2  NV1  NV2  X
""")

NVSWITCH_8 = matrix("\n".join(" ".join("X" if a == b else "NV12" for b in range(8)) for a in range(8)))

PCIE_8 = matrix("""
X    PIX  NODE NODE SYS  SYS  SYS  SYS
PIX  X    NODE NODE SYS  SYS  SYS  SYS
NODE NODE X    PIX  SYS  SYS  SYS  SYS
NODE NODE PIX  X    SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS  X    PIX  NODE NODE
SYS  SYS  SYS  SYS  PIX  X    NODE NODE
SYS  SYS  SYS  SYS  NODE NODE X    PIX
SYS  SYS  SYS  SYS  NODE NODE PIX  X
""")

TWO_BOARDS = matrix(
    "\n".join(" ".join("X" if a == b else "NV6" if a // 8 == b // 8 else "SYS" for b in range(16)) for a in range(16))
)


def _odd_word(a: int, b: int) -> str:
    """A board that was repaired: a cube mesh, a board with a weak half, and links that differ by direction."""
    if a == b:
        return "X"
    if a // 8 != b // 8:
        return "SYS" if (a + b) % 3 else "NODE"
    if a // 8 == 0:
        return "NV2" if (a ^ b) in (1, 6) else "NV1" if (a ^ b) in (2, 4) else "PHB"
    if a > 13 or b > 13:
        return "PIX" if a < b else "PXB"
    return "NV2" if a < b else "NV1" if (a + b) % 2 else "NV2"


ASYMMETRIC_16 = matrix("\n".join(" ".join(_odd_word(a, b) for b in range(16)) for a in range(16)))

EIGHTS = {"four pairs": FOUR_PAIRS, "DGX-1V": DGX_1V, "NVSwitch": NVSWITCH_8, "PCIe": PCIE_8}
SIXTEENS = {"two boards": TWO_BOARDS, "asymmetric": ASYMMETRIC_16}


def members(mask: int) -> tuple[int, ...]:
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


def mask_of(chosen: tuple[int, ...]) -> int:
    return sum(1 << gpu for gpu in chosen)


class Judge:
    """The best set by definition. Results are cached."""

    def __init__(self, rows: Rows, orders_up_to: int = 5) -> None:
        """Rings of up to `orders_up_to` GPUs are found by trying all orders, larger ones by the ends of paths."""
        self.rows = rows
        self.orders_up_to = orders_up_to
        self._rings: dict[int, int] = {}
        self._paths: dict[int, int] = {}
        self._packings: dict[tuple[int, int], int] = {}

    @cached_property
    def speeds(self) -> list[int]:
        return sorted({value for a, row in enumerate(self.rows) for b, value in enumerate(row) if a != b})

    def ring(self, mask: int) -> int:
        if mask not in self._rings:
            self._rings[mask] = self._ring(members(mask))
        return self._rings[mask]

    def _ring(self, chosen: tuple[int, ...]) -> int:
        if len(chosen) < 2:
            return 0
        first, *rest = chosen
        if len(chosen) <= self.orders_up_to:
            return max(
                min(self.rows[a][b] for a, b in zip((first, *order), (*order, first), strict=True))
                for order in permutations(rest)
            )
        best = 0
        for rank, speed in enumerate(self.speeds):
            if not self._ends(mask_of(chosen), rank) & self._near[first][rank]:
                break
            best = speed
        return best

    def _ends(self, mask: int, rank: int) -> int:
        """Where a path from the lowest GPU through all of `mask` can end, over links of that rank or faster."""
        key = mask << 5 | rank
        if key not in self._paths:
            first = mask & -mask
            path_ends = 0
            for last in members(mask ^ first):
                before = mask ^ 1 << last
                ends = first if before == first else self._ends(before, rank)
                if ends & self._near[last][rank]:
                    path_ends |= 1 << last
            self._paths[key] = path_ends
        return self._paths[key]

    @cached_property
    def _near(self) -> list[list[int]]:
        """By GPU and rank of speed: the GPUs that it reaches at that speed or faster."""
        return [
            [mask_of(tuple(b for b, value in enumerate(row) if b != a and value >= speed)) for speed in self.speeds]
            for a, row in enumerate(self.rows)
        ]

    def total(self, mask: int) -> int:
        return sum(self.rows[a][b] for a, b in combinations(members(mask), 2))

    def packing(self, mask: int, size: int) -> int:
        """The best total of size × ring over disjoint groups in `mask`. Its lowest GPU is in one group or none."""
        if mask.bit_count() < size:
            return 0
        key = mask, size
        if key not in self._packings:
            first, *rest = members(mask)
            best = self.packing(mask ^ 1 << first, size)
            for others in combinations(rest, size - 1):
                group = mask_of((first, *others))
                best = max(best, size * self.ring(group) + self.packing(mask ^ group, size))
            self._packings[key] = best
        return self._packings[key]

    def left(self, mask: int) -> int:
        return sum(self.packing(mask, size) for size in (2, 4, 8))

    def best(self, free: int, count: int) -> int:
        """The first of the sets with the best ring, then the most bandwidth inside, then the best rest."""
        sets = [mask_of(chosen) for chosen in combinations(members(free), count)]
        for worth in (self.ring, self.total, lambda mask: self.left(free ^ mask)):
            values = [worth(mask) for mask in sets]
            sets = [mask for mask, value in zip(sets, values, strict=True) if value == max(values)]
        return sets[0]  # combinations are in the order of the lowest ids
