"""The Node annotation `maniple.dev/gpu-topology`: which GPUs a node has, and how they are linked.

People, scripts and agents write it, and a wrong annotation must never stop the scheduler: functions here return a
`GpuTopology` or raise `TopologyError` with every problem.
"""

import re
from collections.abc import Iterable

import msgspec

from maniple.api.errors import nearest, shown
from maniple.api.meta import Struct
from maniple.api.quantity import LARGEST, QuantityError, format_quantity, parse_quantity, to_units
from maniple.api.repeated_keys import repeated_key
from maniple.api.terminal_text import printable
from maniple.api.types import GPU_RESOURCES

DEFAULT_RESOURCE = GPU_RESOURCES[0]
VERSIONS = (1,)
MAX_DEVICES = 1024
# The words of `nvidia-smi topo -m` for a path over PCIe, slowest first. NVn is a bond of n NVLinks.
PCIE_WORDS = ("SYS", "NODE", "PHB", "PXB", "PIX", "PSB")
MAX_LINK_GBS = 1_000_000

Link = str | float

_NVLINK = re.compile(r"NV([1-9][0-9]{0,2})", re.ASCII)
LINK_WORDS = ("X", *PCIE_WORDS, *(f"NV{count}" for count in (1, 2, 4, 6, 8, 12, 18)))
_COMMON_LINKS = frozenset((*PCIE_WORDS, *(f"NV{count}" for count in range(1, 19))))  # valid without a closer look
_ID = re.compile(r"[^,\s]{1,128}")  # ids are separated by commas in maniple.dev/gpus
_FIELDS = frozenset({"version", "resource", "devices", "links"})
_DEVICE_FIELDS = frozenset({"id", "uuid", "model", "memory", "numa", "healthy"})
_MAX_PROBLEMS = 20


class GpuDevice(Struct, frozen=True):
    """One GPU. Unknown values are empty, 0 or -1; the node's labels may have them."""

    id: str
    uuid: str = ""
    model: str = ""
    memory_bytes: int = 0
    numa: int = -1
    healthy: bool = True


class GpuTopology(Struct, frozen=True):
    """The GPUs of one resource of a node. `links[a][b]` is in the order of devices; () if unknown."""

    version: int
    resource: str
    devices: tuple[GpuDevice, ...]
    links: tuple[tuple[Link, ...], ...] = ()


class TopologyError(ValueError):
    """Text that is not a topology. Each problem is one line with the path of the field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = [printable(problem) for problem in problems]
        super().__init__("; ".join(self.problems))


def nvlinks(word: str) -> int:
    """How many NVLinks `NV12` bonds (12); 0 for any other word."""
    match = _NVLINK.fullmatch(word)
    return int(match[1]) if match else 0


def parse_topology(text: str) -> GpuTopology:
    """Parses the annotation. Raises TopologyError with every problem."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TopologyError(["nested too deeply"]) from None
    except ValueError as error:  # also UnicodeEncodeError
        raise TopologyError([f"not valid JSON: {error}"]) from None
    if (key := repeated_key(text)) is not None:
        raise TopologyError([f"not valid JSON: the key {shown(key)} stands twice in one map"])
    if not isinstance(value, dict):
        raise TopologyError([f"expected an object with version and devices, found {_kind(value)}"])
    reader = _Reader()
    topology = reader.topology(value)
    if reader.problems:
        more = len(reader.problems) - _MAX_PROBLEMS
        raise TopologyError(reader.problems[:_MAX_PROBLEMS] + ([f"… and {more} more"] if more > 0 else []))
    return topology


def problems(text: str) -> list[str]:
    """Everything wrong with the annotation, each with its path (`devices[3].memory: …`)."""
    try:
        parse_topology(text)
    except TopologyError as error:
        return error.problems
    return []


def to_json(topology: GpuTopology) -> str:
    """The annotation: one line, without unknown values."""
    devices = []
    for device in topology.devices:
        fields = {
            "id": device.id,
            "uuid": device.uuid or None,
            "model": device.model or None,
            "memory": format_quantity(device.memory_bytes, per_unit=1, binary=True) if device.memory_bytes else None,
            "numa": device.numa if device.numa >= 0 else None,
            "healthy": None if device.healthy else False,
        }
        devices.append({name: value for name, value in fields.items() if value is not None})
    value: dict[str, object] = {"version": topology.version, "resource": topology.resource, "devices": devices}
    if topology.links:
        value["links"] = topology.links
    return msgspec.json.encode(value).decode()


