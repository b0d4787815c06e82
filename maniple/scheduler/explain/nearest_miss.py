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
from maniple.scheduler.explain.fit_view import FitView, memory_text, usable_room
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.framework.capacity import capacity
from maniple.scheduler.framework.hooks import Check
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


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    snapshot: Snapshot
    level: str  # of the chosen domain; empty: the gang may be anywhere
    domain: str
    models: Models
    wanted: int  # pods
    fits: int  # how many of them fit now
    beyond: int  # how many would need larger nodes, or more of them
    needs: FloatArray  # [R] what all of them ask for
    free: FloatArray  # [R] what is free there, on nodes that would take them
    total: FloatArray  # [R] what is lacking in all
    lacks: tuple[Lack, ...]  # in the order in which the nodes were chosen: those that lack least first
    is_complete: bool  # whether `lacks` has every pod that does not fit
    first: Lack | None  # what the nearest node lacks for one more pod
    gpu_rows: tuple[int, ...]

    @property
    def missing(self) -> int:
        return self.wanted - self.fits


def find_miss(session: Session, job: Job, wanted: Mapping[TaskGroup, int], *, later: bool = False) -> Miss:
    """`wanted`: the pods of each group that the gang needs to start. `later`: when all leaving pods have left."""
    usable = usable_room(session, later=later)
    drafts = [
        _Draft(session, job, wanted, models, usable, later=later)
        for models in itertools.islice(_model_choices(session, job, wanted), _MOST_MODELS)
    ]
    return min(drafts, key=lambda draft: draft.distance).miss()


