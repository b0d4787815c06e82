"""Gangs below their minimum after their time: those that hold what they have although nothing keeps them, and those
that give it back although their missing pods fitted when the round began.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        # Others may have been given the room that it fitted into when the round began.
        may_fit = bool(played.binds) and any(state.pods[key].gang == gang.key for key in state.pending)
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