class _Reader:
    """Collects all problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def wrong(self, path: str, message: str) -> None:
        self.problems.append(f"{path}: {message}" if path else message)

    def topology(self, value: dict[str, object]) -> GpuTopology:
        self.fields("", value, _FIELDS)
        version = value.get("version")
        if type(version) is not int or version not in VERSIONS:
            supported = " or ".join(map(str, VERSIONS))
            wrong = "is missing" if version is None else f"{_shown(version)} is not supported"
            self.wrong("version", f"{wrong}; supported: {supported}")
        resource = self.text("", value, "resource") or DEFAULT_RESOURCE
        if resource not in GPU_RESOURCES:
            self.wrong("resource", f"unknown GPU resource {shown(resource)}{nearest(resource[:64], GPU_RESOURCES)}")
        devices = self.devices(value.get("devices"))
        links = self.links(value.get("links"), len(devices)) if devices is not None else ()
        return GpuTopology(VERSIONS[-1], resource, devices or (), links)

    def fields(self, path: str, value: dict[str, object], known: frozenset[str]) -> None:
        for name in sorted(value.keys() - known):
            self.wrong(path, f"unknown field {shown(name)}{nearest(name[:64], known)}")

    def text(self, path: str, value: dict[str, object], name: str) -> str:
        text = value.get(name)
        if text is None or (isinstance(text, str) and len(text) <= 253):
            return text or ""
        self.wrong(f"{path}{name}", f"expected a text of at most 253 letters, found {_shown(text)}")
        return ""

    def devices(self, value: object) -> tuple[GpuDevice, ...] | None:
        """None if there is no list, so that links cannot be checked."""
        if not isinstance(value, list):
            self.wrong("devices", "is missing" if value is None else f"expected a list, found {_kind(value)}")
            return None
        if not value:
            self.wrong("devices", "expected at least one GPU, found an empty list")
        if len(value) > MAX_DEVICES:
            self.wrong("devices", f"expected at most {MAX_DEVICES} GPUs, found {len(value)}")
            return None
        devices = tuple(self.device(f"devices[{index}]", entry) for index, entry in enumerate(value))
        first: dict[str, int] = {}
        for index, device in enumerate(devices):
            if device.id and first.setdefault(device.id, index) != index:
                self.wrong(f"devices[{index}].id", f"{device.id!r} is also the id of devices[{first[device.id]}]")
        return devices

    def device(self, path: str, value: object) -> GpuDevice:
        if not isinstance(value, dict):
            self.wrong(path, f"expected an object with an id, found {_kind(value)}")
            return GpuDevice("")
        self.fields(path, value, _DEVICE_FIELDS)
        identity = value.get("id")
        if type(identity) is int and 0 <= identity <= LARGEST:
            identity = str(identity)
        if not isinstance(identity, str) or not _ID.fullmatch(identity):
            wrong = "is missing" if identity is None else f"found {_shown(identity)}"
            self.wrong(f"{path}.id", f"{wrong}; expected a number, or a text without spaces and commas")
            identity = ""
        numa = value.get("numa")
        if numa is None:
            numa = -1
        elif type(numa) is not int or not -1 <= numa < 2**31:
            self.wrong(f"{path}.numa", f"expected the number of a NUMA node, or -1 for unknown, found {_shown(numa)}")
            numa = -1
        healthy = value.get("healthy")
        if healthy is not None and not isinstance(healthy, bool):
            self.wrong(f"{path}.healthy", f"expected true or false, found {_shown(healthy)}")
        return GpuDevice(
            identity,
            self.text(f"{path}.", value, "uuid"),
            self.text(f"{path}.", value, "model"),
            self.memory(f"{path}.memory", value.get("memory")),
            numa,
            healthy is not False,
        )

    def memory(self, path: str, value: object) -> int:
        if value is None:
            return 0
        try:
            if isinstance(value, str):
                return parse_device_memory(value)
            if type(value) is int and 0 < value <= LARGEST:
                return value
        except QuantityError as error:
            self.wrong(path, str(error))
            return 0
        self.wrong(path, f"expected a quantity such as 40Gi, or a number of bytes, found {_shown(value)}")
        return 0

    def links(self, value: object, count: int) -> tuple[tuple[Link, ...], ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self.wrong("links", f"expected a list of rows, found {_kind(value)}")
            return ()
        if value and len(value) != count:
            self.wrong("links", f"expected {count} rows, one for each device, got {len(value)}")
            return ()
        rows: list[tuple[Link, ...]] = []
        for a, row in enumerate(value):
            if not isinstance(row, list):
                self.wrong(f"links[{a}]", f"expected a list of {count} links, found {_kind(row)}")
            elif len(row) != count:
                self.wrong(f"links[{a}]", f"expected {count} entries, got {len(row)}")
            else:
                for b, link in enumerate(row):
                    if type(link) is str and link in _COMMON_LINKS:
                        continue
                    if problem := _link_problem(link, is_self=a == b):
                        self.wrong(f"links[{a}][{b}]", problem)
                rows.append(tuple(row))
        return tuple(rows)


def parse_device_memory(text: str) -> int:
    """A GPU's memory in bytes. Raises QuantityError if `text` is no quantity above 0."""
    units = to_units(parse_quantity(text), per_unit=1)
    if units <= 0:
        raise QuantityError(f"expected more than 0, found {text!r}")
    return units


def _link_problem(link: object, *, is_self: bool) -> str:
    """What is wrong with an entry of the matrix, or "". Entries on the diagonal have no meaning but are checked."""
    if isinstance(link, str):
        if link in PCIE_WORDS or _NVLINK.fullmatch(link) or (link == "X" and is_self):
            return ""
        if link == "X":
            return "X is the link of a GPU to itself; expected the link of two GPUs"
        return f"unknown link {shown(link)}{nearest(link[:64], LINK_WORDS)}"
    if isinstance(link, bool) or not isinstance(link, int | float):
        return f"expected a word such as NV12 or PIX, or a number of GB/s, found {_shown(link)}"
    if is_self and link == 0:
        return ""
    if not 0 < link <= MAX_LINK_GBS:  # also NaN
        return f"expected more than 0 and at most {MAX_LINK_GBS} GB/s, found {_shown(link)}"
    return ""


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return msgspec.json.encode(value).decode()
    return {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}[type(value)]


def _shown(value: object) -> str:
    """As JSON has it, but lists and objects are only named."""
    return _kind(value) if value is None or isinstance(value, bool | list | dict) else shown(value)