def nearest_of(session: Session, holders: Holders, claimant: Job, miss: Miss) -> Nearest | None:
    """The miss as the plan shows it, with the jobs that hold what is lacking; None if nothing is."""
    if not miss.missing:
        return None
    axis = session.snapshot.axis
    parts = _parts(miss.total, miss.needs)
    row = int(np.argmax(parts))
    is_short = bool(parts[row] > 0)
    place, free, needs, lacks = "cluster", float(miss.free[row]), float(miss.needs[row]), float(miss.total[row])
    if miss.level:
        place = f"{miss.level} {miss.domain}"
    elif miss.wanted == 1 and miss.lacks:
        place, free = f"node {session.snapshot.nodes.names[miss.lacks[0].node]}", max(0.0, needs - lacks)
    if not np.isfinite(free):
        free = max(0.0, needs - lacks)  # a node without a limit on it is of no use here
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
        self,
        session: Session,
        job: Job,
        wanted: Mapping[TaskGroup, int],
        models: Models,
        usable: FloatArray,
        *,
        later: bool,
    ) -> None:
        self._session, self._models, self._usable = session, models, usable
        scope = Scope(models=models)
        self._counts = {
            FitView(session, group, scope.model_of(group), later=later): count
            for group, count in wanted.items()
            if count
        }
        total = session.snapshot.total
        self._needs = sum((view.requests * count for view, count in self._counts.items()), np.zeros(len(total)))
        self._allowed = np.any([np.zeros(usable.shape[1], bool), *(view.allowed for view in self._counts)], axis=0)
        self._fits = self._beyond = self._unnamed = 0
        self._lacks: dict[int, Lack] = {}  # by position among the nodes, in the order in which they were chosen
        self._first: Lack | None = None
        # Where some pods share GPUs, it matters for all which ones stay whole.
        self._counts_gpus = any(session.gpus.is_counted(view.group.shape) for view in self._counts)
        self._choose_domain(job)

    def _choose_domain(self, job: Job) -> None:
        snapshot = self._session.snapshot
        level = snapshot.domains.levels.get(job.required)
        if level is not None and not level.names:
            level = None

        def by_place(values: FloatArray) -> FloatArray:
            return values.sum(keepdims=True) if level is None else by_domain(level, values)

        # The resource of which the gang asks for the largest part of the cluster.
        row = int(np.argmax(_parts(self._needs, np.maximum(snapshot.total, 1.0) * snapshot.axis.shared)))
        spare = np.where(self._allowed, np.maximum(self._usable[row], 0.0), 0.0)
        free = np.minimum(by_place(spare) / max(1.0, self._needs[row]), 1.0)
        ratio, is_able = np.ones(len(free)), np.ones(len(free), dtype=bool)
        for view, count in self._counts.items():
            ratio = np.minimum(ratio, by_place(view.now) / count)
            is_able &= by_place(view.empty) >= count
        home = None if level is None else home_of(level, members_of(self._session, job))
        best = int(np.lexsort((-free, -ratio, ~is_able))[0]) if home is None or home < 0 else home
        self.distance = (not is_able[best], -float(ratio[best]), -float(free[best]))
        self._level, self._domain = ("", "") if level is None else (level.name, level.names[best])
        self._nodes: IntArray = np.arange(len(snapshot.nodes), dtype=np.intp)
        if level is not None:
            self._nodes = np.flatnonzero(level.codes == best)

    def miss(self) -> Miss:
        self._left = self._usable[:, self._nodes].copy()  # below zero: what is lacking
        self._debt = np.maximum(-self._left, 0.0)  # of nodes that hold more than they have
        self._extra = np.zeros(len(self._nodes))  # pods that found no room
        free = np.maximum(self._left[:, self._allowed[self._nodes]], 0.0).sum(axis=1)
        for view in sorted(self._counts, key=self._hardness, reverse=True):
            self._fill(view)
        short = np.where(self._extra > 0, np.maximum(-self._left, 0.0), 0.0)
        gpu_rows = tuple(ask.row for view in self._counts for ask in view.group.shape.gpus[:1])
        for column, lack in self._lacks.items():
            if lack.gpus:
                short[gpu_rows[0], column] = max(short[gpu_rows[0], column], lack.gpus * lack.milli)
            lack.pods, lack.amounts = int(self._extra[column]), short[:, column]
        lacks = tuple(itertools.islice(self._lacks.values(), _MOST_NODES))
        return Miss(
            snapshot=self._session.snapshot,
            level=self._level,
            domain=self._domain,
            models=self._models,
            wanted=sum(self._counts.values()),
            fits=self._fits,
            beyond=self._beyond,
            needs=self._needs,
            free=free,
            total=short.sum(axis=1),
            lacks=lacks,
            is_complete=not self._unnamed and int((self._extra > 0).sum()) <= len(lacks),
            first=self._first,
            gpu_rows=gpu_rows,
        )

    def _hardness(self, view: FitView) -> float:
        snapshot = self._session.snapshot
        return float(_parts(view.requests, snapshot.total * snapshot.axis.shared).max())

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
        self._fits += fits
        missing = self._add(view, placed, count - fits) if len(self._nodes) and fits < count else count - fits
        self._beyond += missing
        self._unnamed += missing

    def _add(self, view: FitView, placed: FloatArray, missing: int) -> int:
        """Adds pods where least is lacking for them, tier by tier; returns how many find no node even so."""
        is_open, objections = view.openings(self._nodes, self._counts[view])
        refused = sum((~check.passes[self._nodes] for check in objections), np.zeros(len(self._nodes)))
        largest = view.largest[self._nodes]
        rows = np.flatnonzero(view.requests)
        asked = view.requests[rows, None]
        # A node that would have to be larger should at least have some of everything.
        allocatable = self._session.snapshot.nodes.allocatable
        is_bare = np.any(allocatable[np.ix_(rows, self._nodes)] <= 0, axis=0)
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
            self._beyond += int(taken[is_small[here]].sum())
            missing -= int(taken.sum())
        return missing

    def _take(self, view: FitView, objections: Sequence[Check], here: IntArray, taken: FloatArray) -> None:
        """So many pods go to these nodes, although there is no room for them."""
        if self._first is None:
            short = np.where(view.requests > 0, np.maximum(view.requests - self._left[:, here[0]], 0.0), 0.0)
            self._first = Lack(int(self._nodes[here[0]]), 1, short)
            self._write_down(self._first, view, objections, 1)
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
