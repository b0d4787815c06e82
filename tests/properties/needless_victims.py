"""Victims that could have stayed: each is put back, one by one, and must then be in the way of the other pods.

Judged where it can be counted: one gang of one shape is helped in the round, without limits and without rules
between pods. Units are put back: a step of an ElasticJob, or a replica that is moved, because moves change no size; a
pod of a PodGroup's surplus; a whole gang; and, of a gang that was evicted whole, its minimum, because then its surplus
would have been enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from properties.cluster_facts import Facts, Gang, Pod, read_facts
from properties.eviction_verdicts import DISPLACED
from properties.kubernetes_rules import is_plain
from properties.missed_room import choices, needed, room_in
from properties.raw_objects import Object, rows
from properties.replay_rounds import MOVED, Round, State, after, read_round, read_state


def could_have_stayed(objects: list[Object], plan: Object) -> list[str]:
    facts = read_facts(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        sentences += [f"round {index}: {sentence}" for sentence in _idle_victims(facts, state, played)]
        state = after(facts, state, played)
    return sentences


def _idle_victims(facts: Facts, state: State, played: Round) -> Iterator[str]:
    helped = sorted(set(played.evicted.values()))
    if len(helped) != 1 or DISPLACED in played.reasons.values() or played.reserved:
        return  # reserved room is not open to every gang
    gang = facts.gang(helped[0])
    pods = [state.pods[key] for key in sorted(state.pending) if state.pods[key].gang == gang.key]
    if not pods or not all(is_plain(facts, pod) for pod in state.pods.values()):
        return
    if any(facts.queues[name].limit for name in facts.queue_line(gang.queue) if name in facts.queues):
        return
    need = needed(gang, state, pods)
    if need is None:
        return
    for unit in units(facts, state, played):
        if fits(facts, state, played, gang, pods[0], need, unit):
            yield f"{', '.join(unit)} could have stayed: {gang.key} would have had room for {need} pods"


def fits(
    facts: Facts, state: State, played: Round, gang: Gang, pod: Pod, need: int, back: tuple[str, ...] = ()
) -> bool:
    """Whether the gang has room beside the pods that stay, those put back, and all others placed in the round."""
    others = [move for move in [*played.binds, *played.nominations] if move.pod.gang != gang.key]
    where = {key: state.where[key] for key in state.remaining(set(played.evicted) - set(back))}
    where |= {move.pod.key: move.node.name for move in others}
    where |= {move.pod.key: move.node.name for move in played.moves if move.pod.key not in back}
    named = {move.pod.key: frozenset(move.gpus) for move in others if move.gpus}
    there = replace(state, where=where, leaving=frozenset(), gpu_ids=state.gpu_ids | named)
    return any(room_in(facts, there, choice, pod, need) >= need for choice in choices(facts, there, gang, pod))


def units(facts: Facts, state: State, played: Round) -> Iterator[tuple[str, ...]]:
    """The smallest units that could be put back, by gang and role."""
    staying = state.staying(played.evicted)
    for gang in sorted({state.pods[key].gang for key in played.evicted}):
        mine = sorted(
            (key for key in played.evicted if state.pods[key].gang == gang), key=lambda key: state.pods[key].index
        )
        left = [state.pods[key].role for key in staying if state.pods[key].gang == gang]
        if facts.gang(gang).missing(left + state.succeeded.get(gang, [])):
            yield tuple(mine)
            if not facts.gang(gang).role_min and len(mine) > facts.gang(gang).min_member:
                yield tuple(mine[: facts.gang(gang).min_member])
        elif gang in facts.jobs:
            for role in sorted({state.pods[key].role for key in mine}):
                of_role = [key for key in mine if state.pods[key].role == role]
                is_move = all(played.reasons[key] == MOVED for key in of_role)  # moves change no size
                yield tuple(of_role[: 1 if is_move else facts.jobs[gang].elastic.roles[role].step])
        else:
            yield from ((key,) for key in mine)
