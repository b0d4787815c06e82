"""Gangs that stay below their minimum after their time, and still hold what they have although nothing keeps them."""

from __future__ import annotations

from collections.abc import Iterator

from properties.cluster_facts import PROTECTED_CLASSES, Facts, read_facts
from properties.eviction_verdicts import roles_of
from properties.kubernetes_rules import selects
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
        if mine and lacks and not moved and not _is_protected(facts, state, mine) and set(mine) - played.evicted.keys():
            yield f"{gang.key} lacks {lacks} pods for too long, and keeps {', '.join(mine)}"


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
