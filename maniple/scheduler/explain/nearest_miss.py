"""The nearest miss: where a gang that does not fit lacks least, and what each node there lacks.

The gang is placed in thought. Pods that fit take their places; every further pod goes to the node that lacks least for
it, and what the node lacks is written down. All that together is a change after which the gang fits. It costs a few
passes over the nodes, whatever the number of pods.

Pods that mind each other (affinity, spread) are counted as if each came alone: for them the change may not suffice.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from maniple.model.job import Job, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.explain.fit_view import FitView, Models, all_pass, is_in, usable_room
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.plan import Nearest
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import by_domain, home_of, members_of

_MOST_NODES = 16  # whose lacks are written down one by one
_MOST_ROUNDS = 8  # over the nodes, until the rest is only counted
_MOST_REFUSALS = 5  # that are shown
_MOST_MODELS = 8  # ways to choose GPU models


@dataclass(frozen=True, slots=True, eq=False)
class Lack:
    """What one node lacks to take so many pods more than it could now."""

    node: int
    pods: int
    amounts: FloatArray  # [R]
    refusals: tuple[str, ...]  # what it objects to
    gpus: int = 0  # where GPUs are looked at one by one: so many more …
    each: str = ""  # … of this kind, with so much of each free


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    level: str  # of the domain that was chosen; empty: the gang may be anywhere
    domain: int  # its code; -1: none
    models: Models
    wanted: int  # pods
    fits: int  # of them, as many as fit now
    beyond: int  # … as would need larger nodes, or more of them
    homeless: int  # … for which no node could be named
    needs: FloatArray  # [R] what all of them ask for
    free: FloatArray  # [R] what is free there, on nodes that would take them
    total: FloatArray  # [R] what is lacking in all
    lacks: tuple[Lack, ...]  # those nodes that lack least first
    nodes: int  # that lack something; more than are in `lacks` where there are many
    first: Lack | None  # what the nearest node lacks for one pod more

    @property
    def missing(self) -> int:
        return self.wanted - self.fits


def find_miss(session: Session, job: Job, wanted: Mapping[TaskGroup, int], *, later: bool = False) -> Miss:
    """`wanted`: the pods of each group that the gang needs to start. `later`: when those who are leaving have left."""
    usable = usable_room(session, later=later)
    drafts: list[tuple[Models, list[FitView], _Place]] = []
    for models in itertools.islice(_model_choices(session, job, wanted), _MOST_MODELS):
        parts = [
            FitView(session, group, count, usable, models, later=later) for group, count in wanted.items() if count
        ]
        # Where some pods share GPUs, it matters for all which are left whole.
        if any(session.gpus.is_counted(part.group.shape) for part in parts):
            for part in parts:
                part.counts_gpus = bool(part.group.shape.gpus)
        drafts.append((models, parts, _choose_place(session, job, parts, usable)))
    models, parts, place = min(drafts, key=lambda draft: draft[2].key)
    return _Draft(session, parts, place, usable).miss(models)


def nearest_of(session: Session, holders: Holders, claimant: Job, miss: Miss) -> Nearest | None:
    """The miss as the plan shows it, with the jobs that hold what is lacking; None if nothing is."""
    if not miss.missing:
        return None
    axis, names = session.snapshot.axis, session.snapshot.nodes.names
    parts = np.divide(miss.total, miss.needs, out=np.zeros(len(axis)), where=miss.needs > 0)
    row = int(np.argmax(parts))
    is_short = bool(parts[row] > 0)
    place, free, needs, lacks = "cluster", float(miss.free[row]), float(miss.needs[row]), float(miss.total[row])
    if miss.level:
        place = f"{miss.level} {session.snapshot.domains.levels[miss.level].names[miss.domain]}"
    elif miss.wanted == 1 and miss.lacks:
        place, free = f"node {names[miss.lacks[0].node]}", max(0.0, needs - lacks)
    if not np.isfinite(free):
        free = max(0.0, needs - lacks)  # a node that has no bound on it is of no use here
    nodes = [lack.node for lack in miss.lacks if is_short and lack.amounts[row] > 0]
    held_by, others = holders.of_resource(claimant, row, nodes, lacks)
    return Nearest(
        place=place,
        pods=miss.wanted,
        fits=miss.fits,
        resource=axis.names[row] if is_short else "",
        needs=axis.text(row, needs) if is_short else "",
        free=axis.text(row, free) if is_short else "",
        lacks=axis.text(row, lacks) if is_short else "",
        is_scattered=is_short and free + lacks > needs,
        refusals=tuple(dict.fromkeys(reason for lack in miss.lacks for reason in lack.refusals))[:_MOST_REFUSALS],
        held_by=held_by,
        others=others,
    )


# --- where


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    level: str
    domain: int
    nodes: IntArray
    key: tuple[float, ...]  # lower is nearer


def _model_choices(session: Session, job: Job, wanted: Mapping[TaskGroup, int]) -> Iterator[Models]:
    """Which model each list of models might stand for."""
    gpus = session.gpus
    lists = {group.shape.constraint.gpu_models for group in wanted if group.shape.gpus}
    if job.mixed_models or not gpus.is_mixed or not lists:
        yield {}
        return
    ordered = sorted(lists, key=lambda models: [entry.model for entry in models])
    choices = []
    for models in ordered:
        there = session.state(job).models.get(models)
        members = [code for code, count in there.items() if count > 0] if there else []
        codes = gpus.allowed(models)
        choices.append(members[:1] or list(range(len(gpus.models)) if codes is None else codes))
    if not all(choices):
        yield {}
        return
    for chosen in itertools.product(*choices):
        yield dict(zip(ordered, chosen, strict=True))


def _choose_place(session: Session, job: Job, parts: Sequence[FitView], usable: FloatArray) -> _Place:
    """The domain that the gang must be in: the one that lacks least among those that could ever hold it."""
    row = _main_row(session, parts)
    spare = np.maximum(usable[row], 0.0)
    level = session.snapshot.domains.levels.get(job.required)
    counts = np.array([[part.count] for part in parts], dtype=np.float64)
    asked = max(1.0, float(sum(part.requests[row] * part.count for part in parts)))
    if level is None or not level.names:
        everywhere = np.arange(len(session.snapshot.nodes), dtype=np.intp)
        ratio = min((min(1.0, part.now.sum() / part.count) for part in parts), default=0.0)
        is_able = all(part.empty.sum() >= part.count for part in parts)
        return _Place("", -1, everywhere, (not is_able, -ratio, -min(1.0, float(spare.sum()) / asked)))
    now = np.array([by_domain(level, part.now) for part in parts])
    able: BoolArray = np.all(np.array([by_domain(level, part.empty) for part in parts]) >= counts, axis=0)
    ratio = np.minimum(now / counts, 1.0).min(axis=0)
    free = np.minimum(by_domain(level, np.where(parts[0].allowed, spare, 0.0)) / asked, 1.0)
    home = home_of(level, members_of(session, job))
    if home is not None and home >= 0:
        best = home
    else:
        best = int(np.lexsort((-free, -ratio, ~able))[0])
    key = (float(not able[best]), -float(ratio[best]), -float(free[best]))
    return _Place(level.name, best, np.flatnonzero(level.codes == best), key)


def _main_row(session: Session, parts: Sequence[FitView]) -> int:
    """The resource of which the gang asks for the largest part of the cluster."""
    total = np.maximum(session.snapshot.total, 1.0) * session.snapshot.axis.shared
    asked = sum((part.requests * part.count for part in parts), np.zeros(len(total)))
    return int(np.argmax(np.divide(asked, total, out=np.zeros(len(total)), where=total > 0)))


# --- what is lacking


@dataclass(slots=True)
class _Extra:
    """Pods that found no room, by position among the nodes; what the nodes object to, and the GPUs they lack."""

    pods: FloatArray
    refusals: dict[int, dict[str, None]] = field(default_factory=dict)
    gpus: dict[int, tuple[int, int, str]] = field(default_factory=dict)  # (how many, thousandths of each, in words)


class _Draft:
    def __init__(self, session: Session, parts: Sequence[FitView], place: _Place, usable: FloatArray) -> None:
        self._session = session
        self._parts = parts
        self._place = place
        self._nodes = place.nodes
        self._left = usable[:, self._nodes].copy()  # below zero: what is lacking
        self._debt = np.maximum(-self._left, 0.0)  # of nodes that hold more than they have
        self._extra = _Extra(np.zeros(len(self._nodes)))
        self._order: dict[int, None] = {}  # positions in the order in which they were chosen
        self._first: Lack | None = None
        self._fits = self._beyond = self._homeless = 0

    def miss(self, models: Models) -> Miss:
        free = np.zeros(len(self._session.snapshot.axis))
        would = np.zeros(len(self._nodes), dtype=bool)
        for part in self._parts:
            would |= part.allowed[self._nodes]
        if len(self._nodes):
            free = np.maximum(self._left[:, would], 0.0).sum(axis=1)
        for part in sorted(self._parts, key=self._hardness, reverse=True):
            self._fill(part)
        chosen = self._extra.pods > 0
        short = np.where(chosen, np.maximum(-self._left, 0.0), 0.0)
        for column, (number, milli, _) in self._extra.gpus.items():
            row = next(part.group.shape.gpus[0].row for part in self._parts if part.group.shape.gpus)
            short[row, column] = max(short[row, column], number * milli)
        lacks = tuple(self._lack(column, short[:, column]) for column in itertools.islice(self._order, _MOST_NODES))
        return Miss(
            level=self._place.level,
            domain=self._place.domain,
            models=models,
            wanted=sum(part.count for part in self._parts),
            fits=self._fits,
            beyond=self._beyond,
            homeless=self._homeless,
            needs=sum((part.requests * part.count for part in self._parts), np.zeros(len(free))),
            free=free,
            total=short.sum(axis=1),
            lacks=lacks,
            nodes=len(self._order),
            first=self._first,
        )

    def _hardness(self, part: FitView) -> float:
        total = self._session.snapshot.total
        counted = self._session.snapshot.axis.shared & (total > 0)
        share = part.requests[counted] / total[counted]
        return float(share.max()) if len(share) else 0.0

    def _lack(self, column: int, short: FloatArray) -> Lack:
        refusals = tuple(self._extra.refusals.get(column, ()))
        gpus, _, each = self._extra.gpus.get(column, (0, 0, ""))
        return Lack(int(self._nodes[column]), int(self._extra.pods[column]), short, refusals, gpus, each)

    def _fill(self, part: FitView) -> None:
        """As many as fit, on the tightest nodes first; the rest where least is lacking."""
        if not len(self._nodes):
            self._beyond += part.count
            self._homeless += part.count
            return
        room = np.minimum(capacity(part.requests, self._left), part.now[self._nodes])
        order = np.argsort(room, kind="stable")
        order = order[room[order] > 0]
        ends = np.minimum(np.cumsum(room[order]), part.count)
        taken = np.diff(ends, prepend=0.0)
        counts = np.zeros(len(self._nodes))
        counts[order] = taken
        self._left -= np.outer(part.requests, counts)
        fits = int(counts.sum())
        self._fits += fits
        if fits < part.count:
            self._add(part, counts, part.count - fits)

    def _add(self, part: FitView, have: FloatArray, missing: int) -> None:
        """Pods that found no room go where least is lacking for them, tier by tier."""
        openings = _Openings(self._session, part, self._nodes)
        for _ in range(_MOST_ROUNDS):
            can = openings.open & (have < 1) if part.group.shape.is_one_per_node else openings.open
            if missing <= 0 or not can.any():
                break
            is_small = have >= openings.largest
            tier = np.where(can, is_small * (1e6 + openings.is_bare * 1e3) + openings.refused, np.inf)
            left = np.maximum(self._left[openings.rows], 0.0)
            debt = np.where(self._extra.pods > 0, 0.0, self._debt[openings.rows])
            cost = (np.maximum(openings.asked - left + debt, 0.0) / openings.asked).sum(axis=0)
            here = np.flatnonzero(tier == tier.min())
            here = here[np.argsort(cost[here], kind="stable")]
            batch = self._batch(left[:, here], openings.asked, (openings.largest - have)[here])
            if not part.group.shape.is_one_per_node:
                batch[is_small[here]] = missing  # to enlarge one node is less to say than to enlarge several
            taken = np.diff(np.minimum(np.cumsum(batch), missing), prepend=0.0)
            here, taken = here[taken > 0], taken[taken > 0]
            self._take(part, openings, here, taken)
            have = have.copy()
            have[here] += taken
            self._beyond += int(taken[is_small[here]].sum())
            missing -= int(taken.sum())
        self._beyond += missing
        self._homeless += missing

    def _take(self, part: FitView, openings: "_Openings", here: IntArray, taken: FloatArray) -> None:
        """So many pods of the part go to these nodes, although there is no room for them."""
        if self._first is None:
            self._first = self._for_one(part, openings, int(here[0]))
        self._left[:, here] -= np.outer(part.requests, taken)
        self._extra.pods[here] += taken
        self._order.update(dict.fromkeys(here.tolist()))
        for column, count in zip(here[:_MOST_NODES].tolist(), taken.tolist(), strict=False):
            node = int(self._nodes[column])
            self._extra.refusals.setdefault(column, {}).update(dict.fromkeys(openings.objections_of(node)))
            number, milli = part.gpus_for(node, int(count), is_first=column not in self._extra.gpus)
            if number:
                had, most, each = self._extra.gpus.get(column, (0, 0, ""))
                each = part.each_gpu(milli) if milli > most else each
                self._extra.gpus[column] = (had + number, max(most, milli), each)

    def _batch(self, left: FloatArray, asked: FloatArray, most: FloatArray) -> FloatArray:
        """How many more pods each node could take before it lacks more for the next than for the first of them."""
        room = np.where(left >= asked, np.floor(left / asked), np.where(left > 0, 1.0, np.inf)).min(axis=0)
        fewest: FloatArray = np.maximum(np.minimum(room, most), 1.0)
        return fewest

    def _for_one(self, part: FitView, openings: "_Openings", column: int) -> Lack:
        """What the node lacks for the first pod that found no room."""
        node = int(self._nodes[column])
        short = np.where(part.requests > 0, np.maximum(part.requests - self._left[:, column], 0.0), 0.0)
        number, milli = part.gpus_for(node, 1, is_first=True)
        return Lack(node, 1, short, openings.objections_of(node), number, part.each_gpu(milli) if number else "")


class _Openings:
    """Nodes where pods of a part might go if there were room: those that let them, or would after the least change."""

    def __init__(self, session: Session, part: FitView, nodes: IntArray) -> None:
        lifted = part.lift(nodes)
        open_ = all_pass([check for check in part.checks if not is_in(check, lifted)], len(part.now))[nodes]
        if not open_.any():
            open_ = np.ones(len(nodes), dtype=bool)
            lifted = tuple(part.checks)
        suited = open_ & part.suited[nodes]
        self.open: BoolArray = suited if suited.any() else open_
        self._objections = [check for check in (*lifted, *part.pod_checks) if not check.passes[nodes].all()]
        # How many objections each node has.
        self.refused: FloatArray = np.zeros(len(nodes))
        for check in self._objections:
            self.refused += ~check.passes[nodes]
        self.largest = part.largest[nodes]  # pods that it could hold if it were empty
        self.rows = np.flatnonzero(part.requests)
        self.asked = part.requests[self.rows, None]
        # A node that would have to be larger should at least have some of everything.
        self.is_bare: BoolArray = np.any(session.snapshot.nodes.allocatable[np.ix_(self.rows, nodes)] <= 0, axis=0)

    def objections_of(self, node: int) -> tuple[str, ...]:
        return tuple(check.reason for check in self._objections if not check.passes[node])
