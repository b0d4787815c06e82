"""Parses the output of `nvidia-smi topo -m`: a matrix of links, with NICs, affinities and a legend around it.

The text may have passed terminals, tickets and logs: tabs may have become spaces, and the header may have escape codes.
Text that cannot be parsed is an error that names its line. What had to be guessed is a note.
"""

import re
from collections.abc import Iterator

from maniple.api.errors import nearest, shown
from maniple.api.gpu.topology_annotation import (
    DEFAULT_RESOURCE,
    LINK_WORDS,
    MAX_DEVICES,
    PCIE_WORDS,
    VERSIONS,
    GpuDevice,
    GpuTopology,
    TopologyError,
    nvlinks,
    parse_topology,
)

_ESCAPE = re.compile(r"\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,6})", re.ASCII)
_AFFINITIES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID", re.ASCII)
# Printed where a link could not be queried.
_UNREADABLE = frozenset({"", "-", "?", "OK", "N/A", "[N/A]", "ERR", "ERR!", "NS", "GNS", "TNS"})
_OLD_WORDS = {"SOC": "SYS"}  # of older versions
_UNKNOWN = "SYS"  # for links that could not be queried: the slowest


def read_topology(text: str, notes: list[str] | None = None) -> GpuTopology:
    """Parses the annotation's JSON or the output of `nvidia-smi topo -m`."""
    text = text.lstrip("\ufeff")
    return parse_topology(text) if text.lstrip().startswith(("{", '"')) else read_smi(text, notes)


def read_smi(text: str, notes: list[str] | None = None) -> GpuTopology:
    """The GPUs of `nvidia-smi topo -m`. Raises TopologyError. Guesses are added to `notes`.

    A GPU is taken for lost, and becomes unhealthy, if none of its links can be read while links of others can.
    """
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    top = next((number for number, line in enumerate(lines) if _is_header(line)), None)
    if top is None:
        raise TopologyError(
            ["no line with GPU0, GPU1, … found; expected what `nvidia-smi topo -m` prints, or the annotation's JSON"]
        )
    header = lines[top]
    columns = _columns(header, top + 1)
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    rows: dict[str, list[str]] = {}
    numa: dict[str, int] = {}
    for number, line in enumerate(lines[top + 1 :], start=top + 2):
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        if not _GPU.fullmatch(name):
            continue  # a NIC, the legend, or other text
        if name not in gpus:
            raise TopologyError([f"line {number}: {name} has a row, but no column in line {top + 1}"])
        if name in rows:
            raise TopologyError([f"line {number}: a second row for {name}; expected the output of one node"])
        cells = _cells(line, name, columns, header, number)
        rows[name] = [
            _OLD_WORDS.get(cell, cell) for column, cell in zip(columns, cells, strict=False) if column in gpus
        ]
        numa[name] = _numa(cells[len(columns) :]) if "NUMA Affinity" in header else -1
    if missing := [name for name in gpus if name not in rows]:
        raise TopologyError([f"line {len(lines)}: the text ends without a row for {', '.join(missing[:8])}"])
    return _topology(rows, gpus, numa, [] if notes is None else notes)


def _is_header(line: str) -> bool:
    """Whether the line has names of columns, a GPU's first. In a row the second cell is a link."""
    first, second = (*line.split(maxsplit=2)[:2], "", "")[:2]
    is_name = second in ("", "CPU", "NUMA", "GPU") or (re.search(r"[A-Za-z].*[0-9]", second) and not nvlinks(second))
    return bool(_GPU.fullmatch(first) and is_name)


def _columns(header: str, number: int) -> list[str]:
    columns = _AFFINITIES.split(header, maxsplit=1)[0].split()
    if len(columns) > 4 * MAX_DEVICES or sum(1 for name in columns if _GPU.fullmatch(name)) > MAX_DEVICES:
        raise TopologyError([f"line {number}: expected at most {MAX_DEVICES} GPUs"])
    for index, name in enumerate(columns):
        if _GPU.fullmatch(name) and name in columns[:index]:
            raise TopologyError([f"line {number}: two columns for {name}"])
    return columns


