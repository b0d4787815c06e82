"""Reads what `nvidia-smi topo -m` prints: a matrix of link words, with NICs, affinities and a legend around it.

The text comes through terminals, tickets and logs: tabs may be spaces by then, and the header may carry escape codes.
What cannot be read is an error that names its line; what had to be guessed is a note.
"""

import re
from collections.abc import Iterator

from maniple.api.errors import nearest
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
    shown,
)

_ESCAPE = re.compile(r"\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,6})", re.ASCII)
_AFFINITIES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID", re.ASCII)
# Printed where a link could not be asked for. Older versions say SOC where newer ones say SYS.
_UNREADABLE = frozenset({"", "-", "?", "OK", "N/A", "[N/A]", "ERR", "ERR!", "NS", "GNS", "TNS"})
_SPELT = {"SOC": "SYS"}
_UNKNOWN = "SYS"  # what a link that could not be read counts as: the slowest


def read_topology(text: str, notes: list[str] | None = None) -> GpuTopology:
    """Either form: the annotation's JSON, or the text of `nvidia-smi topo -m`."""
    text = text.lstrip("\ufeff")
    return parse_topology(text) if text.lstrip().startswith(("{", '"')) else read_smi(text, notes)


def read_smi(text: str, notes: list[str] | None = None) -> GpuTopology:
    """The GPUs of `nvidia-smi topo -m`, or TopologyError. What was guessed is added to `notes`.

    A GPU none of whose links can be read, while others' can, is taken for lost: it is there, and unhealthy.
    """
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    top = next((at for at, line in enumerate(lines) if _is_header(line)), None)
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
            continue  # a NIC, the legend, or whatever else was on the screen
        if name not in gpus:
            raise TopologyError([f"line {number}: {name} has a row, but no column in line {top + 1}"])
        if name in rows:
            raise TopologyError([f"line {number}: a second row for {name}; expected the output of one node"])
        cells = _cells(line, name, columns, header, number)
        rows[name] = [_SPELT.get(cell, cell) for column, cell in zip(columns, cells, strict=False) if column in gpus]
        numa[name] = _numa(cells[len(columns) :]) if "NUMA Affinity" in header else -1
    if missing := [name for name in gpus if name not in rows]:
        raise TopologyError([f"line {len(lines)}: the text ends without a row for {', '.join(missing[:8])}"])
    return _topology(rows, gpus, numa, [] if notes is None else notes)


def _is_header(line: str) -> bool:
    """Names of columns, a GPU's first; a row has a link in the second place."""
    first, second = (*line.split(maxsplit=2)[:2], "", "")[:2]
    is_name = second in ("", "CPU", "NUMA", "GPU") or (re.search(r"[A-Za-z].*[0-9]", second) and not nvlinks(second))
    return bool(_GPU.fullmatch(first) and is_name)


def _columns(header: str, number: int) -> list[str]:
    columns = _AFFINITIES.split(header, maxsplit=1)[0].split()
    if len(columns) > 4 * MAX_DEVICES or sum(1 for name in columns if _GPU.fullmatch(name)) > MAX_DEVICES:
        raise TopologyError([f"line {number}: expected at most {MAX_DEVICES} GPUs"])
    for at, name in enumerate(columns):
        if _GPU.fullmatch(name) and name in columns[:at]:
            raise TopologyError([f"line {number}: two columns for {name}"])
    return columns


def _cells(line: str, name: str, columns: list[str], header: str, number: int) -> list[str]:
    """The links of a row in the order of the columns, and behind them what else stands there."""
    is_gpu = [_GPU.fullmatch(column) is not None for column in columns]

    def wrong(cells: list[str]) -> str:
        if len(cells) < len(columns):
            return f"line {number}: {name} has {len(cells)} links, expected {len(columns)}"
        for column, cell, counts in zip(columns, cells, is_gpu, strict=False):
            if counts and not _is_link(cell):
                said = f"line {number}: {name} to {column}: unknown link {shown(cell)}"
                return said + nearest(cell[:64], LINK_WORDS)
            if (cell == "X") != (column == name) and (counts or cell == "X") and cell not in _UNREADABLE:
                return f"line {number}: {name} to {column}: found {shown(cell)}; X stands where a GPU meets itself"
        return ""

    messages = []
    for cells in _readings(line, name, columns, header):
        said = wrong(cells)
        if not said:
            return cells
        messages.append(said)
    raise TopologyError(messages[:1])


def _readings(line: str, name: str, columns: list[str], header: str) -> Iterator[list[str]]:
    """The ways to cut a row into cells, the surest first: by tabs, by spaces, by where they stand below the header."""
    rest = line[line.index(name) + len(name) :]
    if "\t" in rest:
        yield [cell.strip() for cell in rest.removeprefix("\t").split("\t")]
    yield rest.split()
    starts = [match.start() for match in re.finditer(r"\S+", header.expandtabs())][: len(columns)]
    cells, behind = [""] * len(columns), list[str]()
    for match in list(re.finditer(r"\S+", line.expandtabs()))[1:]:
        at = min(range(len(starts)), key=lambda at: abs(starts[at] - match.start()))
        if match.start() > starts[-1] + 4:
            behind.append(match[0])
        elif cells[at] or abs(starts[at] - match.start()) > 4:
            return
        else:
            cells[at] = match[0]
    if cells[columns.index(name)] == "X":  # else the row was cut off
        yield cells + behind


def _is_link(cell: str) -> bool:
    return cell == "X" or cell in PCIE_WORDS or cell in _SPELT or cell in _UNREADABLE or nvlinks(cell) > 0


def _numa(behind: list[str]) -> int:
    """CPU affinity, then NUMA affinity: of use if it is one number."""
    said = [cell for cell in behind if cell]
    return int(said[1]) if len(said) > 1 and re.fullmatch(r"[0-9]{1,6}", said[1], re.ASCII) else -1


def _topology(rows: dict[str, list[str]], gpus: list[str], numa: dict[str, int], notes: list[str]) -> GpuTopology:
    def is_readable(a: int, b: int) -> bool:
        return a != b and (rows[gpus[a]][b] not in _UNREADABLE or rows[gpus[b]][a] not in _UNREADABLE)

    everyone = range(len(gpus))
    is_lost = [not any(is_readable(at, other) for other in everyone) for at in everyone]
    if all(is_lost):  # then nothing tells the lost ones from the others
        is_lost = [False] * len(gpus)
    links = []
    for at, name in enumerate(gpus):
        row = ["X" if at == other else cell for other, cell in enumerate(rows[name])]
        unread = [other for other in everyone if other != at and row[other] in _UNREADABLE]
        for other in unread:
            row[other] = _UNKNOWN if not is_readable(at, other) else rows[gpus[other]][at]
        links.append(tuple(row))
        if is_lost[at]:
            notes.append(f"{name} has no link that can be read: taken for lost, and marked unhealthy")
        elif told := [gpus[b] for b in unread if b > at and not is_readable(at, b) and not is_lost[b]]:
            notes.append(f"{name} to {', '.join(told)}: cannot be read, taken for {_UNKNOWN}")
    devices = tuple(
        GpuDevice(name.removeprefix("GPU"), numa=numa[name], healthy=not lost)
        for name, lost in zip(gpus, is_lost, strict=True)
    )
    return GpuTopology(VERSIONS[-1], DEFAULT_RESOURCE, devices, tuple(links))
