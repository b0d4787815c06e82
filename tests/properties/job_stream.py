"""An endless stream of small jobs and one large gang that is older than all of them, in virtual time.

Between two plans the clock advances, jobs that have run for their time end, and as many arrive: without a reservation
there is never room for the gang. No job runs for longer than it declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from properties.elastic_job_facts import moment, written_moment
from properties.gpu_facts import GPU
from properties.raw_objects import Object, rows, table, text

START = moment("2026-01-01T00:00:00Z") or 0
PATIENCE_S = 300  # of the built-in policy
TICKS_TO_LEAVE = 2  # in one, pods that make way leave; in the next, the gang starts
BIG = "big"


@dataclass
class Work:
    """A pod: small work on its own, or a member of the gang."""

    name: str
    gpus: int
    length_s: int
    declared_s: int | None = None
    is_firm: bool = False  # in a group that is not preemptable
    created: int = START
    started: int | None = None
    node: str = ""
    ids: str = ""
    nominated: str = ""
    backfill: str = ""  # the gang for which it makes way

    @property
    def is_big(self) -> bool:
        return self.name.startswith(f"{BIG}-")


@dataclass(frozen=True)
class Setting:
    nodes: int
    gpus: int
    members: int  # of the gang, with as many GPUs each as
    gpus_each: int
    tick_s: int
    backlog: int
    longest_s: int
    undeclared_one_in: int = 0  # 0: every job declares its runtime
    firm_one_in: int = 2
    seed: int = 0


@dataclass
class Stream:
    setting: Setting
    plan: Callable[[list[Object]], Object]
    now: int = START
    work: list[Work] = field(default_factory=list)
    made: int = 0
    random: Random = field(default_factory=Random)
    holders: set[str] = field(default_factory=set)  # gangs that nodes are reserved for now
    kept: Object = field(default_factory=dict)  # nodes of the reservation, and pods of the gang on each
    certain: int | None = None  # when the gang starts whose reservation was moved
    before_it: set[str] | None = None  # pods that ran there by then and have not ended yet
    ticks_since: int = 0
    sentences: list[str] = field(default_factory=list)

    def run(self, ticks: int) -> list[str]:
        """Runs until the gang has started, for at most this many ticks."""
        self.random = Random(self.setting.seed)
        self.add_small(2 * self.setting.nodes * self.setting.gpus)
        self.step()  # the cluster is full before the gang arrives, and nothing waits before it
        self.work = [one for one in self.work if one.node]
        each = self.setting.gpus_each
        self.work += [Work(f"{BIG}-{i}", each, 10**9, created=self.now) for i in range(self.setting.members)]
        arrived = self.now
        for _ in range(ticks):
            self.step()
            if all(one.node for one in self.work if one.is_big) or self.sentences:
                return self.sentences
            self.check_bound(arrived)
        return [*self.sentences, f"the gang has not started after {self.now - arrived} s"]

    def add_small(self, until: int) -> None:
        """Adds waiting jobs, all younger than the gang."""
        waiting = sum(not one.node and not one.is_big for one in self.work)
        for _ in range(max(0, until - waiting)):
            length = self.random.randint(self.setting.tick_s, self.setting.longest_s)
            is_mute = self.setting.undeclared_one_in and not self.random.randrange(self.setting.undeclared_one_in)
            declared = None if is_mute else length + self.random.choice((0, 0, self.setting.tick_s))
            is_firm = not self.random.randrange(self.setting.firm_one_in)
            gpus = self.random.choice((1, 1, 2)) if self.setting.gpus > 1 else 1
            self.work.append(Work(f"s{self.made}", gpus, length, declared, is_firm, self.now))
            self.made += 1

    def step(self) -> None:
        self.now += self.setting.tick_s
        self.work = [one for one in self.work if one.started is None or self.now < one.started + one.length_s]
        self.add_small(self.setting.backlog)
        is_due = BIG in self.holders and self.has_room_without_guests()
        (done,) = rows(self.plan(self.objects()), "rounds")
        by_name = {one.name: one for one in self.work}
        for one in self.work:
            one.nominated = ""
        for entry in rows(done, "evictions"):
            gone = by_name[text(entry, "pod").removeprefix("default/")]
            gone.node, gone.ids, gone.started, gone.created, gone.backfill = "", "", None, self.now, ""
        for entry in rows(done, "nominations"):
            by_name[text(entry, "pod").removeprefix("default/")].nominated = text(entry, "node")
        for entry in rows(done, "binds"):
            one = by_name[text(entry, "pod").removeprefix("default/")]
            one.node, one.ids, one.started = text(entry, "node"), ",".join(map(str, rows(entry, "gpus"))), self.now
            one.backfill = text(entry, "backfill")
        self.holders = {text(entry, "group").removeprefix("default/") for entry in rows(done, "reservations")}
        if is_due and BIG in self.holders:
            self.sentences.append("the gang has room as soon as those have gone who make way for it, and they stay")
        self.note_reservation(done)
        self.check_idle(done)

    def has_room_without_guests(self) -> bool:
        """Whether the whole gang fits, on any nodes, beside the pods that do not make way for it."""
        fits = 0
        for node in (f"n{index}" for index in range(self.setting.nodes)):
            held = sum(one.gpus for one in self.work if one.node == node and one.backfill != f"default/{BIG}")
            fits += (self.setting.gpus - held) // self.setting.gpus_each
        return fits >= self.setting.members

    def note_reservation(self, done: object) -> None:
        """A reservation that keeps moving may never be used: a moved one must say when the gang starts."""
        for entry in rows(done, "reservations"):
            if text(entry, "group") != f"default/{BIG}" or table(entry, "nodes") == self.kept:
                continue
            if self.before_it is not None:
                expected = moment(text(entry, "expected")) or 0
                if self.certain is not None and expected > self.certain:
                    self.sentences.append(f"the gang is sent elsewhere, and {expected - self.certain} s later")
                self.certain = expected
            self.kept = table(entry, "nodes")
            self.before_it = {one.name for one in self.work if one.node in self.kept}

    def check_bound(self, arrived: int) -> None:
        if self.before_it is None:
            if self.now - arrived >= PATIENCE_S + self.setting.tick_s:
                self.sentences.append(f"nothing is reserved for the gang after {self.now - arrived} s")
            return
        leave_s = TICKS_TO_LEAVE * self.setting.tick_s
        if self.certain is not None and self.now > self.certain + leave_s:
            self.sentences.append(f"the gang was to start {self.now - self.certain} s ago")
        self.before_it &= {one.name for one in self.work if one.node in self.kept}
        self.ticks_since = 0 if self.before_it else self.ticks_since + 1
        if self.ticks_since > TICKS_TO_LEAVE:
            self.sentences.append("all who ran on the reserved nodes have ended, and the gang has not started")

    def check_idle(self, done: object) -> None:
        """No GPU outside the reservation is idle while small work that fits there waits."""
        reserved = {node for entry in rows(done, "reservations") for node in table(entry, "nodes")}
        reserved |= {one.nominated for one in self.work}
        smallest = min((one.gpus for one in self.work if not one.node and not one.is_big), default=0)
        for node in (f"n{index}" for index in range(self.setting.nodes)):
            free = self.setting.gpus - sum(one.gpus for one in self.work if one.node == node)
            if node not in reserved and smallest and free >= smallest and not rows(done, "evictions"):
                self.sentences.append(f"{free} GPUs of {node} idle, and work of {smallest} waits")

    def objects(self) -> list[Object]:
        made: list[Object] = []
        for index in range(self.setting.nodes):
            allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: str(self.setting.gpus)}
            made.append(_object("v1", "Node", f"n{index}", START, status={"allocatable": allocatable}))
        clock: Object = {"schedulerName": "default-scheduler", "nodeName": "n0", "containers": [{"name": "clock"}]}
        made.append(_object("v1", "Pod", "clock", self.now, spec=clock, status={"phase": "Running"}))
        firm = [one for one in self.work if one.is_firm]
        gang = [one for one in self.work if one.is_big]
        ours = "maniple.dev/v1alpha1"
        # Firm work starts only within its queue's guarantee: here that never holds it back.
        made.append(_object(ours, "Queue", "default", START, spec={"guaranteed": {GPU: "1000"}}))
        made += [_object(ours, "PodGroup", one.name, one.created, spec={"preemptable": False}) for one in firm]
        if gang:
            made.append(_object(ours, "PodGroup", BIG, gang[0].created, spec={"minMember": len(gang)}))
        made += [self._pod(one) for one in self.work]
        for item in made:
            if text(item, "kind") != "Node" and text(item, "metadata", "name") in self.holders:
                metadata = table(item, "metadata")
                item["metadata"] = metadata
                metadata["annotations"] = {**table(metadata, "annotations"), "maniple.dev/reserved": "true"}
        return made

    def _pod(self, one: Work) -> Object:
        limits = {GPU: str(one.gpus)}
        spec: Object = {"schedulerName": "maniple", "containers": [{"name": "main", "resources": {"limits": limits}}]}
        metadata: Object = {}
        status: Object = {"phase": "Pending"}
        if one.declared_s is not None:
            spec["activeDeadlineSeconds"] = one.declared_s
        if one.is_big or one.is_firm:
            metadata["labels"] = {"maniple.dev/pod-group": BIG if one.is_big else one.name}
        if one.node and one.started is not None:
            spec["nodeName"] = one.node
            makes_way = {"maniple.dev/backfill": one.backfill} if one.backfill else {}
            metadata["annotations"] = {"maniple.dev/gpus": one.ids, **makes_way}
            status = {"phase": "Running", "startTime": written_moment(one.started)}
        elif one.nominated:
            status["nominatedNodeName"] = one.nominated
        return _object("v1", "Pod", one.name, one.created, metadata, spec=spec, status=status)


def _object(api: str, kind: str, name: str, created: int, metadata: Object | None = None, **parts: object) -> Object:
    meta: Object = {"name": name, "creationTimestamp": written_moment(created)}
    if kind != "Node":
        meta["namespace"] = "default"
    return {"apiVersion": api, "kind": kind, "metadata": meta | (metadata or {}), **parts}
