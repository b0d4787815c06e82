"""Judges a planning run: replays its rounds over the raw objects and says which promise each one breaks.

It reads only the cluster's objects and the JSON of `maniple plan -o json`, shares no code with the
scheduler and has no preferences: two plans that keep the promises are equally good. Input that was
broken before the plan (an over-committed node, a gang below its minimum) is never held against a plan
that does not make it worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from properties.cluster_facts import Facts, Node, Pod, read_facts
from properties.eviction_verdicts import (
    STALE,
    judge_ends,
    judge_kept,
    judge_protection,
    judge_reasons,
    judge_sizes,
    owed_after,
)
from properties.kubernetes_rules import Site, objections_between, objections_of_company, objections_of_node
from properties.moves_verdicts import judge_moves, judge_returns, kept_after
from properties.raw_objects import Object, Resources, add, at, rows, text
from properties.replay_rounds import (
    Breach,
    Promise,
    Round,
    State,
    after,
    is_tidying,
    read_round,
    read_state,
    sites,
)
from properties.surplus_verdicts import (
    SurplusDebt,
    judge_surplus_claims,
    judge_surplus_debts,
    surplus_owed_after,
)
from properties.tidying_verdicts import judge_tidying
from properties.topology_verdicts import judge_domains, judge_gpus, judge_models, promised_in_vain, shown


def excess(node: Node, pods: list[Pod], newcomers: list[Pod]) -> Iterator[str]:
    """The resources of which the node has too little, among those that new pods request."""
    if not newcomers:
        return
    used: Resources = {}
    asked: Resources = {}
    for pod in pods + newcomers:
        add(used, pod.requests_at(node))
    for pod in newcomers:
        add(asked, pod.requests_at(node))
    for name in sorted(asked):
        has = node.allocatable.get(name, Fraction(0))
        if used[name] > has:
            yield f"node {node.name} would hold {shown(used[name])} {name} and has {shown(has)}"
    count = len(pods) + len(newcomers)
    if count > node.pod_limit:
        yield f"node {node.name} would hold {count} pods and takes {shown(node.pod_limit)}"


def judge_capacity(facts: Facts, state: State, played: Round) -> Iterator[str]:
    """Now, with leaving pods still there; and later, without them and with the nominated pods."""
    staying = set(state.remaining(played.evicted))
    for node in facts.nodes.values():
        here = [key for key, name in state.where.items() if name == node.name]
        bound = [move.pod for move in played.binds if move.node is node]
        promised = [move.pod for move in played.nominations if move.node is node]
        yield from excess(node, [state.pods[key] for key in here], bound)
        later = [state.pods[key] for key in here if key in staying] + bound
        for sentence in excess(node, later, promised):
            yield f"when the leaving pods are gone and the nominated ones there, {sentence}"
    yield from promised_in_vain(facts, state, played)


def judge_binds(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for kind, moves in (("bound", played.binds), ("nominated", played.nominations)):
        for move in moves:
            for objection in objections_of_node(facts, move.pod, move.node):
                yield f"{move.pod.key} is {kind} to {move.node.name}, but {objection}"
    staying = set(state.remaining(played.evicted))
    stays = sites(facts, state, [key for key in state.where if key in staying])
    leaves = sites(facts, state, [key for key in state.where if key in state.leaving - staying])
    victims = sites(facts, state, [key for key in state.where if key not in staying | state.leaving])
    bound = [Site(move.pod, move.node) for move in played.binds]
    promised = [Site(move.pod, move.node) for move in played.nominations]
    yield from objections_between(facts, bound, stays + leaves + victims)
    yield from objections_between(facts, promised, stays + bound)
    yield from objections_of_company(facts, bound, stays, leaves, victims)
    for objection in objections_of_company(facts, promised, stays + bound, [], []):
        yield f"when the leaving pods are gone, {objection}"


def judge_gangs(facts: Facts, state: State, played: Round) -> Iterator[str]:
    before = members(state, state.staying())
    kept = members(state, state.staying(played.evicted))
    bound = by_gang(move.pod for move in played.binds)
    promised = by_gang(move.pod for move in played.nominations)
    for key in sorted(before.keys() | bound.keys() | promised.keys()):
        gang, done = facts.gang(key), state.succeeded.get(key, [])
        now = kept.get(key, []) + bound.get(key, [])
        missing = gang.missing(now + done)
        if now and missing and (key in bound or len(now) < len(before.get(key, []))):
            yield f"gang {key} has {len(now)} pods placed after the round and lacks {missing} to its minimum"
        if key in promised and gang.missing(now + promised[key] + done):
            yield (
                f"gang {key} has {len(now)} pods placed and {len(promised[key])} nominated "
                f"and lacks {gang.missing(now + promised[key] + done)} to its minimum"
            )


def members(state: State, keys: Iterable[str]) -> dict[str, list[str]]:
    return by_gang(state.pods[key] for key in keys)


def by_gang(pods: Iterable[Pod]) -> dict[str, list[str]]:
    """The roles of these pods, gang by gang."""
    roles: dict[str, list[str]] = {}
    for pod in pods:
        roles.setdefault(pod.gang, []).append(pod.role)
    return roles


def judge_victims(facts: Facts, state: State, played: Round) -> Iterator[str]:
    moved = by_gang(move.pod for move in [*played.binds, *played.nominations])
    kept = members(state, state.staying(played.evicted))
    for victim, key in sorted(played.evicted.items()):
        if played.reasons.get(victim) == STALE or is_tidying(key):
            continue  # for nobody else
        gang = facts.gang(key)
        whole = kept.get(key, []) + moved.get(key, []) + state.succeeded.get(key, [])
        if not key:
            yield f"{victim} is evicted for nobody"
        elif key not in moved:
            yield f"{victim} is evicted for {key}, which is neither bound nor nominated"
        elif gang.missing(whole):
            yield f"{victim} is evicted for {key}, which lacks {gang.missing(whole)} pods to its minimum"


def judge_leavers(facts: Facts, state: State, played: Round) -> Iterator[str]:
    for sentences in (judge_victims, judge_protection, judge_reasons, judge_ends):
        yield from sentences(facts, state, played)


def judge_limits(facts: Facts, state: State, played: Round) -> Iterator[str]:
    staying = [key for key in state.staying(played.evicted) if state.pods[key].is_ours]
    old = [(state.pods[key], state.requests(facts, key)) for key in staying]
    bound = [(move.pod, move.pod.requests_at(move.node, move.gpus)) for move in played.binds]
    promised = [(move.pod, move.pod.requests_at(move.node)) for move in played.nominations]

    def sum_under(queue: str, held: list[tuple[Pod, Resources]]) -> Resources:
        total: Resources = {}
        for pod, requests in held:
            if queue in facts.queue_line(facts.gang(pod.gang).queue):
                add(total, requests)
        return total

    for queue in facts.queues.values():
        for kind, before, new in (("binds", old, bound), ("nominations", old + bound, promised)):
            used, asked = sum_under(queue.name, before + new), sum_under(queue.name, new)
            for name in sorted(asked.keys() & queue.limit.keys()):
                if used[name] > queue.limit[name]:
                    yield (
                        f"{kind} bring queue {queue.name} to {shown(used[name])} {name}, "
                        f"over its limit of {shown(queue.limit[name])}"
                    )


def judge_waiting(facts: Facts, state: State, played: Round) -> Iterator[str]:
    moved = {move.pod.gang for move in [*played.binds, *played.nominations]}
    bound = {move.pod.key for move in played.binds}
    ours = [pod for key, pod in state.pods.items() if key in state.pending and pod.is_ours]
    lowered = {(resize.job, resize.role): resize.new for resize in played.resizes}
    still = {
        pod.gang
        for pod in ours
        if pod.key not in bound and pod.index < lowered.get((pod.gang, pod.role), pod.index + 1)
    }
    # Pods that were just evicted or are gated, and jobs that were just resized, may be listed or not.
    others = {state.pods[key].gang for key in state.gated.union(played.evicted)}
    others |= {resize.job for resize in played.resizes}
    have_pods = {pod.gang for pod in state.pods.values()}
    listed: set[str] = set()
    for entry in played.waiting:
        key = text(entry, "group")
        if key in listed:
            yield f"{key} is listed as waiting twice"
        listed.add(key)
        if not text(entry, "reason").strip() or not text(entry, "message").strip():
            yield f"{key} is listed as waiting without a reason and a message"
        named, queue = text(entry, "queue"), facts.gang(key).queue
        if named != queue:
            yield f"{key} is listed as waiting in queue {named}, but it is in {queue}"
        roles = members(state, state.staying()).get(key, [])
        is_stale = text(entry, "reason") == STALE and facts.gang(key).missing(roles) > 0
        if not is_stale and key not in still | others and (key in have_pods or key not in facts.gangs):
            yield f"{key} is listed as waiting, but none of its pods is"
    for key in sorted(still - moved - listed):
        yield f"{key} has pending pods that got neither a bind nor a nomination, and is not listed as waiting"


def judge_order(written: object, keys: Mapping[str, str]) -> Iterator[str]:
    for kind, key in keys.items():
        names = [text(entry, key) for entry in rows(written, kind)]
        # "a-b/x" and "a/x": sorted as text or by namespace, both are an order
        if names not in (sorted(names), sorted(names, key=lambda name: name.split("/"))):
            yield f"{kind} are not sorted by {key}: {', '.join(names)}"


JUDGES: dict[Promise, Callable[[Facts, State, Round], Iterator[str]]] = {
    Promise.CAPACITY: judge_capacity,
    Promise.BINDS: judge_binds,
    Promise.GPUS: judge_gpus,
    Promise.GANGS: judge_gangs,
    Promise.DOMAINS: judge_domains,
    Promise.MODELS: judge_models,
    Promise.VICTIMS: judge_leavers,
    Promise.MOVES: lambda facts, state, played: judge_moves(facts, state, played, excess),
    Promise.TIDYING: judge_tidying,
    Promise.SIZES: judge_sizes,
    Promise.LIMITS: judge_limits,
    Promise.WAITING: judge_waiting,
}
ROUND_ORDER = {
    "binds": "pod",
    "evictions": "pod",
    "nominations": "pod",
    "moves": "pod",
    "resizes": "job",
    "waiting": "group",
}


def judge(objects: list[Object], plan: Object, grace: int = 1, *, surplus_preempts: bool = False) -> list[Breach]:
    """Every broken promise of the run, round after round. Pods take `grace` rounds to leave.

    `surplus_preempts`: what the policy says of pods above a minimum.
    """
    facts = read_facts(objects)
    state = read_state(facts, objects)
    breaches: list[Breach] = []
    owed: dict[str, list[str]] = {}
    surplus_owed: dict[str, SurplusDebt] = {}
    kept: dict[str, list[tuple[str, str]]] = {}
    if not rows(plan, "rounds"):
        breaches.append(Breach(Promise.ORDER, "the plan has no rounds"))
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        found = list(played.breaches)
        for promise, sentences in JUDGES.items():
            if promise is Promise.WAITING and at(written, "waiting") is None:
                continue  # nobody was asked why they wait
            found += [Breach(promise, sentence) for sentence in sentences(facts, state, played)]
        found += [Breach(Promise.VICTIMS, sentence) for sentence in judge_kept(facts, state, played, owed)]
        found += [
            Breach(Promise.VICTIMS, sentence)
            for sentence in (
                *judge_surplus_claims(facts, state, played, allowed=surplus_preempts),
                *judge_surplus_debts(state, played, surplus_owed),
            )
        ]
        found += [Breach(Promise.MOVES, sentence) for sentence in judge_returns(state, played, kept)]
        for entry, order in (
            (written, ROUND_ORDER),
            *((resize, {"leaves": "pod"}) for resize in rows(written, "resizes")),
        ):
            found += [Breach(Promise.ORDER, sentence) for sentence in judge_order(entry, order)]
        breaches += [replace(breach, sentence=f"round {index}: {breach.sentence}") for breach in found]
        owed = owed_after(facts, state, played, owed)
        surplus_owed = surplus_owed_after(facts, state, played, surplus_owed)
        kept = kept_after(state, played, kept)
        state = after(facts, state, played, grace)
    breaches += [Breach(Promise.ORDER, sentence) for sentence in judge_order(plan, {"queues": "name"})]
    return breaches


def violations(objects: list[Object], plan: Object, *, surplus_preempts: bool = False) -> list[str]:
    """One sentence for each broken promise."""
    return [breach.sentence for breach in judge(objects, plan, surplus_preempts=surplus_preempts)]
