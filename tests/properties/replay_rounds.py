"""The rounds of a plan, replayed over the cluster: where pods are, which leave, and which are pending.

What a plan says about pods or nodes that make no sense (no such pod, running already, ...) is noted as a
breach and then ignored, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from properties.cluster_facts import GPUS_ANNOTATION, Facts, Node, Pod, read_pod
from properties.elastic_job_facts import moment, newest
from properties.kubernetes_rules import Site
from properties.raw_objects import Resources, at, flat, number, rows, strings, table, text

ROUND_S = 1  # that a round takes
STUCK_AFTER_S = 60  # after the end of its grace, a pod that is still there is stuck
SHRUNK = "Shrunk"  # the reason of surplus that leaves
MOVED = "Moved"  # the reason of pods that have a place elsewhere


def is_tidying(purpose: str) -> bool:
    """Whether a pod moves while nothing waits, and for no gang."""
    return purpose.startswith(("emptying ", "gathering "))


class Promise(StrEnum):
    CAPACITY = "no node is over-committed"
    BINDS = "a bind is of a pending pod of ours, once, to a node that may take it"
    GPUS = "every GPU belongs to one pod, or to shares that it can hold"
    GANGS = "never part of a gang below its minimum"
    VICTIMS = "no victim is taken in vain"
    MOVES = "whoever is moved has a place elsewhere, and gets it"
    TIDYING = "while nothing waits, jobs move only for more order"
    DOMAINS = "a gang that must be in one domain is"
    MODELS = "a gang is on one model of GPU that it allows"
    SIZES = "jobs are resized within their bounds, in whole steps, once, and not while they cool down"
    LIMITS = "no queue goes over its limit"
    WAITING = "whoever waits is told why"
    ORDER = "the output is sorted"


@dataclass(frozen=True)
class Breach:
    promise: Promise
    sentence: str


@dataclass(frozen=True)
class State:
    """The pods of the cluster at the start of a round."""

    pods: dict[str, Pod]
    where: dict[str, str]  # pods that hold their node's resources, leaving ones included
    leaving: frozenset[str]
    pending: frozenset[str]
    gpu_ids: dict[str, frozenset[str]]  # only of pods whose devices are known
    succeeded: dict[str, list[str]] = field(default_factory=dict)  # gang -> roles of its members that are done
    gated: frozenset[str] = frozenset()  # not pending yet: their gate is closed
    now: int = 0
    started: dict[str, int] = field(default_factory=dict)
    targets: dict[tuple[str, str], int] = field(default_factory=dict)  # (job, role) -> the size that was decided
    resized: dict[str, int] = field(default_factory=dict)  # job -> when, last
    promised: dict[str, frozenset[str]] = field(default_factory=dict)  # gang -> nodes that its pods are nominated to
    # Pod that leaves -> the rounds after this one in which it is still there, and whether another comes in its place.
    going: dict[str, tuple[int, bool]] = field(default_factory=dict)
    grace_ends: dict[str, int] = field(default_factory=dict)  # of leaving pods, if it is written

    @property
    def stuck(self) -> frozenset[str]:
        """Leaving pods that should have been gone long ago. Nobody knows whether they ever go."""
        ends = self.grace_ends
        return frozenset(key for key in self.leaving if key in ends and ends[key] + STUCK_AFTER_S < self.now)

    def remaining(self, without: Iterable[str] = ()) -> list[str]:
        """The pods whose room does not come free: those that stay, and stuck ones."""
        stuck = self.stuck
        return [*self.staying(without), *(key for key in self.where if key in stuck)]

    def requests(self, facts: Facts, key: str) -> Resources:
        """What a pod takes where it is, or the least it would take anywhere."""
        node = facts.nodes.get(self.where.get(key, ""))
        pod = self.pods[key]
        return facts.smallest_asked(pod) if node is None else pod.requests_at(node, self.gpu_ids.get(key, ()))

    def size(self, facts: Facts, job: str, role: str) -> int:
        """The decided size, else the number of pods; never less than the minimum."""
        least = facts.jobs[job].elastic.roles[role].least
        if (job, role) in self.targets:
            return max(least, self.targets[job, role])
        there = set(self.where) | self.pending | self.gated
        return max(least, sum(self.pods[key].gang == job and self.pods[key].role == role for key in there))

    def staying(self, without: Iterable[str] = ()) -> list[str]:
        gone = self.leaving | set(without)
        return [key for key in self.where if key not in gone]


@dataclass(frozen=True)
class Move:
    """A bind or a nomination that makes sense as far as it goes: the pod is pending, the node exists."""

    pod: Pod
    node: Node
    gpus: tuple[str, ...] = ()
    share: str = ""  # of each GPU, as it is written
    ring: str = ""  # GB/s, as it is written


@dataclass(frozen=True)
class Resize:
    """As the plan has it; the job and the role exist."""

    job: str
    role: str
    old: int
    new: int


@dataclass(frozen=True)
class Round:
    """One round, read against the state that it starts from. What makes no sense is only in `breaches`."""

    binds: list[Move]
    nominations: list[Move]
    evicted: dict[str, str]  # pod that leaves, evicted or with a resize -> the group it makes room for
    waiting: list[object]
    breaches: list[Breach]
    reasons: dict[str, str] = field(default_factory=dict)  # pod -> why it leaves
    resizes: tuple[Resize, ...] = ()
    reserved: dict[str, frozenset[str]] = field(default_factory=dict)  # gang -> nodes that are kept for it
    moves: tuple[Move, ...] = ()  # where the successors of evicted pods will be
    moved_from: dict[str, tuple[str, str]] = field(default_factory=dict)  # pod -> its node, and the gang it moves for
    kept: tuple[Move, ...] = ()  # where its pods will be: no nomination, because other pods are still there


def read_state(facts: Facts, objects: Iterable[object]) -> State:
    pods: dict[str, Pod] = {}
    where: dict[str, str] = {}
    leaving: set[str] = set()
    pending: set[str] = set()
    gated: set[str] = set()
    gpu_ids: dict[str, frozenset[str]] = {}
    succeeded: dict[str, list[str]] = {}
    started: dict[str, int] = {}
    promised: dict[str, frozenset[str]] = {}
    grace_ends: dict[str, int] = {}
    items = list(flat(objects))
    for item in items:
        if text(item, "kind") != "Pod":
            continue
        pod = read_pod(item)
        pods[pod.key] = pod
        started[pod.key] = moment(at(item, "status", "startTime") or at(item, "metadata", "creationTimestamp")) or 0
        if text(item, "status", "nominatedNodeName"):
            nodes = promised.get(pod.gang, frozenset())
            promised[pod.gang] = nodes | {text(item, "status", "nominatedNodeName")}
        phase, node = text(item, "status", "phase"), text(item, "spec", "nodeName")
        is_leaving = at(item, "metadata", "deletionTimestamp") is not None
        if phase == "Succeeded":
            succeeded.setdefault(pod.gang, []).append(pod.role)
        elif phase == "Failed":
            continue
        elif node:
            where[pod.key] = node
            ids = strings(item, "metadata", "annotations").get(GPUS_ANNOTATION)
            if ids is not None:
                gpu_ids[pod.key] = frozenset(part.strip() for part in ids.split(",") if part.strip())
        elif not is_leaving:
            (gated if rows(item, "spec", "schedulingGates") else pending).add(pod.key)
        if is_leaving:
            leaving.add(pod.key)
            grace_ends[pod.key] = moment(at(item, "metadata", "deletionTimestamp")) or 0
    elastic = {key: job.elastic for key, job in facts.jobs.items()}
    state = State(
        pods,
        where,
        frozenset(leaving),
        frozenset(pending),
        gpu_ids,
        succeeded,
        frozenset(gated),
        now=newest(items),
        started=started,
        targets={(key, role): size for key, one in elastic.items() for role, size in one.target.items()},
        resized={key: one.resized for key, one in elastic.items() if one.resized is not None},
        promised=promised,
        grace_ends=grace_ends,
    )
    return with_implied_pods(facts, state)


def with_implied_pods(facts: Facts, state: State) -> State:
    """Replicas below a job's size that are not created yet are planned as if they were pending."""
    new: dict[str, Pod] = {}
    for key, job in facts.jobs.items():
        for role in job.elastic.roles if job.elastic.wants_pods else ():
            names = [f"{key}-{role}-{index}" for index in range(state.size(facts, key, role))]
            new |= {name: job.replica(role, index) for index, name in enumerate(names) if name not in state.pods}
    return replace(state, pods=state.pods | new, pending=state.pending | set(new))


