"""What each queue deserves, computed a second time in another way: exactly, as a water level.

The scheduler pours round by round in floating point; here the level is found directly: over the queues sorted by the
level at which each is full, the amount left decides between which two the water stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from properties.cluster_facts import DEFAULT_QUEUE, Facts, read_facts
from properties.eviction_verdicts import DISPLACED
from properties.raw_objects import Object, Resources, add, flat, number, resources, rows, table, text
from properties.replay_rounds import Round, State, after, read_round, read_state

TOLERANCE = Fraction(1, 100_000)

Shares = dict[str, Resources]  # queue -> resources


@dataclass
class Dues:
    """What each queue deserves, and the resources that are scarce among it and its siblings."""

    deserved: Shares
    scarce: set[tuple[str, str]]


class Tree:
    """The queues as users wrote them."""

    def __init__(self, objects: Iterable[object]) -> None:
        written = {text(item, "metadata", "name"): item for item in flat(objects) if text(item, "kind") == "Queue"}
        self.names = sorted({DEFAULT_QUEUE, *written})
        specs: dict[str, Object] = {name: table(written.get(name, {}), "spec") for name in self.names}
        self.parent = {name: text(spec, "parent") for name, spec in specs.items()}
        self.weight = {name: Fraction(number(spec, "weight", default=1)) for name, spec in specs.items()}
        self.guaranteed = {name: resources(spec.get("guaranteed", {})) for name, spec in specs.items()}
        self.limit = {name: resources(spec.get("limit", {})) for name, spec in specs.items()}
        self.is_reclaimable = {name: spec.get("reclaimable", True) is True for name, spec in specs.items()}

    def children(self, name: str) -> list[str]:
        return [child for child in self.names if self.parent[child] == name]


def held_by_queue(facts: Facts, state: State, keys: Iterable[str]) -> Shares:
    """What the pods in `keys` ask for, by queue and by every queue above it."""
    total: Shares = {}
    for key in keys:
        requests = state.requests(facts, key)
        for queue in facts.queue_line(facts.gang(state.pods[key].gang).queue):
            add(total.setdefault(queue, {}), requests)
    return total


def is_charged(facts: Facts, state: State, key: str) -> bool:
    """Our pods and pods of declared gangs are charged to queues; pods of other schedulers are not."""
    pod = state.pods[key]
    return pod.is_ours or pod.gang in facts.gangs


def find_dues(facts: Facts, state: State, tree: Tree) -> Dues:
    """By queue and resource, for the running and waiting pods of `state`."""
    staying = state.staying()
    ours = [key for key in staying if is_charged(facts, state, key)]
    strangers = [*(key for key in staying if not is_charged(facts, state, key)), *state.stuck]
    waiting = [key for key in state.pending if state.pods[key].is_ours]
    asked = held_by_queue(facts, state, [*ours, *waiting])
    names = {name for node in facts.nodes.values() for name in node.allocatable}
    names |= {name for wanted in asked.values() for name in wanted}
    found = Dues({name: {} for name in tree.names}, set())
    for resource in names:
        total = Fraction(0)
        for node in facts.nodes.values():
            here = [state.requests(facts, key) for key, where in state.where.items() if where == node.name]
            usable = node.is_ready and not node.is_unschedulable
            used = sum((request.get(resource, Fraction(0)) for request in here), Fraction(0))
            total += node.allocatable.get(resource, Fraction(0)) if usable else used
        for key in strangers:
            if state.where[key] in facts.nodes:
                total -= state.requests(facts, key).get(resource, Fraction(0))
        wants = {name: _want(tree, asked, name, resource) for name in tree.names}
        _pour(tree, "", max(total, Fraction(0)), wants, resource, found)
    return found


def _want(tree: Tree, asked: Shares, name: str, resource: str) -> Fraction:
    below = tree.children(name)
    want = asked.get(name, {}).get(resource, Fraction(0))
    if below:
        want = sum((_want(tree, asked, child, resource) for child in below), Fraction(0))
    return min(want, tree.limit[name].get(resource, want))


def _pour(tree: Tree, parent: str, amount: Fraction, wants: dict[str, Fraction], resource: str, found: Dues) -> None:
    siblings = tree.children(parent)
    first = {name: min(tree.guaranteed[name].get(resource, Fraction(0)), wants[name]) for name in siblings}
    promised = sum(first.values(), Fraction(0))
    if promised > amount:
        given = {name: value * amount / promised for name, value in first.items()}
    else:
        level = _level({n: wants[n] - first[n] for n in siblings}, tree.weight, amount - promised)
        given = {name: min(wants[name], first[name] + level * tree.weight[name]) for name in siblings}
    for name in siblings:
        found.deserved[name][resource] = given[name]
        if sum((wants[sibling] for sibling in siblings), Fraction(0)) > amount:
            found.scarce.add((name, resource))
        _pour(tree, name, given[name], wants, resource, found)


def _level(room: dict[str, Fraction], weight: dict[str, Fraction], amount: Fraction) -> Fraction:
    """The water level of `amount` in vessels as wide as their weights and as large as `room`."""
    level = Fraction(0)
    rising = sorted((size / weight[name], weight[name]) for name, size in room.items())
    width = sum((weight[name] for name in room), Fraction(0))
    for full_at, own in rising:
        if (full_at - level) * width >= amount:
            return level + amount / width
        amount -= (full_at - level) * width
        level, width = full_at, width - own
    return level


def lost_dues(objects: list[Object], plan: Object) -> list[str]:
    """Queues that lose what they deserve of what is scarce to pods of other queues.

    What a queue gets in the same round counts, and room that moves within it is no loss. A pod in room reserved for
    a gang of another queue must make way: losing it is no loss either.
    """
    facts, tree = read_facts(objects), Tree(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        sentences += [f"round {index}: {sentence}" for sentence in _lost_in(facts, state, played, tree)]
        state = after(facts, state, played)
    return sentences


def _lost_in(facts: Facts, state: State, played: Round, tree: Tree) -> Iterator[str]:
    def lines(key: str) -> tuple[list[str], list[str]]:
        loser, winner = facts.gang(state.pods[key].gang), facts.gang(played.evicted[key])
        return facts.queue_line(loser.queue), facts.queue_line(winner.queue)

    leaving = [key for key in played.evicted if lines(key)[0] != lines(key)[1] and played.reasons[key] != DISPLACED]
    if not leaving:
        return
    swapping = {gang for key, gang in played.evicted.items() if lines(key)[0] == lines(key)[1]}
    coming = [move for move in (*played.binds, *played.nominations) if move.pod.gang not in swapping]
    there = replace(state, where=state.where | {move.pod.key: move.node.name for move in coming})
    kept = [key for key in there.staying(leaving) if is_charged(facts, there, key)]
    held, due = held_by_queue(facts, there, kept), find_dues(facts, state, tree)
    touched = {
        (queue, resource)
        for key in leaving
        for queue in set(lines(key)[0]) - set(lines(key)[1])
        for resource in state.pods[key].requests
    }
    for queue, resource in sorted(touched):
        left, deserved = held.get(queue, {}).get(resource, Fraction(0)), due.deserved[queue][resource]
        if not tree.is_reclaimable[queue]:
            yield f"{queue} loses {resource}, and is not reclaimable"
        elif (queue, resource) in due.scarce and left < deserved - TOLERANCE:
            yield f"{queue} keeps {left} {resource} of {deserved}"
