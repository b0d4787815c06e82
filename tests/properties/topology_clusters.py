"""Random clusters where the exact place of a pod matters: racks, models, links, shares, unhealthy devices."""

from __future__ import annotations

import json
from enum import StrEnum
from random import Random

from hypothesis import strategies as st

from properties.gpu_facts import (
    FRACTION_ANNOTATION,
    MEMORY_ANNOTATION,
    MEMORY_LABEL,
    MODELS_ANNOTATION,
    PRODUCT_LABELS,
    TOPOLOGY_ANNOTATION,
)
from properties.object_builder import Host, Member
from properties.object_writer import HOSTNAME, OURS, Mix
from properties.random_clusters import World
from properties.raw_objects import Object

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = {"block": BLOCK, "rack": RACK, "host": HOSTNAME}
GIBIBYTES = {
    "NVIDIA-A100-SXM4-40GB": 40,
    "Tesla-V100-SXM2-32GB": 32,
    "NVIDIA-H100-80GB-HBM3": 80,
    "NVIDIA-A100-PCIE-40GB": 40,
    "Tesla-P100-SXM2-16GB": 16,
}
LISTS = ("A100", "H100, A100", "V100=1, A100=2, *", "A100-SXM4, v100", "H100=3, *", "P100,*")
LINKS: tuple[tuple[str | float, ...], ...] = (
    ("SYS", "PIX", "NV1", "NV2"),
    ("PHB", "NODE", "PXB", "PSB"),
    ("NV12", "SYS"),
    (12, 48.5, "PIX", 300),
)


class Theme(StrEnum):
    """What a cluster with one waiting gang tests."""

    DOMAINS = "domains"  # large gangs that ask to be close
    MODELS = "models"  # lists of models, of which there are several
    LINKS = "links"  # whole GPUs, and every node says how they are linked


