"""Guarantees that are not kept, and dues that are lost in vain, in tiny clusters where every set of victims is tried.

A set of victims takes from each job its last steps of surplus, and then perhaps all of it. What makes room is counted
for gangs of one shape whose pods have no rules about others.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod

from properties.cluster_facts import PROTECTED_CLASSES, Facts, Gang, Pod
from properties.deserved_shares import TOLERANCE, Dues, Shares, Tree, find_dues, held_by_queue, is_charged
from properties.eviction_verdicts import PREEMPTED, RECLAIMED, priority_of
from properties.guarantee_parts import Guarantees, Part, sides, without
from properties.guarantee_verdicts import coming, replayed, taken_from_others
from properties.kubernetes_rules import is_plain, selects
from properties.missed_room import choices, needed, room_in
from properties.raw_objects import Object, Resources, add
from properties.replay_rounds import SHRUNK, Round, State

MOST_SETS = 3_000
TOGETHER = "together"  # surplus of all queues, lower priorities of its own and gangs of others
KINDS = (SHRUNK, RECLAIMED, TOGETHER)


def kept_waiting(objects: list[Object], plan: Object) -> list[str]:
    """Gangs within the guarantee of their queue that wait in a settled cluster although victims would make room."""
    tree = Tree(objects)
    *_, (_, facts, state, played) = replayed(objects, plan)
    if not is_at_rest(state, played):
        return []
    search = Search(facts, state, tree)
    return [
        f"{key} waits within the guarantee of its queue; {_shown(victims)} could go for it"
        for key in sorted({state.pods[key].gang for key in state.pending if state.pods[key].is_ours})
        if (victims := search.guaranteed_way(key))
    ]


def needlessly_lost(objects: list[Object], plan: Object) -> list[str]:
    """Queues that lose something due to a claim although other victims would have left every queue its due.

    Judged in rounds in which one gang claims and nobody else moves. Victims that would next preempt what stays in their
    queue are no better.
    """
    tree = Tree(objects)
    sentences: list[str] = []
    for index, facts, state, played in replayed(objects, plan):
        claims = taken_from_others(facts, state, played)
        movers = {move.pod.gang for move in coming(played)}
        if len(claims) != 1 or movers != set(claims) or len(set(played.reasons.values())) != 1:
            continue
        if state.leaving or played.reserved or state.promised:
            continue  # some room is kept for others
        (claimant,) = claims
        search, kind = Search(facts, state, tree), next(iter(played.reasons.values()))
        if not search.loses_due(list(played.evicted), claimant):
            continue
        if victims := search.strict_way(claimant, kind):
            sentences.append(
                f"round {index}: {', '.join(played.evicted)} leave for {claimant}; "
                f"with {_shown(victims)} every queue would keep its due"
            )
    return sentences


def is_at_rest(state: State, played: Round) -> bool:
    moves = played.binds or played.nominations or played.evicted or played.resizes or played.reserved or played.kept
    return not moves and not state.leaving


class Search:
    """The ways to start a waiting gang of a cluster at rest."""

    def __init__(self, facts: Facts, state: State, tree: Tree) -> None:
        self.facts, self.state, self.tree = facts, state, tree
        self.due: Dues = find_dues(facts, state, tree)
        self.guarantees = Guarantees(facts, state, tree, self.due)
        charged = [key for key in state.staying() if is_charged(facts, state, key)]
        self.held: Shares = held_by_queue(facts, state, charged)

    # Ways.

    def guaranteed_way(self, key: str) -> list[Part]:
        """Victims in one order of the jobs that started together, if there are some in each; else nobody."""
        chosen: list[Part] = []
        for order in range(len(self.guarantees.orders)):
            chosen = next((victims for kind in KINDS for victims in self.ways(key, kind, order)), [])
            if not chosen:
                return []
        return chosen

    def strict_way(self, key: str, kind: str) -> list[Part]:
        return next(self.ways(key, kind), [])

    def ways(self, key: str, kind: str, order: int | None = None) -> Iterator[list[Part]]:
        """Sets of victims of a guaranteed claim in this order of jobs; without one, of a strict claim."""
        gang = self.facts.gang(key)
        pods = [self.state.pods[name] for name in sorted(self.state.pending) if self.state.pods[name].gang == key]
        if not all(is_plain(self.facts, pod) and pod.ask.memory is None for pod in self.state.pods.values()):
            return
        need = needed(gang, self.state, pods) if pods else None
        if need is None or not self.lacks_pods(gang):
            return
        asked = {name: amount * need for name, amount in pods[0].requests.items()}
        takeable = self.takeable(gang, kind)
        if prod(len(parts) + 1 for parts in takeable) > MOST_SETS:
            return
        for counts in product(*(range(len(parts) + 1) for parts in takeable)):
            victims = [part for parts, count in zip(takeable, counts, strict=True) for part in parts[:count]]
            is_allowed = self.is_strict if order is None else self.is_guaranteed
            if not victims or not is_allowed(gang, asked, victims):
                continue
            if not self.makes_room(gang, pods[0], need, asked, victims) or not self.keeps_inside(gang, victims, order):
                continue
            if kind == TOGETHER and not self.needs_lower(gang, pods[0], need, asked, victims):
                continue
            without_one = (
                [part for part in victims if part is not back] for back in victims if self.could_stay(back, victims)
            )
            if not any(
                is_allowed(gang, asked, fewer) and self.makes_room(gang, pods[0], need, asked, fewer)
                for fewer in without_one
            ):
                yield victims

    def could_stay(self, part: Part, victims: list[Part]) -> bool:
        """Whether the job could keep the part and lose its other victims: any pod of a PodGroup, or the lowest step."""
        lowest = min(other.nth for other in victims if other.gang == part.gang)
        return part.nth == lowest or (part.nth > 0 and part.gang in self.facts.gangs)

    def lacks_pods(self, gang: Gang) -> bool:
        running = [self.state.pods[key].role for key in self.state.staying() if self.state.pods[key].gang == gang.key]
        return gang.missing(running + self.state.succeeded.get(gang.key, [])) > 0

    # Victims.

    def takeable(self, gang: Gang, kind: str) -> list[list[Part]]:
        """Of each job the parts that may go, in the order in which they go, as far as nothing protects them."""
        by_gang: dict[str, list[Part]] = {}
        for part in reversed(self.guarantees.parts):
            by_gang.setdefault(part.gang, []).append(part)
        found: list[list[Part]] = []
        for key, parts in by_gang.items():
            if key == gang.key or (kind == RECLAIMED and self.facts.gang(key).queue == gang.queue):
                continue
            free: list[Part] = []
            for part in parts:
                if not any(self.may_go(part, one) for one in self.kinds_of(part, gang, kind)):
                    break
                free.append(part)
            if free:
                found.append(free)
        return found

    def kinds_of(self, part: Part, gang: Gang, kind: str) -> list[str]:
        """How the part may leave for the gang."""
        if kind != TOGETHER:
            return [kind]
        if self.facts.gang(part.gang).queue != gang.queue:
            return [SHRUNK, RECLAIMED]
        is_lower = self.priority(part.gang) < self.priority(gang.key)
        return [SHRUNK, PREEMPTED] if is_lower else [SHRUNK]

    def may_go(self, part: Part, kind: str) -> bool:
        known, pods = self.facts.gang(part.gang), [self.state.pods[key] for key in part.pods]
        is_critical = {known.priority_class, *(pod.priority_class for pod in pods)} & set(PROTECTED_CLASSES)
        if is_critical or any(pod.namespace == "kube-system" or not pod.is_ours for pod in pods):
            return False
        covering = [b for b in self.facts.budgets for pod in pods if b.namespace == pod.namespace]
        if any(selects(budget.selector, pod.labels) for budget in covering for pod in pods):
            return False
        if part.nth > 0 and part.gang in self.facts.jobs:
            last = self.state.resized.get(part.gang)
            if last is not None and self.state.now - last < self.facts.jobs[part.gang].elastic.cooldown_s:
                return False
        if kind == SHRUNK:
            is_offered = part.nth > 0
        else:
            is_offered = known.is_preemptable and (part.gang in self.facts.gangs or part.gang in self.facts.jobs)
        mine = [key for key in self.state.staying() if self.state.pods[key].gang == part.gang]
        staying = part.pods if part.nth > 0 else mine
        return is_offered and all(
            self.state.now - self.state.started.get(key, 0) >= self.facts.min_runtime_s(known) for key in staying
        )

    def keeps_inside(self, gang: Gang, victims: list[Part], order: int | None) -> bool:
        """Whether no queue on the victims' side holds less inside its guarantee: in this order of jobs, or in each."""
        keys = {key for part in victims for key in part.pods}
        touched = {queue for part in victims for queue in sides(self.facts, part.queue, gang.queue)[0]}
        orders = self.guarantees.orders
        chosen = orders if order is None else [orders[order]]
        keep = self.guarantees.keep_as_much
        return bool(orders) and all(keep(queue, keys, one) for queue in sorted(touched) for one in chosen)

    def lower(self, gang: Gang, victims: list[Part]) -> list[Part]:
        """What of the gang's own queue is preempted, surplus of those jobs included."""
        going = {part.gang for part in victims if part.nth == 0}
        return [part for part in victims if part.gang in going and part.queue == gang.queue]

    def needs_lower(self, gang: Gang, pod: Pod, need: int, asked: Resources, victims: list[Part]) -> bool:
        """Whether lower priorities hold less than the gang needs, and there is no room beside the minimum of any."""
        lower, taken = self.lower(gang, victims), dict[str, Fraction]()
        for part in lower:
            add(taken, part.asks(self.facts, self.state))
        line = self.facts.queue_line(gang.queue)
        counted = {name for name in asked | taken for queue in line if (queue, name) in self.due.scarce}
        counted |= {name for queue in line for name, amount in self.due.guaranteed[queue].items() if amount}
        for name in counted:
            wanted, lost = asked.get(name, Fraction(0)), taken.get(name, Fraction(0))
            if lost > wanted or (lost == wanted and lost):
                return False
        return not any(
            self.makes_room(gang, pod, need, asked, [part for part in victims if part.gang != job or part.nth > 0])
            for job in {part.gang for part in lower}
        )

    def is_reclaimable(self, victims: list[Part], gang: Gang) -> bool:
        lines = [sides(self.facts, part.queue, gang.queue)[0] for part in victims]
        return all(self.tree.is_reclaimable[queue] for line in lines for queue in line)

    # Claims.

    def is_guaranteed(self, gang: Gang, asked: Resources, victims: list[Part]) -> bool:
        """Every queue on the claimant's side of each victim stays within its guarantee."""
        touched = {name for part in victims for name in sides(self.facts, part.queue, gang.queue)[1]}
        return (
            self.is_reclaimable(victims, gang)
            and bool(touched)
            and all(self.stays_within(queue, asked, victims) for queue in touched)
        )

    def stays_within(self, queue: str, asked: Resources, victims: list[Part]) -> bool:
        limits = {name: self.due.guaranteed[queue][name] for name in self.due.covered(queue, asked)}
        left = self.left(queue, victims)
        return bool(limits) and all(
            left.get(name, Fraction(0)) + asked[name] <= amount + TOLERANCE for name, amount in limits.items()
        )

    def is_strict(self, gang: Gang, asked: Resources, victims: list[Part]) -> bool:
        """Every queue on the claimant's side stays within its due, and every other keeps its own."""
        if not self.is_reclaimable(victims, gang) or self.would_preempt(victims):
            return False
        if any(self.leaves_guarantee(gang, asked, victims, part) for part in victims):
            return False
        for part in victims:
            theirs, mine = sides(self.facts, part.queue, gang.queue)
            for queue in mine:
                left, deserved = self.left(queue, victims), self.due.deserved[queue]
                scarce = [name for name, amount in asked.items() if (queue, name) in self.due.scarce and amount]
                if any(left.get(name, Fraction(0)) + asked[name] > deserved[name] + TOLERANCE for name in scarce):
                    return False
            asks = part.asks(self.facts, self.state)
            if theirs and not any((queue, name) in self.due.scarce for queue in theirs for name in asks):
                return False
            if any(self.is_short(queue, self.left(queue, victims), asks) for queue in theirs):
                return False
            if any(self.falls_below_guarantee(queue, victims) for queue in theirs):
                return False
            if any(self.is_poorer(queue, asked, victims) for queue in self.facts.queue_line(gang.queue)[len(mine) :]):
                return False
        return True

    def has_rivals(self, queue: str) -> bool:
        """Whether another queue of its level wants anything."""
        return bool(self.due.wanting.intersection(self.tree.children(self.tree.parent[queue])) - {queue})

    def is_poorer(self, queue: str, asked: Resources, victims: list[Part]) -> bool:
        """Whether the queue, in which claimant and victims are, then holds a smaller part of its due."""
        held, left = self.held.get(queue, {}), self.left(queue, victims)
        if not self.has_rivals(queue):
            return False
        return any(
            left.get(name, Fraction(0)) + asked.get(name, Fraction(0)) < min(amount, held.get(name, Fraction(0)))
            for name, amount in self.due.deserved[queue].items()
            if (queue, name) in self.due.scarce
        )

    def leaves_guarantee(self, gang: Gang, asked: Resources, victims: list[Part], part: Part) -> bool:
        """Whether the gang would be outside the guarantee of a department in which the part is inside."""
        theirs, mine = sides(self.facts, part.queue, gang.queue)
        if not theirs or part.nth > 0 or any(self.stays_within(queue, asked, victims) for queue in mine):
            return False
        line = self.facts.queue_line(gang.queue)
        for height, queue in enumerate(line[len(mine) :], len(mine)):
            if not any(self.has_rivals(above) for above in line[height:]):
                continue
            named, left = self.guarantees.named(queue), self.left(queue, victims)
            is_over = any(
                left.get(name, Fraction(0)) + asked.get(name, Fraction(0)) > amount + TOLERANCE
                for name, amount in named.items()
            )
            if is_over and any(part in inside for inside in self.guarantees.in_each_order(queue)):
                return True
        return False

    def falls_below_guarantee(self, queue: str, victims: list[Part]) -> bool:
        """Whether the queue then holds less than it is guaranteed, and less than before: it would claim that back."""
        held, left = self.held.get(queue, {}), self.left(queue, victims)
        return any(
            left.get(name, Fraction(0)) < min(amount, held.get(name, Fraction(0))) - TOLERANCE
            for name, amount in self.due.guaranteed[queue].items()
        )

    def would_preempt(self, victims: list[Part]) -> bool:
        """Whether a job goes whole and work of lower priority stays in its queue, which it may preempt next."""
        going = {part.gang for part in victims if part.nth == 0}
        priority = {part.gang: self.priority(part.gang) for part in self.guarantees.parts}
        return any(
            other.queue == part.queue and other.gang not in going and priority[other.gang] < priority[part.gang]
            for part in victims
            if part.nth == 0
            for other in self.guarantees.parts
        )

    def priority(self, gang: str) -> int:
        return priority_of(self.facts, self.state, self.facts.gang(gang))

    def is_short(self, queue: str, left: Resources, asks: Resources) -> bool:
        return any(
            (queue, name) in self.due.scarce
            and left.get(name, Fraction(0)) < self.due.deserved[queue][name] - TOLERANCE
            for name in asks
        )

    def loses_due(self, evicted: list[str], claimant: str) -> bool:
        left = {queue: dict(amounts) for queue, amounts in self.held.items()}
        asks: dict[str, Resources] = {}
        for key in evicted:
            leaf, requests = self.facts.gang(self.state.pods[key].gang).queue, self.state.requests(self.facts, key)
            for queue in sides(self.facts, leaf, self.facts.gang(claimant).queue)[0]:
                add(left[queue], {name: -amount for name, amount in requests.items()})
                add(asks.setdefault(queue, {}), requests)
        return any(self.is_short(queue, left[queue], wanted) for queue, wanted in asks.items())

    def left(self, queue: str, victims: list[Part]) -> Resources:
        """What the queue holds without the victims."""
        left = dict(self.held.get(queue, {}))
        for part in victims:
            if queue in self.facts.queue_line(part.queue):
                add(left, {name: -amount for name, amount in part.asks(self.facts, self.state).items()})
        return left

    # Room.

    def makes_room(self, gang: Gang, pod: Pod, need: int, asked: Resources, victims: list[Part]) -> bool:
        for queue in self.facts.queue_line(gang.queue):
            left, limit = self.left(queue, victims), self.tree.limit.get(queue, {})
            if any(left.get(name, Fraction(0)) + asked[name] > limit[name] for name in asked.keys() & limit.keys()):
                return False
        there = without(self.state, {key for part in victims for key in part.pods})
        places = choices(self.facts, there, gang, pod)
        return any(room_in(self.facts, there, place, pod, need) >= need for place in places)


def _shown(victims: list[Part]) -> str:
    return ", ".join(key for part in victims for key in part.pods)
