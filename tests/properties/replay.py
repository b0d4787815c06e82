"""The rounds of a plan, replayed over the cluster: who is where, who leaves and who is pending.

What a plan says about pods or nodes that make no sense (no such pod, running already, ...) is noted as a
breach and then ignored, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .facts import GPUS_ANNOTATION, PROTECTED_CLASSES, Facts, Node, Pod, read_pod
from .placement import Site
from .raw import Resources, at, flat, rows, strings, text


class Promise(StrEnum):
    CAPACITY = "no node is over-committed"
    BINDS = "a bind is of a pending pod of ours, once, to a node that may take it"
    GPUS = "every GPU belongs to one pod, or to shares that it can hold"
    GANGS = "never part of a gang below its minimum"
    VICTIMS = "no victim is taken in vain"
    DOMAINS = "a gang that must be in one domain is"
    MODELS = "a gang is on one model of GPU that it allows"
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
    gated: frozenset[str] = frozenset()  # not pending yet: they wait for somebody to open their gate

    def requests(self, facts: Facts, key: str) -> Resources:
        """What a pod of the cluster takes where it is, or at the least would take somewhere."""
        node = facts.nodes.get(self.where.get(key, ""))
        pod = self.pods[key]
        return facts.smallest_asked(pod) if node is None else pod.requests_at(node, self.gpu_ids.get(key, ()))

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
class Round:
    """One round, read against the state that it starts from. What makes no sense is only in `breaches`."""

    binds: list[Move]
    nominations: list[Move]
    evicted: dict[str, str]  # pod -> the group it makes room for
    waiting: list[object]
    breaches: list[Breach]


def read_state(facts: Facts, objects: Iterable[object]) -> State:
    pods: dict[str, Pod] = {}
    where: dict[str, str] = {}
    leaving: set[str] = set()
    pending: set[str] = set()
    gated: set[str] = set()
    gpu_ids: dict[str, frozenset[str]] = {}
    succeeded: dict[str, list[str]] = {}
    for item in flat(objects):
        if text(item, "kind") != "Pod":
            continue
        pod = read_pod(item)
        pods[pod.key] = pod
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
    state = State(pods, where, frozenset(leaving), frozenset(pending), gpu_ids, succeeded, frozenset(gated))
    return with_first_pods(facts, state)


def with_first_pods(facts: Facts, state: State) -> State:
    """A job without pods is planned as if its first `min` pods were pending."""
    have_pods = {pod.gang for pod in state.pods.values()}
    new = {pod.key: pod for key, job in facts.jobs.items() if key not in have_pods for pod in job.first_pods}
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
    for entry in rows(written, "evictions"):
        key, beneficiary = text(entry, "pod"), text(entry, "for")
        wrong = why_no_victim(facts, state, key)
        if key in evicted:
            wrong = "it is evicted already"
        if wrong:
            breaches.append(Breach(Promise.VICTIMS, f"{key} is evicted for {beneficiary or 'nobody'}, but {wrong}"))
        if key in state.where and key not in state.leaving:
            evicted[key] = beneficiary
    return Round(
        binds,
        [move for move in nominations if move.pod.key not in bound],
        evicted,
        rows(written, "waiting"),
        breaches,
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


def why_no_victim(facts: Facts, state: State, key: str) -> str:
    if key not in state.pods:
        return "there is no such pod"
    if key not in state.where:
        return "it runs nowhere"
    if key in state.leaving:
        return "it is leaving already"
    pod = state.pods[key]
    gang = facts.gang(pod.gang)
    if not pod.is_ours:
        return "it belongs to another scheduler"
    if pod.namespace == "kube-system" or {pod.priority_class, gang.priority_class} & set(PROTECTED_CLASSES):
        return "it is critical to the system"
    if not gang.is_preemptable:
        return f"{gang.key} says preemptable: false"
    return ""


def after(facts: Facts, state: State, played: Round) -> State:
    """Bound pods run, evicted ones come back as pending replacements, leaving ones are gone."""
    bound = {move.pod.key: move for move in played.binds}
    kept = {key for key in state.pods if key not in state.leaving}
    where = {key: node for key, node in state.where.items() if key in kept and key not in played.evicted}
    gpu_ids = {key: ids for key, ids in state.gpu_ids.items() if key in where}
    return with_first_pods(
        facts,
        replace(
            state,
            pods={key: pod for key, pod in state.pods.items() if key in kept},
            where=where | {key: move.node.name for key, move in bound.items()},
            leaving=frozenset(),
            pending=(state.pending - set(bound)) | set(played.evicted),
            gpu_ids=gpu_ids | {key: frozenset(move.gpus) for key, move in bound.items() if move.gpus},
        ),
    )


def sites(facts: Facts, state: State, keys: Iterable[str]) -> list[Site]:
    return [Site(state.pods[key], facts.nodes[state.where[key]]) for key in keys if state.where[key] in facts.nodes]
