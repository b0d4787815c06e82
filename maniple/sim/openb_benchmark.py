"""The placement benchmark on Alibaba's open GPU cluster (openb, published with FGD at ATC'23).

Pods arrive one by one and never leave. A pod that fits nowhere is dropped but counts as arrived. One that fits must be
placed. The result is the share of all GPUs that is unallocated when a given demand has arrived. Each seed shuffles the
same pods. The published figures are medians over the seeds 42 to 51.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from maniple.api.errors import InputError, nearest

WHOLE = 1000
ARRIVED_PERCENT = (80, 100, 130)
_MOST = 2**40  # of any number in a file
_MOST_GPUS = 1024
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int  # of each GPU
    models: frozenset[str]  # empty: any

    @property
    def demand_milli(self) -> int:
        return self.gpus * self.gpu_milli


class Placer(Protocol):
    """Places pods on its own copy of the cluster."""

    def place(self, pod: int) -> bool:
        """Places the pod with this index if it fits anywhere. Returns whether it did."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run."""

    unallocated_percent: dict[int, float]  # by percent of demand arrived
    arrived: int
    placed: int


def read_nodes(path: str | Path) -> list[Node]:
    """The nodes with GPUs, sorted by name. The columns are sn, cpu_milli, memory_mib, gpu, model."""
    table = _Table(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    nodes = []
    for row in table:
        node = Node(
            row.text("sn"),
            row.number("cpu_milli"),
            row.number("memory_mib"),
            row.number("gpu", _MOST_GPUS),
            row.text("model", needed=False),
        )
        if node.gpus:
            nodes.append(node)
    table.check()
    if not nodes:
        raise InputError([f"{path}: no node has a GPU"])
    repeated = sorted(name for name, count in Counter(node.name for node in nodes).items() if count > 1)
    if repeated:
        raise InputError([f"{path}: more than one node is named {name!r}" for name in repeated[:_MOST_PROBLEMS]])
    return sorted(nodes, key=lambda node: node.name)


def read_pods(path: str | Path) -> list[Pod]:
    """The pods. The columns are name, cpu_milli, memory_mib, num_gpu, gpu_milli and, optionally, gpu_spec."""
    table = _Table(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
    pods = []
    for row in table:
        gpus = row.number("num_gpu", _MOST_GPUS)
        milli = row.number("gpu_milli", WHOLE, least=1 if gpus else 0)
        models = row.text("gpu_spec", needed=False)
        pods.append(
            Pod(
                row.text("name"),
                row.number("cpu_milli"),
                row.number("memory_mib"),
                gpus,
                milli if gpus else 0,
                frozenset(filter(None, models.split("|"))),
            )
        )
    table.check()
    if not any(pod.gpus for pod in pods):
        raise InputError([f"{path}: no pod asks for a GPU"])
    return pods


def capacity_milli(nodes: Sequence[Node]) -> int:
    return WHOLE * sum(node.gpus for node in nodes)


def arrivals(pods: Sequence[Pod], capacity: int, seed: int) -> list[int]:
    """Indices of pods in order of arrival: all pods shuffled, then random ones until the demand is 130 %."""
    random = np.random.default_rng(seed)
    order: list[int] = random.permutation(len(pods)).tolist()
    demand = sum(pod.demand_milli for pod in pods)
    while demand * 100 < capacity * ARRIVED_PERCENT[-1]:
        pod = int(random.integers(len(pods)))
        order.append(pod)
        demand += pods[pod].demand_milli
    return order


def play(
    placer: Placer,
    pods: Sequence[Pod],
    order: Sequence[int],
    capacity: int,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """One run. `progress` is called about a hundred times."""
    marks = list(ARRIVED_PERCENT)
    unallocated: dict[int, float] = {}
    demand = allocated = placed = 0
    every = max(len(order) // 100, 1)
    arrived = 0
    for arrived, index in enumerate(order, start=1):
        wanted = pods[index].demand_milli
        if placer.place(index):
            allocated += wanted
            placed += 1
        demand += wanted
        while marks and demand * 100 >= capacity * marks[0]:
            unallocated[marks.pop(0)] = 100 * (1 - allocated / capacity)
        if progress and arrived % every == 0:
            progress(arrived, len(order))
        if not marks:
            break
    return Outcome(unallocated, arrived, placed)


class _Table:
    """A CSV file with a header. Collects all problems before it raises."""

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        self.path = path
        self.problems: list[str] = []
        try:
            with Path(path).open(newline="", encoding="utf-8-sig") as file:
                self._lines = list(csv.reader(file, strict=True))
        except OSError as error:
            raise InputError([f"{path}: cannot be read: {error.strerror}"]) from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError([f"{path}: is not CSV in UTF-8: {error}"]) from None
        header = self._lines[0] if self._lines else []
        self.columns = {name: index for index, name in enumerate(header)}
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise InputError([f"{path}, line 1: no column {name!r}{nearest(name, header)}" for name in missing])

    def __iter__(self) -> Iterator["_Row"]:
        for line, cells in enumerate(self._lines[1:], start=2):
            if cells:
                yield _Row(self, line, cells)

    def check(self) -> None:
        if self.problems:
            more = len(self.problems) - _MOST_PROBLEMS
            shown = self.problems[:_MOST_PROBLEMS]
            raise InputError([*shown, f"{self.path}: and {more} more like these"] if more > 0 else shown)


@dataclass(frozen=True, slots=True)
class _Row:
    table: _Table
    line: int
    cells: list[str]

    def text(self, column: str, *, needed: bool = True) -> str:
        index = self.table.columns.get(column)
        value = self.cells[index].strip() if index is not None and index < len(self.cells) else ""
        if needed and not value:
            self._wrong(column, "is empty")
        return value

    def number(self, column: str, most: int = _MOST, least: int = 0) -> int:
        value = self.text(column, needed=False)
        if value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most:
            return int(value)
        self._wrong(column, f"expected a whole number from {least} to {most}, found {value!r}")
        return least

    def _wrong(self, column: str, problem: str) -> None:
        self.table.problems.append(f"{self.table.path}, line {self.line}, column {column}: {problem}")