def _cells(line: str, name: str, columns: list[str], header: str, number: int) -> list[str]:
    """The links of a row in the order of the columns, then the other cells."""
    is_gpu = [_GPU.fullmatch(column) is not None for column in columns]

    def problem(cells: list[str]) -> str:
        if len(cells) < len(columns):
            return f"line {number}: {name} has {len(cells)} links, expected {len(columns)}"
        for column, cell, is_gpu_column in zip(columns, cells, is_gpu, strict=False):
            if is_gpu_column and not _is_link(cell):
                suggestion = nearest(cell[:64], LINK_WORDS)
                return f"line {number}: {name} to {column}: unknown link {shown(cell)}{suggestion}"
            if (cell == "X") != (column == name) and (is_gpu_column or cell == "X") and cell not in _UNREADABLE:
                return f"line {number}: {name} to {column}: found {shown(cell)}; X stands where a GPU meets itself"
        return ""

    messages = []
    for cells in _splits(line, name, columns, header):
        message = problem(cells)
        if not message:
            return cells
        messages.append(message)
    raise TopologyError(messages[:1])


def _splits(line: str, name: str, columns: list[str], header: str) -> Iterator[list[str]]:
    """The ways to split a row into cells, the most reliable first: by tabs, by spaces, by the columns of the header."""
    rest = line[line.index(name) + len(name) :]
    if "\t" in rest:
        yield [cell.strip() for cell in rest.removeprefix("\t").split("\t")]
    yield rest.split()
    starts = [match.start() for match in re.finditer(r"\S+", header.expandtabs())][: len(columns)]
    cells, others = [""] * len(columns), list[str]()
    for match in list(re.finditer(r"\S+", line.expandtabs()))[1:]:
        column = min(range(len(starts)), key=lambda column: abs(starts[column] - match.start()))
        if match.start() > starts[-1] + 4:
            others.append(match[0])
        elif cells[column] or abs(starts[column] - match.start()) > 4:
            return
        else:
            cells[column] = match[0]
    if cells[columns.index(name)] == "X":  # else the row was cut off
        yield cells + others


def _is_link(cell: str) -> bool:
    return cell == "X" or cell in PCIE_WORDS or cell in _OLD_WORDS or cell in _UNREADABLE or nvlinks(cell) > 0


def _numa(others: list[str]) -> int:
    """The NUMA affinity, which follows the CPU affinity, if it is one number."""
    affinities = [cell for cell in others if cell]
    if len(affinities) > 1 and re.fullmatch(r"[0-9]{1,6}", affinities[1], re.ASCII):
        return int(affinities[1])
    return -1


def _topology(rows: dict[str, list[str]], gpus: list[str], numa: dict[str, int], notes: list[str]) -> GpuTopology:
    def is_readable(a: int, b: int) -> bool:
        return a != b and (rows[gpus[a]][b] not in _UNREADABLE or rows[gpus[b]][a] not in _UNREADABLE)

    indices = range(len(gpus))
    is_lost = [not any(is_readable(a, b) for b in indices) for a in indices]
    if all(is_lost):  # nothing tells lost GPUs from the others
        is_lost = [False] * len(gpus)
    links = []
    for a, name in enumerate(gpus):
        row = ["X" if a == b else cell for b, cell in enumerate(rows[name])]
        unread = [b for b in indices if b != a and row[b] in _UNREADABLE]
        for b in unread:
            row[b] = _UNKNOWN if not is_readable(a, b) else rows[gpus[b]][a]
        links.append(tuple(row))
        if is_lost[a]:
            notes.append(f"{name} has no link that can be read: taken for lost, and marked unhealthy")
        elif guessed := [gpus[b] for b in unread if b > a and not is_readable(a, b) and not is_lost[b]]:
            notes.append(f"{name} to {', '.join(guessed)}: cannot be read, taken for {_UNKNOWN}")
    devices = tuple(
        GpuDevice(name.removeprefix("GPU"), numa=numa[name], healthy=not lost)
        for name, lost in zip(gpus, is_lost, strict=True)
    )
    return GpuTopology(VERSIONS[-1], DEFAULT_RESOURCE, devices, tuple(links))
