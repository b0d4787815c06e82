"""Verdicts on pods that move: each has a place in the same plan, and the pod that comes in its place gets it.

A move is a pod that is evicted and the node on which its successor will be. Together with all others the places must
hold when the leaving pods are gone. A gang is moved whole, or keeps its minimum while its surplus moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from properties.cluster_facts import Facts, Node, Pod
from properties.eviction_verdicts import priority_of
from properties.kubernetes_rules import Site, objections_between, objections_of_node
from properties.replay_rounds import MOVED, Move, Round, State, is_tidying, sites
from properties.topology_verdicts import judge_domains, judge_models

Excess = Callable[[Node, list[Pod], list[Pod]], Iterable[str]]


def judge_moves(facts: Facts, state: State, played: Round, excess: Excess) -> Iterator[str]:
    yield from unmatched(state, played)
    yield from wrong_gangs(facts, state, played)
    yield from wrong_places(facts, state, played, excess)


def unmatched(state: State, played: Round) -> Iterator[str]:
    """Moves and evictions with that reason are the same pods, for the same gangs."""
    gone = {key for key, reason in played.reasons.items() if reason == MOVED}
    placed = [move.pod.key for move in played.moves]
    for key in sorted(gone - set(placed)):
        yield f"{key} is moved nowhere"
    for key in sorted(set(placed) - gone):
        yield f"{key} has another place and is not moved"
    if len(placed) != len(set(placed)):
        yield "a pod is moved twice"
    for key, (old, gang) in sorted(played.moved_from.items()):
        if state.where.get(key) != old:
            yield f"{key} is moved from {old}, and runs on {state.where.get(key)}"
        if key in gone and played.evicted[key] != gang:
            yield f"{key} is moved for {gang} and evicted for {played.evicted[key]}"


def wrong_gangs(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for key in sorted({move.pod.gang for move in played.moves}):
        gang, mine = facts.gang(key), [move for move in played.moves if move.pod.gang == key]
        if not gang.is_movable:
            yield f"{key} is moved, and does not say that it may be"
        if Counter(move.node.name for move in mine) == Counter(state.where.get(move.pod.key) for move in mine):
            yield f"{key} is moved to where it was"
        elif any(state.pods[other].gang == key for other in state.staying(played.evicted)):
            yield from _moved_in_vain(state, mine)
        waits = [other for other in state.pending if state.pods[other].gang == key]
        if waits:
            yield f"{key} is moved, and {', '.join(sorted(waits))} of it waits"
        for claimant in sorted({played.evicted.get(move.pod.key, "") for move in mine}):
            if not is_tidying(claimant) and priority_of(facts, state, gang) > priority_of(
                facts, state, facts.gang(claimant)
            ):
                yield f"{key} is moved for {claimant}, which has a lower priority"


def _moved_in_vain(state: State, moves: list[Move]) -> Iterator[str]:
    """Pods of a gang that is not moved whole, and of which one comes back to a node that an equal one leaves."""
    if len({str(replace(move.pod, key="", index=0)) for move in moves}) > 1:
        return  # pods that differ may change places
    for node in sorted({move.node.name for move in moves} & {state.where[move.pod.key] for move in moves}):
        yield f"a pod of {moves[0].pod.gang} is moved from {node}, and another one of it to {node}"


def wrong_places(facts: Facts, state: State, played: Round, excess: Excess) -> Iterator[str]:
    if not played.moves:
        return
    staying = set(state.staying(played.evicted))
    stays = sites(facts, state, sorted(staying))
    others = [Site(move.pod, move.node) for move in [*played.binds, *played.nominations]]
    new = [Site(move.pod, move.node) for move in played.moves]
    for move in played.moves:
        for objection in objections_of_node(facts, move.pod, move.node):
            yield f"{move.pod.key} is moved to {move.node.name}, but {objection}"
    for objection in objections_between(facts, new, stays + others):
        yield f"when the moved pods are there, {objection}"
    for node in facts.nodes.values():
        there = [state.pods[key] for key in sorted(staying) if state.where[key] == node.name]
        there += [move.pod for move in [*played.binds, *played.nominations] if move.node is node]
        for sentence in excess(node, there, [move.pod for move in played.moves if move.node is node]):
            yield f"when the moved pods are there, {sentence}"
    # As if they were bound: a domain and a model hold the gang, with those that stay.
    bound = [Move(move.pod, move.node) for move in played.moves]
    pending = state.pending | {move.pod.key for move in played.moves}
    as_bound = replace(played, binds=bound, nominations=[], moves=())
    for judge in (judge_domains, judge_models):
        yield from judge(facts, replace(state, pending=pending), as_bound)


def judge_returns(state: State, played: Round, kept: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """Pods that come in the place of moved ones get the places that were kept for them. `kept`: by gang."""
    placed = {move.pod.key: move.node.name for move in [*played.binds, *played.nominations]}
    for gang, places in sorted(kept.items()):
        if any(key not in state.pending for key, _ in places):
            continue  # they are not there yet
        found = Counter(placed.get(key, "nowhere") for key, _ in places)
        if found != Counter(node for _, node in places):
            yield f"{gang} was moved to {sorted(node for _, node in places)} and comes to {sorted(found.elements())}"


def kept_after(
    state: State, played: Round, before: dict[str, list[tuple[str, str]]]
) -> dict[str, list[tuple[str, str]]]:
    """Gang -> the pods that are to come back, and their nodes. `before`: those of earlier rounds.

    A gang of which pods leave for another reason has no places any more.
    """
    bound = {move.pod.key for move in played.binds}
    moved = {move.pod.key for move in played.moves}
    robbed = {state.pods[key].gang for key in played.evicted if key not in moved}
    kept = {
        gang: left
        for gang, places in before.items()
        if gang not in robbed and (left := [place for place in places if place[0] not in bound])
    }
    for move in played.moves:
        kept.setdefault(move.pod.gang, []).append((move.pod.key, move.node.name))
    return {gang: [place for place in places if place[0] in state.pods] for gang, places in kept.items()}
