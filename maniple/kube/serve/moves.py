"""Moves the pods of a plan for the gangs that start by that: for each such gang all of them, or none.

Three steps. The API server is asked whether it would evict every pod. Every moved gang gets the annotation that says
where places are kept for it: without it the places would be given to others. Then the pods are evicted. If something is
refused before the third step, nobody is evicted and the next cycle plans anew. A crash between two steps loses nothing:
what a later cycle needs is in the annotation, and a move of which no pod has left does not count.

It also ends moves: the places are taken out of the annotation. If pods of the gang are to be evicted for another
reason, that is written first. Otherwise what comes in their place would start in a kept place if we are killed in
between.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from maniple.api import kubernetes, types
from maniple.api.keys import split_name
from maniple.api.labels import MOVED_ANNOTATION
from maniple.api.moves import without_places
from maniple.cluster.assumed_writes import move_annotation
from maniple.kube.serve.background_writes import Background
from maniple.kube.serve.evictions import Evictor
from maniple.kube.serve.object_patches import Patches
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import ObjectRef
from maniple.model.pod_identity import JobKey, named_gangs
from maniple.scheduler.framework.plan import Eviction, Plan

_KINDS: dict[str, type] = {"PodGroup": types.PodGroup, "ElasticJob": types.ElasticJob}


@dataclass(frozen=True)
class _GangMove:
    """What is written to one gang, and the pods of it that are then evicted."""

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
        self._under_way: set[ObjectRef] = set()  # gangs whose annotation is being written

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
            if any(move.gang.ref in self._under_way for move in moves):
                continue  # the next cycle plans anew
            self._assume(moves)
            self._writes.begin(self._carry_out(moves, evictions))
        return {move.pod for move in plan.moves}

    def end(self, plan: Plan, evictions: Iterable[Eviction], now: float) -> list[Eviction]:
        """Takes the places from gangs that need none, and from those that lose pods for another reason than a move.

        Evicts these pods once that is written. Returns the evictions that need not wait for it.
        """
        others: list[Eviction] = []
        by_gang: dict[JobKey, list[Eviction]] = {gang: [] for gang in plan.ended_moves}
        for resize in plan.resizes:  # their evictions may be up to another controller, and their size is written
            if resize.leaves:
                by_gang.setdefault((resize.job, "ElasticJob"), [])
        for eviction in evictions:
            gang = self._gang_with_places(eviction.pod, now)
            (others if gang is None else by_gang.setdefault(gang, [])).append(eviction)
        for gang, several in by_gang.items():
            seen = self._object_of(gang)
            if seen is None or seen.item is None or seen.ref in self._under_way:
                continue  # the next cycle plans anew
            annotation = without_places(seen.item.metadata.annotations, now)
            chosen = [eviction for eviction in several if self._evictor.may_try(eviction)]
            if annotation is not None and (chosen or not several):
                move = _GangMove(seen, _KINDS[gang[1]], gang[0], annotation, chosen)
                self._assume([move])
                self._writes.begin(self._end(move))
        return others

    def _gang_with_places(self, pod: str, now: float) -> JobKey | None:
        """The gang of the pod, if its annotation names places, or is about to."""
        seen = self._mirror.find(kubernetes.Pod, split_name(pod))
        for gang in named_gangs(seen.item) if seen is not None and isinstance(seen.item, kubernetes.Pod) else ():
            owner = self._object_of(gang)
            if owner is None or owner.item is None:
                continue
            if owner.ref in self._under_way or without_places(owner.item.metadata.annotations, now) is not None:
                return gang
        return None

    def _object_of(self, gang: JobKey) -> Seen | None:
        return self._mirror.find(_KINDS[gang[1]], split_name(gang[0])) if gang[1] in _KINDS else None

    def _assume(self, moves: Iterable[_GangMove]) -> None:
        for move in moves:
            self._under_way.add(move.gang.ref)
            self._evictor.assume(move.evictions)
            self._mirror.cache.assume_move(move.kind, move.name, move.annotation)

    def _forget(self, moves: Iterable[_GangMove], *, is_written: bool) -> None:
        for move in moves:
            self._under_way.discard(move.gang.ref)
            if not is_written:
                self._evictor.forget(move.evictions)
            self._mirror.cache.forget_move(move.kind, move.name)  # the mirror has it by now, if it was written

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
            self._forget(moves, is_written=is_announced)
        if is_announced:
            await asyncio.gather(*map(self._evictor.evict, evictions))  # in this task: who ends waits for all of it

    async def _end(self, move: _GangMove) -> None:
        is_written = False
        try:
            is_written = await self._annotate(move, move.annotation)
        finally:
            self._forget([move], is_written=is_written)
        if is_written:
            await asyncio.gather(*map(self._evictor.evict, move.evictions))

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
