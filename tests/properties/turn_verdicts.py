"""Verdicts on turns: whoever stays within its due is served before others go above theirs.

So nobody is evicted in a round for room that the same round gave to somebody above its due, and nobody within its due
waits for it, also not behind a gang of its own queue. Judged for gangs of one shape without limits on their queues:
room is counted as it was at the start of the round, less what went to gangs that may have been served first.

A gang within a guarantee may take all that others may take, so it does not wait either for what a gang of its queue
above the due takes by evictions. Between dues this is not judged: the larger gang can make the division fairer where
the smaller one cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from properties.cluster_facts import Facts, Gang
from properties.deserved_shares import TOLERANCE, Dues, Shares, Tree, find_dues, held_by_queue, is_charged
from properties.eviction_verdicts import priority_of
from properties.guarantee_parts import sides
from properties.guarantee_verdicts import replayed
from properties.kubernetes_rules import is_plain
from properties.missed_room import choices, needed, room_in
from properties.raw_objects import Object, Resources, add
from properties.replay_rounds import Move, Round, State


def overtaken(objects: list[Object], plan: Object) -> list[str]:
    """Gangs within their due that wait, or evict, although a gang above its due got room in which they fit."""
    tree = Tree(objects)
    return [
        f"round {index}: {sentence}"
        for index, facts, state, played in replayed(objects, plan)
        for sentence in Turns(facts, state, played, tree).judge()
    ]


class Turns:
    def __init__(self, facts: Facts, state: State, played: Round, tree: Tree) -> None:
        self.facts, self.state, self.played, self.tree = facts, state, played, tree
        self.due: Dues = find_dues(facts, state, tree)
        self.before = self.held_with([])

    def held_with(self, moves: list[Move]) -> Shares:
        where = {key: self.state.where[key] for key in self.state.staying()}
        then = replace(self.state, where=where | {move.pod.key: move.node.name for move in moves})
        return held_by_queue(self.facts, then, [key for key in then.where if is_charged(self.facts, then, key)])

    def judge(self) -> Iterator[str]:
        is_kept = self.played.reserved or self.played.kept or self.state.promised
        if is_kept or not all(is_plain(self.facts, pod) for pod in self.state.pods.values()):
            return
        bound = {move.pod.gang for move in self.played.binds}
        for key in sorted({self.state.pods[key].gang for key in self.state.pending} - bound):
            yield from self.judge_gang(self.facts.gang(key))

    def judge_gang(self, gang: Gang) -> Iterator[str]:
        pods = [self.state.pods[key] for key in sorted(self.state.pending) if self.state.pods[key].gang == gang.key]
        running = [self.state.pods[key].role for key in self.state.staying() if self.state.pods[key].gang == gang.key]
        need = needed(gang, self.state, pods)
        if need is None or not gang.missing(running) or not pods[0].is_ours or pods[0].ask.memory is not None:
            return
        if self.is_behind(gang):
            return
        line = self.facts.queue_line(gang.queue)
        if any(self.tree.limit[queue] for queue in line):
            return
        asked = {name: amount * need for name, amount in pods[0].requests.items()}
        late = [move for move in self.played.binds if self.is_late(move, gang)]
        early = [move for move in self.played.binds if move not in late]
        held = self.held_with(early)
        if any(self.goes_above(held, queue, asked) for queue in line):
            return
        there = replace(
            self.state,
            where=self.state.where | {move.pod.key: move.node.name for move in early},
            gpu_ids=self.state.gpu_ids | {move.pod.key: frozenset(move.gpus) for move in early if move.gpus},
        )
        victims = [key for key, claimant in sorted(self.played.evicted.items()) if claimant == gang.key]
        does = f"evicts {', '.join(victims)}" if victims else "waits"
        if late and self.fits(gang, there):
            others = ", ".join(sorted({move.pod.gang for move in late}))
            yield f"{gang.key} {does}, although {others}, above the due of its queue, got room in which it fits"
        yield from self.judge_claims(gang, asked, there)

    def judge_claims(self, gang: Gang, asked: Resources, there: State) -> Iterator[str]:
        """What a gang of its queue takes above the due, although it could take that within its guarantee."""
        line = self.facts.queue_line(gang.queue)
        nominated = {move.pod.gang for move in self.played.nominations}
        if gang.key in nominated or not all(self.is_guaranteed(self.before, queue, asked) for queue in line):
            return
        for move in self.played.nominations:
            other = move.pod.gang
            if self.facts.gang(other).queue != gang.queue or not self.is_late(move, gang):
                continue
            taken = {key for key, claimant in self.played.evicted.items() if claimant == other}
            if self.gives_up_more(gang, taken, asked):
                continue
            where = {key: node for key, node in there.where.items() if key not in taken}
            if taken and self.fits(gang, replace(there, where=where)):
                victims = ", ".join(sorted(taken))
                yield f"{gang.key} waits within its guarantee, although {other}, above the due, takes {victims}"
                return

    def gives_up_more(self, gang: Gang, taken: set[str], asked: Resources) -> bool:
        """Whether its own queue would give up more of what is guaranteed for the gang than the gang needs.

        While others wait for their guarantees it may not preempt so.
        """
        given: Resources = {}
        for key in taken:
            if self.facts.gang(self.state.pods[key].gang).queue == gang.queue:
                add(given, self.state.requests(self.facts, key))
        named = self.due.guaranteed[gang.queue]
        return any(amount > asked.get(name, Fraction(0)) for name, amount in given.items() if named.get(name))

    def fits(self, gang: Gang, there: State) -> bool:
        pods = [self.state.pods[key] for key in sorted(self.state.pending) if self.state.pods[key].gang == gang.key]
        need = needed(gang, self.state, pods) or 0
        places = choices(self.facts, there, gang, pods[0])
        return any(room_in(self.facts, there, place, pods[0], need) >= need for place in places)

    def is_behind(self, gang: Gang) -> bool:
        """Whether a gang of higher priority waits in its queue: that one has the turn, and might preempt it next."""
        waiting = {self.state.pods[key].gang for key in self.state.pending} - {gang.key}
        others = [self.facts.gang(key) for key in waiting if self.facts.gang(key).queue == gang.queue]
        own = priority_of(self.facts, self.state, gang)
        return any(priority_of(self.facts, self.state, other) > own for other in others)

    def is_late(self, move: Move, gang: Gang) -> bool:
        """Whether the other gang goes above its due whatever was served before it."""
        other = self.facts.gang(move.pod.gang)
        if other.queue == gang.queue:
            asked = self.least_asked(other, move)
            return any(self.goes_above(self.before, queue, asked) for queue in self.facts.queue_line(gang.queue))
        theirs, mine = sides(self.facts, other.queue, gang.queue)
        if not theirs or not mine:
            return False
        return self.goes_above(self.before, theirs[-1], self.least_asked(other, move))

    def least_asked(self, gang: Gang, move: Move) -> Resources:
        """What the gang needs to start, or one pod of its surplus."""
        running = [self.state.pods[key].role for key in self.state.staying() if self.state.pods[key].gang == gang.key]
        missing = gang.missing(running + self.state.succeeded.get(gang.key, []))
        moves = [*self.played.binds, *self.played.nominations]
        mine = [other for other in moves if other.pod.gang == gang.key]
        if len({str(other.pod.requests) for other in mine}) > 1:
            missing = 1  # its pods differ: less than it needs
        return {name: amount * max(1, missing) for name, amount in move.pod.requests.items()}

    def is_guaranteed(self, held: Shares, queue: str, asked: Resources) -> bool:
        """Whether the queue would stay within what it is guaranteed, with something that the guarantee names."""
        named, now = self.due.covered(queue, asked), held.get(queue, {})
        most = self.due.guaranteed[queue]
        return bool(named) and all(now.get(name, Fraction(0)) + asked[name] <= most[name] + TOLERANCE for name in named)

    def goes_above(self, held: Shares, queue: str, asked: Resources) -> bool:
        """Above what the queue is guaranteed, which may be more than its due, and above its due."""
        if self.is_guaranteed(held, queue, asked):
            return False
        now = held.get(queue, {})
        return any(
            (queue, name) in self.due.scarce
            and now.get(name, Fraction(0)) + amount > self.due.deserved[queue][name] + TOLERANCE
            for name, amount in asked.items()
            if amount
        )
