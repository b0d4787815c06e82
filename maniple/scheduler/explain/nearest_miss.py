"""The nearest miss: where a gang that does not fit lacks least, and what each node there lacks.

The gang is placed in thought. Pods that fit take their places. Every further pod goes to the node that lacks least for
it, and what the node lacks is written down. All of that together is a change after which the gang fits. It costs a few
passes over the nodes, whatever the number of pods.

Pods that constrain each other (affinity, spread) are counted as if each came alone: the change may not be enough.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.types import GpuModel
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_shape import Shape
from maniple.model.resources import FloatArray, IntArray
from maniple.model.snapshot import Snapshot
from maniple.model.topology_domains import Level
from maniple.scheduler.explain.fit_view import FitView, memory_text, usable_room
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.framework.hooks import Check
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.plan import Nearest
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import Scope, by_domain, home_of, members_of

_MOST_NODES = 16  # whose lacks are written down one by one
_MOST_ROUNDS = 8  # over the nodes, until the rest is only counted
_MOST_REFUSALS = 5  # that are shown
_MOST_MODELS = 8  # ways to choose GPU models

Models = Mapping[tuple[GpuModel, ...], int]  # list of models -> the one model for its pods


@dataclass(slots=True, eq=False)
class Lack:
    """What one node lacks to take so many pods more than it could now."""

    node: int
    pods: int
    amounts: FloatArray  # [R]
    refusals: tuple[str, ...] = ()  # what it objects to
    gpus: int = 0  # where GPUs are counted one by one: how many more …
    milli: int = 0  # … with how many thousandths of each free …
    each: str = ""  # … in words


@dataclass(slots=True, eq=False)
class Miss:
    snapshot: Snapshot
    models: Models
    level: str  # of the chosen domain; empty: the gang may be anywhere
    domain: str
    wanted: int  # pods
    needs: FloatArray  # [R] what all of them ask for
    free: FloatArray  # [R] what is free there, on nodes that would take them
    lacking: FloatArray  # [R] what is lacking in all
    gpu_rows: tuple[int, ...]
    fits: int = 0  # how many of the pods fit now
    beyond: int = 0  # how many would need larger nodes, or more of them
    lacks: tuple[Lack, ...] = ()  # those nodes that lack least first
    is_complete: bool = True  # whether `lacks` has every pod that does not fit
    first: Lack | None = None  # what the nearest node lacks for one more pod

    @property
    def missing(self) -> int:
        return self.wanted - self.fits


def find_miss(session: Session, job: Job, wanted: Mapping[TaskGroup, int], *, later: bool = False) -> Miss:
    """`wanted`: the pods of each group that the gang needs to start. `later`: when all leaving pods have left."""
    choices = itertools.islice(_model_choices(session, job, wanted), _MOST_MODELS)
    drafts = [_Draft(session, job, wanted, models, later) for models in choices]
    return min(drafts, key=lambda draft: draft.distance).miss()


def nearest_of(session: Session, holders: Holders, claimant: Job, miss: Miss) -> Nearest | None:
    """The miss as the plan shows it, with the jobs that hold what is lacking; None if nothing is."""
    if not miss.missing:
        return None
    axis = session.snapshot.axis
    parts = _parts(miss.lacking, miss.needs)
    row = int(np.argmax(parts))
    is_short = bool(parts[row] > 0)
    place, free, needs, lacks = "cluster", float(miss.free[row]), float(miss.needs[row]), float(miss.lacking[row])
    if miss.level:
        place = f"{miss.level} {miss.domain}"
    elif miss.wanted == 1 and miss.lacks:
        place, free = f"node {session.snapshot.nodes.names[miss.lacks[0].node]}", max(0.0, needs - lacks)
    if not np.isfinite(free):
        free = max(0.0, needs - lacks)  # a node without a limit on it is of no use here
    nodes = [lack.node for lack in miss.lacks if is_short and lack.amounts[row] > 0]
    held_by, others = holders.of_resource(claimant, row, nodes, lacks)
    text_needs, text_free, text_lacks = (axis.text(row, amount) if is_short else "" for amount in (needs, free, lacks))
    return Nearest(
        place=place,
        pods=miss.wanted,
        fits=miss.fits,
        resource=axis.names[row] if is_short else "",
        needs=text_needs,
        free=text_free,
        lacks=text_lacks,
        is_scattered=is_short and free + lacks > needs,
        refusals=tuple(dict.fromkeys(reason for lack in miss.lacks for reason in lack.refusals))[:_MOST_REFUSALS],
        held_by=held_by,
        others=others,
    )


def _parts(amounts: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(amounts, whole, out=np.zeros(len(whole)), where=whole > 0)


def member_models(session: Session, job: Job, models: tuple[GpuModel, ...]) -> list[int]:
    """The models that pods of the job with this list of models are on."""
    return [code for code, count in session.state(job).models.get(models, {}).items() if count > 0]


def _model_choices(session: Session, job: Job, wanted: Mapping[TaskGroup, int]) -> Iterator[Models]:
    gpus = session.gpus
    if job.mixed_models or not gpus.is_mixed:
        yield {}
        return
    lists = {group.shape.constraint.gpu_models for group in wanted if group.shape.gpus}
    ordered = sorted(lists, key=lambda models: [entry.model for entry in models])
    choices = []
    for models in ordered:
        codes = gpus.allowed(models)
        choices.append(member_models(session, job, models)[:1] or (range(len(gpus.models)) if codes is None else codes))
    for chosen in itertools.product(*choices) if all(choices) else [()]:
        yield dict(zip(ordered, chosen, strict=False))


class _Draft:
    """The gang placed in thought: on these GPU models, in the domain that lacks least of those that could hold it."""

    def __init__(
        self, session: Session, job: Job, wanted: Mapping[TaskGroup, int], models: Models, later: bool
    ) -> None:
        self._session, self._snapshot = session, session.snapshot
        model_of = Scope(models=models).model_of
        views = {group: FitView(session, group, model_of(group), later=later) for group in wanted if wanted[group]}
        self._counts = {view: wanted[group] for group, view in views.items()}
        # Where some pods share GPUs, it matters for all which ones stay whole.
        self._counts_gpus = any(session.gpus.is_counted(view.group.shape) for view in self._counts)
        usable = usable_room(session, later=later)
        allowed = np.any([np.zeros(usable.shape[1], dtype=bool), *(view.allowed for view in self._counts)], axis=0)
        needs = sum((view.requests * count for view, count in self._counts.items()), np.zeros(len(usable)))
        # The resource of which the gang asks for the largest part of the cluster.
        row = int(np.argmax(_parts(needs, np.maximum(self._snapshot.total, 1.0) * self._snapshot.axis.shared)))
        spare = np.where(allowed, np.maximum(usable[row], 0.0), 0.0)
        level, domain = self._choose_domain(job, spare, float(needs[row]))
        self._nodes: IntArray = np.flatnonzero(level.codes == domain) if level else np.arange(usable.shape[1])
        self._left = usable[:, self._nodes]  # below zero: what is lacking
        self._debt = np.maximum(-self._left, 0.0)  # of nodes that hold more than they have
        self._extra = np.zeros(len(self._nodes))  # pods that found no room
        self._lacks: dict[int, Lack] = {}  # by position among the nodes, in the order in which they were chosen
        self._miss = Miss(
            snapshot=self._snapshot,
            models=models,
            level=level.name if level else "",
            domain=level.names[domain] if level else "",
            wanted=sum(self._counts.values()),
            needs=needs,
            free=np.maximum(self._left[:, allowed[self._nodes]], 0.0).sum(axis=1),
            lacking=np.zeros(len(usable)),
            gpu_rows=tuple(ask.row for view in self._counts for ask in view.group.shape.gpus[:1]),
        )

    def _choose_domain(self, job: Job, spare: FloatArray, asked: float) -> tuple[Level | None, int]:
        """`spare`: what is free on each node of the resource that is asked for most."""
        level = self._snapshot.domains.levels.get(job.required)
        if level is not None and not level.names:
            level = None

        def by_place(values: FloatArray) -> FloatArray:
            return values.sum(keepdims=True) if level is None else by_domain(level, values)

        free = np.minimum(by_place(spare), asked)
        ratio, is_able = np.ones(len(free)), np.ones(len(free), dtype=bool)
        for view, count in self._counts.items():
            ratio = np.minimum(ratio, by_place(view.now) / count)
            is_able &= by_place(view.empty) >= count
        home = None if level is None else home_of(level, members_of(self._session, job))
        best = int(np.lexsort((-free, -ratio, ~is_able))[0]) if home is None or home < 0 else home
        self.distance = (not is_able[best], -float(ratio[best]), -float(free[best]))
        return level, best

    def miss(self) -> Miss:
        for view in sorted(self._counts, key=self._hardness, reverse=True):
            self._fill(view)
        miss, short = self._miss, np.where(self._extra > 0, np.maximum(-self._left, 0.0), 0.0)
        for column, lack in self._lacks.items():
            if lack.gpus:
                row = miss.gpu_rows[0]
                short[row, column] = max(short[row, column], lack.gpus * lack.milli)
            lack.pods, lack.amounts = int(self._extra[column]), short[:, column]
        miss.lacking = short.sum(axis=1)
        miss.lacks = tuple(itertools.islice(self._lacks.values(), _MOST_NODES))
        miss.is_complete &= int((self._extra > 0).sum()) <= len(miss.lacks)
        return miss

    def _hardness(self, view: FitView) -> float:
        return float(_parts(view.requests, self._snapshot.total * self._snapshot.axis.shared).max())

    def _fill(self, view: FitView) -> None:
        """Places as many pods as fit, on the tightest nodes first, and the rest where least is lacking."""
        room = np.minimum(capacity(view.requests, self._left), view.now[self._nodes])
        order = np.argsort(room, kind="stable")
        order = order[room[order] > 0]
        count = self._counts[view]
        placed = np.zeros(len(self._nodes))
        placed[order] = np.diff(np.minimum(np.cumsum(room[order]), count), prepend=0.0)
        self._left -= np.outer(view.requests, placed)
        fits = int(placed.sum())
        self._miss.fits += fits
        missing = self._add(view, placed, count - fits) if len(self._nodes) and fits < count else count - fits
        self._miss.beyond += missing
        self._miss.is_complete &= not missing

    def _add(self, view: FitView, placed: FloatArray, missing: int) -> int:
        """Adds pods where least is lacking for them, tier by tier; returns how many find no node even so."""
        is_open, objections = view.openings(self._nodes, self._counts[view])
        refused = sum((~check.passes[self._nodes] for check in objections), np.zeros(len(self._nodes)))
        largest = view.largest[self._nodes]
        rows = np.flatnonzero(view.requests)
        asked = view.requests[rows, None]
        # A node that would have to be larger should at least have some of everything.
        is_bare = np.any(self._snapshot.nodes.allocatable[np.ix_(rows, self._nodes)] <= 0, axis=0)
        is_alone = view.group.shape.is_one_per_node
        for _ in range(_MOST_ROUNDS):
            can = is_open & (placed < 1) if is_alone else is_open
            if missing <= 0 or not can.any():
                break
            is_small = placed >= largest
            tier = np.where(can, is_small * (1e6 + is_bare * 1e3) + refused, np.inf)
            left = np.maximum(self._left[rows], 0.0)
            debt = np.where(self._extra > 0, 0.0, self._debt[rows])
            cost = (np.maximum(asked - left + debt, 0.0) / asked).sum(axis=0)
            here = np.flatnonzero(tier == tier.min())
            here = here[np.argsort(cost[here], kind="stable")]
            # How many more pods each node could take before it lacks more for the next than for the first of them.
            free = left[:, here]
            batch = np.where(free >= asked, np.floor(free / asked), np.where(free > 0, 1.0, np.inf)).min(axis=0)
            batch = np.maximum(np.minimum(batch, (largest - placed)[here]), 1.0)
            if not is_alone:
                batch[is_small[here]] = missing  # to enlarge one node is less to say than to enlarge several
            taken = np.diff(np.minimum(np.cumsum(batch), missing), prepend=0.0)
            here, taken = here[taken > 0], taken[taken > 0]
            self._take(view, objections, here, taken)
            placed[here] += taken
            self._miss.beyond += int(taken[is_small[here]].sum())
            missing -= int(taken.sum())
        return missing

    def _take(self, view: FitView, objections: Sequence[Check], here: IntArray, taken: FloatArray) -> None:
        """So many pods go to these nodes, although there is no room for them."""
        if self._miss.first is None:
            short = np.where(view.requests > 0, np.maximum(view.requests - self._left[:, here[0]], 0.0), 0.0)
            self._miss.first = Lack(int(self._nodes[here[0]]), 1, short)
            self._write_down(self._miss.first, view, objections, 1)
        self._left[:, here] -= np.outer(view.requests, taken)
        self._extra[here] += taken
        for column, count in zip(here[:_MOST_NODES].tolist(), taken.tolist(), strict=False):
            lack = self._lacks.setdefault(column, Lack(int(self._nodes[column]), 0, view.requests))
            self._write_down(lack, view, objections, int(count))

    def _write_down(self, lack: Lack, view: FitView, objections: Sequence[Check], count: int) -> None:
        """What the node objects to, and the GPUs that it lacks for so many more pods if those are counted."""
        reasons = (check.reason for check in objections if not check.passes[lack.node])
        lack.refusals = tuple(dict.fromkeys((*lack.refusals, *reasons)))
        if not self._counts_gpus or not view.group.shape.gpus:
            return
        gpus, ask, node = self._session.gpus, view.group.shape.gpus[0], np.array([lack.node])
        milli = ask.milli
        if ask.memory:
            milli = min(WHOLE, int(gpus.tables[ask.row].milli_for(ask.memory, node)[0].min(initial=WHOLE)))
        # What is left of GPUs in use does not count, but what is free of whole ones does, once.
        number = ask.count * -(-count // max(1, WHOLE // max(milli, 1)))
        if ask.is_whole and not lack.gpus:
            free = int((gpus.usable(ask.row, node)[0] >= WHOLE).sum())
            number -= min(free % ask.count, number)
        lack.gpus += number
        if number and milli > lack.milli:
            lack.milli, lack.each = milli, _each_gpu(view.group.shape, milli)


def _each_gpu(shape: Shape, milli: int) -> str:
    """What each lacking GPU must be like."""
    models = " or ".join(entry.model for entry in shape.constraint.gpu_models)
    free = "all" if milli == WHOLE else f"{milli / WHOLE:g}"
    if shape.gpus[0].memory:
        free = memory_text(shape.gpus[0].memory)
    return f"{f' of {models}' * bool(models)} with {free} of it free"
