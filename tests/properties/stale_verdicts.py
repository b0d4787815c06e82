"""Gangs below their minimum after their time: those that hold what they have although nothing keeps them, and those
that give it back although their missing pods fitted when the round began, or fit when others have given back theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from properties.cluster_facts import PROTECTED_CLASSES, Facts, read_facts
from properties.eviction_verdicts import STALE, roles_of
from properties.kubernetes_rules import is_plain, selects
from properties.missed_room import choices, needed, room_in
from properties.raw_objects import Object, rows
from properties.replay_rounds import Round, State, after, read_round, read_state


def kept_in_vain(objects: list[Object], plan: Object) -> list[str]:
    facts = read_facts(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        sentences += [f"round {index}: {sentence}" for sentence in _kept(facts, state, played)]
        state = after(facts, state, played)
    return sentences


def _kept(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for gang in facts.gangs.values():
        if gang.key in facts.jobs or gang.stale_at is None or state.now <= gang.stale_at:
            continue
        mine = [key for key in state.staying() if state.pods[key].gang == gang.key]
        done = state.succeeded.get(gang.key, [])
        moved = any(move.pod.gang == gang.key for move in [*played.binds, *played.nominations])
        lacks = gang.missing(roles_of(state, mine, gang.key) + done)
        # Others may have been given the room that it fitted into, or would have when stale gangs have left.
        may_fit = bool(played.binds or played.nominations) and any(
            state.pods[key].gang == gang.key for key in state.pending
        )
        if may_fit:
            continue
        if mine and lacks and not moved and not _is_protected(facts, state, mine) and set(mine) - played.evicted.keys():
            yield f"{gang.key} lacks {lacks} pods for too long, and keeps {', '.join(mine)}"


def released_although_whole(objects: list[Object], plan: Object) -> list[str]:
    """Exact where it answers, and silent elsewhere: with limits, rules between pods, promises, or several shapes."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    if any(queue.limit for queue in facts.queues.values()):
        return []
    if not all(is_plain(facts, pod) for pod in state.pods.values()):
        return []
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        released = {state.pods[pod].gang for pod, why in played.reasons.items() if why == STALE}
        sentences += [
            f"round {index}: {key} is released although its missing pods fitted"
            for key in sorted(released)
            if not state.promised and facts.gang(key).is_preemptable and _fits(facts, state, key)
        ]
        state = after(facts, state, played)
    return sentences


def released_although_others_leave(objects: list[Object], plan: Object) -> list[str]:
    """Gangs released although their missing pods fit when all has left that leaves beside them.

    Silent like `released_although_whole`, and where room is reserved, or promised where the gang is: it may have to go
    for that.
    """
    facts = read_facts(objects)
    state = read_state(facts, objects)
    if any(queue.limit for queue in facts.queues.values()):
        return []
    if not all(is_plain(facts, pod) for pod in state.pods.values()):
        return []
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        promised = {move.node.name for move in played.nominations}
        for key in sorted({state.pods[pod].gang for pod, why in played.reasons.items() if why == STALE}):
            mine = {pod for pod in played.evicted if state.pods[pod].gang == key}
            is_silent = state.promised or played.reserved or not facts.gang(key).is_preemptable
            if is_silent or promised & {state.where[pod] for pod in mine}:
                continue
            if _fits(facts, _when_others_left(state, played, mine), key):
                sentences.append(
                    f"round {index}: {key} is released although its missing pods fit when others have left"
                )
        state = after(facts, state, played)
    return sentences


def _when_others_left(state: State, played: Round, mine: set[str]) -> State:
    """All moves of the round made, and all gone that leaves in it or left before, apart from `mine`."""
    remaining = set(state.remaining(played.evicted)) | mine
    coming = {move.pod.key: move.node.name for move in [*played.binds, *played.nominations]}
    gpu_ids = {move.pod.key: frozenset(move.gpus) for move in played.binds if move.gpus}
    return replace(
        state,
        where={key: node for key, node in state.where.items() if key in remaining} | coming,
        pending=state.pending - coming.keys(),
        gpu_ids={key: ids for key, ids in state.gpu_ids.items() if key in remaining} | gpu_ids,
    )


def _fits(facts: Facts, state: State, key: str) -> bool:
    gang = facts.gang(key)
    waiting = [state.pods[pod] for pod in sorted(state.pending) if state.pods[pod].gang == key]
    need = needed(gang, state, waiting) if waiting and all(pod.is_ours for pod in waiting) else None
    return need is not None and any(
        room_in(facts, state, choice, waiting[0], len(waiting)) >= need
        for choice in choices(facts, state, gang, waiting[0])
    )


def _is_protected(facts: Facts, state: State, keys: list[str]) -> bool:
    """Whether anything may keep one of the pods: it need not be asked here whether it does."""
    pods = [state.pods[key] for key in keys]
    return any(
        not pod.is_ours
        or pod.namespace == "kube-system"
        or pod.priority_class in PROTECTED_CLASSES
        or any(budget.namespace == pod.namespace and selects(budget.selector, pod.labels) for budget in facts.budgets)
        for pod in pods
    )
