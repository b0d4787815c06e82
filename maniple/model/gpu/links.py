"""The bandwidth between the GPUs of a node, and which GPUs to choose for a request.

Nodes with equal links share one `LinkClass` and its tables, so that a choice is a look-up. Bandwidths are whole MB/s in
one direction, so that comparing them is exact. They are a model for ranking sets of GPUs (docs/gpu-topology.md).
"""

import re
from functools import lru_cache

from maniple.api.gpu.topology_annotation import MAX_LINK_GBS, GpuTopology, Link, nvlinks
from maniple.model.gpu.link_search import EXACT_UP_TO, ExactSearch, GreedySearch, Matrix

PCIE_MBS = {"SYS": 9_000, "NODE": 9_500, "PHB": 9_900, "PXB": 10_200, "PIX": 10_600, "PSB": 11_000}
NVLINK_MBS = 25_000  # one link of V100, A100, H100, and of unknown models
NVLINK_MBS_OF = {"P100": 20_000, "B100": 50_000, "B200": 50_000, "B300": 50_000, "GB200": 50_000, "GB300": 50_000}

_MAX_CACHED_CHOICES = 1 << 16
_MAX_CACHED_TABLES = 64  # 1.5 MB each with 16 GPUs


class LinkClass:
    """The links of equal nodes. A set of GPUs is a bit mask over positions: bit 0 is the first device."""

    __slots__ = ("_choices", "_hash", "is_known", "is_uniform", "matrix", "size")

    def __init__(self, matrix: Matrix, is_known: bool = True) -> None:
        self.matrix = matrix
        self.size = len(matrix)
        self.is_known = is_known
        self.is_uniform = self.size < 3 or matrix == _uniform(self.size, matrix[0][1])
        self._choices: dict[tuple[int, int], int] = {}
        self._hash = hash((matrix, is_known))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, LinkClass) and (self.matrix, self.is_known) == (other.matrix, other.is_known)

    def __repr__(self) -> str:
        kind = "unknown" if not self.is_known else "uniform" if self.is_uniform else "mixed"
        return f"LinkClass({self.size} GPUs, {kind} links)"

    def choose(self, free: int, count: int) -> int:
        """Chooses `count` of the `free` GPUs by best ring, then most bandwidth inside, best rest, and lowest ids."""
        available = free.bit_count()
        if not 0 <= count <= available or free >> self.size:
            raise ValueError(f"cannot choose {count} GPUs of {free:#b} on a node with {self.size}")
        if count in (0, available):
            return free if count else 0
        if self.is_uniform:
            return lowest(free, count)
        key = free, count
        chosen = self._choices.get(key)
        if chosen is None:
            if len(self._choices) >= _MAX_CACHED_CHOICES:
                self._choices.clear()
            chosen = self._choices[key] = _search(self.matrix).choose(free, count)
        return chosen

    def ring(self, mask: int) -> int:
        """MB/s of the slowest link of the best ring through these GPUs. 0 for fewer than two GPUs or unknown links."""
        if not self.is_known or mask.bit_count() < 2:
            return 0
        if self.is_uniform:
            return self.matrix[0][1]
        return _search(self.matrix).ring(mask)

    def quality(self, free: int, count: int) -> int:
        """The ring, in MB/s, of the set that `choose` returns."""
        return self.ring(self.choose(free, count))


