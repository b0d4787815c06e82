"""The GPUs of a node and what a pod requests of them, as nodes and pods write it, for the referee alone.

A device is known by its id. Shares are exact fractions of a device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from properties.raw_objects import Resources, at, quantity, rows, text

GPU = "nvidia.com/gpu"
GPUS = (GPU, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
TOPOLOGY_ANNOTATION = "maniple.dev/gpu-topology"
FRACTION_ANNOTATION, MEMORY_ANNOTATION = "maniple.dev/gpu-fraction", "maniple.dev/gpu-memory"
MODELS_ANNOTATION = "maniple.dev/gpu-models"
PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB
WHOLE = Fraction(1)

# GB/s, in one direction.
WORDS = {"SYS": "9", "NODE": "9.5", "PHB": "9.9", "PXB": "10.2", "PIX": "10.6", "PSB": "11"}
NVLINK, NVLINK_OF_P100 = Fraction(25), Fraction(20)


@dataclass(frozen=True)
class Device:
    id: str
    model: str = ""  # empty: unknown
    memory: Fraction = Fraction(0)  # bytes; 0: unknown
    is_healthy: bool = True


@dataclass(frozen=True)
class Ask:
    """What a pod requests of GPUs: how many devices, and how much of each."""

    count: int = 0
    part: Fraction = WHOLE
    memory: Fraction | None = None  # bytes of each; then `part` says nothing
    models: tuple[str, ...] = ()  # in order of preference; empty: any

    @property
    def is_whole(self) -> bool:
        return self.memory is None and self.part == WHOLE

    def share_of(self, device: Device) -> Fraction | None:
        """How much of this device one share is; None if it cannot hold one at all."""
        if self.memory is None:
            return self.part
        if device.memory < self.memory:
            return None
        return Fraction(ceil(1000 * self.memory / device.memory), 1000)


def is_called(name: str, model: str) -> bool:
    """Whether a product has this name: it contains the words of the name, consecutively."""
    wanted, words = name.lower().split("-"), model.lower().split("-")
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))


def rank_of(model: str, models: tuple[str, ...]) -> int | None:
    """The place of a product in a list of models; `*` stands for all that are not named. None: not allowed."""
    if not models:
        return 0
    named = [place for place, name in enumerate(models) if name != "*" and is_called(name, model)]
    if named:
        return named[0]
    return models.index("*") if "*" in models else None


def read_models(written: str) -> tuple[str, ...]:
    """Names without their speeds, which do not matter for what is allowed."""
    return tuple(part.partition("=")[0].strip() for part in written.split(",") if part.strip())


def read_ask(annotations: Mapping[str, str], requests: Resources) -> Ask:
    count = int(sum(requests.get(name, Fraction(0)) for name in GPUS))
    models = read_models(annotations.get(MODELS_ANNOTATION, ""))
    fraction, memory = annotations.get(FRACTION_ANNOTATION), annotations.get(MEMORY_ANNOTATION)
    if fraction is not None:
        return Ask(max(count, 1), quantity(fraction), models=models)
    if memory is not None:
        return Ask(max(count, 1), memory=quantity(memory), models=models)
    return Ask(count, models=models)


def amount_asked(ask: Ask, devices: Iterable[Device], is_given: bool = False) -> Fraction:
    """What the pod counts for in GPUs: on its assigned devices, or the least on any devices."""
    shares = [share for device in devices for share in [ask.share_of(device)] if share is not None]
    if is_given and len(shares) == ask.count:
        return sum(shares, Fraction(0))
    return ask.count * min(shares, default=WHOLE)


@dataclass(frozen=True)
class Hardware:
    """The devices of one node in its order, and the link speed of each pair (GB/s) if known."""

    devices: tuple[Device, ...] = ()
    links: tuple[tuple[Fraction, ...], ...] | None = None

    def find(self, device_id: str) -> Device | None:
        return next((device for device in self.devices if device.id == device_id), None)

    @property
    def healthy(self) -> list[Device]:
        return [device for device in self.devices if device.is_healthy]

    @property
    def models(self) -> set[str]:
        return {device.model for device in self.healthy}


def read_hardware(labels: Mapping[str, str], annotations: Mapping[str, str], count: int) -> Hardware:
    product = next((labels[key] for key in PRODUCT_LABELS if key in labels), "")
    memory = Fraction(labels.get(MEMORY_LABEL, "0")) * 2**20
    written: object = json.loads(annotations.get(TOPOLOGY_ANNOTATION, "null"))
    if written is None or text(written, "resource", default=GPU) != GPU:
        return Hardware(tuple(Device(str(index), product, memory) for index in range(count)))
    devices = tuple(
        Device(
            id=text(row, "id"),
            model=text(row, "model") or product,
            memory=quantity(text(row, "memory")) if text(row, "memory") else memory,
            is_healthy=at(row, "healthy") is not False,
        )
        for row in rows(written, "devices")
    )
    return Hardware(devices, read_links(rows(written, "links"), devices))


def read_links(matrix: list[object], devices: tuple[Device, ...]) -> tuple[tuple[Fraction, ...], ...] | None:
    """Of the two directions of a pair the slower one counts."""
    if not matrix:
        return None

    def one_way(here: int, there: int) -> Fraction:
        row = matrix[here]
        assert isinstance(row, list)
        return speed(row[there], devices[here])

    places = range(len(devices))
    return tuple(tuple(Fraction(0) if a == b else min(one_way(a, b), one_way(b, a)) for b in places) for a in places)


def speed(link: object, device: Device) -> Fraction:
    if isinstance(link, int | float):
        return quantity(link)
    word = str(link)
    if word.startswith("NV"):
        return int(word[2:]) * (NVLINK_OF_P100 if is_called("P100", device.model) else NVLINK)
    return Fraction(WORDS[word])