def read_round(facts: Facts, state: State, written: object) -> Round:
    breaches: list[Breach] = []

    def read_moves(kind: str) -> list[Move]:
        moves: list[Move] = []
        seen: set[str] = set()
        for entry in rows(written, kind):
            key, node = text(entry, "pod"), text(entry, "node")
            wrong = why_not_planned(state, key)
            if node not in facts.nodes:
                wrong = "there is no such node"
            if key in seen:
                wrong = "it is there already"
            seen.add(key)
            if wrong:
                sentence = f"{kind} puts {key} on {node}, but {wrong}"
                breaches.append(Breach(Promise.BINDS, sentence))
            else:
                ids = tuple(str(gpu) for gpu in rows(entry, "gpus"))
                share, ring = text(entry, "gpuShare"), text(entry, "ringGBs")
                moves.append(Move(state.pods[key], facts.nodes[node], ids, share, ring))
        return moves

    binds, nominations = read_moves("binds"), read_moves("nominations")
    bound = {move.pod.key for move in binds}
    twice = [move.pod.key for move in nominations if move.pod.key in bound]
    breaches += [Breach(Promise.BINDS, f"{key} is both bound and nominated") for key in twice]
    evicted: dict[str, str] = {}
    reasons: dict[str, str] = {}

    def read_leaver(entry: object, reason: str, role: tuple[str, str] | None = None) -> None:
        """`role`: the job and the role that shrink, of a pod that leaves with a resize."""
        key, beneficiary = text(entry, "pod"), text(entry, "for")
        wrong = why_no_victim(state, key) or why_not_so(facts, state, key, reason, role)
        if key in evicted:
            wrong = "it is evicted already"
        if wrong:
            breaches.append(Breach(Promise.VICTIMS, f"{key} is evicted for {beneficiary or 'nobody'}, but {wrong}"))
        if key in state.where and key not in state.leaving:
            evicted[key] = beneficiary
            reasons[key] = reason

    for entry in rows(written, "evictions"):
        read_leaver(entry, text(entry, "reason"))
    resizes: list[Resize] = []
    for entry in rows(written, "resizes"):
        job, role = text(entry, "job"), text(entry, "role")
        if job not in facts.jobs or role not in facts.jobs[job].elastic.roles:
            breaches.append(Breach(Promise.SIZES, f"{job} is resized in {role}, but there is no such job or role"))
        else:
            resizes.append(Resize(job, role, number(entry, "from"), number(entry, "to")))
        for leaver in rows(entry, "leaves"):
            read_leaver(leaver, SHRUNK, (job, role))
    reserved = {
        text(entry, "group"): frozenset(text(name) for name in table(entry, "nodes"))
        for entry in rows(written, "reservations")
    }
    for move in nominations:
        if move.pod.gang in reserved and move.node.name not in reserved[move.pod.gang]:
            sentence = f"{move.pod.key} is nominated to {move.node.name}, which is not reserved for its gang"
            breaches.append(Breach(Promise.BINDS, sentence))
    nominations = [move for move in nominations if move.pod.key not in bound]
    moves: list[Move] = []
    moved_from: dict[str, tuple[str, str]] = {}
    for entry in rows(written, "moves"):
        key, node = text(entry, "pod"), text(entry, "to")
        moved_from[key] = text(entry, "from"), text(entry, "for")
        if key not in state.where or node not in facts.nodes:
            breaches.append(Breach(Promise.MOVES, f"{key} is moved to {node}, and there is no such pod or node"))
        else:
            moves.append(Move(state.pods[key], facts.nodes[node]))
    return Round(
        binds,
        [move for move in nominations if move.pod.gang not in reserved],
        evicted,
        rows(written, "waiting"),
        breaches,
        reasons,
        tuple(resizes),
        reserved,
        tuple(moves),
        moved_from,
        tuple(move for move in nominations if move.pod.gang in reserved),
    )


