"""A planning run, round by round: what starts where, what leaves, what is resized, and what waits for what."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from maniple.api.timestamps import format_timestamp
from maniple.cluster.in_memory_cluster import Outcome, Round
from maniple.scheduler.framework.plan import (
    Bind,
    Eviction,
    Move,
    Nomination,
    QueueShare,
    ReservedNodes,
    Resize,
    Waiting,
)


class GpuSets(msgspec.Struct, frozen=True, rename="camel"):
    """GPUs of one node that pods take alike."""

    share: float  # of each GPU
    ring_gbs: float | None  # speed of the ring in each set; None: the links are not known
    sets: tuple[str, ...]  # such as "0-1", one for each ring; without rings one for all


class NodeStart(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    pods: int
    gpus: tuple[GpuSets, ...]


class GangStart(msgspec.Struct, frozen=True, rename="camel"):
    gang: str
    queue: str
    pods: int
    nodes: tuple[NodeStart, ...]
    makes_way_for: tuple[str, ...]  # gangs in whose reserved room it runs


class RoundView(msgspec.Struct, frozen=True, rename="camel"):
    time: str
    starts: tuple[GangStart, ...]
    leaving: tuple[Eviction, ...]  # evicted, or given up by a job that shrinks
    resizes: tuple[Resize, ...]
    moves: tuple[Move, ...]  # where pods that are evicted have another place
    nominations: tuple[Nomination, ...]  # of gangs without a reservation
    reservations: tuple[ReservedNodes, ...]
    waiting: tuple[Waiting, ...]
    is_idle: bool  # nothing is decided and nothing waits


class PlanView(msgspec.Struct, frozen=True, rename="camel"):
    rounds: tuple[RoundView, ...]
    queues: tuple[QueueShare, ...]  # after the last round
    settled_after: int | None = None  # the last round with news; later ones are the same


def plan_view(outcome: Outcome) -> PlanView:
    settled = outcome.settled_after
    return PlanView(tuple(map(_round, outcome.rounds)), outcome.rounds[-1].plan.queues, settled)


def _round(planned: Round) -> RoundView:
    plan, gangs = planned.plan, planned.gangs
    binds: dict[str, list[Bind]] = {}
    queue_of: dict[str, str] = {}
    for bind in plan.binds:
        gang = gangs[bind.pod]
        binds.setdefault(gang.name, []).append(bind)
        queue_of[gang.name] = gang.queue
    reserved = {reservation.group for reservation in plan.reservations}
    return RoundView(
        time=format_timestamp(planned.now),
        starts=tuple(_start(name, queue_of[name], binds[name]) for name in sorted(binds)),
        leaving=tuple(sorted(plan.leaving())),
        resizes=plan.resizes,
        moves=plan.moves,
        nominations=tuple(entry for entry in plan.nominations if gangs[entry.pod].name not in reserved),
        reservations=plan.reservations,
        waiting=plan.waiting,
        is_idle=not plan.decides and not plan.waiting,
    )


def _start(gang: str, queue: str, binds: Sequence[Bind]) -> GangStart:
    by_node: dict[str, list[Bind]] = {}
    for bind in binds:
        by_node.setdefault(bind.node, []).append(bind)
    nodes = tuple(NodeStart(node, len(here), _gpu_sets(here)) for node, here in sorted(by_node.items()))
    makes_way_for = tuple(sorted({bind.backfill for bind in binds if bind.backfill is not UNSET}))
    return GangStart(gang, queue, len(binds), nodes, makes_way_for)


def _gpu_sets(binds: Iterable[Bind]) -> tuple[GpuSets, ...]:
    """A ring has a speed, so sets with rings stay apart; the others are one set."""
    kinds: dict[tuple[float, float], list[list[str]]] = {}
    for bind in binds:
        if bind.gpus:
            share = 1.0 if bind.gpu_share is UNSET else bind.gpu_share
            speed = 0.0 if bind.ring_gbs is UNSET else bind.ring_gbs
            kinds.setdefault((share, speed), []).append(sorted(bind.gpus, key=_id_order))
    views = []
    for (share, speed), sets in sorted(kinds.items(), reverse=True):
        together = sorted({gpu for gpus in sets for gpu in gpus}, key=_id_order)
        apart = sorted(sets, key=lambda gpus: _id_order(gpus[0])) if speed else [together]
        views.append(GpuSets(share, speed or None, tuple(dict.fromkeys(map(_ranges, apart)))))
    return tuple(views)


def _number(gpu: str) -> int | None:
    """Ids are usually numbers, but a node may name its GPUs otherwise."""
    return int(gpu) if gpu.isascii() and gpu.isdigit() and (gpu == "0" or gpu[0] != "0") else None


def _id_order(gpu: str) -> tuple[bool, int, str]:
    number = _number(gpu)
    return number is None, number or 0, gpu


def _ranges(gpus: list[str]) -> str:
    """`0-3,5,a` of sorted ids."""
    runs: list[tuple[str, str]] = []
    for gpu in gpus:
        number, before = _number(gpu), _number(runs[-1][1]) if runs else None
        if number is not None and before is not None and before + 1 == number:
            runs[-1] = (runs[-1][0], gpu)
        else:
            runs.append((gpu, gpu))
    return ",".join(low if low == high else f"{low}-{high}" for low, high in runs)
