"""Verdicts on evictions and resizes: only allowed victims, whole gangs or surplus, from the highest index.

Surplus is what a gang has above its minimum. A gang that would keep less than its minimum must lose all pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from properties.cluster_facts import PROTECTED_CLASSES, Facts, Gang, Pod
from properties.kubernetes_rules import selects
from properties.raw_objects import Resources, add, number
from properties.replay_rounds import SHRUNK, Resize, Round, State, is_tidying

DISPLACED, PREEMPTED, RECLAIMED, STALE = "Displaced", "Preempted", "Reclaimed", "Stale"


def roles_of(state: State, keys: Iterable[str], gang: str) -> list[str]:
    return [state.pods[key].role for key in keys if state.pods[key].gang == gang]


def keeps_minimum(facts: Facts, state: State, played: Round, gang: str) -> bool:
    """Whether the pods that stay are enough, without pods that start in this round."""
    left = roles_of(state, state.staying(played.evicted), gang)
    return not facts.gang(gang).missing(left + state.succeeded.get(gang, []))


def priority_of_pod(facts: Facts, pod: Pod) -> int:
    return number(pod.spec, "priority", default=facts.priorities.get(pod.priority_class, 0))


def priority_of(facts: Facts, state: State, gang: Gang) -> int:
    """The priority of its class; without one, the highest of its pods."""
    if gang.priority_class:
        return facts.priorities.get(gang.priority_class, 0)
    return max((priority_of_pod(facts, pod) for pod in state.pods.values() if pod.gang == gang.key), default=0)


# Allowed victims.


def judge_protection(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for key, reason in sorted(played.reasons.items()):
        pod = state.pods[key]
        gang = facts.gang(pod.gang)
        if pod.namespace == "kube-system" or {pod.priority_class, gang.priority_class} & set(PROTECTED_CLASSES):
            yield f"{key} is evicted, but it is critical to the system"
        is_surplus = reason in {SHRUNK, DISPLACED} and keeps_minimum(facts, state, played, gang.key)
        if not gang.is_preemptable and not is_surplus and reason != STALE:
            yield f"{key} is evicted, but {gang.key} says preemptable: false"
        ran_s, least_s = state.now - state.started.get(key, 0), facts.min_runtime_s(gang)
        if ran_s < least_s and reason not in (DISPLACED, STALE):
            yield f"{key} is evicted after {ran_s} s, but {gang.key} has {least_s} s for sure"
    for budget in facts.budgets:
        covered = [
            key
            for key, pod in state.pods.items()
            if pod.namespace == budget.namespace and selects(budget.selector, pod.labels)
        ]
        allowed = budget.allowed
        if allowed is None:
            if budget.least is None:
                continue
            allowed = max(0, sum(key in covered for key in state.staying()) - budget.least)
        gone = [key for key in covered if key in played.evicted]
        if len(gone) > allowed:
            yield f"{', '.join(gone)} are evicted, but a budget lets only {allowed} go"


def judge_reasons(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for key, reason in sorted(played.reasons.items()):
        victim, claimant = facts.gang(state.pods[key].gang), facts.gang(played.evicted[key])
        if victim.key == claimant.key and reason != STALE:
            yield f"{key} is evicted for its own gang"
        match reason:
            case "Preempted":
                if victim.queue != claimant.queue:
                    yield f"{key} of queue {victim.queue} is preempted for {claimant.key} of queue {claimant.queue}"
                if priority_of(facts, state, victim) >= priority_of(facts, state, claimant):
                    yield f"{key} is preempted for {claimant.key}, which has no higher priority"
            case "Reclaimed":
                if victim.queue == claimant.queue:
                    yield f"{key} is reclaimed for {claimant.key} of its own queue"
            case "Shrunk":
                if not keeps_minimum(facts, state, played, victim.key):
                    yield f"{key} is shrunk away, but {victim.key} does not keep its minimum"
            case "Displaced":
                yield from wrongly_displaced(state, played, key)
            case "Moved":
                pass  # moves_verdicts.py judges them
            case "Stale":
                yield from wrongly_released(facts, state, played, key)
            case _:
                yield f"{key} is evicted for the unknown reason {reason!r}"


def wrongly_released(facts: Facts, state: State, played: Round, key: str) -> Iterator[str]:
    """A gang is given up only whole, for nobody else, when its time has passed, and while it lacks pods."""
    gang = facts.gang(state.pods[key].gang)
    if played.evicted[key] != gang.key:
        yield f"{key} is released for {played.evicted[key]}, and not because of its own gang {gang.key}"
    if gang.key in facts.jobs or gang.stale_at is None or state.now <= gang.stale_at:
        yield f"{key} is released, but the time of {gang.key} has not passed"
    if not gang.missing(roles_of(state, state.staying(), gang.key) + state.succeeded.get(gang.key, [])):
        yield f"{key} is released, but {gang.key} has its minimum"
    if roles_of(state, state.staying(played.evicted), gang.key):
        yield f"{key} is released, and other pods of {gang.key} stay"
    if any(move.pod.gang == gang.key for move in [*played.binds, *played.nominations]):
        yield f"{key} is released, but pods of {gang.key} are placed"


def wrongly_displaced(state: State, played: Round, key: str) -> Iterator[str]:
    """Displacement is allowed only from a node that was reserved for the gang and that the gang now uses."""
    gang, node = played.evicted[key], state.where[key]
    if node not in state.promised.get(gang, ()):
        yield f"{key} is displaced from {node}, which was not kept for {gang}"
    coming = {move.node.name for move in [*played.binds, *played.nominations] if move.pod.gang == gang}
    if node not in coming:
        yield f"{key} is displaced from {node}, to which {gang} does not go"


def judge_ends(facts: Facts, state: State, played: Round) -> Iterator[str]:
    """Surplus leaves from the highest index: an ElasticJob shrinks, a PodGroup loses the last pods of a node.

    Below its minimum, an ElasticJob loses all pods.
    """
    lowered = {(resize.job, resize.role): resize.new for resize in played.resizes if resize.new < resize.old}
    for key, reason in sorted(played.reasons.items()):
        pod = state.pods[key]
        if reason in (RECLAIMED, PREEMPTED) and pod.gang in facts.jobs:
            is_surplus = pod.index >= lowered.get((pod.gang, pod.role), pod.index + 1)
            if not is_surplus and roles_of(state, state.staying(played.evicted), pod.gang):
                yield f"{key} is evicted, and other pods of its job stay, but the job is not resized to less"
        if reason != SHRUNK:
            continue
        if pod.gang not in facts.jobs:
            # The room of the later pods may be reserved for another gang, which may have got it in the same round.
            coming = {move.node.name for move in played.nominations if move.pod.gang != played.evicted[key]}
            if any(state.where[key] in nodes for nodes in [coming, *played.reserved.values()]):
                continue
            likes = [
                other
                for other in state.staying(played.evicted)
                if state.where[other] == state.where[key] and is_like(state.pods[other], pod)
            ]
            if any(state.pods[other].index > pod.index for other in likes if may_go(facts, state, other)):
                yield f"{key} is shrunk away, and a later pod of {pod.gang} on the same node stays"
            continue
        if pod.index >= lowered.get((pod.gang, pod.role), pod.index + 1):
            continue
        yield f"{key} is shrunk away, but its job is not resized to less than {pod.index + 1} {pod.role}"


def is_like(one: Pod, other: Pod) -> bool:
    """Whether it does not matter which of two pods of a node leaves. It does if they hold parts of GPUs: the room that
    a claimant needs is on one of these.
    """
    if not one.ask.is_whole:
        return False
    return (one.gang, one.role, one.ask) == (other.gang, other.role, other.ask) and one.requests == other.requests


def may_go(facts: Facts, state: State, key: str) -> bool:
    """Nothing in the pod or its gang protects it."""
    pod = state.pods[key]
    covered = any(pod.namespace == b.namespace and selects(b.selector, pod.labels) for b in facts.budgets)
    return not covered and state.now - state.started.get(key, 0) >= facts.min_runtime_s(facts.gang(pod.gang))


# Sizes.


def judge_sizes(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for (job, role), several in groupby(sorted(played.resizes, key=_place), key=_place):
        resizes = list(several)
        if len(resizes) > 1:
            yield f"{job} is resized twice in {role}"
        yield from wrong_resize(facts, state, played, resizes[0])
    for job in sorted({resize.job for resize in played.resizes}):
        mine = [resize for resize in played.resizes if resize.job == job]
        elastic, last = facts.jobs[job].elastic, state.resized.get(job)
        if last is not None and state.now - last < elastic.cooldown_s:
            yield f"{job} is resized after {state.now - last} s, and has to cool down for {elastic.cooldown_s} s"
        if any(resize.new > resize.old for resize in mine) and state.now < (elastic.grow_after or 0):
            yield f"{job} grows at {state.now}, before {elastic.grow_after}"
        if any(resize.new > resize.old for resize in mine):
            yield from wrong_growth(facts, state, played, job, mine)
    yield from growth_over_limits(facts, state, played)


def _place(resize: Resize) -> tuple[str, str]:
    return resize.job, resize.role


def wrong_resize(facts: Facts, state: State, played: Round, resize: Resize) -> Iterator[str]:
    role, elastic = facts.jobs[resize.job].elastic.roles[resize.role], facts.jobs[resize.job].elastic
    shown = f"{resize.job} is resized from {resize.old} to {resize.new} {resize.role}"
    if resize.old != state.size(facts, resize.job, resize.role):
        yield f"{shown}, but has {state.size(facts, resize.job, resize.role)}"
    if resize.old == resize.new or (resize.new - resize.old) % role.step:
        yield f"{shown}, which is not in steps of {role.step}"
    if not role.least <= resize.new <= role.most:
        yield f"{shown}, beyond its bounds {role.least} and {role.most}"
    if resize.new >= resize.old:
        return
    if resize.new < 1 and resize.role == elastic.first_role:
        yield f"{shown}: its first replica goes"
    mine = [key for key in state.staying() if state.pods[key].gang == resize.job]
    beyond = [key for key in mine if state.pods[key].role == resize.role and state.pods[key].index >= resize.new]
    left = [key for key in beyond if key not in played.evicted]
    if left:
        yield f"{shown}, but {', '.join(sorted(left))} stay"
    if not beyond:
        yield f"{shown}, and nobody leaves: in vain"
    bound = [move.pod for move in played.binds if (move.pod.gang, move.pod.role) == (resize.job, resize.role)]
    if any(pod.index >= resize.new for pod in bound):
        yield f"{shown}, and a replica beyond that is bound"


def wrong_growth(facts: Facts, state: State, played: Round, job: str, resizes: list[Resize]) -> Iterator[str]:
    """Only a running job with all its pods may grow, and only if the growth pays off."""
    elastic = facts.jobs[job].elastic
    bound = {move.pod.key for move in played.binds}
    waiting = [key for key in state.pending if state.pods[key].gang == job and key not in bound]
    placed = set(state.staying(played.evicted)) | bound
    roles = [state.pods[key].role for key in placed if state.pods[key].gang == job]
    if any(resize.new < resize.old for resize in resizes):
        yield f"{job} grows and shrinks at once"
    if waiting:
        yield f"{job} grows although {', '.join(sorted(waiting))} wait"
    if facts.gang(job).missing(roles + state.succeeded.get(job, [])):
        yield f"{job} grows although it does not run"
    if any(state.pods[key].gang == job for key in played.evicted):
        yield f"{job} grows and loses pods"
    old = sum(state.size(facts, job, role) for role in elastic.roles)
    new = old + sum(resize.new - resize.old for resize in resizes)
    if not elastic.pays_back(old, new):
        yield f"{job} grows from {old} to {new}, which does not pay back"


def growth_over_limits(facts: Facts, state: State, played: Round) -> Iterator[str]:
    """Growth is charged at once: together with bound and nominated pods it exceeds no limit."""
    grown = [resize for resize in played.resizes if resize.new > resize.old]
    if not grown or not any(queue.limit for queue in facts.queues.values()):
        return
    held: dict[str, Resources] = {}
    more: dict[str, Resources] = {}

    def charge(sums: dict[str, Resources], gang: str, requests: Resources) -> None:
        for queue in facts.queue_line(facts.gang(gang).queue):
            add(sums.setdefault(queue, {}), requests)

    for key in state.staying(played.evicted):
        if state.pods[key].is_ours:
            charge(held, state.pods[key].gang, state.requests(facts, key))
    for move in [*played.binds, *played.nominations]:
        charge(held, move.pod.gang, move.pod.requests_at(move.node, move.gpus))
    for resize in grown:
        for index in range(resize.old, resize.new):
            charge(more, resize.job, facts.smallest_asked(facts.jobs[resize.job].replica(resize.role, index)))
    for name, wanted in sorted(more.items()):
        limit = facts.queues[name].limit if name in facts.queues else {}
        for resource in sorted(limit.keys() & wanted.keys()):
            total = held.get(name, {}).get(resource, 0) + wanted[resource]
            if total > limit[resource]:
                yield f"growth brings queue {name} to {total} {resource}, over its limit of {limit[resource]}"


# Room that was made for a gang goes to that gang.


def judge_kept(facts: Facts, state: State, played: Round, owed: dict[str, list[str]]) -> Iterator[str]:
    """Gangs start when the victims are gone that were evicted for them."""
    for gang, victims in sorted(owed.items()):
        if any(key in state.leaving for key in victims):
            continue
        roles = roles_of(state, state.staying(played.evicted), gang) + state.succeeded.get(gang, [])
        roles += [move.pod.role for move in played.binds if move.pod.gang == gang]
        if facts.gang(gang).missing(roles):
            yield f"{', '.join(victims)} left for {gang} in vain: it does not start when they are gone"


def owed_after(facts: Facts, state: State, played: Round, before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Gangs that have yet to start -> the victims that leave for them. `before`: those of earlier rounds."""
    owed = {gang: left for gang, keys in before.items() if (left := [key for key in keys if key in state.leaving])}
    for victim, gang in sorted(played.evicted.items()):
        if played.reasons.get(victim) == STALE or is_tidying(gang):
            continue
        owed.setdefault(gang, []).append(victim)
    now = {gang: roles_of(state, state.staying(played.evicted), gang) for gang in owed}
    for move in played.binds:
        if move.pod.gang in now:
            now[move.pod.gang].append(move.pod.role)
    return {gang: victims for gang, victims in owed.items() if facts.gang(gang).missing(now[gang])}
