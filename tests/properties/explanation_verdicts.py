"""Judges explanations of waiting gangs: they are complete, and nothing in them contradicts the cluster.

It reads the sentences, and checks them against the raw objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from properties.cluster_facts import Facts, Gang, read_facts
from properties.deserved_shares import TOLERANCE, Dues, Tree, find_dues, held_by_queue, is_charged
from properties.eviction_verdicts import keeps_minimum, priority_of
from properties.raw_objects import Object, at, number, quantity, rows, text
from properties.replay_rounds import Round, State, after, read_round, read_state

IN_LINE = {
    "InsufficientResources",
    "NoNodeFits",
    "NoDomainFits",
    "NoModelFits",
    "BeyondGuarantee",
    "QueueLimit",
    "QueueOverused",
    "NotTried",
}
PLACES = {"allocate", "backfill"}
TAKES = {"shrink", "reclaim", "preempt"}
MOST_HOLDERS = 5
# What an explanation says of a gang that the next cycle could start.
_HOPES = ("tried again in the next one", "by the end of this cycle", "the next cycle came")
_CHANGES = ("binds", "evictions", "resizes", "moves")
_ON_NODE = re.compile(r"(\d+) (\S+/gpu) on (?:each of )?nodes? ([^\s,;]+)")


def untrue(objects: list[Object], plan: Object, actions: list[str]) -> list[str]:
    """What is missing, empty or wrong in the waiting parts of the plan; `actions` are the policy's, in their order."""
    facts, tree = read_facts(objects), Tree(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        found = Judge(facts, state, played, find_dues(facts, state, tree), actions)
        sentences += [f"round {index}: {sentence}" for sentence in found.judge()]
        state = after(facts, state, played)
    return sentences


def false_hopes(plan: Object) -> list[str]:
    """Gangs of a settled cluster that are told to wait for the next cycle: it changes nothing.

    A cluster is settled if the last two rounds move nothing and promise the same. Each such sentence was a claim that
    the scheduler missed.
    """
    last = rows(plan, "rounds")[-2:]
    is_settled = len(last) == 2 and not any(rows(played, kind) for played in last for kind in _CHANGES)
    if not is_settled or rows(last[0], "nominations") != rows(last[1], "nominations"):
        return []
    return [
        f"{text(entry, 'group')} waits in a settled cluster, and is told: {sentence}"
        for entry in rows(last[1], "waiting")
        for sentence in _sentences(entry)
        if any(hope in sentence for hope in _HOPES)
    ]


def _sentences(entry: object) -> Iterator[str]:
    yield text(entry, "message")
    yield text(entry, "wouldStartIf")
    for tried in rows(entry, "tried"):
        yield f"{text(tried, 'action')}: {text(tried, 'why')}"


class Judge:
    def __init__(self, facts: Facts, state: State, played: Round, due: Dues, actions: list[str]) -> None:
        self.facts, self.state, self.played, self.due, self.actions = facts, state, played, due, actions
        self.staying = state.staying(played.evicted)
        moves = [*played.binds, *played.nominations]
        where = {key: state.where[key] for key in self.staying} | {move.pod.key: move.node.name for move in moves}
        then = replace(state, where=where, leaving=frozenset())
        charged = [key for key in where if is_charged(facts, then, key)]
        self.held = held_by_queue(facts, then, charged)
        self.named = {state.pods[key].gang for key in [*state.where, *(move.pod.key for move in moves)]}
        self.named |= set(played.reserved)

    def judge(self) -> Iterator[str]:
        for entry in self.played.waiting:
            for sentence in (*self.judge_entry(entry), *self.judge_amounts(entry)):
                yield f"{text(entry, 'group')}: {sentence}"
        yield from self.judge_line()

    def judge_amounts(self, entry: object) -> Iterator[str]:
        """A cure names no more GPUs of a node than it has, or than pods hold there if it has lost some."""
        for amount, resource, name in _ON_NODE.findall(text(entry, "wouldStartIf")):
            node = self.facts.nodes.get(name)
            if node is None or resource not in node.allocatable:
                continue
            there = [key for key, place in self.state.where.items() if place == name]
            held = sum((self.state.requests(self.facts, key).get(resource, Fraction(0)) for key in there), Fraction(0))
            has = max(node.allocatable[resource], held)
            if Fraction(amount) > has:
                yield f"it would start if {amount} {resource} came free on {name}, which has {has}"

    def judge_line(self) -> Iterator[str]:
        lines: dict[str, list[tuple[int, int]]] = {}
        for entry in self.played.waiting:
            if at(entry, "position") is not None:
                priority = priority_of(self.facts, self.state, self.facts.gang(text(entry, "group")))
                lines.setdefault(text(entry, "queue"), []).append((number(entry, "position"), priority))
        for queue, line in lines.items():
            line.sort()
            if [place for place, _ in line] != list(range(1, len(line) + 1)):
                yield f"the line of queue {queue} has the places {[place for place, _ in line]}"
            if [priority for _, priority in line] != sorted((priority for _, priority in line), reverse=True):
                yield f"the line of queue {queue} does not go by priority: {line}"

    def judge_entry(self, entry: object) -> Iterator[str]:
        reason = text(entry, "reason")
        for key in ("message", "wouldStartIf"):
            if not text(entry, key).strip():
                yield f"{key} is empty"
        if (at(entry, "position") is not None) is not (reason in IN_LINE):
            yield f"{reason}, and its position is {at(entry, 'position')}"
        yield from self.judge_tried(entry, reason)
        if at(entry, "nearest") is not None:
            yield from self.judge_nearest(at(entry, "nearest"))

    # Tried actions.

    def judge_tried(self, entry: object, reason: str) -> Iterator[str]:
        tried = {text(row, "action"): text(row, "why") for row in rows(entry, "tried")}
        gang = self.facts.gang(text(entry, "group"))
        asks = any(self.state.pods[key].requests for key in self.state.pending if self.state.pods[key].gang == gang.key)
        expected = [action for action in self.actions if action in PLACES | TAKES]
        if reason not in IN_LINE:
            expected = [action for action in expected if reason == "SurplusWaiting" and action in PLACES]
        possible = {"allocate", *TAKES} if asks else {"backfill"}
        must = [action for action in expected if action in possible]
        if [action for action in tried if action in possible] != must:
            yield f"{reason}: tried {list(tried)}, not {must}"
        if unknown := set(tried) - set(expected):
            yield f"{reason}: tried {unknown}"
        for action, why in tried.items():
            if not why.strip():
                yield f"why {action} did not help is empty"
        yield from self.judge_preempt(gang, tried.get("preempt", ""))
        yield from self.judge_shrink(gang, tried.get("shrink", ""))
        yield from self.judge_reclaim(gang, entry, tried.get("reclaim", ""))
        for action in TAKES & set(tried):
            if match := re.match(r"taking all that may be taken \(([\d,]+) pods?", tried[action]):
                most = sum(self.state.pods[key].gang != gang.key for key in self.staying)
                if int(match[1].replace(",", "")) > most:
                    yield f"{action} could take {match[1]} pods, but there are {most}"

    def judge_preempt(self, gang: Gang, why: str) -> Iterator[str]:
        own = priority_of(self.facts, self.state, gang)
        others = [self.facts.gang(self.state.pods[key].gang) for key in self.staying if self.is_ours(key)]
        lower = [
            other.key
            for other in others
            if other.queue == gang.queue and priority_of(self.facts, self.state, other) < own
        ]
        if "nothing of lower priority runs" in why and lower:
            yield f"nothing of lower priority runs, but {lower[0]} does"
        if re.match(r"taking|[\d,]+ pods? of lower priority", why) and not lower:
            yield f"preempt looked at nobody, and says: {why}"

    def judge_shrink(self, gang: Gang, why: str) -> Iterator[str]:
        surplus = {
            key: other
            for key in self.staying
            if self.is_ours(key) and (other := self.state.pods[key].gang) != gang.key and self.has_surplus(other)
        }
        if why == "no job has surplus" and surplus:
            yield f"no job has surplus, but {next(iter(surplus.values()))} has"
        if re.match(r"taking|surplus of", why) and not surplus:
            yield f"nobody has surplus, and shrink says: {why}"
        if match := re.search(r"cool down \(the first for ([\d.]+) s more\)", why):
            ends = [
                resized + self.facts.jobs[job].elastic.cooldown_s - self.state.now
                for job, resized in self.state.resized.items()
                if job in surplus.values() and job in self.facts.jobs
            ]
            if Fraction(match[1]) not in [Fraction(left) for left in ends]:
                yield f"cools down for {match[1]} s, but there are {ends}"

    def has_surplus(self, gang: str) -> bool:
        """Whether one of its pods could be evicted if nothing protected it."""
        mine = [key for key in self.staying if self.state.pods[key].gang == gang]
        return (
            any(
                keeps_minimum(
                    self.facts, self.state, replace(self.played, evicted=self.played.evicted | {key: ""}), gang
                )
                for key in mine
            )
            and len(mine) > 1
        )

    def judge_reclaim(self, gang: Gang, entry: object, why: str) -> Iterator[str]:
        line = self.facts.queue_line(gang.queue)
        others = {
            other.queue
            for key in self.state.staying()
            if self.is_ours(key) and (other := self.facts.gang(self.state.pods[key].gang)).queue != gang.queue
        }
        if why == "no other queue holds anything" and others:
            yield f"no other queue holds anything, but {sorted(others)} do"
        rich = [queue for queue in others if self.excess(queue)]
        if why == "no other queue holds more than it deserves" and rich:
            yield f"no other queue holds more than it deserves, but {rich} do"
        # GPU memory is a known share only of a known GPU.
        is_clear = all(pod.ask.memory is None for pod in self.state.pods.values())
        if is_clear and (match := re.match(r"queue '(\w+)' (?:has its due|would have more than its due)", why)):
            needs = {name: quantity(amount) for name, amount in strings_of(entry).items()}
            over = [
                resource
                for resource, amount in needs.items()
                if (match[1], resource) in self.due.scarce
                and self.held.get(match[1], {}).get(resource, Fraction(0)) + amount
                > self.due.deserved[match[1]].get(resource, Fraction(0)) - TOLERANCE
            ]
            if match[1] not in line or not over:
                yield f"queue {match[1]} is within its due, and reclaim says: {why}"

    def excess(self, queue: str) -> list[str]:
        """The scarce resources of which the queue holds more than it deserves."""
        return [
            resource
            for resource, held in self.held.get(queue, {}).items()
            if (queue, resource) in self.due.scarce and held > self.due.deserved[queue][resource] + TOLERANCE
        ]

    def is_ours(self, key: str) -> bool:
        return is_charged(self.facts, self.state, key)

    # The nearest miss.

    def judge_nearest(self, nearest: object) -> Iterator[str]:
        kind, _, name = text(nearest, "place").partition(" ")
        if kind == "node" and name not in self.facts.nodes:
            yield f"the nearest node is {name}, and there is none"
        elif kind not in {"node", "cluster"}:
            paths = {
                "/".join(path)
                for node in self.facts.nodes.values()
                if (path := self.facts.domain(node, kind)) is not None
            }
            if name not in paths:
                yield f"the nearest {kind} is {name}, and there is none"
        if not 0 <= number(nearest, "fits") < number(nearest, "pods"):
            yield f"{number(nearest, 'fits')} of {number(nearest, 'pods')} fit in {kind} {name}"
        if text(nearest, "resource") and quantity(text(nearest, "lacks")) <= 0:
            yield f"{kind} {name} lacks {text(nearest, 'lacks')} {text(nearest, 'resource')}"
        if not text(nearest, "resource") and not rows(nearest, "refusals"):
            yield f"{kind} {name} comes nearest and lacks nothing"
        holders = rows(nearest, "heldBy")
        if len(holders) > MOST_HOLDERS:
            yield f"{len(holders)} holders are named"
        for holder in holders:
            job = text(holder, "job")
            if job and job not in self.named:
                yield f"{job} holds something in {kind} {name}, but has no pod anywhere"
            if not text(holder, "what") or quantity(text(holder, "amount")) <= 0:
                yield f"{job} holds {text(holder, 'amount')} as {text(holder, 'what')!r}"


def strings_of(entry: object) -> dict[str, str]:
    """The needed amounts, without the number of pods."""
    needs = at(entry, "needs")
    return {str(key): str(value) for key, value in needs.items() if key != "pods"} if isinstance(needs, dict) else {}
