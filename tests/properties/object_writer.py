"""Draws and names for raw Kubernetes objects: every object is valid, names are unique, and times deterministic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from hypothesis import strategies as st

from properties.raw_objects import Object

T = TypeVar("T")
Draw: TypeAlias = Callable[[st.SearchStrategy[object]], object]

OURS = "maniple.dev/v1alpha1"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
GANG_LABELS = ("maniple.dev/pod-group", "maniple.dev/job")
AREA: Object = {"key": "area", "operator": "In", "values": ["north"]}
PRIORITIES = {"low": 10, "high": 1000}


@dataclass(frozen=True)
class Mix:
    """What may occur in a cluster."""

    rules_one_in: int = 3  # rules between pods; 0: never
    has_queues: bool = True
    limits_one_in: int = 3  # 0: never
    has_priorities: bool = True
    firm_one_in: int = 8  # gangs that may not be preempted; if there are more, queues guarantee more
    most_nodes: int = 8
    most_workloads: int = 9


@dataclass
class ObjectWriter:
    draw_any: Draw
    mix: Mix
    objects: list[Object] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=lambda: ["default"])
    notation: int = 0
    moment: int = 0

    def pick(self, *choices: T) -> T:
        chosen = self.draw_any(st.integers(0, len(choices) - 1))
        assert isinstance(chosen, int)
        return choices[chosen]

    def between(self, least: int, most: int) -> int:
        chosen = self.draw_any(st.integers(least, most))
        assert isinstance(chosen, int)
        return chosen

    def one_in(self, many: int) -> bool:
        return self.between(0, many - 1) == many - 1

    def add(self, api: str, kind: str, name: str, namespace: str = "", **parts: object) -> Object:
        """Ages are mostly distinct, sometimes equal."""
        self.moment += self.pick(1, 0, 5)
        metadata: Object = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        metadata["creationTimestamp"] = f"2026-01-01T00:{self.moment // 60:02}:{self.moment % 60:02}Z"
        extra = parts.pop("metadata", {})
        assert isinstance(extra, dict)
        manifest: Object = {"apiVersion": api, "kind": kind, "metadata": metadata | extra, **parts}
        self.objects.append(manifest)
        return manifest

    # Quantities: one notation a cluster.

    def cpu(self, milli: int) -> str:
        if self.notation == 1:
            return f"{milli / 1000:g}"
        return str(milli // 1000) if self.notation == 2 and milli % 1000 == 0 else f"{milli}m"

    def memory(self, mebi: int) -> str:
        if self.notation == 1:
            return str(mebi * 2**20)
        return f"{mebi // 1024}Gi" if self.notation == 2 and mebi % 1024 == 0 else f"{mebi}Mi"
