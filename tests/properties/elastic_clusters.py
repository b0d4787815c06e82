"""Random full clusters with work that can make way: elastic jobs, surplus, priorities, and gangs that arrive.

The time of the decision is known and far from every threshold: in the few seconds that some rounds take, no
cool-down ends, and no pod reaches its minimum runtime or its patience.
"""

from __future__ import annotations

from hypothesis import strategies as st

from properties.gpu_facts import FRACTION_ANNOTATION, GPU
from properties.object_builder import Host, Member
from properties.object_writer import OURS, PRIORITIES, Mix
from properties.raw_objects import Object
from properties.topology_clusters import LEVELS, RACK, CloseWorld

NOW, LONG_AGO, RECENTLY = "2026-01-01T02:00:00Z", "2026-01-01T00:30:00Z", "2026-01-01T01:59:50Z"
SOON = "2026-01-01T02:05:00Z"
CURVES: tuple[tuple[float, ...], ...] = ((), (), (1, 1.9, 2.7, 3.4, 4, 4.5), (1, 2, 2, 2, 1.5), (1, 1.001, 1.002))


class ElasticWorld(CloseWorld):
    is_shared = False  # pods ask for halves of GPUs
    has_targets = False  # jobs that run say their size; else it is that of the pods that are there

    def begin(self, most_queues: int, most_nodes: int) -> None:
        self.start()
        self.is_shared = self.one_in(6)
        for name in ["prod", "research", "sales"][: self.between(0, most_queues)]:
            self.queues.append(name)
            self.add(OURS, "Queue", name, spec=self.queue_spec(least=1))
        levels: list[Object] = [{"name": name, "nodeLabel": label} for name, label in LEVELS.items()]
        self.add(OURS, "Topology", "cluster", spec={"levels": levels})
        for index in range(self.between(1, most_nodes)):
            labels = {LEVELS["block"]: "b0", RACK: self.pick("r0", "r1")}
            self.add_node(f"n{index}", 32, 64, self.pick(4, 2, 8, 4), labels=labels)
        spec: Object = {"schedulerName": "default-scheduler", "nodeName": "n0", "containers": [{"name": "clock"}]}
        status = {"phase": "Running", "startTime": NOW}
        self.add("v1", "Pod", "clock", "default", metadata={"creationTimestamp": NOW}, spec=spec, status=status)

    def ruled_shape(self, gang: dict[str, str]) -> tuple[Object, dict[str, str], dict[str, str]]:
        """A pod's spec, annotations and labels, sometimes with a rule about other pods."""
        spec, annotations = self.shape()
        if not self.mix.rules_one_in:
            return spec, annotations, {}
        labels = {"app": self.pick("a", "b")} | ({"tier": self.pick("x", "y")} if self.one_in(3) else {})
        if self.one_in(self.mix.rules_one_in):
            self.add_rules(spec, labels | gang, "default")
        return spec, annotations, labels

    def shape(self) -> tuple[Object, dict[str, str]]:
        if self.is_shared and not self.one_in(3):
            return {"containers": [self.container("main", 100, 0, 1)]}, {FRACTION_ANNOTATION: "0.5"}
        return {"containers": [self.container("main", 100, 0, self.pick(1, 1, 2))]}, {}

    def terms(self, priority: str) -> Object:
        """What jobs and groups have in common."""
        spec: Object = {"queue": self.pick(*self.queues)}
        if priority:
            spec["priorityClassName"] = priority
        if self.one_in(self.mix.firm_one_in):
            spec["preemptable"] = False
        if self.one_in(6):
            spec["minRuntimeSeconds"] = self.pick(600, 86400, 0)
        if self.one_in(6):
            spec["topology"] = {self.pick("required", "required", "preferred"): self.pick("rack", "host")}
        return spec

    def age(self, is_old: bool) -> Object:
        return {} if is_old else {"metadata": {"creationTimestamp": RECENTLY}}

    def add_elastic(self, name: str, runs: bool, priority: str) -> None:
        """A running job is at its minimum or above; part of its surplus may be missing."""
        is_old = runs or self.one_in(2)
        roles: list[Object] = []
        members: list[Member] = []
        extra: list[Member] = []
        target: list[Object] = []
        for role in ["worker", "server"] if self.one_in(8) else ["worker"]:
            least, step = self.between(1, 4), self.pick(1, 1, 2)
            most = least + step * self.pick(0, 1, 2, 4)
            shape, annotations, labels = self.ruled_shape({"maniple.dev/job": name})
            metadata: Object = {"annotations": annotations, **({"labels": labels} if labels else {})}
            template: Object = {"metadata": metadata, "spec": shape}
            roles.append({"name": role, "min": least, "max": most, "step": step, "template": template})
            size = least + step * self.between(0, (most - least) // step)
            target.append({"role": role, "replicas": size})
            for index in range(size):
                own = {"maniple.dev/job": name, "maniple.dev/role": role, "maniple.dev/index": str(index)}
                member = Member(f"{name}-{role}-{index}", self.urgent(shape, priority), labels | own, dict(annotations))
                (members if index < least else extra).append(member)
        spec = self.terms(priority) | {"roles": roles, "elastic": self.elasticity()}
        status: Object = {}
        if runs and (self.one_in(2) or self.has_targets):
            status["target"] = target
        if runs and self.one_in(2):
            status["lastResizeTime"] = self.pick(LONG_AGO, LONG_AGO, RECENTLY)
        if runs and self.one_in(4):
            status["growAfter"] = self.pick(LONG_AGO, SOON)
        self.add(OURS, "ElasticJob", name, "default", spec=spec, status=status, **self.age(is_old))
        if runs:
            least = len(members)
            placed = self.run([*members, *extra], least, self.neighbours(spec))
            if not placed:
                status.pop("target", None)
            elif "target" in status:
                # Replicas that are not created yet are implied by the target.
                del self.objects[len(self.objects) - self.between(0, len(members) + len(extra) - placed) :]
        elif self.one_in(3):
            for member in members:
                self.add_pod(member, "default", "maniple", None)

    def elasticity(self) -> Object:
        speeds = self.pick(*CURVES)
        points: list[Object] = [{"replicas": count, "speedup": speed} for count, speed in enumerate(speeds, 1)]
        return {
            "cooldownSeconds": self.pick(0, 600, 86400),
            "restartSeconds": self.pick(30, 0, 30, 3600),
            **({"speedup": points} if points else {}),
        }

    def urgent(self, shape: Object, priority: str) -> Object:
        return shape | ({"priorityClassName": priority, "priority": PRIORITIES[priority]} if priority else {})

    def add_plain(
        self, name: str, runs: bool, priority: str, all_leave: bool = False, more: tuple[int, ...] = (0, 0, 1, 2, 4)
    ) -> None:
        """A PodGroup of equal pods, with one of `more` as surplus."""
        shape, annotations, labels = self.ruled_shape({"maniple.dev/pod-group": name})
        count, surplus = self.between(1, 4), self.pick(*more)
        spec = {"minMember": count, **self.terms(priority)}
        self.add(OURS, "PodGroup", name, "default", spec=spec, **self.age(runs or self.one_in(2)))
        labels |= {"maniple.dev/pod-group": name}
        members = [
            Member(f"{name}-{index}", self.urgent(shape, priority), dict(labels), dict(annotations))
            for index in range(count + surplus)
        ]
        if runs:
            self.run(members, count, self.neighbours(spec), all_leave)
        else:
            for member in members:
                self.add_pod(member, "default", "maniple", None)
        if runs and self.one_in(6):
            self.add_budget(name, {"maniple.dev/pod-group": name}, self.between(0, count + surplus))

    def add_wanting(self, name: str, priority: str, most: int = 3) -> None:
        """A PodGroup whose minimum runs, and whose surplus, up to `most` pods, waits."""
        shape, annotations, labels = self.ruled_shape({"maniple.dev/pod-group": name})
        count, surplus = self.between(1, 2), self.between(1, most)
        spec = {"minMember": count, **self.terms(priority)}
        self.add(OURS, "PodGroup", name, "default", spec=spec)
        labels |= {"maniple.dev/pod-group": name}
        members = [
            Member(f"{name}-{index}", self.urgent(shape, priority), dict(labels), dict(annotations))
            for index in range(count + surplus)
        ]
        if self.run(members[:count], count, self.neighbours(spec)):
            for member in members[count:]:
                self.add_pod(member, "default", "maniple", None)

    def run(self, members: list[Member], least: int, among: list[Host], all_leave: bool = False) -> int:
        """Runs as many as find room, if at least `least` do; the others wait. Returns how many run."""
        before, placed = self.snapshot(), 0
        for member in members:
            host = self.find_host(member, among)
            if host is None:
                break
            self.add_pod(member, "default", "maniple", host, all_leave)
            placed += 1
        if placed < least:
            self.restore(before)
            placed = 0
        for member in members[placed:]:
            self.add_pod(member, "default", "maniple", None)
        return placed

    def is_full(self) -> bool:
        return not any(host.free.get(GPU) for host in self.hosts)

    def fill_up(self, most: int) -> None:
        for index in range(most):
            if self.is_full():
                break
            priority = self.pick("low", "", "high") if self.mix.has_priorities else ""
            if self.one_in(2):
                self.add_elastic(f"e{index}", True, priority)
            else:
                self.add_plain(f"r{index}", True, priority, all_leave=self.one_in(8))

    def arrive(self, most: int) -> None:
        for index in range(self.between(0, most)):
            priority = self.pick("high", "", "low") if self.mix.has_priorities else ""
            if self.one_in(3):
                self.add_elastic(f"a{index}", False, priority)
            else:
                self.add_plain(f"w{index}", False, priority)


@st.composite
def elastic_worlds(draw: st.DrawFn, limits_one_in: int = 0, most_queues: int = 3) -> list[Object]:
    """Nearly full clusters; up to three gangs arrive."""
    return nearly_full(ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=limits_one_in)), most_queues)


