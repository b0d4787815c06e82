"""Verdicts on pods above a minimum: they evict nobody, unless the policy lets them take surplus of lower priority.

Then they take it in their own queue only, and run when it has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from properties.cluster_facts import Facts, read_facts
from properties.eviction_verdicts import priority_of, roles_of
from properties.raw_objects import Object, rows
from properties.replay_rounds import SHRUNK, Round, State, after, read_round, read_state

_FOR_ROOM = (SHRUNK, "Preempted", "Reclaimed")


class SurplusDebt(NamedTuple):
    """What a running gang is owed by pods that leave for its surplus."""

    victims: tuple[str, ...]
    pods: int  # that it has when they are gone


def claimants(facts: Facts, state: State, played: Round) -> dict[str, list[str]]:
    """Gangs that had their minimum before the round -> the pods that leave for them."""
    claims: dict[str, list[str]] = {}
    for victim, key in sorted(played.evicted.items()):
        roles = roles_of(state, state.staying(), key) + state.succeeded.get(key, [])
        if played.reasons.get(victim) in _FOR_ROOM and key in facts.gangs and not facts.gang(key).missing(roles):
            claims.setdefault(key, []).append(victim)
    return claims


def judge_surplus_claims(facts: Facts, state: State, played: Round, *, allowed: bool) -> Iterator[str]:
    for key, victims in claimants(facts, state, played).items():
        claimant = facts.gang(key)
        if not allowed:
            yield f"{', '.join(victims)} leave for {key}, which has its minimum"
            continue
        if roles_of(state, played.evicted, key):
            yield f"pods leave for surplus of {key}, which loses pods itself"
        if not any(move.pod.gang == key for move in played.nominations):
            yield f"{', '.join(victims)} leave for surplus of {key}, of which no pod is nominated"
        for victim in victims:
            loser = facts.gang(state.pods[victim].gang)
            if played.reasons[victim] != SHRUNK:
                yield f"{victim} leaves for surplus of {key}, and not because its job shrinks"
            if loser.queue != claimant.queue:
                yield f"{victim} of queue {loser.queue} leaves for surplus of queue {claimant.queue}"
            if priority_of(facts, state, loser) >= priority_of(facts, state, claimant):
                yield f"{victim} leaves for surplus of {key}, which has no higher priority"


def judge_surplus_debts(state: State, played: Round, owed: dict[str, SurplusDebt]) -> Iterator[str]:
    """Surplus starts when those are gone that left for it."""
    for key, debt in sorted(owed.items()):
        if not state.leaving.isdisjoint(debt.victims):
            continue
        has = pods_of(state, played, key)
        if has < debt.pods and not roles_of(state, played.evicted, key):
            yield f"{', '.join(debt.victims)} left for surplus of {key} in vain: it has {has} pods and not {debt.pods}"


def pods_of(state: State, played: Round, key: str) -> int:
    return len(roles_of(state, state.staying(), key)) + sum(move.pod.gang == key for move in played.binds)


def surplus_owed_after(
    facts: Facts, state: State, played: Round, before: dict[str, SurplusDebt]
) -> dict[str, SurplusDebt]:
    """`before`: those of earlier rounds, which end with the last victim, or when the gang loses pods."""
    owed = {
        key: debt
        for key, debt in before.items()
        if not state.leaving.isdisjoint(debt.victims) and not roles_of(state, played.evicted, key)
    }
    for key, victims in claimants(facts, state, played).items():
        coming = sum(move.pod.gang == key for move in played.nominations)
        earlier = owed[key].victims if key in owed else ()
        owed[key] = SurplusDebt((*earlier, *victims), pods_of(state, played, key) + coming)
    return owed


def started_only_to_leave(objects: list[Object], plan: Object) -> list[str]:
    """Surplus that starts, and leaves in the next round for surplus of higher priority that waited already."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    started: set[str] = set()
    waited: frozenset[str] = frozenset()
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        for key, victims in claimants(facts, state, played).items():
            coming = {move.pod.key for move in played.nominations if move.pod.gang == key}
            sentences += [
                f"round {index}: {victim} had just started, and leaves for surplus of {key}, which waited already"
                for victim in victims
                if victim in started and coming <= waited
            ]
        # A gang that loses pods, or for which room is reserved, takes nothing in that round.
        barred = {state.pods[pod].gang for pod in played.evicted} | played.reserved.keys()
        started = {move.pod.key for move in played.binds}
        waited = frozenset(key for key in state.pending if state.pods[key].gang not in barred)
        state = after(facts, state, played)
    return sentences
