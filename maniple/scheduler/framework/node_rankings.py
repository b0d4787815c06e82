"""The best nodes for each shape, kept over a cycle and corrected where nodes change.

Only for plain groups: where a pod may go and which node suits it best follows for each node from what is left there,
not from other pods or all candidates together. Room is that beside all reservations. Everything else, such as an
attempt that suspends a reservation or a domain of a topology, looks at all nodes (placement_search.py); the outcome is
the same.

A node that has changed costs a look at what is known of its new state (node_states.py). Only a state that is new to the
shape is computed.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.best_nodes import BestNodes
from maniple.scheduler.framework.hooks import Rows
from maniple.scheduler.framework.node_states import NodeStates
from maniple.scheduler.framework.reserved_room import room_on

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

_MOST_KEPT = 256  # shapes; 160 kB each with 10,000 nodes
_MOST_KNOWN = 1 << 16  # states of one shape
_FEW = 16  # nodes; the room of more of them is computed, not looked up


class _Known:
    """What is known of a shape by the state of a node."""

    def __init__(self) -> None:
        self.fits: dict[bool, dict[int, float]] = {False: {}, True: {}}  # now; when all leaving pods have left
        self.scores: dict[int, float] = {}
        self.following: dict[int, list[float]] = {}  # scores for the second, third, … pod


class _Ranking:
    def __init__(self, best: BestNodes, allowed: BoolArray, seen: int) -> None:
        self.best = best
        self.allowed = allowed
        self.seen = seen  # changes of nodes


class NodeRankings:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._capacity = session.capacity
        self._changed = session.capacity.changed
        self._states = NodeStates(session)
        self._rankings: dict[tuple[int, bool, int | None], _Ranking] = {}
        self._known: dict[int, _Known] = {}
        self._is_plain: dict[Hashable, bool] = {}
        self._is_by_amounts: dict[int, bool] = {}

    def room(self, group: TaskGroup, *, later: bool, model: int | None = None) -> float | None:
        """How many pods of the group fit, on GPUs of `model` if given; None if that takes a look at all nodes."""
        best = self.known(group, later=later, model=model)
        return None if best is None else best.total

    def best(self, group: TaskGroup, *, later: bool, model: int | None = None) -> BestNodes | None:
        """The best nodes for the group's next pod; None if that takes a look at all nodes."""
        best = self.known(group, later=later, model=model)
        return None if best is None else self.ranked(group, best)

    def ranked(self, group: TaskGroup, best: BestNodes) -> BestNodes:
        """Ranks what is known now of the group's nodes, unless it is ranked."""
        if not best.is_ranked:
            nodes = best.with_room()
            best.rank(nodes, np.array(self._scores(group, nodes.tolist())))
        return best

    def known(self, group: TaskGroup, *, later: bool, model: int | None = None) -> BestNodes | None:
        """How many pods of the group fit on each node, maybe not ranked; None if that takes a look at all nodes."""
        session = self._session
        if not session.reserved.binds_as_usual or not session.demands.is_shared:
            return None
        if model is not None and session.gpus.has_mixed_nodes:  # then a node may have room on one model only
            return None
        number = session.demands.of_group(group)
        if not self._is_plain_group(group, number):
            return None
        ranking = self._rankings.pop((number, later, model), None)
        if ranking is not None and ranking.seen < len(self._changed):
            nodes = self._changed.since(ranking.seen)
            ranking.seen = len(self._changed)
            if len(nodes) * 4 > len(ranking.allowed):
                ranking = None
            else:
                self._correct(ranking, group, number, nodes, later=later)
        if ranking is None:
            allowed = self._capacity.allowed(group)
            if model is not None:
                allowed = allowed & session.gpus.has_model(group.shape, model)
            best = BestNodes(session.room_for(group, later=later, model=model))
            ranking = _Ranking(best, allowed, len(self._changed))
        if len(self._rankings) >= _MOST_KEPT:
            del self._rankings[next(iter(self._rankings))]
        self._rankings[number, later, model] = ranking  # at the end: the first is the least recently used
        return ranking.best

    def following_scores(self, group: TaskGroup, nodes: Sequence[int], pods: Sequence[int]) -> list[list[float]]:
        """The scores of each node for the pods after the next: `pods` of them, or more."""
        number = self._session.demands.of_group(group)
        if not self._shares_states(group, number):
            return self._capacity.following_scores(group, nodes, pods)
        known = self._known_of(number).following
        states = self._states.of(nodes)
        missing: dict[int, tuple[int, int]] = {}  # state -> a node in it, and how many pods
        for state, node, count in zip(states, nodes, pods, strict=True):
            if len(known.get(state, ())) < count:
                missing[state] = (node, max(count, missing.get(state, (0, 0))[1]))
        if missing:
            some, counts = zip(*missing.values(), strict=True)
            known.update(zip(missing, self._capacity.following_scores(group, some, counts), strict=True))
        return [known.get(state, []) for state in states]

    def _is_plain_group(self, group: TaskGroup, number: int) -> bool:
        affinity = group.pod_affinity
        if group.shape.exclusives or (affinity is not None and affinity.has_terms):
            return False
        key = (number, group.owner, affinity)
        is_plain = self._is_plain.get(key)
        if is_plain is None:
            session = self._session
            is_plain = self._is_plain[key] = not (
                session.depends_on_pods(group)
                or session.is_placed_singly(group)
                or any(
                    hooks.batch_node_order
                    and (hooks.batch_node_order_groups is None or hooks.batch_node_order_groups(group))
                    for hooks in session.hooks
                )
            )
        return is_plain

    def _shares_states(self, group: TaskGroup, number: int) -> bool:
        """Whether all plugins say that nodes in the same state have the same score."""
        is_by_amounts = self._is_by_amounts.get(number)
        if is_by_amounts is None:
            is_by_amounts = self._is_by_amounts[number] = all(
                hooks.node_order_by_amounts is not None and hooks.node_order_by_amounts(group)
                for hooks in self._session.hooks
                if hooks.node_order
            )
        return is_by_amounts

    def _known_of(self, number: int) -> _Known:
        known = self._known.get(number)
        if known is None or len(known.fits[False]) + len(known.scores) > _MOST_KNOWN:
            known = self._known[number] = _Known()
        return known

    def _correct(self, ranking: _Ranking, group: TaskGroup, number: int, nodes: list[int], *, later: bool) -> None:
        """Updates the ranking where nodes have changed."""
        allowed, best = ranking.allowed, ranking.best
        nodes = [node for node in nodes if allowed[node]]
        if not nodes:
            return

        def compute(some: IntArray) -> FloatArray:
            return room_on(self._session, group, some, later=later)

        if len(nodes) > _FEW:
            fits = compute(np.array(nodes, dtype=np.intp)).tolist()
        else:
            fits = _look_up(self._known_of(number).fits[later], self._states.of(nodes), nodes, compute)
        best.change_room(nodes, fits)
        if best.is_ranked:
            scores = [-math.inf] * len(nodes)
            roomy = [index for index, room in enumerate(fits) if room > 0]
            for index, score in zip(roomy, self._scores(group, [nodes[index] for index in roomy]), strict=True):
                scores[index] = score
            best.change_ranks(nodes, scores)

    def _scores(self, group: TaskGroup, nodes: Sequence[int]) -> Sequence[float]:
        def compute(some: IntArray) -> FloatArray:
            return self._capacity.score_rows(group, Rows(some, self._session.free[:, some]))

        if not nodes:
            return ()
        number = self._session.demands.of_group(group)
        if self._shares_states(group, number):
            return _look_up(self._known_of(number).scores, self._states.of(nodes), nodes, compute)
        scores: list[float] = compute(np.array(nodes, dtype=np.intp)).tolist()
        return scores


def _look_up(
    known: dict[int, float], states: Sequence[int], nodes: Sequence[int], compute: Callable[[IntArray], FloatArray]
) -> list[float]:
    """The values of nodes by their states. What is not known is computed once for each state."""
    missing = {state: node for state, node in zip(states, nodes, strict=True) if state not in known}
    if missing:
        some = np.fromiter(missing.values(), dtype=np.intp, count=len(missing))
        known.update(zip(missing, compute(some).tolist(), strict=True))
    return [known[state] for state in states]
