"""Small full clusters of queues with guarantees: departments, limits, indivisible gangs, surplus, two scarce resources.

The guarantees may be more than there is. Everything is younger than the patience of a waiting gang, so that no room is
reserved; in some clusters everything is older.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from properties.elastic_job_facts import moment, written_moment
from properties.gpu_facts import GPU
from properties.object_writer import HOSTNAME, OURS, PRIORITIES, Mix, ObjectWriter
from properties.raw_objects import Object, table, text

FIRST_START, SOON, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:03:20Z", "2026-01-01T02:00:00Z"
START_EVERY_S = 5


@dataclass
class Shape:
    gpus: int
    cpus: int

    def spec(self) -> Object:
        limits: Object = {name: str(count) for name, count in ((GPU, self.gpus), ("cpu", self.cpus)) if count}
        container = {"name": "main", "image": "training:1", "resources": {"limits": limits}}
        return {"schedulerName": "maniple", "containers": [container]}


@dataclass
class GuaranteeWorld(ObjectWriter):
    leaves: list[str] = field(default_factory=list)
    left: dict[str, list[int]] = field(default_factory=dict)  # node -> free GPUs and CPUs
    greedy: str = ""  # a queue
    has_two_resources: bool = False
    has_limits: bool = True
    now: str = SOON
    starts: int = 0

    def begin(self, most_nodes: int) -> None:
        self.has_two_resources = self.one_in(3)
        self.now = LATE if self.one_in(6) else SOON
        for name, value in PRIORITIES.items():
            self.add("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
        for index in range(self.between(1, most_nodes)):
            gpus, cpus = self.pick(2, 3, 4, 1), self.pick(4, 6) if self.has_two_resources else 64
            self.left[f"n{index}"] = [gpus, cpus]
            allocatable = {"cpu": str(cpus), "memory": "64Gi", GPU: str(gpus), "pods": "110"}
            metadata = {"labels": {HOSTNAME: f"n{index}"}}
            self.add("v1", "Node", f"n{index}", metadata=metadata, status={"allocatable": allocatable})
        spec: Object = {"schedulerName": "default-scheduler", "nodeName": "n0", "containers": [{"name": "clock"}]}
        status = {"phase": "Running", "startTime": self.now}
        self.add(
            "v1",
            "Pod",
            "clock",
            "default",
            metadata={"creationTimestamp": self.now, "labels": {}},
            spec=spec,
            status=status,
        )

    # Queues.

    def add_queues(self) -> None:
        if self.one_in(2):
            for name in ["a", "b", "c"][: self.between(2, 3)]:
                self.add_queue(name)
            return
        for parent in ("d", "e"):
            if self.one_in(4):
                self.add_queue(parent)
                continue
            children = [self.queue_spec(parent) for _ in range(self.between(1, 2))]
            own = self.queue_spec("") if self.one_in(2) else {}
            own.pop("limit", None)
            self.add(OURS, "Queue", parent, spec=own)
            for index, spec in enumerate(children):
                self.add(OURS, "Queue", f"{parent}{index}", spec=spec)
                self.leaves.append(f"{parent}{index}")

    def add_queue(self, name: str) -> None:
        self.add(OURS, "Queue", name, spec=self.queue_spec(""))
        self.leaves.append(name)

    def queue_spec(self, parent: str) -> Object:
        spec: Object = {"parent": parent} if parent else {}
        guaranteed: dict[str, int] = {}
        if not self.one_in(4):
            guaranteed[GPU] = self.between(1, 4)
        if self.has_two_resources and self.one_in(3):
            guaranteed["cpu"] = self.between(1, 4)
        if guaranteed:
            spec["guaranteed"] = {name: str(count) for name, count in guaranteed.items()}
        if self.one_in(3):
            spec["weight"] = self.between(1, 3)
        if self.has_limits and self.one_in(8):
            spec["limit"] = {GPU: str(guaranteed.get(GPU, 0) + self.between(1, 2))}
        if self.one_in(10):
            spec["reclaimable"] = False
        if self.one_in(6):
            spec["priority"] = 1
        return spec

    # Work.

    def shape(self) -> Shape:
        gpus = self.pick(1, 2, 1, 3)
        if not self.has_two_resources:
            return Shape(gpus, 0)
        return self.pick(Shape(gpus, 1), Shape(gpus, 0), Shape(0, 2), Shape(gpus, 2))

    def terms(self, runs: bool) -> Object:
        """Mostly one queue runs, and others wait."""
        others = [name for name in self.leaves if name != self.greedy]
        queue = self.greedy if runs is not self.one_in(3) else self.pick(*others)
        spec: Object = {"queue": queue}
        priority = self.pick("", "", "", "high", "low")
        if priority:
            spec["priorityClassName"] = priority
        return spec

    def protections(self) -> Object:
        if self.one_in(10):
            return {"preemptable": False}
        return {"minRuntimeSeconds": 86400} if self.one_in(10) else {}

    def find_node(self, shape: Shape) -> str:
        start, names = self.between(0, len(self.left) - 1), list(self.left)
        for name in names[start:] + names[:start]:
            if self.left[name][0] >= shape.gpus and self.left[name][1] >= shape.cpus:
                return name
        return ""

    def add_running(self, name: str) -> None:
        """A gang with as much of its surplus as finds room, or nothing."""
        shape, least, surplus = self.shape(), self.pick(1, 1, 2, 3), self.pick(0, 0, 1, 2)
        places: list[str] = []
        for _ in range(least + surplus):
            node = self.find_node(shape)
            if not node:
                break
            places.append(node)
            self.left[node][0] -= shape.gpus
            self.left[node][1] -= shape.cpus
        if len(places) < least:
            for node in places:
                self.left[node][0] += shape.gpus
                self.left[node][1] += shape.cpus
            return
        if not self.one_in(8):
            self.starts += 1
        started = written_moment((moment(FIRST_START) or 0) + START_EVERY_S * self.starts)
        if self.one_in(3):
            self.add_job(name, shape, least, places, started)
        else:
            self.add_group(name, shape, least, places, started)

    def add_group(self, name: str, shape: Shape, least: int, places: list[str], started: str = "") -> None:
        spec = {"minMember": least, **self.terms(bool(started)), **(self.protections() if started else {})}
        self.add(OURS, "PodGroup", name, "default", spec=spec)
        for index, node in enumerate(places):
            self.add_member(f"{name}-{index}", {"maniple.dev/pod-group": name}, shape, spec, node, started)

    def add_job(self, name: str, shape: Shape, least: int, places: list[str], started: str = "") -> None:
        step = self.pick(1, 1, 2)
        most = least + step * self.pick(0, 1, 2)
        size = min(most, least + (len(places) - least) // step * step)
        elastic: Object = {"cooldownSeconds": self.pick(0, 0, 86400), "restartSeconds": 0}
        template: Object = {"metadata": {"labels": {}, "annotations": {}}, "spec": shape.spec()}
        role: Object = {"name": "worker", "min": least, "max": most, "step": step, "template": template}
        spec = (
            self.terms(bool(started)) | {"roles": [role], "elastic": elastic} | (self.protections() if started else {})
        )
        status: Object = {"target": [{"role": "worker", "replicas": size}]} if started else {}
        if started and self.one_in(6):
            status["lastResizeTime"] = self.now
        self.add(OURS, "ElasticJob", name, "default", spec=spec, status=status)
        for index, node in enumerate(places):
            if index >= size:  # room that stays free
                self.left[node][0] += shape.gpus
                self.left[node][1] += shape.cpus
                continue
            labels = {"maniple.dev/job": name, "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
            self.add_member(f"{name}-worker-{index}", labels, shape, spec, node, started)

    def add_member(
        self, name: str, labels: dict[str, str], shape: Shape, gang: Object, node: str, started: str
    ) -> None:
        spec = shape.spec()
        if priority := text(gang, "priorityClassName"):
            spec |= {"priorityClassName": priority, "priority": PRIORITIES[priority]}
        metadata: Object = {"labels": labels}
        status: Object = {"phase": "Pending"}
        if node:
            spec["nodeName"] = node
            metadata["creationTimestamp"] = started
            status = {"phase": "Running", "startTime": started}
        self.add("v1", "Pod", name, "default", metadata=metadata, spec=spec, status=status)

    def add_waiting(self, name: str) -> None:
        shape, least = self.shape(), self.pick(1, 1, 2, 2, 3)
        if self.one_in(6):
            self.add_job(name, shape, least, [""] * least)
        else:
            self.add_group(name, shape, least, [""] * (least + self.pick(0, 0, 0, 1)))

    def add_rivals(self) -> None:
        """Alone in line: a large gang, and after it a small one that its queue is guaranteed."""
        queue = self.pick(*[name for name in self.leaves if name != self.greedy])
        written = next(
            item for item in self.objects if item["kind"] == "Queue" and text(item, "metadata", "name") == queue
        )
        spec = table(written, "spec")
        spec["guaranteed"] = table(spec, "guaranteed") | {GPU: "1"}
        spec.pop("limit", None)
        if self.one_in(3):
            spec["weight"] = 0
        written["spec"] = spec
        for name, gpus in (("x0", self.pick(2, 3)), ("x1", 1)):
            shape = Shape(gpus, 0)
            terms: Object = {"minMember": 1, "queue": queue}
            self.add(OURS, "PodGroup", name, "default", spec=terms)
            self.add_member(f"{name}-0", {"maniple.dev/pod-group": name}, shape, terms, "", "")


def guarantee_cluster(world: GuaranteeWorld, most_nodes: int, most_running: int, most_waiting: int) -> list[Object]:
    world.begin(most_nodes)
    world.add_queues()
    world.greedy = world.pick(*world.leaves)
    for index in range(world.between(most_running // 2, most_running)):
        world.add_running(f"r{index}")
    for index in range(world.between(1, most_waiting)):
        world.add_waiting(f"w{index}")
    return world.objects


def rival_cluster(world: GuaranteeWorld, most_nodes: int, most_running: int) -> list[Object]:
    """One queue waits, others hold what there is."""
    world.begin(most_nodes)
    world.add_queues()
    world.greedy = world.pick(*world.leaves)
    for index in range(world.between(most_running // 2, most_running)):
        world.add_running(f"r{index}")
    world.add_rivals()
    return world.objects


@st.composite
def guarantee_worlds(draw: st.DrawFn, most_running: int = 8, most_waiting: int = 4) -> list[Object]:
    """Several gangs wait."""
    return guarantee_cluster(GuaranteeWorld(draw, Mix()), 3, most_running, most_waiting)


@st.composite
def tiny_guarantee_worlds(draw: st.DrawFn) -> list[Object]:
    """Few enough jobs that every set of victims can be tried."""
    return guarantee_cluster(GuaranteeWorld(draw, Mix()), 3, 6, 2)


@st.composite
def lone_claim_worlds(draw: st.DrawFn) -> list[Object]:
    """One gang waits."""
    return guarantee_cluster(GuaranteeWorld(draw, Mix()), 3, 6, 1)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Object], list[list[Object]]]:
    """A cluster, and the gangs that arrive after its first and its second round."""
    world = GuaranteeWorld(draw, Mix())
    first = list(guarantee_cluster(world, 3, 8, 2))
    later: list[list[Object]] = []
    for turn in range(2):
        before = len(world.objects)
        for index in range(world.between(0, 2)):
            world.add_waiting(f"l{turn}{index}")
        later.append(world.objects[before:])
    return first, later