def lowest(mask: int, count: int) -> int:
    """The `count` lowest bits of `mask`."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


def link_class(matrix: Matrix) -> LinkClass:
    """The class of these bandwidths in MB/s. The slower of both directions counts. The diagonal is ignored."""
    return _class_of(_symmetric(matrix), True)


def equal_links(size: int) -> LinkClass:
    """The class of nodes with unknown links: all sets of GPUs are equally good."""
    return _class_of(_uniform(size, 0), False)


@lru_cache(maxsize=4096)
def _symmetric(matrix: Matrix) -> Matrix:
    size = len(matrix)
    if any(len(row) != size for row in matrix):
        raise ValueError("a matrix of links must be square")
    most = MAX_LINK_GBS * 1000
    return tuple(
        tuple(0 if a == b else max(0, min(matrix[a][b], matrix[b][a], most)) for b in range(size)) for a in range(size)
    )


@lru_cache(maxsize=4096)
def _class_of(matrix: Matrix, is_known: bool) -> LinkClass:
    return LinkClass(matrix, is_known)


@lru_cache(maxsize=_MAX_CACHED_TABLES)
def _search(matrix: Matrix) -> ExactSearch | GreedySearch:
    return ExactSearch(matrix) if len(matrix) <= EXACT_UP_TO else GreedySearch(matrix)


def node_links(topology: GpuTopology | None, product: str, count: int) -> LinkClass:
    """The links of a node: from its annotation, else as its product is usually built, else unknown.

    `product`: the node's label. `count`: the number of GPUs, used only without an annotation. A node that lost a GPU
    and does not report which one has an unusual count, and therefore unknown links.
    """
    if topology is None:
        shape = known_shape(product, count)
        return link_class(shape) if shape else equal_links(count)
    matrix = bandwidths(topology, product)
    if matrix is None:
        models = {device.model or product for device in topology.devices}
        matrix = known_shape(models.pop(), len(topology.devices)) if len(models) == 1 else None
    return link_class(matrix) if matrix else equal_links(len(topology.devices))


def bandwidths(topology: GpuTopology, product: str = "") -> Matrix | None:
    """MB/s between each two devices, symmetric. None if the topology has no links."""
    if not topology.links:
        return None
    return _bandwidths(topology.links, tuple(nvlink_mbs(device.model or product) for device in topology.devices))


@lru_cache(maxsize=4096)
def _bandwidths(links: tuple[tuple[Link, ...], ...], per_nvlink: tuple[int, ...]) -> Matrix:
    return _symmetric(
        tuple(
            tuple(0 if a == b else _mbs(link, min(per_nvlink[a], per_nvlink[b])) for b, link in enumerate(row))
            for a, row in enumerate(links)
        )
    )


@lru_cache(maxsize=1024)
def nvlink_mbs(model: str) -> int:
    """MB/s of one NVLink of a model."""
    return next((NVLINK_MBS_OF[word] for word in _words(model) if word in NVLINK_MBS_OF), NVLINK_MBS)


def _mbs(link: Link, per_nvlink: int) -> int:
    if isinstance(link, str):
        return PCIE_MBS.get(link) or nvlinks(link) * per_nvlink or PCIE_MBS["SYS"]
    return max(1, round(link * 1000))


# -- the usual links of well-known products

_SXM = re.compile(r"SXM[0-9]*")
_PCIE_ONLY = frozenset({"T4", "A10", "A10G", "A30", "A40", "L4", "L40", "L40S", "RTX"})
_DGX1_V100 = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


@lru_cache(maxsize=1024)
def known_shape(product: str, count: int) -> Matrix | None:
    """The usual links, in MB/s, of nodes with `count` GPUs of this product. None if unknown."""
    words = frozenset(_words(product))
    if words & {"SHARED", "MIG"} or count < 2:
        return None  # the resource counts parts of GPUs
    per_link = nvlink_mbs(product)
    is_sxm = any(_SXM.fullmatch(word) for word in words)
    if "PCIE" in words or words & _PCIE_ONLY:
        return _pcie_box(count)
    if "V100" in words and count == 8 and "SXM2" in words:
        return _mesh(_DGX1_V100, per_link)
    if "P100" in words and count == 8 and is_sxm:
        # A cube mesh: two fully linked quads, and a link from each GPU to its counterpart in the other quad.
        return _mesh(
            tuple(tuple(int(a != b and (a // 4 == b // 4 or a % 4 == b % 4)) for b in range(8)) for a in range(8)),
            per_link,
        )
    if "V100" in words and count == 16 and "SXM3" in words:
        return _uniform(16, 6 * per_link)
    if "A100" in words and is_sxm and count in (4, 8):
        return _uniform(count, {4: 4, 8: 12}[count] * per_link)
    # The product name of an H100 contains its form factor. H200 and B200 name it only without an NVSwitch board.
    is_on_board = ("H100" in words and (is_sxm or "HBM3" in words)) or words & {"H200", "B200"}
    if is_on_board and "NVL" not in words and count == 8:
        return _uniform(8, 18 * per_link)
    return None


def _words(model: str) -> list[str]:
    return re.split(r"[-_ ]+", model.upper())


def _uniform(size: int, speed: int) -> Matrix:
    return tuple(tuple(0 if a == b else speed for b in range(size)) for a in range(size))


def _mesh(nvlinks_between: tuple[tuple[int, ...], ...], per_link: int) -> Matrix:
    return tuple(
        tuple(0 if a == b else count * per_link or PCIE_MBS["SYS"] for b, count in enumerate(row))
        for a, row in enumerate(nvlinks_between)
    )


def _pcie_box(count: int) -> Matrix | None:
    """Two sockets. Four GPUs on a socket are on two switches of two."""
    if count == 2:
        return _uniform(2, PCIE_MBS["NODE"])
    if count not in (4, 8):
        return None
    on_socket = count // 2
    on_switch = on_socket // 2

    def connection(a: int, b: int) -> str:
        if a // on_socket != b // on_socket:
            return "SYS"
        return "PIX" if a // on_switch == b // on_switch else "NODE"

    return tuple(tuple(0 if a == b else PCIE_MBS[connection(a, b)] for b in range(count)) for a in range(count))
