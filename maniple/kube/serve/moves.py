"""Moves the pods of a plan for the gangs that start by that: for each such gang all of them, or none.

Three steps. The API server is asked whether it would evict every pod. Every moved gang gets the annotation that says
where places are kept for it: without it the places would be given to others. Then the pods are evicted. If something is
refused before the third step, nobody is evicted and the next cycle plans anew. A crash between two steps loses nothing:
what a later cycle needs is in the annotation, and a move of which no pod has left does not count.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from maniple.api import types
from maniple.api.keys import split_name
from maniple.api.labels import MOVED_ANNOTATION
from maniple.cluster.assumed_writes import move_annotation
from maniple.kube.serve.background_writes import Background
from maniple.kube.serve.evictions import Evictor
from maniple.kube.serve.object_patches import Patches
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.plan import Eviction, Plan

_KINDS: dict[str, type] = {"PodGroup": types.PodGroup, "ElasticJob": types.ElasticJob}


@dataclass(frozen=True)
class _GangMove:
    """The pods of one gang that are moved."""

    gang: Seen
    kind: type
    name: str
    annotation: str
    evictions: list[Eviction]

    @property
    def before(self) -> str | None:
        return None if self.gang.item is None else self.gang.item.metadata.annotations.get(MOVED_ANNOTATION)


class Mover:
    def __init__(self, mirror: Mirror, patches: Patches, evictor: Evictor, writes: Background) -> None:
        self._mirror = mirror
        self._patches = patches
        self._evictor = evictor
        self._writes = writes

    def begin(self, plan: Plan, now: float) -> set[str]:
        """Begins to move. Returns all pods of moves: nobody else is to evict them."""
        if not plan.moves:
            return set()
        why = {eviction.pod: eviction for eviction in plan.evictions}
        for_whom: dict[str, dict[JobKey, list[Eviction]]] = {}
        for move in plan.moves:
            by_gang = for_whom.setdefault(move.beneficiary, {})
            by_gang.setdefault((move.group, move.kind), []).append(why[move.pod])
        for by_gang in for_whom.values():
            moves = list(self._moves(plan, by_gang, now))
            evictions = [eviction for move in moves for eviction in move.evictions]
            if len(moves) < len(by_gang) or not all(map(self._evictor.may_try, evictions)):
                continue
            self._evictor.assume(evictions)
            for one in moves:
                self._mirror.cache.assume_move(one.kind, one.name, one.annotation)
            self._writes.begin(self._carry_out(moves, evictions))
        return {move.pod for move in plan.moves}

    def _moves(self, plan: Plan, by_gang: dict[JobKey, list[Eviction]], now: float) -> Iterator[_GangMove]:
        for moved in plan.moved_gangs:
            evictions, kind = by_gang.get((moved.group, moved.kind)), _KINDS[moved.kind]
            seen = self._mirror.find(kind, split_name(moved.group))
            if evictions and seen is not None:
                yield _GangMove(seen, kind, moved.group, move_annotation(moved, now), evictions)

    async def _carry_out(self, moves: Sequence[_GangMove], evictions: Sequence[Eviction]) -> None:
        is_announced = False
        try:
            is_announced = await self._are_allowed(evictions) and await self._announce(moves)
        finally:
            if not is_announced:
                self._evictor.forget(evictions)
            for move in moves:  # the mirror has the annotation by now, if it was written
                self._mirror.cache.forget_move(move.kind, move.name)
        if is_announced:
            await asyncio.gather(*map(self._evictor.evict, evictions))  # in this task: who ends waits for all of it

    async def _are_allowed(self, evictions: Sequence[Eviction]) -> bool:
        return all(await asyncio.gather(*map(self._evictor.would_evict, evictions)))

    async def _announce(self, moves: Sequence[_GangMove]) -> bool:
        """Annotates the gangs: all of them, or none."""
        answers = await asyncio.gather(*(self._annotate(move, move.annotation) for move in moves))
        if not all(answers):
            written = [move for move, is_written in zip(moves, answers, strict=True) if is_written]
            await asyncio.gather(*(self._annotate(move, move.before) for move in written))
        return all(answers)

    async def _annotate(self, move: _GangMove, annotation: str | None) -> bool:
        metadata = {"uid": move.gang.uid, "annotations": {MOVED_ANNOTATION: annotation}}
        return await self._patches.write(*move.gang.ref, {"metadata": metadata})