def why_not_planned(state: State, key: str) -> str:
    if key not in state.pods:
        return "there is no such pod"
    if key in state.where:
        return f"it has node {state.where[key]} already"
    if key not in state.pending:
        return "it is not pending: finished, gated or being deleted"
    if not state.pods[key].is_ours:
        return "it belongs to another scheduler"
    return ""


def why_no_victim(state: State, key: str) -> str:
    if key not in state.pods:
        return "there is no such pod"
    if key not in state.where:
        return "it runs nowhere"
    if key in state.leaving:
        return "it is leaving already"
    if not state.pods[key].is_ours:
        return "it belongs to another scheduler"
    return ""


def why_not_so(facts: Facts, state: State, key: str, reason: str, role: tuple[str, str] | None) -> str:
    """Why the pod may not leave this way: surplus of an ElasticJob leaves with a resize of its role."""
    pod = state.pods[key]
    if role is not None and (pod.gang, pod.role) != role:
        return f"it leaves with a resize of {' '.join(role)}, and is no such replica"
    if role is None and reason == SHRUNK and pod.gang in facts.jobs:
        return "a replica is shrunk away by a resize of its job"
    return ""


def after(facts: Facts, state: State, played: Round, grace: int = 1) -> State:
    """Bound pods run, evicted ones come back as pending replacements, leaving ones are gone, and a second has passed.

    Replicas beyond a size that was just decided are gone, the evicted and the pending. With a `grace` above 1, pods
    leave for so many rounds. Stuck pods stay.
    """
    bound = {move.pod.key: move for move in played.binds}
    targets = state.targets | {(resize.job, resize.role): resize.new for resize in played.resizes}
    lowered = {(resize.job, resize.role): resize.new for resize in played.resizes if resize.new < resize.old}

    def is_kept(key: str) -> bool:
        pod = state.pods[key]
        is_there = key in bound or (key in state.where and key not in played.evicted)
        return key not in state.leaving and (is_there or pod.index < lowered.get((pod.gang, pod.role), pod.index + 1))

    stuck = state.stuck
    before = {key: state.going.get(key, (grace - 1, False)) for key in state.leaving - stuck}
    before |= {key: (grace - 1, is_kept(key)) for key in played.evicted}
    going = {key: (rounds - 1, returns) for key, (rounds, returns) in before.items() if rounds > 0}
    back = {key for key, (rounds, returns) in before.items() if rounds <= 0 and returns}
    kept = {key for key in state.pods if is_kept(key)} | back | going.keys() | stuck
    where = {
        key: node
        for key, node in state.where.items()
        if key in going or key in stuck or (key in kept and key not in played.evicted and key not in state.leaving)
    }
    gpu_ids = {key: ids for key, ids in state.gpu_ids.items() if key in where}
    promised: dict[str, frozenset[str]] = {}
    for move in (*played.nominations, *played.kept):
        promised[move.pod.gang] = promised.get(move.pod.gang, frozenset()) | {move.node.name}
    return with_implied_pods(
        facts,
        replace(
            state,
            pods={key: pod for key, pod in state.pods.items() if key in kept},
            where=where | {key: move.node.name for key, move in bound.items()},
            leaving=stuck.union(going),
            pending=((state.pending - set(bound)) & kept) | back,
            gpu_ids=gpu_ids | {key: frozenset(move.gpus) for key, move in bound.items() if move.gpus},
            now=state.now + ROUND_S,
            started=state.started | dict.fromkeys(bound, state.now),
            targets=targets,
            resized=state.resized | {resize.job: state.now for resize in played.resizes},
            promised=promised,
            going=going,
        ),
    )


def sites(facts: Facts, state: State, keys: Iterable[str]) -> list[Site]:
    return [Site(state.pods[key], facts.nodes[state.where[key]]) for key in keys if state.where[key] in facts.nodes]
