"""Tiny clusters in which one gang waits and everybody else may be evicted for it, with rules between all of them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from properties.object_writer import HOSTNAME, OURS, PRIORITIES, ZONE, Mix
from properties.pod_rules import PodRules
from properties.raw_objects import Object


@st.composite
def tight_worlds(draw: st.DrawFn) -> list[Object]:
    """One to three nodes with up to five running pods, and a gang of one or two pods with a higher priority."""
    world = TightWorld(draw, Mix())
    for name, value in (*PRIORITIES.items(), ("middle", 50)):
        world.add("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
    left = {f"n{number}": world.between(1, 3) for number in range(world.between(1, 3))}
    for name, cpus in left.items():
        labels = {HOSTNAME: name, ZONE: world.pick("a", "a", "b")}
        allocatable = {"cpu": str(cpus), "pods": "10"}
        world.add("v1", "Node", name, metadata={"labels": labels}, status={"allocatable": allocatable})
    for number in range(world.between(1, 5)):
        if free := [name for name, cpus in left.items() if cpus]:
            node = world.pick(*free)
            left[node] -= 1
            labels = {"app": world.pick("a", "b")}
            spec = world.spec(world.pick("low", "low", "middle"), labels) | {"nodeName": node}
            status = {"phase": "Running"}
            world.add("v1", "Pod", f"v{number}", "default", metadata={"labels": labels}, spec=spec, status=status)
    size = world.between(1, 2)
    world.add(OURS, "PodGroup", "g", "default", spec={"minMember": size, "priorityClassName": "high"})
    labels = {"app": world.pick("a", "b"), "maniple.dev/pod-group": "g"}
    spec = world.spec("high", labels)
    if not world.one_in(4):
        world.add_term(spec, "podAffinity", world.term(labels))
    for number in range(size):
        world.add("v1", "Pod", f"g-{number}", "default", metadata={"labels": labels}, spec=spec)
    return world.objects


class TightWorld(PodRules):
    def spec(self, priority: str, labels: Mapping[str, str]) -> Object:
        """A pod of one CPU, often with a host port or rules about others."""
        container: Object = {"name": "main", "image": "training:1", "resources": {"requests": {"cpu": "1"}}}
        spec: Object = {"schedulerName": "maniple", "priorityClassName": priority, "containers": [container]}
        if self.one_in(3):
            self.add_port(spec)
        if self.one_in(3):
            self.add_term(spec, "podAntiAffinity", self.term(labels))
        if self.one_in(3):
            self.add_rules(spec, labels, "default")
        return spec
