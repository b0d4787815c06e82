"""Random clusters in which free GPUs are scattered over the nodes, jobs that may be moved run, and large gangs wait."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from properties.elastic_clusters import ElasticWorld
from properties.gpu_facts import GPU
from properties.object_builder import Host, Member
from properties.object_writer import OURS, Mix
from properties.raw_objects import Object


class ScatteredWorld(ElasticWorld):
    gpus_each = 0  # GPUs of each pod; 0: any number
    has_targets = True  # while a replica moves, its job has not become smaller

    def shape(self) -> tuple[Object, dict[str, str]]:
        if self.gpus_each:
            return {"containers": [self.container("main", 100, 0, self.gpus_each)]}, {}
        return super().shape()

    def terms(self, priority: str) -> Object:
        spec = super().terms(priority)
        if self.one_in(2):
            spec = {"queue": spec["queue"]}  # nothing protects it
        return spec | ({} if self.one_in(6) else {"movable": not self.one_in(8)})

    @property
    def free(self) -> int:
        return int(sum(host.free.get(GPU, 0) for host in self.hosts))

    def add_scattered(self, name: str, *, may_prefer: bool = False) -> None:
        """A gang that runs whole, with its surplus, on some nodes in turn. `may_prefer`: to be close together."""
        self.gpus_each = self.pick(1, 1, 2)
        count, surplus = self.pick(1, 1, 2, 3), self.pick(0, 0, 1)
        shape, annotations, labels = self.ruled_shape({"maniple.dev/pod-group": name})
        spec = {"minMember": count, **self.terms("")}
        labels |= {"maniple.dev/pod-group": name}
        members = [Member(f"{name}-{n}", shape, dict(labels), dict(annotations)) for n in range(count + surplus)]
        hosts = [host for member in members if (host := self.find_host(member)) is not None]
        if may_prefer and self.one_in(3):
            spec["topology"] = {"preferred": self.pick("rack", "host", "block")}
        elif "topology" in spec:
            return
        if len(set(map(id, hosts))) == len(hosts) == len(members):
            self.add(OURS, "PodGroup", name, "default", spec=spec)
            for member, host in zip(members, hosts, strict=True):
                self.add_pod(member, "default", "maniple", host)

    def scatter(self) -> None:
        self.begin(2, 4)
        enough = self.between(2, 6)
        for index in range(12):
            if self.free <= enough:
                break
            if self.one_in(5):
                self.gpus_each = 0
                self.add_elastic(f"e{index}", True, "")
            else:
                self.add_scattered(f"r{index}")
        largest = max(int(host.free.get(GPU, 0)) for host in self.hosts)
        self.gpus_each = max(1, min(largest + self.pick(1, 1, 0), self.free, 8))
        for index in range(self.between(1, 2)):
            shape, annotations, labels = self.ruled_shape({"maniple.dev/pod-group": f"w{index}"})
            count = self.between(1, max(1, self.free // self.gpus_each))
            spec = {"minMember": count, **self.terms("")}
            if self.mix.has_priorities and self.one_in(3):
                spec["priorityClassName"] = self.pick("high", "low")
            self.add(OURS, "PodGroup", f"w{index}", "default", spec=spec)
            own = labels | {"maniple.dev/pod-group": f"w{index}"}
            for number in range(count):
                member = Member(f"w{index}-{number}", shape, dict(own), dict(annotations))
                self.add_pod(member, "default", "maniple", None)

    def contend(self) -> None:
        """A large gang starts by moves, and then others wait for whom hardly anybody but the moved can be evicted."""
        self.begin(1, 4)
        self.is_shared = False
        for host in self.hosts:
            left = self.pick(1, 1, 2, 0)
            for index in range(8):
                if host.free.get(GPU, 0) <= left:
                    break
                self.add_movable(f"r{host.node.name}{index}", 1, 1, self.pick("high", "high", ""), [host])
        largest = max(int(host.free.get(GPU, 0)) for host in self.hosts)
        self.add_movable("w", 1, max(1, min(largest + 1, self.free, 8)), "high")
        for index in range(self.between(1, 3)):
            self.add_movable(f"w{index}", self.pick(1, 1, 2), self.pick(1, 2), "high", surplus=self.pick(0, 1))

    def add_movable(
        self, name: str, least: int, gpus: int, priority: str, hosts: Sequence[Host] = (), surplus: int = 0
    ) -> None:
        """A gang without rules, which may be moved. Its first pods run on these nodes."""
        spec: Object = {"queue": self.pick(*self.queues), "minMember": least, "movable": True}
        if priority:
            spec["priorityClassName"] = priority
        self.add(OURS, "PodGroup", name, "default", spec=spec)
        for number in range(least + surplus):
            shape: Object = {"containers": [self.container("main", 100, 0, gpus)]}
            member = Member(f"{name}-{number}", shape, {"maniple.dev/pod-group": name}, {})
            self.add_pod(member, "default", "maniple", hosts[number] if number < len(hosts) else None)

    def idle(self) -> None:
        """Much is free, and rarely anything waits."""
        self.begin(2, 5)
        for index in range(self.between(1, 7)):
            if self.one_in(6):
                self.gpus_each = 0
                self.add_elastic(f"e{index}", True, "")
            else:
                self.add_scattered(f"r{index}", may_prefer=True)
        if self.one_in(8):
            self.add_lone_pod("w")


@st.composite
def idle_worlds(draw: st.DrawFn, rules_one_in: int = 0, limits_one_in: int = 0) -> list[Object]:
    world = ScatteredWorld(draw, Mix(rules_one_in=rules_one_in, limits_one_in=limits_one_in))
    world.idle()
    return world.objects


@st.composite
def contended_moves(draw: st.DrawFn) -> list[Object]:
    world = ScatteredWorld(draw, Mix(rules_one_in=0, limits_one_in=0))
    world.contend()
    return world.objects


@st.composite
def scattered_worlds(draw: st.DrawFn, rules_one_in: int = 0, limits_one_in: int = 0) -> list[Object]:
    world = ScatteredWorld(draw, Mix(rules_one_in=rules_one_in, limits_one_in=limits_one_in))
    world.scatter()
    return world.objects