class CloseWorld(World):
    theme: Theme | None = None
    has_close_rules = False  # rules between the pods of close groups
    products: tuple[str, ...] = ()

    def add_close_nodes(self, most: int) -> None:
        """Racks have the same names in every block; some nodes are in no rack, or in no block."""
        levels: list[Object] = [{"name": name, "nodeLabel": label} for name, label in LEVELS.items()]
        self.add(OURS, "Topology", "cluster", spec={"levels": levels})
        names = list(GIBIBYTES)
        first = self.between(0, len(names) - 1)
        self.products = tuple((names[first:] + names[:first])[: self.between(1 + (self.theme is Theme.MODELS), 3)])
        for index in range(self.between(2 + 2 * (self.theme is Theme.DOMAINS), most)):
            gpus = self.pick(4, 8) if self.theme is Theme.LINKS else self.pick(4, 2, 8, 4, 1, 0)
            labels = {BLOCK: self.pick("b0", "b1"), RACK: self.pick("r0", "r1")}
            if self.one_in(6):
                labels[self.pick(RACK, BLOCK, HOSTNAME)] = ""
            product = self.pick(*self.products)
            if gpus and not self.one_in(8):
                labels[PRODUCT_LABELS[0]] = product
                labels[MEMORY_LABEL] = str(GIBIBYTES[product] * 1024) if not self.one_in(6) else ""
            annotations: dict[str, str] = {}
            if gpus and (self.theme is Theme.LINKS or self.one_in(2)):
                gpus, annotations = self.described(gpus)
            self.add_node(f"n{index}", self.pick(32, 16, 4), 64, gpus, self.one_in(8), labels, annotations)

    def described(self, count: int) -> tuple[int, dict[str, str]]:
        """GPUs one by one, and how many the kubelet counts: it has seen the unhealthy ones, or not, or hides one."""
        style, product, is_mixed = self.pick("number", "text", "word"), self.pick(*self.products), self.one_in(5)
        devices: list[Object] = []
        for index in range(count):
            device: Object = {"id": {"number": index, "text": str(index), "word": f"gpu-{index}"}[style]}
            if is_mixed:
                product = self.pick(*self.products)
                device |= {"model": product, "memory": f"{GIBIBYTES[product]}Gi"}
            if self.one_in(8):
                device["healthy"] = False
            devices.append(device)
        sick = sum("healthy" in device for device in devices)
        written: Object = {"version": 1, "devices": devices}
        if self.theme is Theme.LINKS or not self.one_in(4):
            written["links"] = random_links(count, self.pick(*LINKS), Random(self.between(0, 2**16)))
        counted = self.pick(count - sick, count - sick, count, max(0, count - sick - 1))
        return counted, {TOPOLOGY_ANNOTATION: json.dumps(written)}

    # Work.

    def gpu_shape(self) -> tuple[Object, dict[str, str]]:
        """A spec, and the GPU annotations of its pods."""
        cpu, annotations = self.pick(0, 100, 2000), {}
        kinds = (
            ["whole"] if self.theme is Theme.LINKS else ["whole", "whole", "part", "part", "memory", "parts", "none"]
        )
        match self.pick(*kinds):
            case "whole":
                gpus = self.pick(2, 4, 3, 1)
            case "part":
                gpus = self.pick(0, 1)
                annotations[FRACTION_ANNOTATION] = self.pick("0.5", "0.25", "0.3", "0.75", "0.125", "1")
            case "memory":
                gpus = self.pick(0, 1, 1, 2)
                annotations[MEMORY_ANNOTATION] = self.pick("8Gi", "16Gi", "20Gi", "3Gi", "60Gi", "12G")
            case "parts":
                gpus = self.pick(2, 3)
                annotations[FRACTION_ANNOTATION] = self.pick("0.5", "0.3", "0.75")
            case _:
                gpus = 0
        if self.theme is Theme.MODELS:
            names = list(dict.fromkeys(product.split("-")[1] for product in self.products))
            first = self.between(0, len(names) - 1)
            annotations[MODELS_ANNOTATION] = ", ".join([*names[first:], *names[:first]][:2] + self.pick([], ["*"]))
        elif gpus + len(annotations) and self.one_in(4):
            annotations[MODELS_ANNOTATION] = self.pick(*LISTS)
        return {"containers": [self.container("main", cpu, 0, gpus)]}, annotations

    def closeness(self) -> Object:
        spec: Object = {}
        match self.pick("required", "preferred", "both", *(["none"] if self.theme is not Theme.DOMAINS else [])):
            case "required":
                spec["topology"] = {"required": self.pick("rack", "block", "host")}
            case "preferred":
                spec["topology"] = {"preferred": self.pick("rack", "host", "block")}
            case "both":
                spec["topology"] = {"required": self.pick("block", "rack"), "preferred": self.pick("host", "rack")}
        if self.one_in(6):
            spec["mixedGpuModels"] = True
        return spec

    def neighbours(self, spec: Object) -> list[Host]:
        """Where a running gang may be: mostly within what it requires, and on one model."""
        anchor = self.pick(*self.hosts)
        if self.one_in(6):
            return self.hosts
        asked = spec.get("topology")
        assert asked is None or isinstance(asked, dict)
        level = (asked or {}).get("required", "")
        path = list(LEVELS.values())[: list(LEVELS).index(level) + 1] if level else []
        return [
            host
            for host in self.hosts
            if host.node.hardware.models == anchor.node.hardware.models
            and all(host.node.labels.get(key, "") == anchor.node.labels.get(key, "") for key in path)
        ]

    def add_close_group(
        self, name: str, runs: bool, is_plain: bool = False, all_leave: bool = False, priority: str | None = None
    ) -> None:
        """A plain one has one shape and no surplus."""
        shapes = [self.gpu_shape() for _ in range(1 if is_plain else self.pick(1, 1, 1, 2))]
        count = self.between(1, {Theme.DOMAINS: 12, Theme.LINKS: 3}.get(self.theme, 6) if self.theme else 6)
        least = count if is_plain else max(1, count - self.pick(0, 0, 1, 2, 5))
        spec: Object = {"minMember": least, "queue": self.pick(*self.queues), **self.closeness()}
        if self.mix.has_priorities and (priority := self.pick("", "low", "high") if priority is None else priority):
            spec["priorityClassName"] = priority
        has_roles = self.one_in(6)
        if has_roles:
            listed: list[Object] = [{"model": "A100", "speed": 2}, {"model": self.pick("V100", "*", "H100")}]
            spec["roles"] = [{"name": "worker", "minMember": least, "gpuModels": listed}]
        self.add(OURS, "PodGroup", name, "default", spec=spec)
        members: list[Member] = []
        app = {"app": self.pick("a", "b")} if self.has_close_rules else {}
        for shape, _ in shapes if self.has_close_rules else ():
            if self.one_in(2):
                self.add_rules(shape, {"maniple.dev/pod-group": name} | app, "default")
        for index in range(count):
            shape, annotations = shapes[index % len(shapes)]
            labels = {"maniple.dev/pod-group": name} | ({"maniple.dev/role": "worker"} if has_roles else {}) | app
            members.append(Member(f"{name}-{index}", shape, labels, dict(annotations)))
        running = self.between(least, count) if runs else 0
        self.place(members, "default", least, running, all_leave, self.neighbours(spec) if runs else None)

    def add_close_job(self, name: str) -> None:
        shape, annotations = self.gpu_shape()
        least = self.between(1, 4)
        template: Object = {"metadata": {"annotations": annotations}, "spec": shape}
        role: Object = {"name": "worker", "min": least, "max": least + 2, "template": template}
        if self.one_in(4):
            role["gpuModels"] = [{"model": "H100", "speed": 3}, {"model": "A100"}]
        self.add(OURS, "ElasticJob", name, "default", spec={"roles": [role], **self.closeness()})

    def add_close_pod(self, name: str, runs: bool) -> None:
        shape, annotations = self.gpu_shape()
        member = Member(name, shape, {}, annotations)
        host = self.find_host(member) if runs else None
        scheduler = "default-scheduler" if runs and not annotations and self.one_in(3) else "maniple"
        self.add_pod(member, "default", scheduler, host, leaves=self.one_in(4))

    def add_close_work(self, most: int) -> None:
        for index in range(self.between(1, most)):
            match self.pick("group", "group", "group", "pod", "job"):
                case "group":
                    self.add_close_group(f"g{index}", self.one_in(3))
                case "pod":
                    self.add_close_pod(f"p{index}", self.one_in(2))
                case _:
                    self.add_close_job(f"j{index}")


