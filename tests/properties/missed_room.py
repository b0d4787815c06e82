"""Room that the plan missed, for gangs of one shape, where fitting is arithmetic.

Counts are lower bounds: room that is uncertain does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from properties.cluster_facts import Facts, Gang, Node, Pod, read_facts
from properties.gpu_facts import GPUS, rank_of
from properties.kubernetes_rules import is_plain, objections_of_node
from properties.raw_objects import Object, Resources, add, rows
from properties.referee import members
from properties.replay_rounds import State, after, read_round, read_state
from properties.topology_verdicts import models_in_use, open_books, pods_held


@dataclass(frozen=True)
class Choice:
    """A possible place for a whole gang: nodes, and GPU models if it needs GPUs."""

    nodes: tuple[Node, ...]
    models: frozenset[str]
    domain: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return f" in {'/'.join(self.domain)}" if self.domain else ""


def missed_opportunities(objects: list[Object], plan: Object) -> list[str]:
    """Gangs that wait after the last round although they fit into what is free.

    Exact where it answers, and silent elsewhere: with limits or rules between pods, with promised room,
    for gangs of several shapes, and while several queues wait (one queue's demand may limit
    another's share).
    """
    facts = read_facts(objects)
    state = read_state(facts, objects)
    if any(queue.limit for queue in facts.queues.values()):
        return []
    if not all(is_plain(facts, pod) for pod in state.pods.values()):
        return []
    *earlier, last = rows(plan, "rounds")
    for written in earlier:
        state = after(facts, state, read_round(facts, state, written))
    before, played = state, read_round(facts, state, last)
    if played.nominations or played.evicted:
        return []
    state = after(facts, before, played)
    # Pods that were leaving in the last round still held their room while it was planned.
    held = state.where | {key: before.where[key] for key in before.leaving if key in before.where}
    there = replace(state, pods=before.pods, where=held, gpu_ids=before.gpu_ids | state.gpu_ids)
    waiting: dict[str, list[Pod]] = {}
    for key in sorted(before.pending & state.pending):
        if state.pods[key].is_ours:
            waiting.setdefault(state.pods[key].gang, []).append(state.pods[key])
    if len({facts.gang(key).queue for key in waiting}) > 1:
        return []
    sentences: list[str] = []
    for key, pods in waiting.items():
        gang = facts.gang(key)
        need = needed(gang, state, pods)
        if need is None:
            continue
        for choice in choices(facts, state, gang, pods[0]):
            fits = room_in(facts, there, choice, pods[0], len(pods))
            if fits >= need:
                sentences.append(f"{key} waits for {need} pods although there is room for {fits}{choice.shown}")
                break
    return sentences


def needed(gang: Gang, state: State, pods: list[Pod]) -> int | None:
    """How many of these pods must fit before one may start; None if they differ or are too few."""
    placed = members(state, state.staying()).get(gang.key, []) + state.succeeded.get(gang.key, [])
    kinds = {(str(pod.spec), pod.ask, gang.models_of(pod)) for pod in pods}
    if len(kinds) > 1 or gang.missing(placed + [pod.role for pod in pods]):
        return None
    return max(1, gang.missing(placed))


def choices(facts: Facts, state: State, gang: Gang, pod: Pod, level: str = "") -> Iterator[Choice]:
    """Every domain (of `level`, within the required one) and model that may take the gang with its running pods."""
    running = [key for key in state.staying() if state.pods[key].gang == gang.key and state.where[key] in facts.nodes]
    domains: dict[tuple[str, ...], tuple[Node, ...]] = {(): tuple(facts.nodes.values())}
    for wanted in (gang.required, level):
        if wanted:
            inside: dict[tuple[str, ...], tuple[Node, ...]] = {}
            for nodes in domains.values():
                for node in nodes:
                    domain = facts.domain(node, wanted)
                    if domain is not None:
                        inside[domain] = (*inside.get(domain, ()), node)
            homes = {facts.domain(facts.nodes[state.where[key]], wanted) for key in running}
            domains = {name: nodes for name, nodes in inside.items() if homes <= {name}}
    models = gang.models_of(pod)
    known = {model for node in facts.nodes.values() for model in node.hardware.models}
    allowed = {model for model in known if rank_of(model, models) is not None}
    with_gpus = [key for key in running if state.pods[key].gpu_count]
    if with_gpus and not gang.is_mixed and any(gang.models_of(state.pods[key]) == models for key in with_gpus):
        allowed &= models_in_use(facts, state, running, gang, models)
    sets = [frozenset(allowed)] if gang.is_mixed or not pod.gpu_count else [frozenset({name}) for name in allowed]
    for domain, nodes in domains.items():
        for some in sets:
            yield Choice(nodes, some, domain)


def room_in(facts: Facts, state: State, choice: Choice, pod: Pod, most: int) -> int:
    return sum(room(facts, state, node, choice.models, pod, most) for node in choice.nodes)


def room(facts: Facts, state: State, node: Node, models: frozenset[str], pod: Pod, most: int) -> int:
    """How many pods of this shape the node could take now, with GPUs of these models."""
    if any(objections_of_node(facts, pod, node)):
        return 0
    there = [key for key, name in state.where.items() if name == node.name]
    used: Resources = {}
    for key in there:
        add(used, state.requests(facts, key))
    counts = [most]
    for name, amount in pod.requests.items():
        if name not in GPUS or pod.ask.memory is None:
            free = node.allocatable.get(name, Fraction(0)) - used.get(name, Fraction(0))
            counts.append(max(0, free // amount))
    if pod.gpu_count:
        counts.append(room_on_devices(state, node, there, models, pod, most))
    counts.append(max(0, int(node.pod_limit) - len(there)))
    return min(counts)


def room_on_devices(state: State, node: Node, there: list[str], models: frozenset[str], pod: Pod, most: int) -> int:
    if any(pod.requests.get(name) for name in GPUS if name not in node.allocatable):
        return 0
    books = open_books(state, node, there)
    free = sorted(books.free(), key=lambda entry: entry[1])
    if not books.is_known:
        # Which devices are free is unknown; how many is known if all are alike and none is shared.
        if len(node.hardware.models) > 1 or any(not state.pods[key].ask.is_whole for key in there):
            return 0
        free = free[: max(0, len(free) - books.unnamed_whole)]
    # A node may offer fewer GPUs than it lists: the freest are taken to be missing.
    free = free[: node.gpu_count]
    is_odd = len(node.hardware.healthy) > node.gpu_count
    is_odd |= any(books.held[device.id] for device in node.hardware.devices if not device.is_healthy)
    if is_odd and not pod.ask.is_whole:
        return 0
    return sum(
        pods_held(pod.ask, [(device, left) for device, left in free if device.model == model], most) for model in models
    )
