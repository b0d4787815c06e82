"""Verdicts on the exact place of a gang: which GPUs its pods have, of which model, in which domain.

Devices of running pods are known if the pods name them. Otherwise only sums are judged: only the kubelet
knows which devices it assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from properties.cluster_facts import Facts, Gang, Node, Pod
from properties.gpu_facts import GPU, WHOLE, Ask, Device, rank_of
from properties.raw_objects import quantity
from properties.replay_rounds import Move, Round, State


@dataclass
class Books:
    """How much of each device of a node is assigned, and how much pods without known devices hold."""

    node: Node
    held: dict[str, Fraction]
    holders: dict[str, list[str]] = field(default_factory=dict)
    unnamed_whole: int = 0
    unnamed_parts: Fraction = Fraction(0)

    @property
    def is_known(self) -> bool:
        return not self.unnamed_whole and not self.unnamed_parts

    def give(self, pod: Pod, gpus: Iterable[str]) -> None:
        devices = [device for gpu in gpus for device in [self.node.hardware.find(gpu)] if device is not None]
        for device in devices:
            self.held[device.id] += pod.ask.share_of(device) or WHOLE
            self.holders.setdefault(device.id, []).append(pod.key)
        missing = pod.ask.count - len(devices)
        if missing > 0 and pod.ask.is_whole:
            self.unnamed_whole += missing
        elif missing > 0:
            self.unnamed_parts += missing * pod.requests_at(self.node)[GPU] / pod.ask.count

    @property
    def untouched(self) -> int:
        return sum(not self.held[device.id] for device in self.node.hardware.healthy)

    def free(self) -> list[tuple[Device, Fraction]]:
        return [(device, WHOLE - self.held[device.id]) for device in self.node.hardware.healthy]


def open_books(state: State, node: Node, keys: Iterable[str]) -> Books:
    """The books of a node with these pods."""
    books = Books(node, {device.id: Fraction(0) for device in node.hardware.devices})
    for key in keys:
        if state.where[key] == node.name and state.pods[key].ask.count:
            books.give(state.pods[key], sorted(state.gpu_ids.get(key, ())))
    return books


def judge_gpus(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for node in facts.nodes.values():
        moves = [move for move in played.binds if move.node is node]
        if not any(move.gpus or move.pod.gpu_count for move in moves):
            continue
        books = open_books(state, node, state.where)
        for move in moves:
            yield from wrong_gpus(move)
            # A device that is assigned twice was reported before.
            for gpu in sorted(set(move.gpus)):
                device = node.hardware.find(gpu)
                share = None if device is None else move.pod.ask.share_of(device)
                if device is not None and share is not None and books.held[gpu] + share > WHOLE:
                    others = ", ".join(books.holders[gpu])
                    yield f"{move.pod.key} is given {shown(share)} of GPU {gpu} of {node.name}, which {others} holds"
            books.give(move.pod, sorted(set(move.gpus)))
        given = sum((books.held[device.id] for device in node.hardware.healthy), Fraction(0))
        left_for_unnamed = min(Fraction(books.untouched), node.gpu_count - given)
        if books.unnamed_whole > left_for_unnamed or given + books.unnamed_parts > len(node.hardware.healthy):
            yield (
                f"node {node.name} has {node.gpu_count} GPUs, {shown(given)} are given out by name, and running pods "
                f"that name none hold {books.unnamed_whole} more and {shown(books.unnamed_parts)} in parts"
            )


def wrong_gpus(move: Move) -> Iterator[str]:
    """What is wrong with the GPUs of a bind, regardless of other pods."""
    key, ask, node = move.pod.key, move.pod.ask, move.node
    if len(move.gpus) != ask.count or len(set(move.gpus)) != len(move.gpus):
        yield f"{key} wants {ask.count} GPUs of {node.name} and is given [{', '.join(move.gpus)}]"
    shares: set[Fraction] = set()
    for gpu in sorted(set(move.gpus)):
        device = node.hardware.find(gpu)
        share = None if device is None else ask.share_of(device)
        if device is None:
            yield f"{key} is given GPU {gpu} of {node.name}, which has none of that name"
        elif not device.is_healthy:
            yield f"{key} is given GPU {gpu} of {node.name}, which is not healthy"
        elif share is None:
            yield f"{key} is given GPU {gpu} of {node.name}, which has too little memory"
        else:
            shares.add(share)
    if ask.is_whole and ask.count == 0 and move.share:
        yield f"{key} wants no GPU and is given {move.share} of it"
    elif not move.share and shares - {WHOLE}:
        yield f"{key} wants a share of a GPU and is not told how much it has"
    elif move.share and shares and {quantity(move.share)} != shares:
        yield f"{key} is given {move.share} of each of its GPUs, but it is {', '.join(map(shown, sorted(shares)))}"


def promised_in_vain(facts: Facts, state: State, played: Round) -> Iterator[str]:
    """Nominated pods for which there are no devices even after all leaving pods are gone."""
    staying = state.remaining(played.evicted)
    for node in facts.nodes.values():
        promised = [move.pod for move in played.nominations if move.node is node and move.pod.gpu_count]
        if not promised:
            continue
        books = open_books(state, node, staying)
        for move in played.binds:
            if move.node is node:
                books.give(move.pod, move.gpus)
        if not books.is_known:
            continue
        whole = sum(pod.gpu_count for pod in promised if pod.ask.is_whole)
        if whole > books.untouched:
            yield f"{whole} GPUs of {node.name} are promised, and {books.untouched} will be free"
        for pod in promised:
            if not pods_held(pod.ask, books.free()):
                yield f"{pod.key} is promised {node.name}, where no {pod.gpu_count} GPUs will have room for it"


def pods_held(ask: Ask, free: list[tuple[Device, Fraction]], most: int = 1) -> int:
    """How many pods of one kind find their devices among these: each pod's shares are on different ones.

    `count` pods do if no device has to take two shares of one pod: then every device counts for `count` at most.
    """
    times = [left // share for device, left in free for share in [ask.share_of(device)] if share]
    for count in range(most, 0, -1):
        if sum(min(held, count) for held in times) >= count * ask.count:
            return count
    return 0


def shown(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else str(float(amount))


# Domains.


def judge_domains(facts: Facts, state: State, played: Round) -> Iterator[str]:
    """Includes running pods. Pods that leave in this round do not count."""
    places = places_by_gang(facts, state, played)
    for key in sorted({move.pod.gang for move in [*played.binds, *played.nominations]}):
        level = facts.gang(key).required
        if not level:
            continue
        domains = {facts.domain(node, level) for node in places[key]}
        if None in domains:
            yield f"{key} must be in one {level}, and has pods on nodes that are in none"
        elif len(domains) > 1:
            names = sorted("/".join(domain) for domain in domains if domain)
            yield f"{key} must be in one {level}, and is in {', '.join(names)}"


def places_by_gang(facts: Facts, state: State, played: Round) -> dict[str, list[Node]]:
    places: dict[str, list[Node]] = {}
    for key in state.staying(played.evicted):
        if state.where[key] in facts.nodes:
            places.setdefault(state.pods[key].gang, []).append(facts.nodes[state.where[key]])
    for move in [*played.binds, *played.nominations]:
        places.setdefault(move.pod.gang, []).append(move.node)
    return places


# Models.


def models_of_gpus(node: Node, gpus: Iterable[str]) -> set[str]:
    """The models that a pod has: those of its devices, or any of the node if its devices are unknown."""
    named = [device for gpu in gpus for device in [node.hardware.find(gpu)] if device is not None]
    return {device.model for device in named} if named else node.hardware.models


def models_in_use(facts: Facts, state: State, keys: Iterable[str], gang: Gang, models: tuple[str, ...]) -> set[str]:
    """The models that all running pods of the gang with this list may have; empty if none run, or none is common."""
    found: set[str] | None = None
    for key in keys:
        pod, node = state.pods[key], facts.nodes.get(state.where[key])
        if pod.gang == gang.key and node is not None and pod.gpu_count and gang.models_of(pod) == models:
            here = models_of_gpus(node, state.gpu_ids.get(key, ()))
            found = here if found is None else found & here
    return found or set()


def judge_models(facts: Facts, state: State, played: Round) -> Iterator[str]:
    staying = state.staying(played.evicted)
    together: dict[tuple[str, tuple[str, ...]], list[Move]] = {}
    for move in [*played.binds, *played.nominations]:
        if not move.pod.gpu_count:
            continue
        gang = facts.gang(move.pod.gang)
        models = gang.models_of(move.pod)
        together.setdefault((gang.key, models), []).append(move)
        has = models_of_gpus(move.node, move.gpus)
        if move.gpus and len(has) > 1:
            yield f"{move.pod.key} has GPUs of several models: {', '.join(sorted(has))}"
        allowed = {model for model in has if rank_of(model, models) is not None}
        if not allowed or (move.gpus and allowed != has):
            yield f"{move.pod.key} is on {', '.join(sorted(has))}, and allows {', '.join(models)}"
    for (key, models), moves in together.items():
        gang = facts.gang(key)
        if gang.is_mixed:
            continue
        used = [models_of_gpus(move.node, move.gpus) for move in moves]
        common = set.intersection(*used)
        before = models_in_use(facts, state, staying, gang, models)
        if not common or (before and not common & before):
            names = sorted(set.union(*used, before))
            yield f"{key} is on GPUs of several models: {', '.join(names)}"
