"""How much of its guarantee a queue holds in whole parts, computed from the raw objects, for the referee alone.

The pods of a job are taken apart into what is evicted together: its minimum, and each step of its surplus. In each
queue these parts stand in an order, and those that fit into the guarantee in that order are inside it. Where jobs have
started at the same moment, the order by name is the scheduler's own: every order is tried here, and nothing is said
where they differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, permutations, product

from properties.cluster_facts import Facts
from properties.deserved_shares import TOLERANCE, Dues, Tree, is_charged
from properties.raw_objects import Resources, add
from properties.replay_rounds import State

MOST_ORDERS = 24  # of jobs that started at the same moment

Order = dict[str, int]  # gang -> its place among those that are alike


@dataclass(frozen=True)
class Part:
    """Pods of one job that are evicted together."""

    gang: str
    queue: str
    nth: int  # 0: the minimum; else the step of surplus, counted from the minimum up
    pods: tuple[str, ...]
    is_firm: bool
    started: int  # the oldest pod of its job

    def asks(self, facts: Facts, state: State) -> Resources:
        total: Resources = {}
        for key in self.pods:
            add(total, state.requests(facts, key))
        return total


def parts_of_gang(facts: Facts, state: State, gang: str) -> list[Part]:
    """The minimum first, then its surplus step by step. A gang that lacks pods is one part."""
    mine = sorted(
        (key for key in state.staying() if state.pods[key].gang == gang and state.where[key] in facts.nodes),
        key=lambda key: (state.pods[key].index, key),
    )
    if not mine:
        return []
    steps = _steps(facts, state, gang, mine)
    surplus = {key for step in steps for key in step}
    pods = [tuple(key for key in mine if key not in surplus), *reversed(steps)]
    known, started = facts.gang(gang), min(state.started.get(key, 0) for key in mine)
    return [
        Part(gang, known.queue, nth, some, not known.is_preemptable, started) for nth, some in enumerate(pods) if some
    ]


def _steps(facts: Facts, state: State, gang: str, mine: list[str]) -> list[tuple[str, ...]]:
    """The surplus of the gang, the step that goes first in front."""
    known, done = facts.gang(gang), state.succeeded.get(gang, [])
    left, steps = list(mine), list[tuple[str, ...]]()
    if gang in facts.jobs:
        for name, role in facts.jobs[gang].elastic.roles.items():
            size = state.size(facts, gang, name)
            while size - role.step >= role.least:
                size -= role.step
                step = [key for key in left if state.pods[key].role == name and state.pods[key].index >= size]
                rest = [key for key in left if key not in step]
                if step and not known.missing([state.pods[key].role for key in rest] + done):
                    steps.append(tuple(step))
                    left = rest
        return steps
    if gang not in facts.gangs:
        return []  # its minimum is unknown
    for key in reversed(mine):
        rest = [other for other in left if other != key]
        roles = [state.pods[other].role for other in rest] + done
        if rest and not known.missing(roles):
            steps.append((key,))
            left = rest
    return steps


def running_parts(facts: Facts, state: State) -> list[Part]:
    gangs = sorted({state.pods[key].gang for key in state.staying() if is_charged(facts, state, key)})
    return [part for gang in gangs for part in parts_of_gang(facts, state, gang)]


def orders(parts: list[Part]) -> Iterator[Order]:
    """Every order of the jobs that started at the same moment; none if there are too many."""
    gangs = sorted({(part.started, part.gang) for part in parts})
    groups = [[gang for _, gang in several] for _, several in groupby(gangs, key=lambda entry: entry[0])]
    count = 1
    for group in groups:
        for size in range(2, len(group) + 1):
            count *= size
    if count > MOST_ORDERS:
        return
    for chosen in product(*(permutations(group) for group in groups)):
        yield {gang: place for group in chosen for place, gang in enumerate(group)}


class Guarantees:
    """What is inside the guarantee of each queue."""

    def __init__(self, facts: Facts, state: State, tree: Tree, due: Dues, orders_: list[Order] | None = None) -> None:
        self.facts, self.state, self.tree, self.due = facts, state, tree, due
        self.parts = running_parts(facts, state)
        self.orders = list(orders(self.parts)) if orders_ is None else orders_

    def named(self, queue: str) -> Resources:
        return {name: amount for name, amount in self.due.guaranteed[queue].items() if amount > 0}

    def in_each_order(self, queue: str) -> list[set[Part]]:
        """The parts inside the guarantee of the queue, for each order of those that started together."""
        return [self._inside(queue, order) for order in self.orders]

    def _inside(self, queue: str, order: Order) -> set[Part]:
        below: set[Part] = set()
        for child in self.tree.children(queue):
            below |= self._inside(child, order)
        mine = [part for part in self.parts if queue in self.facts.queue_line(part.queue)]
        mine.sort(
            key=lambda part: (
                not part.is_firm or part.nth > 0,
                part not in below,
                part.nth > 0,
                part.started,
                order[part.gang],
                part.nth,
            )
        )
        named, held, inside = self.named(queue), dict[str, Fraction](), set[Part]()
        outside: set[str] = set()  # gangs: surplus above a part that may go, may go too
        for part in mine:
            asked = part.asks(self.facts, self.state)
            then = {name: held.get(name, Fraction(0)) + asked.get(name, Fraction(0)) for name in named}
            if (
                self.due.covered(queue, asked)
                and part.gang not in outside
                and all(then[name] <= named[name] + TOLERANCE for name in named)
            ):
                held = then
                inside.add(part)
            else:
                outside.add(part.gang)
                if part.is_firm and not part.nth:
                    held = then  # nothing moves it, so what is beside it has to go
        return inside

    def amounts(self, queue: str, order: Order) -> tuple[list[Fraction], list[Fraction]]:
        """What is inside the guarantee in that order, of each resource that it names: of minimums, and of all parts."""
        inside = self._inside(queue, order)
        return self._sums(queue, [part for part in inside if part.nth == 0]), self._sums(queue, inside)

    def _sums(self, queue: str, parts: Collection[Part]) -> list[Fraction]:
        asks = [part.asks(self.facts, self.state) for part in parts]
        return [sum((ask.get(name, Fraction(0)) for ask in asks), Fraction(0)) for name in sorted(self.named(queue))]

    def has_all(self, queue: str) -> bool:
        """Whether the queue holds all that it is guaranteed, inside or outside, in parts that the guarantee covers."""
        mine = [part for part in self.parts if queue in self.facts.queue_line(part.queue)]
        held = self._sums(queue, [part for part in mine if self.due.covered(queue, part.asks(self.facts, self.state))])
        named = self.named(queue)
        return all(amount >= named[name] - TOLERANCE for name, amount in zip(sorted(named), held, strict=True))

    def without(self, keys: Collection[str]) -> Guarantees:
        return Guarantees(self.facts, without(self.state, keys), self.tree, self.due, self.orders)

    def keep_as_much(self, queue: str, keys: Collection[str], order: Order) -> bool:
        """Whether the queue holds as much inside its guarantee without these pods: of minimums, and either with surplus
        or all that it is guaranteed, wherever it is counted.
        """
        rest = self.without(keys)
        (minimums, whole), (minimums_left, whole_left) = self.amounts(queue, order), rest.amounts(queue, order)
        has_minimums = all(then >= now for now, then in zip(minimums, minimums_left, strict=True))
        return has_minimums and (
            rest.has_all(queue) or all(then >= now for now, then in zip(whole, whole_left, strict=True))
        )


def without(state: State, keys: Collection[str]) -> State:
    """The state as if these pods had left."""
    return replace(
        state,
        where={key: node for key, node in state.where.items() if key not in keys},
        pods={key: pod for key, pod in state.pods.items() if key not in keys},
    )


def sides(facts: Facts, one: str, other: str) -> tuple[list[str], list[str]]:
    """The queues of each side below the lowest queue that contains both, from the leaf up."""
    mine, theirs = facts.queue_line(one), facts.queue_line(other)
    return [name for name in mine if name not in theirs], [name for name in theirs if name not in mine]
