"""`maniple topology`: the GPU links of a node, as text or as the annotation of its Node."""

import shlex
from collections.abc import Sequence

import click
import msgspec

from maniple.api.errors import InputError
from maniple.api.gpu.nvidia_smi import read_topology
from maniple.api.gpu.topology_annotation import GpuTopology, TopologyError, parse_device_memory, parse_topology, to_json
from maniple.api.labels import GPU_TOPOLOGY_ANNOTATION
from maniple.api.quantity import QuantityError, format_quantity
from maniple.api.terminal_text import printable, printable_json
from maniple.cli.support.read_files import read_sources
from maniple.cli.support.table import render
from maniple.cli.support.terminal import say, say_json_text
from maniple.model.gpu.link_search import Matrix
from maniple.model.gpu.links import LinkClass, bandwidths, node_links

RING_SIZES = (2, 4, 8, 16)


@click.command(
    epilog="""\b
Examples:
  nvidia-smi topo -m | maniple topology -
  maniple topology examples/topology/dgx-1v.txt
  maniple topology node7.txt --model NVIDIA-A100-SXM4-40GB --memory 40Gi -o json
  maniple topology node7.txt -o annotate --node node7 | sh

Exit codes: 0 done, 2 wrong input.
"""
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("-o", "--output", type=click.Choice(["table", "json", "annotate"]), default="table", show_default=True)
@click.option("--node", metavar="NAME", help="The node that `-o annotate` is for.")
@click.option("--model", metavar="NAME", default="", help="The model of the GPUs; nvidia-smi topo does not say it.")
@click.option("--memory", metavar="QUANTITY", help="The memory of each GPU, such as 40Gi.")
@click.option("--resource", metavar="NAME", default="", help="The resource name of the GPUs, if not nvidia.com/gpu.")
def command(file: str, output: str, node: str | None, model: str, memory: str | None, resource: str) -> None:
    """Show how the GPUs of a node are linked, or write it as the annotation of the Node.

    FILE is what `nvidia-smi topo -m` prints, or the JSON of the annotation; '-' for standard input.
    """
    if output == "annotate" and not node:
        raise click.UsageError("Missing option '--node': -o annotate needs the name of the node.")
    topology, notes = _read(file)
    topology = _completed(topology, model, memory, resource)
    for note in notes:
        say(f"note: {printable(note)}", err=True)
    if output == "json":
        say_json_text(to_json(topology))
    elif output == "annotate":
        value = shlex.quote(printable_json(to_json(topology)))
        say(f"kubectl annotate node {shlex.quote(node or '')} --overwrite {GPU_TOPOLOGY_ANNOTATION}={value}")
    else:
        say(_describe(topology))


def _read(file: str) -> tuple[GpuTopology, list[str]]:
    sources = read_sources((file,))
    if len(sources) > 1:
        raise InputError([f"{file}: expected one file, found a directory of {len(sources)}"])
    ((name, data),) = sources
    notes: list[str] = []
    try:
        return read_topology(data.decode("utf-8-sig"), notes), notes
    except UnicodeDecodeError:
        raise InputError([f"{name}: not valid UTF-8"]) from None
    except TopologyError as error:
        raise InputError([f"{name}: {problem}" for problem in error.problems]) from None


def _completed(topology: GpuTopology, model: str, memory: str | None, resource: str) -> GpuTopology:
    """With the values of the options, and checked like any other annotation."""
    changes: dict[str, str | int] = {}
    if model:
        changes["model"] = model
    if memory is not None:
        try:
            changes["memory_bytes"] = parse_device_memory(memory)
        except QuantityError as error:
            raise InputError([f"--memory: {error}"]) from None
    devices = tuple(msgspec.structs.replace(device, **changes) for device in topology.devices)
    completed = msgspec.structs.replace(topology, devices=devices, resource=resource or topology.resource)
    try:
        return parse_topology(to_json(completed))
    except TopologyError as error:
        raise InputError(error.problems) from None


def _describe(topology: GpuTopology) -> str:
    links = node_links(topology, "", len(topology.devices))
    devices = [msgspec.structs.replace(device, id=printable(device.id)) for device in topology.devices]
    topology = msgspec.structs.replace(topology, devices=tuple(devices), resource=printable(topology.resource))
    matrix = bandwidths(topology) or (links.matrix if links.is_known else None)
    parts = [_summary(topology)]
    if matrix is None:
        return f"{parts[0]}\nTheir links are not given, and not known for this model: all sets are equally good."
    ids = [device.id for device in topology.devices]
    if topology.links:
        rows = [[name, *map(str, row)] for name, row in zip(ids, topology.links, strict=True)]
    else:
        parts[0] += "\nThe links are not given; these are assumed from the model, in GB/s."
        rows = [
            [name, *("X" if a == b else _gbs(speed) for b, speed in enumerate(row))]
            for a, (name, row) in enumerate(zip(ids, matrix, strict=True))
        ]
    parts.append("Links\n" + render(["GPU", *ids], rows))
    parts.append("Groups\n" + "\n".join(f"  {line}" for line in _tree(topology, matrix)))
    if rings := _rings(topology, links):
        parts.append("Best ring\n" + render(["SIZE", "GB/s", "GPUS"], rings))
    return "\n\n".join(parts)


def _summary(topology: GpuTopology) -> str:
    devices = topology.devices
    kinds = sorted({(device.model, device.memory_bytes) for device in devices})
    parts = [f"{len(devices)} × {topology.resource}"]
    for model, size in kinds:
        memory = format_quantity(size, per_unit=1, binary=True) if size else ""
        if model or memory:
            parts.append(" ".join(filter(None, (printable(model), memory))))
    lost = [device.id for device in devices if not device.healthy]
    if lost:
        parts.append(f"lost: {' '.join(lost)}")
    return ", ".join(parts)


def _gbs(mbs: int) -> str:
    return f"{mbs / 1000:g}"


def _rings(topology: GpuTopology, links: LinkClass) -> list[list[str]]:
    healthy = sum(1 << gpu for gpu, device in enumerate(topology.devices) if device.healthy)
    rows = []
    for size in RING_SIZES:
        if size <= healthy.bit_count():
            chosen = links.choose(healthy, size)
            ids = [device.id for gpu, device in enumerate(topology.devices) if chosen >> gpu & 1]
            rows.append([str(size), _gbs(links.ring(chosen)), " ".join(ids)])
    return rows


# -- the tree: groups that are plain in a matrix of eight GPUs, but not in one of sixteen


def _tree(topology: GpuTopology, matrix: Matrix) -> list[str]:
    devices = topology.devices
    healthy = [gpu for gpu, device in enumerate(devices) if device.healthy]
    numa = sorted({devices[gpu].numa for gpu in healthy})
    if len(numa) < 2:
        return _branch(topology, matrix, healthy, "node")
    parts = [
        (
            f"NUMA node {number}" if number >= 0 else "no NUMA node",
            [gpu for gpu in healthy if devices[gpu].numa == number],
        )
        for number in numa
    ]
    lines = [f"node: {_words(topology, matrix, healthy, [members for _, members in parts])} between"]
    return lines + _children([_branch(topology, matrix, members, name) for name, members in parts])


def _branch(topology: GpuTopology, matrix: Matrix, members: list[int], name: str) -> list[str]:
    """A group and, below it, the groups into which it splits without its slowest links."""
    groups = _split(matrix, members)
    title = f"{name}: " if name else ""
    if all(len(group) == 1 for group in groups):
        ids = " ".join(topology.devices[gpu].id for gpu in members)
        words = _words(topology, matrix, members, groups)
        return [f"{title}{ids}{f'  ({words})' if words else ''}"]
    lines = [f"{title}{_words(topology, matrix, members, groups)} between"]
    return lines + _children([_branch(topology, matrix, group, "") for group in groups])


def _children(branches: Sequence[list[str]]) -> list[str]:
    lines = []
    for number, branch in enumerate(branches, start=1):
        is_last = number == len(branches)
        lines.append(("└─ " if is_last else "├─ ") + branch[0])
        lines += [("   " if is_last else "│  ") + line for line in branch[1:]]
    return lines


def _split(matrix: Matrix, members: list[int]) -> list[list[int]]:
    """The parts that remain connected without the slowest links whose removal splits the group."""
    for slowest in sorted({matrix[a][b] for a in members for b in members if a != b}):
        groups: list[list[int]] = []
        left = list(members)
        while left:
            group, ahead = [], [left.pop(0)]
            while ahead:
                gpu = ahead.pop()
                group.append(gpu)
                near = [other for other in left if matrix[gpu][other] > slowest]
                ahead += near
                left = [other for other in left if other not in near]
            groups.append(sorted(group))
        if len(groups) > 1:
            return groups
    return [[gpu] for gpu in members]


def _words(topology: GpuTopology, matrix: Matrix, members: list[int], groups: list[list[int]]) -> str:
    """The kinds of links between the groups, slowest first."""
    group_of = {gpu: number for number, group in enumerate(groups) for gpu in group}
    slowest: dict[str, int] = {}
    for a in members:
        for b in members:
            if group_of[a] != group_of[b]:
                word = str(topology.links[a][b]) if topology.links else f"{_gbs(matrix[a][b])} GB/s"
                slowest[word] = min(matrix[a][b], slowest.get(word, matrix[a][b]))
    return ", ".join(sorted(slowest, key=lambda word: (slowest[word], word)))