@st.composite
def elastic_firm_worlds(draw: st.DrawFn) -> list[Object]:
    """Less full ones where many jobs may not be preempted, and queues guarantee more."""
    return nearly_full(ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=0, firm_one_in=2)), most_queues=3)


@st.composite
def elastic_ruled_worlds(draw: st.DrawFn) -> list[Object]:
    """The same with rules between pods: affinity, anti-affinity, spread, host ports, volumes."""
    return nearly_full(ElasticWorld(draw, Mix(rules_one_in=2, limits_one_in=0)), most_queues=3)


def nearly_full(builder: ElasticWorld, most_queues: int) -> list[Object]:
    builder.begin(most_queues, 3)
    builder.fill_up(builder.between(2, 10) if builder.mix.firm_one_in > 2 else builder.between(1, 4))
    builder.arrive(3)
    return builder.objects


@st.composite
def claimed_worlds(draw: st.DrawFn) -> list[Object]:
    """Full clusters where one gang of one shape arrives: needless victims can be counted."""
    builder = ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=0))
    builder.begin(2, 3)
    builder.fill_up(12)
    builder.add_plain("new", False, builder.pick("high", "", "high"))
    return builder.objects


@st.composite
def growing_worlds(draw: st.DrawFn) -> list[Object]:
    """Half empty clusters with elastic jobs, sometimes with limits."""
    builder = ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=2, has_priorities=False))
    builder.begin(2, 3)
    builder.fill_up(builder.between(1, 3))
    builder.arrive(2)
    return builder.objects


@st.composite
def rising_worlds(draw: st.DrawFn) -> list[Object]:
    """Full clusters, mostly of one queue, where jobs at their minimum want more, and others run with surplus."""
    builder = ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=4))
    builder.begin(builder.pick(0, 0, 2), 2)
    for index in range(builder.between(1, 2)):
        builder.add_wanting(f"up{index}", builder.pick("high", "high", ""))
    if builder.one_in(2):
        builder.add_elastic("e", True, "high")
    builder.fill_up(8)
    return builder.objects


@st.composite
def ranked_worlds(draw: st.DrawFn) -> list[Object]:
    """Full clusters of one queue, where surplus of two priorities waits for what surplus of a third holds."""
    builder = ElasticWorld(draw, Mix(rules_one_in=0, limits_one_in=0))
    builder.begin(0, 2)
    builder.add_wanting("top", "high", most=6)
    builder.add_wanting("middle", "", most=2)
    builder.add_plain("low", True, "low", more=(7, 3, 5))
    builder.fill_up(8)
    return builder.objects
