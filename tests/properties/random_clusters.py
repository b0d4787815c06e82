"""Random small clusters: queues, gangs, jobs and pods of other schedulers on a few nodes."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from properties.gpu_facts import FRACTION_ANNOTATION, GPU
from properties.object_builder import FOREIGN_GROUPS, Builder, Member
from properties.object_writer import HOSTNAME, OURS, PRIORITIES, ZONE, Mix
from properties.raw_objects import Object


class World(Builder):
    """What users would write into a cluster."""

    levels: tuple[str, ...] = ()  # of a Topology, which gangs may require

    def add_queues(self) -> None:
        """None, a few, or a small tree; jobs go to the leaves."""
        shape = self.pick("none", "flat", "tree") if self.mix.has_queues else "none"
        if self.one_in(4):
            self.add(OURS, "Queue", "default", spec={"weight": self.between(0, 3)})
        if shape == "none":
            return
        names = ["prod", "research", "sales"][: self.between(1, 3)]
        self.queues += names
        if shape == "tree":
            self.add(OURS, "Queue", "company", spec=self.queue_spec(least=4))
        for name in names:
            parent: Object = {"parent": "company"} if shape == "tree" else {}
            self.add(OURS, "Queue", name, spec=parent | self.queue_spec(least=1))

    def queue_spec(self, least: int) -> Object:
        """`least` keeps a parent's limit above what its children are guaranteed."""
        spec: Object = {}
        if self.one_in(2):
            spec["weight"] = self.between(0, 4)
        if self.one_in(4):
            spec["weights"] = {GPU: self.between(0, 4)} if self.one_in(2) else {"cpu": self.between(0, 4), GPU: 2}
        if self.one_in(6):
            spec["priority"] = self.pick(-1, 1, 10)
        if self.one_in(1 + self.mix.firm_one_in // 3):
            gpus = least if self.mix.limits_one_in else least * self.pick(1, 2, 4)
            spec["guaranteed"] = {"cpu": self.cpu(least * 1000)} if self.one_in(4) else {GPU: str(gpus)}
        if self.mix.limits_one_in and self.one_in(self.mix.limits_one_in):
            spec["limit"] = {
                "cpu": self.cpu(self.between(least, least + 6) * 1000),
                GPU: str(self.between(least, least + 4)),
            }
        if self.one_in(6):
            spec["reclaimable"] = False
        if self.one_in(8):
            spec["minRuntimeSeconds"] = self.pick(600, 86400)
        return spec

    def add_branch(self, name: str, parent: str, levels: int) -> list[str]:
        """A queue, perhaps with others below it. Returns those without children."""
        spec = self.queue_spec(least=1)
        if self.one_in(2):
            spec["guaranteed"] = {GPU: self.pick("1", "2", "3", "1500m")}
            spec.pop("limit", None)
        elif self.one_in(8):
            spec |= {"guaranteed": {}, "limit": {GPU: "2500m"}}
        if self.one_in(2):
            spec["priority"] = self.between(0, 2)
        self.add(OURS, "Queue", name, spec=({"parent": parent} if parent else {}) | spec)
        below = [f"{name}{index}" for index in range(self.between(0, 3))] if levels else []
        return [leaf for child in below for leaf in self.add_branch(child, name, levels - 1)] or [name]

    # Work.

    def add_demand(self, name: str, most: int, is_shared: bool) -> None:
        """Pods that wait in the queue; a few run. `is_shared`: of GPUs they ask for parts."""
        self.add(OURS, "PodGroup", name, "default", spec={"minMember": 1, "queue": self.queues[0]})
        labels, annotations = {"maniple.dev/pod-group": name}, {FRACTION_ANNOTATION: "0.3"} if is_shared else {}
        cpu, gpus = self.pick(0, 500, 3000), self.pick(0, 1, 1, 2)
        for index in range(self.between(0, most)):
            shape: Object = {"containers": [self.container("main", cpu, 0, gpus)]}
            member = Member(f"{name}-{index}", shape, dict(labels), dict(annotations))
            host = self.find_host(member) if self.one_in(4) else None
            self.add_pod(member, "default", "maniple", host)

    def priority(self) -> Object:
        name = self.pick("", "low", "high") if self.mix.has_priorities else ""
        return {"priorityClassName": name, "priority": PRIORITIES[name]} if name else {}

    def add_lone_pod(self, name: str) -> None:
        app, namespace = self.pick("a", "b"), self.pick(*self.namespaces)
        member = Member(name, self.pod_spec(app, namespace) | self.priority(), {"app": app})
        if self.one_in(16):
            member.spec["schedulingGates"] = [{"name": "example.com/not-yet"}]
            self.add_pod(member, namespace, "maniple", None)
            return
        host = self.find_host(member) if self.one_in(3) else None
        self.add_pod(member, namespace, "maniple", host, leaves=self.one_in(3))

    def add_group(self, name: str) -> None:
        """Pods of one or two shapes; surplus, too few pods, roles, or another system's group now and then."""
        app, namespace, priority = self.pick("a", "b"), self.pick(*self.namespaces), self.priority()
        shapes = [self.pod_spec(app, namespace) | priority for _ in range(self.pick(1, 1, 2))]
        count = self.between(1, 5)
        least = max(1, count - self.pick(0, 0, 1, 2))
        spec: Object = {"minMember": least}
        if self.one_in(10):
            spec["minMember"] = least = count + 1
        if len(self.queues) > 1 or self.one_in(4):
            spec["queue"] = self.pick(*self.queues)
        has_roles = least <= count and least > 1 and self.one_in(5)
        if has_roles:
            spec["roles"] = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": least - 1}]
        api, where, key = OURS, "labels", "maniple.dev/pod-group"
        if not has_roles and self.one_in(8):
            api, where, key = self.pick(*FOREIGN_GROUPS)
            if api.startswith("scheduling.x-k8s.io"):
                spec.pop("queue", None)
        elif priority:
            spec["priorityClassName"] = priority["priorityClassName"]
        self.add(api, "PodGroup", name, namespace, spec=spec)
        members: list[Member] = []
        for index in range(count):
            member = Member(f"{name}-{index}", shapes[index % len(shapes)], {"app": app})
            (member.labels if where == "labels" else member.annotations)[key] = name
            if has_roles:
                member.labels["maniple.dev/role"] = "head" if index == 0 else "worker"
            members.append(member)
        running = self.between(least, count) if least <= count and self.one_in(3) else 0
        self.place(members, namespace, least, running)

    def add_job(self, name: str) -> None:
        """An ElasticJob with its pods, or without any yet."""
        namespace, priority = self.pick(*self.namespaces), self.priority()
        roles: list[Object] = []
        members: list[Member] = []
        for role in ["worker", "server"][: self.pick(1, 1, 2)]:
            least = self.between(1, 3)
            template = {"spec": self.pod_spec("job", namespace)}
            most = least + self.between(0, 2)
            roles.append({"name": role, "min": least, "max": most, "template": template})
            for index in range(least):
                labels = {"maniple.dev/job": name, "maniple.dev/role": role, "maniple.dev/index": str(index)}
                members.append(Member(f"{name}-{role}-{index}", template["spec"] | priority, labels))
        spec: Object = {"queue": self.pick(*self.queues), "roles": roles}
        if priority:
            spec["priorityClassName"] = priority["priorityClassName"]
        self.add(OURS, "ElasticJob", name, namespace, spec=spec)
        if self.one_in(2):
            self.place(members, namespace, len(members), len(members) if self.one_in(2) else 0)

    def add_work(self) -> None:
        for index in range(self.between(1, self.mix.most_workloads)):
            match self.pick("group", "group", "group", "pod", "pod", "job"):
                case "group":
                    self.add_group(f"g{index}")
                case "pod":
                    self.add_lone_pod(f"p{index}")
                case _:
                    self.add_job(f"j{index}")

    def add_strangers(self) -> None:
        """Pods of other schedulers: running, leaving, done, or pending."""
        for index in range(self.between(0, 4)):
            member = Member(f"x{index}", self.pod_spec("a", "default"), {"app": self.pick("a", "b")})
            host = self.find_host(member)
            state = self.pick("runs", "runs", "leaves", "done", "pending")
            if state == "done" and host is not None:
                name = host.node.name
                spec = {"schedulerName": "default-scheduler", "nodeName": name, **member.spec}
                labels = {"labels": member.labels}
                done = {"phase": self.pick("Succeeded", "Failed")}
                self.add("v1", "Pod", member.name, "default", metadata=labels, spec=spec, status=done)
            else:
                host = None if state in {"pending", "done"} else host
                self.add_pod(member, "default", "default-scheduler", host, leaves=state == "leaves")

    def add_budget(self, name: str, labels: dict[str, str], least: int) -> None:
        spec: Object = {"minAvailable": least, "selector": {"matchLabels": labels}}
        self.add("policy/v1", "PodDisruptionBudget", name, "default", spec=spec)

    # Full clusters.

    def add_gang(self, name: str, queue: str, priority: str, cpu: int, namespace: str) -> tuple[list[Member], int]:
        """A gang of GPU pods and its minimum. Adds the group; the caller places the pods."""
        gpus, count, surplus = self.pick(1, 1, 2), self.between(1, 4), self.pick(0, 0, 1, 2)
        spec: Object = {"minMember": count, "queue": queue}
        shape: Object = {"containers": [self.container("main", cpu, 0, gpus)]}
        labels = {"maniple.dev/pod-group": name}
        head: tuple[Object, dict[str, str]] | None = None
        if self.mix.rules_one_in:
            labels["app"] = self.pick("a", "b")
            if self.one_in(self.mix.rules_one_in):
                self.add_rules(shape, labels, namespace)
            if self.one_in(6):
                head = self.add_head(shape, labels)
        urgent: Object = {}
        if priority:
            spec["priorityClassName"] = priority
            urgent = {"priorityClassName": priority, "priority": PRIORITIES[priority]}
        if self.one_in(self.mix.firm_one_in):
            spec["preemptable"] = False
        if self.levels and self.one_in(4):
            spec["topology"] = {"required": self.pick(*self.levels)}
        self.add(OURS, "PodGroup", name, namespace, spec=spec)
        members = [Member(f"{name}-{index}", shape | urgent, dict(labels)) for index in range(count + surplus)]
        if head is not None:
            members[0].spec, members[0].labels = head[0] | urgent, head[1]
        return members, count

    def add_head(self, shape: Object, labels: dict[str, str]) -> tuple[Object, dict[str, str]]:
        """The spec and the labels of the gang's first pod; the others need it near them, or far from them."""
        term: Object = {"labelSelector": {"matchLabels": {"tier": "head"}}, "topologyKey": self.pick(HOSTNAME, ZONE)}
        head: Object = {"containers": [self.container("main", 0, 0, self.pick(0, 1))]}
        if self.one_in(3):
            self.add_rules(head, labels, "default")
        self.add_term(shape, self.pick("podAffinity", "podAffinity", "podAntiAffinity"), term)
        return head, labels | {"tier": "head"}

    def fill(self) -> None:
        """Gangs run until no GPU is free, mostly of one queue; some leave, and then others arrive.

        GPUs are scarce; CPU is plentiful, as on real nodes, or not requested.
        """
        greedy, cpu = self.pick(*self.queues), self.pick(0, 100)
        for index in range(12 if self.mix.firm_one_in > 2 else self.between(1, 6)):
            if not any(host.free.get(GPU, Fraction(0)) for host in self.hosts):
                break
            queue = greedy if not self.one_in(3) else self.pick(*self.queues)
            namespace = self.pick(*self.namespaces)
            members, least = self.add_gang(f"r{index}", queue, self.pick("low", "", "high"), cpu, namespace)
            self.place(members, namespace, least, len(members), all_leave=self.one_in(5))
        for index in range(self.between(1, 4)):
            namespace = self.pick(*self.namespaces)
            priority = self.pick("high", "", "low")
            members, _ = self.add_gang(f"w{index}", self.pick(*self.queues), priority, cpu, namespace)
            for member in members:
                self.add_pod(member, namespace, "maniple", None)


@st.composite
def mixed_worlds(draw: st.DrawFn, mix: Mix) -> list[Object]:
    builder = World(draw, mix)
    builder.start()
    builder.add_queues()
    builder.add_nodes()
    builder.add_strangers()
    builder.add_work()
    return builder.objects


@st.composite
def divided_worlds(draw: st.DrawFn) -> list[Object]:
    """A tree of queues that together ask for about twice what there is."""
    builder = World(draw, Mix(rules_one_in=0))
    builder.start()
    leaves = [leaf for name in "abc"[: builder.between(1, 3)] for leaf in builder.add_branch(name, "", levels=2)]
    builder.add_node("n0", builder.between(4, 32), 64, builder.between(0, 8))
    builder.add_node("n1", builder.between(4, 32), 64, builder.between(0, 8))
    gpus = sum(int(host.node.allocatable.get(GPU, Fraction(0))) for host in builder.hosts)
    for queue in leaves:
        builder.queues = [queue]
        builder.add_demand(f"g-{queue}", most=max(1, 4 * gpus // len(leaves)), is_shared=builder.one_in(24))
    return builder.objects


def worlds() -> st.SearchStrategy[list[Object]]:
    """Everything, in small amounts."""
    return mixed_worlds(Mix())


def ruled_worlds() -> st.SearchStrategy[list[Object]]:
    """Every pod has a rule about its neighbours, its ports or its volume."""
    return mixed_worlds(Mix(has_queues=False, rules_one_in=1))


def limited_worlds() -> st.SearchStrategy[list[Object]]:
    """Every queue has a limit."""
    return mixed_worlds(Mix(rules_one_in=0, limits_one_in=1))


def simple_worlds() -> st.SearchStrategy[list[Object]]:
    """No limits and no rules between pods: whether a gang fits is arithmetic."""
    return mixed_worlds(Mix(rules_one_in=0, limits_one_in=0))


def single_queue_worlds() -> st.SearchStrategy[list[Object]]:
    """Only the default queue and one priority: no job's demand moves another job's share."""
    return mixed_worlds(Mix(has_queues=False, limits_one_in=0, has_priorities=False))


@st.composite
def contended_worlds(draw: st.DrawFn) -> list[Object]:
    """Full clusters with several queues and priorities, and gangs that arrive late."""
    return full_cluster(World(draw, Mix(rules_one_in=0, limits_one_in=0)))


@st.composite
def firm_worlds(draw: st.DrawFn) -> list[Object]:
    """Less full ones where many gangs may not be preempted, and queues, also above others, guarantee more."""
    return full_cluster(World(draw, Mix(rules_one_in=draw(st.sampled_from((0, 4))), limits_one_in=0, firm_one_in=2)))


@st.composite
def contended_ruled_worlds(draw: st.DrawFn) -> list[Object]:
    """The same with rules between pods: affinity, anti-affinity, spread, host ports, volumes."""
    return full_cluster(World(draw, Mix(rules_one_in=2, limits_one_in=0)))


def full_cluster(builder: World) -> list[Object]:
    builder.start()
    is_ruled = bool(builder.mix.rules_one_in)
    parent: Object = {}
    if is_ruled and builder.one_in(4):
        builder.add(OURS, "Queue", "company", spec=builder.queue_spec(least=4))
        parent = {"parent": "company"}
    for name in ["prod", "research", "sales"][: builder.between(1, 3)]:
        builder.queues.append(name)
        builder.add(OURS, "Queue", name, spec=parent | builder.queue_spec(least=1))
    if is_ruled and builder.one_in(4):
        levels: list[Object] = [{"name": "zone", "nodeLabel": ZONE}, {"name": "host", "nodeLabel": HOSTNAME}]
        builder.add(OURS, "Topology", "cluster", spec={"levels": levels})
        builder.levels = ("zone", "host")
    for index in range(builder.between(1, 4)):
        labels = {ZONE: ""} if is_ruled and builder.one_in(8) else {}
        is_odd = is_ruled and builder.one_in(8)
        builder.add_node(f"n{index}", 16, 32, builder.pick(4, 2, 8, 1), is_odd, labels)
    if is_ruled and builder.one_in(3):
        builder.add_strangers()
    builder.fill()
    if is_ruled and builder.one_in(4):
        builder.add_budget("app", {"app": builder.pick("a", "b")}, builder.between(0, 6))
    return builder.objects
