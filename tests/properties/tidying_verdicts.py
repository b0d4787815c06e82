"""Verdicts on jobs that move while nothing waits: a round of it has one purpose and makes more order.

Order is a list of numbers that must fall: the domains of each level of their Topology that all gangs are in, the widest
level first; the nodes that they are on; and the GPUs that are free on nodes where others are in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from properties.cluster_facts import Facts, Node
from properties.gpu_facts import GPUS
from properties.raw_objects import at, text
from properties.replay_rounds import Round, State, is_tidying
from properties.topology_verdicts import models_of_gpus

# Reasons of gangs that could not use room if there were more of it.
_NOT_FOR_ROOM = {"QueueLimit", "QueueOverused", "BeyondGuarantee"}


def judge_tidying(facts: Facts, state: State, played: Round) -> Iterator[str]:
    purposes = sorted({purpose for _, purpose in played.moved_from.values() if is_tidying(purpose)})
    if not purposes:
        return
    if len({purpose for _, purpose in played.moved_from.values()}) > 1:
        yield f"jobs move for several things at once: {', '.join(purposes)}"
    if played.binds or played.nominations or set(played.evicted) != {move.pod.key for move in played.moves}:
        yield f"jobs move for {purposes[0]} while others start or leave"
    if state.leaving - state.stuck:
        yield f"jobs move for {purposes[0]} while others are leaving"
    for entry in played.waiting:
        if at(entry, "position") is not None and text(entry, "reason") not in _NOT_FOR_ROOM:
            yield f"jobs move for {purposes[0]} while {text(entry, 'group')} waits"
    yield from _wrong_places(facts, state, played, purposes[0])


def _wrong_places(facts: Facts, state: State, played: Round, purpose: str) -> Iterator[str]:
    then = state.where | {move.pod.key: move.node.name for move in played.moves}
    before, after = disorder(facts, state, state.where), disorder(facts, state, then)
    verb, _, name = purpose.partition(" ")
    is_less = after[:-1] < before[:-1] if verb == "gathering" else after < before
    if not is_less:
        yield f"jobs move for {purpose}, and the disorder goes from {_shown(before)} to {_shown(after)}"
    gangs = {move.pod.gang for move in played.moves}
    if verb == "gathering" and gangs != {name}:
        yield f"{', '.join(sorted(gangs))} move for {purpose}"
    if verb == "emptying":
        for gang in sorted(gangs):
            if not any(state.where[key] == name for key in _with_gpus(state, state.where) if _gang(state, key) == gang):
                yield f"{gang} moves for {purpose}, and has no GPUs there"
        left = [key for key in _with_gpus(state, then) if then[key] == name]
        if left:
            yield f"jobs move for {purpose}, and {', '.join(left)} is there"
    for move in played.moves:
        old = facts.nodes.get(state.where[move.pod.key])
        if move.pod.gpu_count and old is not None and not _has_model_of(state, old, move.node, move.pod.key):
            yield f"{move.pod.key} moves to another model of GPU for {purpose}"


def _has_model_of(state: State, old: Node, new: Node, key: str) -> bool:
    return bool(models_of_gpus(old, state.gpu_ids.get(key, ())) & models_of_gpus(new, ()))


def _gang(state: State, key: str) -> str:
    return state.pods[key].gang


def _with_gpus(state: State, where: Mapping[str, str]) -> list[str]:
    return sorted(key for key in where if state.pods[key].gpu_count)


def disorder(facts: Facts, state: State, where: Mapping[str, str]) -> list[Fraction]:
    """`where`: the node of each pod."""
    depth = max((len(path) for path in facts.levels.values()), default=0)
    numbers = [Fraction(0)] * (depth + 2)
    nodes: dict[str, set[str]] = {}
    for key, name in where.items():
        if name in facts.nodes:
            nodes.setdefault(_gang(state, key), set()).add(name)
    for gang, names in nodes.items():
        level = facts.gang(gang).required or facts.gang(gang).preferred
        for other, path in facts.levels.items():
            if level and _is_of_one_topology(path, facts.levels[level]):
                # A node in no domain counts as one of its own.
                numbers[len(path) - 1] += len({facts.domain(facts.nodes[name], other) or (name, "") for name in names})
        numbers[depth] += len(names)
    for node in facts.nodes.values():
        used = Fraction(0)
        for key, name in where.items():
            if name == node.name:
                requests = state.pods[key].requests_at(node, state.gpu_ids.get(key, ()))
                used += sum((requests.get(gpu, Fraction(0)) for gpu in GPUS), Fraction(0))
        if used:
            has = min(node.gpu_count, len(node.hardware.healthy)) if node.hardware.devices else node.gpu_count
            numbers[depth + 1] += max(Fraction(0), has - used)
    return numbers


def _is_of_one_topology(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def _shown(numbers: list[Fraction]) -> str:
    return " ".join(map(str, numbers))