def random_links(count: int, words: tuple[str | float, ...], random: Random) -> list[list[object]]:
    """Mostly the same in both directions."""
    matrix: list[list[object]] = [["X"] * count for _ in range(count)]
    for one in range(count):
        for other in range(one):
            matrix[one][other] = matrix[other][one] = random.choice(words)
            if random.random() < 0.1:
                matrix[one][other] = random.choice(words)
    return matrix


@st.composite
def close_worlds(draw: st.DrawFn, has_queues: bool = True) -> list[Object]:
    """Everything about GPUs and closeness, in small amounts."""
    builder = CloseWorld(draw, Mix(has_queues=has_queues, limits_one_in=4 if has_queues else 0, has_priorities=False))
    builder.start()
    builder.add_queues()
    builder.add_close_nodes(6)
    builder.add_close_work(7)
    return builder.objects


@st.composite
def lone_worlds(draw: st.DrawFn, theme: Theme | None = None) -> list[Object]:
    """Other gangs run; only one gang of one shape waits."""
    builder = CloseWorld(draw, Mix(has_queues=False, limits_one_in=0, has_priorities=False))
    builder.start()
    builder.theme = theme or builder.pick(*Theme)
    builder.add_close_nodes(8)
    for index in range(builder.between(0, 5 if builder.theme is Theme.LINKS else 10)):
        shape, annotations = builder.gpu_shape()
        member = Member(f"r{index}", shape, {}, annotations)
        host = builder.find_host(member)
        if host is not None:
            builder.add_pod(member, "default", "maniple", host)
    builder.add_close_group("lone", runs=False, is_plain=True)
    return builder.objects


@st.composite
def full_close_worlds(draw: st.DrawFn) -> list[Object]:
    """Gangs of several queues and priorities run wherever there is room, and others arrive."""
    return full_close_cluster(CloseWorld(draw, Mix(limits_one_in=0)))


def full_close_cluster(builder: CloseWorld) -> list[Object]:
    builder.start()
    for name in ["prod", "research"][: builder.between(1, 2)]:
        builder.queues.append(name)
        builder.add(OURS, "Queue", name, spec=builder.queue_spec(least=1))
    builder.add_close_nodes(3)
    for index in range(8):
        if not any(any(host.gpus.values()) for host in builder.hosts):
            break
        leaves = builder.one_in(6)
        builder.add_close_group(f"r{index}", runs=True, all_leave=leaves, priority=builder.pick("low", "", "high"))
    for index in range(builder.between(1, 3)):
        builder.add_close_group(f"w{index}", runs=False, priority=builder.pick("high", "", "low"))
    return builder.objects
