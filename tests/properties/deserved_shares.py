"""What each queue deserves, computed a second time in another way: exactly, as a water level.

The scheduler pours round by round in floating point; here the level is found directly: over the queues sorted by the
level at which each is full, the amount left decides between which two the water stands. What comes in whole units is
then handed out in whole units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from properties.cluster_facts import DEFAULT_QUEUE, Facts
from properties.gpu_facts import GPU
from properties.raw_objects import Object, Resources, add, flat, number, resources, table, text
from properties.replay_rounds import State

TOLERANCE = Fraction(1, 100_000)

Shares = dict[str, Resources]  # queue -> resources


@dataclass
class Dues:
    """What each queue deserves and is guaranteed, and the resources that are scarce among it and its siblings."""

    deserved: Shares
    scarce: set[tuple[str, str]]
    guaranteed: Shares = field(default_factory=dict)  # as far as it is asked for; of a parent at least its children's


class Tree:
    """The queues as users wrote them."""

    def __init__(self, objects: Iterable[object]) -> None:
        written = {text(item, "metadata", "name"): item for item in flat(objects) if text(item, "kind") == "Queue"}
        self.names = sorted({DEFAULT_QUEUE, *written})
        specs: dict[str, Object] = {name: table(written.get(name, {}), "spec") for name in self.names}
        self.parent = {name: text(spec, "parent") for name, spec in specs.items()}
        self.weight = {name: Fraction(number(spec, "weight", default=1)) for name, spec in specs.items()}
        self.priority = {name: number(spec, "priority") for name, spec in specs.items()}
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
    strangers = [key for key in staying if not is_charged(facts, state, key)]
    waiting = [key for key in state.pending if state.pods[key].is_ours]
    asked = held_by_queue(facts, state, [*ours, *waiting])
    names = {name for node in facts.nodes.values() for name in node.allocatable}
    names |= {name for wanted in asked.values() for name in wanted}
    found = Dues({name: {} for name in tree.names}, set(), {name: {} for name in tree.names})
    shared = {GPU} if any(not pod.ask.is_whole for pod in state.pods.values()) else set()
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
        for name in tree.names:
            found.guaranteed[name][resource] = _guarantee(tree, wants, name, resource)
        is_whole = "/" in resource and resource not in shared
        _pour(tree, "", max(total, Fraction(0)), wants, resource, found, is_whole)
    return found


def _want(tree: Tree, asked: Shares, name: str, resource: str) -> Fraction:
    below = tree.children(name)
    want = asked.get(name, {}).get(resource, Fraction(0))
    if below:
        want = sum((_want(tree, asked, child, resource) for child in below), Fraction(0))
    return min(want, tree.limit[name].get(resource, want))


def _guarantee(tree: Tree, wants: dict[str, Fraction], name: str, resource: str) -> Fraction:
    own = min(tree.guaranteed[name].get(resource, Fraction(0)), wants[name])
    below = sum((_guarantee(tree, wants, child, resource) for child in tree.children(name)), Fraction(0))
    return min(max(own, below), tree.limit[name].get(resource, max(own, below)))


def _pour(
    tree: Tree,
    parent: str,
    amount: Fraction,
    wants: dict[str, Fraction],
    resource: str,
    found: Dues,
    is_whole: bool,
) -> None:
    siblings = tree.children(parent)
    first = {name: found.guaranteed[name][resource] for name in siblings}
    promised = sum(first.values(), Fraction(0))
    if promised > amount:
        given = {name: value * amount / promised for name, value in first.items()}
    else:
        level = _level({n: wants[n] - first[n] for n in siblings}, tree.weight, amount - promised)
        given = {name: min(wants[name], first[name] + level * tree.weight[name]) for name in siblings}
    if is_whole:
        given = _in_units(tree, given)
    for name in siblings:
        found.deserved[name][resource] = given[name]
        if sum((wants[sibling] for sibling in siblings), Fraction(0)) > amount:
            found.scarce.add((name, resource))
        _pour(tree, name, given[name], wants, resource, found, is_whole)


def _in_units(tree: Tree, exact: dict[str, Fraction]) -> dict[str, Fraction]:
    """Whole units of each share, and one more for those who lose the largest part of one."""
    given = {name: Fraction(floor(share)) for name, share in exact.items()}
    left = floor(sum(exact.values(), Fraction(0))) - sum(given.values(), Fraction(0))
    losers = sorted(exact, key=lambda name: (given[name] - exact[name], -tree.priority[name], name))
    return {name: given[name] + (name in losers[: int(left)]) for name in exact}


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
