"""Verdicts on what queues lose to each other: nothing inside a guarantee, and otherwise only what is strictly fairer.

Judged are pods that leave by shrinking or reclaiming for a gang of another queue. The measure of fairness is a list for
each level of the tree, from the top down: of the queues that share something scarce, the part of its due that each
holds, the poorest first. What a scheduler does before and after a claim in the same round is not in the plan, so a
claim is wrong only if it is wrong either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations

from properties.cluster_facts import Facts, read_facts
from properties.deserved_shares import TOLERANCE, Dues, Shares, Tree, find_dues, held_by_queue, is_charged
from properties.eviction_verdicts import RECLAIMED
from properties.guarantee_parts import Guarantees, sides, without
from properties.raw_objects import Object, Resources, add, rows
from properties.replay_rounds import SHRUNK, Move, Round, State, after, read_round, read_state

MOST_CLAIMS = 4  # of which every order is tried

Measure = list[list[Fraction]]  # for each level of a claimant's path, from the top down: the poorest first


def replayed(objects: list[Object], plan: Object) -> Iterator[tuple[int, Facts, State, Round]]:
    facts = read_facts(objects)
    state = read_state(facts, objects)
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        yield index, facts, state, played
        state = after(facts, state, played)


def taken_from_others(facts: Facts, state: State, played: Round) -> dict[str, list[str]]:
    """Claimant -> pods of other queues that shrink or are reclaimed for it."""
    claims: dict[str, list[str]] = {}
    for key, claimant in sorted(played.evicted.items()):
        if facts.gang(state.pods[key].gang).queue == facts.gang(claimant).queue:
            continue
        if played.reasons[key] in (SHRUNK, RECLAIMED):
            claims.setdefault(claimant, []).append(key)
    return claims


def coming(played: Round) -> list[Move]:
    return [*played.binds, *played.nominations]


def with_moves(state: State, moves: Iterable[Move]) -> State:
    """The moved pods as if they ran, and as the youngest."""
    new = {move.pod.key: move for move in moves}
    return replace(
        state,
        where=state.where | {key: move.node.name for key, move in new.items()},
        gpu_ids=state.gpu_ids | {key: frozenset(move.gpus) for key, move in new.items() if move.gpus},
        started=state.started | dict.fromkeys(new, state.now),
    )


# Guarantees.


def lost_guarantees(objects: list[Object], plan: Object) -> list[str]:
    """Queues that hold less inside their guarantee, because pods go for claimants that are not in the queue."""
    tree = Tree(objects)
    return [
        f"round {index}: {sentence}"
        for index, facts, state, played in replayed(objects, plan)
        for sentence in _lost_in(facts, state, played, tree)
    ]


def _lost_in(facts: Facts, state: State, played: Round, tree: Tree) -> Iterator[str]:
    taken = [key for keys in taken_from_others(facts, state, played).values() for key in keys]
    if not taken:
        return
    due = find_dues(facts, state, tree)
    # Whatever else moves in the round moves before or after.
    others = played.evicted.keys() - set(taken)
    there = [state, without(state, others)]
    there += [with_moves(view, coming(played)) for view in there]
    views = [Guarantees(facts, view, tree, due) for view in there]
    if not all(view.orders for view in views):
        return
    for queue in sorted(facts.queues):
        gone = [key for key in taken if is_taken_from(facts, state, played, queue, key)]
        if gone and not any(view.keep_as_much(queue, gone, order) for view in views for order in view.orders):
            named = ", ".join(sorted({played.evicted[key] for key in gone}))
            yield f"{', '.join(gone)} leave for {named}, and {queue} then holds less inside its guarantee"


def is_taken_from(facts: Facts, state: State, played: Round, queue: str, key: str) -> bool:
    """Whether the pod leaves the queue for a gang that is not in it."""
    leaf, claimant = facts.gang(state.pods[key].gang).queue, facts.gang(played.evicted[key]).queue
    return queue in sides(facts, leaf, claimant)[0]


# Fairness.


@dataclass(frozen=True)
class Claim:
    gang: str
    victims: list[str]  # of its own queue, too
    moves: list[Move]


class Judge:
    def __init__(self, facts: Facts, state: State, played: Round, tree: Tree) -> None:
        self.facts, self.state, self.played, self.tree = facts, state, played, tree
        self.due = find_dues(facts, state, tree)
        self.then = with_moves(state, coming(played))
        taken = taken_from_others(facts, state, played)
        self.claims = [
            Claim(
                gang,
                [key for key, claimant in sorted(played.evicted.items()) if claimant == gang],
                [move for move in coming(played) if move.pod.gang == gang],
            )
            for gang in sorted(taken)
        ]

    def judge(self) -> Iterator[str]:
        for claim in self.claims:
            for key in claim.victims:
                theirs, _ = sides(self.facts, self.queue_of(key), self.facts.gang(claim.gang).queue)
                for queue in theirs:
                    if not self.tree.is_reclaimable[queue]:
                        yield f"{queue} loses {key}, and is not reclaimable"
        if not self.claims or len(self.claims) > MOST_CLAIMS:
            return
        wrong = [self.first_wrong(order, dict(held)) for held in self.starts() for order in permutations(self.claims)]
        if all(wrong):
            yield wrong[0]

    def queue_of(self, key: str) -> str:
        return self.facts.gang(self.state.pods[key].gang).queue

    def starts(self) -> Iterator[Shares]:
        """What the queues hold before the claims: without other moves of the round, with its starts, and with all."""
        mine = {key for claim in self.claims for key in claim.victims}
        own = {move.pod.key for claim in self.claims for move in claim.moves}
        before = [key for key in self.state.staying() if is_charged(self.facts, self.state, key)]
        yield held_by_queue(self.facts, self.state, before)
        started = with_moves(self.state, self.played.binds)
        yield held_by_queue(
            self.facts, started, [key for key in started.staying() if is_charged(self.facts, started, key)]
        )
        others = set(self.played.evicted) - mine
        moved = [key for key in self.then.staying(others) if key not in own and is_charged(self.facts, self.then, key)]
        yield held_by_queue(self.facts, self.then, moved)

    def first_wrong(self, order: Iterable[Claim], held: Shares) -> str:
        """Of claims made in this order, the first that is neither strictly fairer nor guaranteed; empty: none."""
        for claim in order:
            then = self.held_after(held, claim)
            before, later = self.measure(held, claim.gang), self.measure(then, claim.gang)
            if later <= before and not self.is_guaranteed(held, claim):
                return (
                    f"{', '.join(claim.victims)} leave for {claim.gang}, and {_shown(before)} becomes {_shown(later)}"
                )
            held = then
        return ""

    def held_after(self, held: Shares, claim: Claim) -> Shares:
        then: Shares = {queue: dict(amounts) for queue, amounts in held.items()}
        for sign, keys in ((-1, claim.victims), (1, [move.pod.key for move in claim.moves])):
            for key in keys:
                amounts = {name: sign * amount for name, amount in self.then.requests(self.facts, key).items()}
                for queue in self.facts.queue_line(self.queue_of(key)):
                    add(then.setdefault(queue, {}), amounts)
        return then

    def measure(self, held: Shares, gang: str) -> Measure:
        parents = ["", *reversed(self.facts.queue_line(self.facts.gang(gang).queue)[1:])]
        return [level(self.tree, self.due, held, parent) for parent in parents]

    def is_guaranteed(self, held: Shares, claim: Claim) -> bool:
        """Whether, of each victim, a queue on the claimant's side stays within its guarantee."""
        need: Resources = {}
        running = [key for key in self.state.staying() if self.state.pods[key].gang == claim.gang]
        roles = [self.state.pods[key].role for key in running] + self.state.succeeded.get(claim.gang, [])
        missing = self.facts.gang(claim.gang).missing(roles)
        for move in sorted(claim.moves, key=lambda move: move.pod.index)[: missing or None]:
            add(need, self.then.requests(self.facts, move.pod.key))
        for key in claim.victims:
            _, mine = sides(self.facts, self.queue_of(key), self.facts.gang(claim.gang).queue)
            if mine and not any(self.stays_within(held, queue, need, claim.victims) for queue in mine):
                return False
        return True

    def stays_within(self, held: Shares, queue: str, need: Resources, victims: list[str]) -> bool:
        given: Resources = {}
        for key in victims:
            if queue in self.facts.queue_line(self.queue_of(key)):
                add(given, self.state.requests(self.facts, key))
        named = self.due.covered(queue, need)
        return bool(named) and all(
            held.get(queue, {}).get(name, Fraction(0)) - given.get(name, Fraction(0)) + need[name]
            <= self.due.guaranteed[queue][name] + TOLERANCE
            for name in named
        )


def level(tree: Tree, due: Dues, held: Shares, parent: str) -> list[Fraction]:
    """Of each child and scarce resource that it deserves: the part of its due that it holds. The smallest first.

    A level in which only one queue holds or asks for anything does not count: it has nobody to share with.
    """
    children = tree.children(parent)
    if len(due.wanting.intersection(children)) < 2:
        return []
    parts = [
        min(Fraction(1), held.get(child, {}).get(name, Fraction(0)) / amount)
        for child in children
        for name, amount in due.deserved[child].items()
        if amount > 0 and (child, name) in due.scarce
    ]
    return sorted(parts)


def unfair_claims(objects: list[Object], plan: Object) -> list[str]:
    """Claims on other queues that make nothing strictly fairer and that no guarantee covers."""
    tree = Tree(objects)
    return [
        f"round {index}: {sentence}"
        for index, facts, state, played in replayed(objects, plan)
        for sentence in Judge(facts, state, played, tree).judge()
    ]


def _shown(measure: Measure) -> str:
    return " / ".join("[" + ", ".join(map(str, level_)) + "]" for level_ in measure)
