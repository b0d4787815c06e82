"""What each queue deserves, computed a second time in another way: exactly, as a water level.

The scheduler pours round by round in floating point; here the level is found directly: over the queues sorted by the
level at which each is full, the amount left decides between which two the water stands. Of indivisible resources the
exact shares are rounded down here, and what is left is given to the largest remainders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from properties.cluster_facts import DEFAULT_QUEUE, Facts
from properties.raw_objects import Object, Resources, add, flat, number, resources, table, text
from properties.replay_rounds import State

TOLERANCE = Fraction(1, 100_000)

Shares = dict[str, Resources]  # queue -> resources


@dataclass
class Dues:
    """What each queue deserves and is guaranteed, and the resources that are scarce among it and its siblings."""

    deserved: Shares
    guaranteed: Shares  # as far as it asks for it, and at least what its children are
    scarce: set[tuple[str, str]]
    wanting: set[str] = field(default_factory=set)  # queues that hold or ask for anything

    def covered(self, queue: str, asked: Resources) -> list[str]:
        """What the guarantee names of what is asked for; nothing, if it does not name a scarce device."""
        named = {name for name, amount in self.guaranteed[queue].items() if amount > 0}
        wanted = {name for name, amount in asked.items() if amount}
        has_other = any("/" in name and (queue, name) in self.scarce for name in wanted - named)
        return [] if has_other else sorted(wanted & named)


class Tree:
    """The queues as users wrote them."""

    def __init__(self, objects: Iterable[object]) -> None:
        written = {text(item, "metadata", "name"): item for item in flat(objects) if text(item, "kind") == "Queue"}
        self.names = sorted({DEFAULT_QUEUE, *written})
        specs: dict[str, Object] = {name: table(written.get(name, {}), "spec") for name in self.names}
        self.parent = {name: text(spec, "parent") for name, spec in specs.items()}
        self._weight = {name: number(spec, "weight", default=1) for name, spec in specs.items()}
        self._weights = {name: table(spec, "weights") for name, spec in specs.items()}
        self.priority = {name: number(spec, "priority") for name, spec in specs.items()}
        self.guaranteed = {name: resources(spec.get("guaranteed", {})) for name, spec in specs.items()}
        self.limit = {name: resources(spec.get("limit", {})) for name, spec in specs.items()}
        self.is_reclaimable = {name: spec.get("reclaimable", True) is True for name, spec in specs.items()}

    def children(self, name: str) -> list[str]:
        return [child for child in self.names if self.parent[child] == name]

    def weight(self, name: str, resource: str) -> Fraction:
        return Fraction(number(self._weights[name], resource, default=self._weight[name]))


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


def find_dues(facts: Facts, state: State, tree: Tree, *, by_priority: bool = False) -> Dues:
    """By queue and resource, for the running and waiting pods of `state`. `by_priority`: as the policy says."""
    staying = state.staying()
    ours = [key for key in staying if is_charged(facts, state, key)]
    strangers = [*(key for key in staying if not is_charged(facts, state, key)), *state.stuck]
    waiting = [key for key in state.pending if state.pods[key].is_ours]
    asked = held_by_queue(facts, state, [*ours, *waiting])
    growth = list(_growth(facts, state))
    for queue, request, count in growth:
        for name in facts.queue_line(queue):
            add(asked.setdefault(name, {}), {resource: amount * count for resource, amount in request.items()})
    names = {name for node in facts.nodes.values() for name in node.allocatable}
    names |= {name for wanted in asked.values() for name in wanted}
    requests = [state.requests(facts, key) for key in (*ours, *waiting)] + [request for _, request, _ in growth]
    parts = {resource for request in requests for resource, amount in request.items() if amount.denominator != 1}
    found = Dues({name: {} for name in tree.names}, {name: {} for name in tree.names}, set())
    found.wanting |= {name for name, wanted in asked.items() if any(wanted.values())}
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
        is_whole = "/" in resource and resource not in parts
        division = Division(tree, resource, is_whole, by_priority, asked, held_by_queue(facts, state, ours))
        division.pour("", division.units(max(total, Fraction(0))), found)
    return found


def _growth(facts: Facts, state: State) -> Iterator[tuple[str, Resources, int]]:
    """What jobs may grow by they ask for, too: the queue, what a replica requests, and how many there could be."""
    for key, job in facts.jobs.items():
        for role in job.elastic.roles.values() if job.elastic.wants_pods else ():
            more = role.most - state.size(facts, key, role.name)
            if more > 0:
                yield job.gang.queue, facts.smallest_asked(job.replica(role.name, 0)), more


@dataclass
class Division:
    """The division of one resource among the queues."""

    tree: Tree
    resource: str
    is_whole: bool
    by_priority: bool
    asked: Shares
    held: Shares

    def units(self, amount: Fraction) -> Fraction:
        return Fraction(floor(amount)) if self.is_whole else amount

    def want(self, name: str) -> Fraction:
        below = self.tree.children(name)
        want = sum(map(self.want, below), Fraction(0)) if below else self.asked.get(name, {}).get(self.resource)
        limit = self.tree.limit[name].get(self.resource)
        return min(want or Fraction(0), self.units(limit)) if limit is not None else want or Fraction(0)

    def guarantee(self, name: str) -> Fraction:
        own = self.units(self.tree.guaranteed[name].get(self.resource, Fraction(0)))
        below = sum(map(self.guarantee, self.tree.children(name)), Fraction(0))
        return min(self.want(name), max(own, below))

    def pour(self, parent: str, amount: Fraction, found: Dues) -> None:
        siblings = self.tree.children(parent)
        wants = {name: self.want(name) for name in siblings}
        wanted = sum(wants.values(), Fraction(0))
        held = {name: self.units(self.held.get(name, {}).get(self.resource, Fraction(0))) for name in siblings}
        in_use = sum((max(want, held[name]) for name, want in wants.items()), Fraction(0))
        given = self.exact(amount, wants)
        if self.is_whole:
            given = self.rounded(min(amount, wanted), given)
        for name in siblings:
            found.deserved[name][self.resource] = given[name]
            found.guaranteed[name][self.resource] = self.guarantee(name)
            if in_use > amount:
                found.scarce.add((name, self.resource))
            self.pour(name, given[name], found)

    def exact(self, amount: Fraction, wants: Resources) -> Resources:
        first = {name: self.guarantee(name) for name in wants}
        promised = sum(first.values(), Fraction(0))
        if promised > amount:
            return {name: value * amount / promised for name, value in first.items()}
        given, rest = dict(first), amount - promised
        for turn in self.turns(list(wants)):
            room = {name: wants[name] - first[name] for name in turn}
            level = _level(room, turn, rest)
            for name, weight in turn.items():
                given[name] = min(wants[name], first[name] + level * weight)
            rest -= sum((given[name] - first[name] for name in turn), Fraction(0))
        return given

    def turns(self, siblings: list[str]) -> list[Resources]:
        """Those with a weight before all that have none; among each, if the policy says so, by priority."""
        weights = {name: self.tree.weight(name, self.resource) for name in siblings}
        turns: list[Resources] = []
        for has_weight in (True, False):
            members = [name for name in siblings if (weights[name] > 0) is has_weight]
            ranks = {self.tree.priority[name] if self.by_priority else 0 for name in members}
            for rank in sorted(ranks, reverse=True):
                turn = [name for name in members if not self.by_priority or self.tree.priority[name] == rank]
                turns.append({name: weights[name] if has_weight else Fraction(1) for name in turn})
        return turns

    def rounded(self, amount: Fraction, given: Resources) -> Resources:
        shares = {name: Fraction(floor(share)) for name, share in given.items()}
        order = sorted(given, key=lambda name: (shares[name] - given[name], -self.tree.priority[name], name))
        for name in order[: int(amount - sum(shares.values(), Fraction(0)))]:
            shares[name] += 1
        return shares


def _level(room: Resources, weight: Resources, amount: Fraction) -> Fraction:
    """The water level of `amount` in vessels as wide as their weights and as large as `room`."""
    level = Fraction(0)
    rising = sorted((size / weight[name], weight[name]) for name, size in room.items())
    width = sum(weight.values(), Fraction(0))
    for full_at, own in rising:
        if (full_at - level) * width >= amount:
            return level + amount / width
        amount -= (full_at - level) * width
        level, width = full_at, width - own
    return level
