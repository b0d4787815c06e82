"""What a single waiting gang could have had: one domain, a better model, faster links.

With one gang of one shape no other demand interferes, so the best choice is the one that the documentation
says is best. All of it is about the first round of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from properties.brute_force_links import rating, ring
from properties.cluster_facts import Facts, Gang, Pod, read_facts
from properties.gpu_facts import WHOLE, rank_of
from properties.missed_room import choices, needed, room_in
from properties.raw_objects import Object, quantity, rows
from properties.replay_rounds import Move, State, read_round, read_state
from properties.topology_verdicts import models_of_gpus, open_books, shown


@dataclass(frozen=True)
class Lone:
    """A waiting gang, and what the first round did for it."""

    facts: Facts
    state: State
    gang: Gang
    pods: list[Pod]
    binds: list[Move]

    @property
    def models(self) -> tuple[str, ...]:
        return self.gang.models_of(self.pods[0])

    @property
    def has(self) -> frozenset[str]:
        """The models that the gang got."""
        return frozenset(model for move in self.binds for model in models_of_gpus(move.node, move.gpus))


def find_lone(objects: list[Object], plan: Object) -> Lone | None:
    """None if nothing of the gang was bound, or if it is not one whose room can be counted."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    played = read_round(facts, state, rows(plan, "rounds")[0])
    pods = [state.pods[key] for key in sorted(state.pending) if state.pods[key].is_ours]
    if len({pod.gang for pod in pods}) != 1 or not played.binds or played.nominations or played.evicted:
        return None
    gang = facts.gang(pods[0].gang)
    if needed(gang, state, pods) is None:
        return None
    return Lone(facts, state, gang, pods, played.binds)


def spread_in_vain(objects: list[Object], plan: Object) -> list[str]:
    """A gang that asked to be close but is in several domains of a level, one of which had room for all of it.

    A list of models goes first: then only room on the model that the gang got counts.
    """
    lone = find_lone(objects, plan)
    if lone is None or not (lone.gang.required or lone.gang.preferred):
        return []
    sentences: list[str] = []
    for level in lone.facts.levels:
        for choice in choices(lone.facts, lone.state, lone.gang, lone.pods[0], level):
            if lone.models and choice.models != lone.has and lone.pods[0].gpu_count and not lone.gang.is_mixed:
                continue
            if room_in(lone.facts, lone.state, choice, lone.pods[0], len(lone.pods)) < len(lone.pods):
                continue
            used = {lone.facts.domain(move.node, level) for move in lone.binds}
            if len(used) > 1 or len(lone.binds) < len(lone.pods):
                sentences.append(f"{lone.gang.key} is not in one {level}, although{choice.shown} there is room for all")
            break
    return sentences


def slower_models(objects: list[Object], plan: Object) -> list[str]:
    """A gang that got another model although an earlier one of its list had room for all of it."""
    lone = find_lone(objects, plan)
    if lone is None or not lone.models or lone.gang.is_mixed or not lone.pods[0].gpu_count:
        return []
    ranks = {rank_of(model, lone.models) for model in lone.has}
    for choice in choices(lone.facts, lone.state, lone.gang, lone.pods[0]):
        (model,) = choice.models
        rank = rank_of(model, lone.models)
        assert rank is not None
        has_room = room_in(lone.facts, lone.state, choice, lone.pods[0], len(lone.pods)) >= len(lone.pods)
        if has_room and any(other is None or other > rank for other in ranks):
            return [f"{lone.gang.key} is on {', '.join(lone.has)}, although {model} has room for all{choice.shown}"]
    return []


def slower_links(objects: list[Object], plan: Object) -> list[str]:
    """Pods whose GPUs are linked worse than others that were free, and rings whose stated speed is wrong.

    Of several pods on a node the first one gets the best set, and the plan does not say which one was first.
    """
    lone = find_lone(objects, plan)
    return [] if lone is None else list(_slower_links(lone))


def _slower_links(lone: Lone) -> Iterator[str]:
    facts, state = lone.facts, lone.state
    for node in facts.nodes.values():
        moves = [move for move in lone.binds if move.node is node and move.pod.ask.is_whole and len(move.gpus) > 1]
        links, devices = node.hardware.links, node.hardware.devices
        books = open_books(state, node, state.where)
        if not moves or links is None or not books.is_known or len(node.hardware.healthy) > node.gpu_count:
            continue
        model = min(models_of_gpus(node, moves[0].gpus))
        moves = [move for move in moves if models_of_gpus(node, move.gpus) == {model}]
        place = {device.id: index for index, device in enumerate(devices)}
        sets = [tuple(sorted(place[gpu] for gpu in move.gpus)) for move in moves]
        for move, chosen in zip(moves, sets, strict=True):
            if not move.ring or quantity(move.ring) != ring(links, chosen):
                yield f"{move.pod.key} is said to have a ring of {move.ring} GB/s, it is {shown(ring(links, chosen))}"
        untouched = tuple(place[device.id] for device, left in books.free() if left == WHOLE)
        free = tuple(index for index in untouched if devices[index].model == model)
        is_simple = len(moves) == 1 and len({device.model for device in devices}) == 1
        rate = rating(links, untouched, counts_rest=is_simple)
        best = max(combinations(free, len(moves[0].gpus)), key=rate)
        got = max(sets, key=rate)
        if rate(got) < rate(best):
            names = {index: device.id for index, device in enumerate(devices)}
            yield (
                f"of the GPUs {', '.join(names[index] for index in free)} of {node.name} the best are "
                f"{', '.join(names[index] for index in best)} ({', '.join(map(shown, rate(best)))}), "
                f"not {', '.join(names[index] for index in got)} ({', '.join(map(shown, rate(got)))})"
            )
