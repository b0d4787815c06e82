"""The nearest miss: where a gang that does not fit lacks least, and what each node there lacks.

The gang is placed in thought. Pods that fit take their places. Every further pod goes to the node that lacks least for
it, and what the node lacks is written down. No node is asked for more than it has: pods that an empty cluster could not
hold need new nodes, which are written down too. All of that together is a change after which the gang fits. It costs a
few passes over the nodes, whatever the number of pods.

Pods that constrain each other (affinity, spread) are counted as if each came alone: the change may not be enough.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.types import GpuModel
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.model.snapshot import Snapshot
from maniple.model.topology_domains import Level
from maniple.scheduler.explain.fit_view import FitView, alike_together, lacking_room, memory_text
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.framework.hooks import Check
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.plan import Nearest
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import Scope, by_domain, home_of, members_of

_EPSILON = 1e-9
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
    part: str = ""  # … in words; empty: all of it
    models: str = ""  # those they may be of; empty: any


@dataclass(frozen=True, slots=True, eq=False)
class NewNodes:
    """Nodes that would have to be added."""

    count: int
    pods: int  # that they would take
    like: int  # the node that they are like; -1: they only have to take a pod of that kind
    larger: FloatArray  # [R] what each needs where that is more than the other node has
    refusals: tuple[str, ...]  # what the other node objects to
    asks: str  # what one pod asks for; empty: not all the same
    is_instead: bool = False  # whether that node itself would have to be so large


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
    lacks: tuple[Lack, ...] = ()  # of nodes that could hold more, those that lack least first
    is_complete: bool = True  # whether `lacks` has every pod that could be on a node that is there
    new: tuple[NewNodes, ...] = ()
    near: int = -1  # the node that comes nearest for one more pod
    is_one_node: bool = False  # whether domains of that level are single nodes

    @property
    def missing(self) -> int:
        return self.wanted - self.fits


def find_miss(session: Session, job: Job, wanted: Mapping[TaskGroup, int], *, later: bool = False) -> Miss:
    """`wanted`: the pods of each group that the gang needs to start. `later`: when all leaving pods have left."""
    wanted = alike_together(session, wanted)
    choices = itertools.islice(_model_choices(session, job, wanted), _MOST_MODELS)
    drafts = [_Draft(session, job, wanted, models, later) for models in choices]
    return min(drafts, key=lambda draft: draft.distance).miss()


def nearest_of(session: Session, holders: Holders, claimant: Job, miss: Miss) -> Nearest | None:
    """The miss as the plan shows it, with the jobs that hold what is lacking; None if nothing is."""
    if not miss.missing:
        return None
    axis = session.snapshot.axis
    parts = _parts(miss.lacking, miss.needs)
    # Of equal parts that of GPUs, which come after CPU and memory, says most.
    row = int(np.flatnonzero(parts >= parts.max() - _EPSILON)[-1])
    is_short = bool(parts[row] > 0)
    place, free, needs, lacks = "cluster", float(miss.free[row]), float(miss.needs[row]), float(miss.lacking[row])
    if miss.level:
        place = f"{miss.level} {miss.domain}"
    elif miss.wanted == 1 and miss.near >= 0:
        place, free = f"node {session.snapshot.nodes.names[miss.near]}", max(0.0, needs - lacks)
    if not np.isfinite(free):
        free = max(0.0, needs - lacks)  # a node without a limit on it is of no use here
    nodes = [lack.node for lack in miss.lacks if is_short and lack.amounts[row] > 0]
    held_by, others = holders.of_resource(claimant, row, nodes, lacks)
    text_needs, text_free, text_lacks = (axis.text(row, amount) if is_short else "" for amount in (needs, free, lacks))
    refusals = [reason for lack in miss.lacks for reason in lack.refusals]
    refusals += [reason for new in miss.new for reason in new.refusals]
    return Nearest(
        place=place,
        pods=miss.wanted,
        fits=miss.fits,
        resource=axis.names[row] if is_short else "",
        needs=text_needs,
        free=text_free,
        lacks=text_lacks,
        is_scattered=is_short and free + lacks > needs,
        refusals=tuple(dict.fromkeys(refusals))[:_MOST_REFUSALS],
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
        usable = lacking_room(session, later=later)
        allowed = np.any([np.zeros(usable.shape[1], dtype=bool), *(view.allowed for view in self._counts)], axis=0)
        needs = sum((view.requests * count for view, count in self._counts.items()), np.zeros(len(usable)))
        # The resource of which the gang asks for the largest part of the cluster.
        row = int(np.argmax(_parts(needs, np.maximum(self._snapshot.total, 1.0) * self._snapshot.axis.shared)))
        spare = np.where(allowed, np.maximum(usable[row], 0.0), 0.0)
        level, domain = self._choose_domain(job, spare, float(needs[row]))
        self._nodes: IntArray = np.flatnonzero(level.codes == domain) if level else np.arange(usable.shape[1])
        self._left = usable[:, self._nodes]  # below zero: what is lacking
        self._debt = np.maximum(-self._left, 0.0)  # of nodes that hold more than they have
        self._whole = self._without_others(job)  # what could be free for the gang
        self._extra = np.zeros(len(self._nodes))  # pods that found no room
        self._new: list[NewNodes] = []
        self._on_new = np.zeros(len(usable))  # what is lacking for pods on new nodes
        self._asked_of_new = np.zeros(len(usable))
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
            is_one_node=level is not None and int(np.bincount(level.codes[level.codes >= 0]).max()) == 1,
        )
        self._has_members = bool(session.state(job).nodes)

    def _without_others(self, job: Job) -> FloatArray:
        """[R, n] what the nodes have, less what the gang's own pods hold."""
        whole = self._snapshot.nodes.allocatable[:, self._nodes].copy()
        state = self._session.state(job)
        for pod in job.placed:
            if pod.pod not in state.evicted:
                whole[:, self._nodes == pod.node] -= pod.requests[:, None]
        for placed in self._session.placed if any(state.cursor.values()) else ():
            if placed.job is job:
                counts = np.bincount(placed.spot.nodes, placed.spot.counts, minlength=len(self._snapshot.nodes))
                whole -= np.outer(placed.group.shape.requests, counts[self._nodes])
        return whole

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
        miss.lacking = short.sum(axis=1) + self._on_new
        miss.lacks = tuple(itertools.islice(self._lacks.values(), _MOST_NODES))
        miss.is_complete &= int((self._extra > 0).sum()) <= len(miss.lacks)
        miss.new = tuple(self._new)
        if miss.new and miss.is_one_node:
            miss.lacks, miss.is_complete, miss.new = (), True, (self._larger_node(),)
        return miss

    def _larger_node(self) -> NewNodes:
        """A node for the whole gang, which must be on one."""
        node = int(self._nodes[0])
        has, asked = self._snapshot.nodes.allocatable[:, node], self._miss.needs.copy()
        whole = np.zeros(len(asked))  # GPUs that the pods need if they share none with others
        for view, count in self._counts.items():
            for ask in view.group.shape.gpus:
                whole[ask.row] += ask.count * -(-count // max(1, WHOLE // max(ask.milli, 1))) * WHOLE
        if self._has_members:
            more = np.maximum(self._asked_of_new - self._left[:, 0], 0.0)
            more = np.where((more > 0) & (whole > 0), whole, more)
            larger = np.where((more > 0) & np.isfinite(has), has + more, 0.0)
            return NewNodes(1, self._miss.wanted, node, larger, (), "", is_instead=True)
        if any(new.like < 0 for new in self._new):  # no GPUs here, or not such ones: their number would say too little
            asks = {view.asks for view in self._counts}
            return NewNodes(1, self._miss.wanted, -1, asked, (), asks.pop() if len(asks) == 1 else "")
        asked = np.maximum(asked, whole)
        refusals = tuple(dict.fromkeys(reason for new in self._new for reason in new.refusals))
        return NewNodes(1, self._miss.wanted, node, np.where(asked > has, asked, 0.0), refusals, "")

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
        self._whole -= np.outer(view.requests, placed)
        fits = int(placed.sum())
        self._miss.fits += fits
        if fits == count:
            return
        if len(self._nodes):
            self._add(view, placed, count - fits)
        else:
            self._add_nodes(view, -1, count - fits, ())

    def _add(self, view: FitView, placed: FloatArray, missing: int) -> None:
        """Adds pods where least is lacking for them, and on new nodes if those there are too small or too few."""
        is_open, objections = view.openings(self._nodes, self._counts[view])
        refused = sum((~check.passes[self._nodes] for check in objections), np.zeros(len(self._nodes)))
        largest = view.largest[self._nodes]
        rows = np.flatnonzero(view.requests)
        asked = view.requests[rows, None]
        for _ in range(_MOST_ROUNDS):
            most = np.minimum(largest - placed, capacity(view.requests, np.maximum(self._whole, 0.0)))
            can = is_open & (most >= 1)
            if missing <= 0 or not can.any():
                break
            tier = np.where(can, refused, np.inf)
            here = np.flatnonzero(tier == tier.min())
            cost = self._cost(rows, asked, here)
            here = here[np.argsort(cost, kind="stable")]
            # How many more pods each node could take before it lacks more for the next than for the first of them.
            free = np.maximum(self._left[np.ix_(rows, here)], 0.0)
            batch = np.where(free >= asked, np.floor(free / asked), np.where(free > 0, 1.0, np.inf)).min(
                axis=0, initial=np.inf
            )
            batch = np.maximum(np.minimum(batch, most[here]), 1.0)
            taken = np.diff(np.minimum(np.cumsum(batch), missing), prepend=0.0)
            here, taken = here[taken > 0], taken[taken > 0]
            self._take(view, objections, here, taken)
            placed[here] += taken
            missing -= int(taken.sum())
        if missing > 0 and can.any():
            self._miss.is_complete = False
        elif missing > 0:
            rules = [check for check in objections if not any(check is other for other in view.pod_checks)]
            self._enlarge(view, np.flatnonzero(is_open), rules, missing)

    def _cost(self, rows: IntArray, asked: FloatArray, here: IntArray) -> FloatArray:
        """What the nodes lack for one more pod, as parts of what it asks for."""
        left = np.maximum(self._left[np.ix_(rows, here)], 0.0)
        debt = np.where(self._extra[here] > 0, 0.0, self._debt[np.ix_(rows, here)])
        lacking: FloatArray = (np.maximum(asked - left + debt, 0.0) / asked).sum(axis=0)
        return lacking

    def _enlarge(self, view: FitView, columns: IntArray, rules: Sequence[Check], missing: int) -> None:
        """The pods go to new nodes: like one that takes such pods, or else like the one that comes nearest to that."""
        nodes = self._nodes[columns]
        refused = sum((~check.passes[nodes] for check in rules), np.zeros(len(nodes)))
        size = view.largest[nodes]
        rows = np.flatnonzero(view.requests)
        is_bare = np.any(self._snapshot.nodes.allocatable[np.ix_(rows, nodes)] <= 0, axis=0)
        cost = self._cost(rows, view.requests[rows, None], columns)
        number = np.ceil(missing / np.maximum(size, 1.0))
        best = int(np.lexsort((cost, size, number, is_bare, refused, size < 1))[0])
        self._add_nodes(view, int(columns[best]), missing, rules)

    def _add_nodes(self, view: FitView, column: int, pods: int, rules: Sequence[Check]) -> None:
        """New nodes for so many pods, like the node of that column; -1: there is none."""
        node = int(self._nodes[column]) if column >= 0 else -1
        larger = np.zeros(len(view.requests))
        refusals = tuple(dict.fromkeys(check.reason for check in rules if not check.passes[node]))
        self._on_new += view.requests * pods
        self._asked_of_new += view.requests * pods
        count = pods
        if node >= 0 and self._miss.near < 0:
            self._miss.near = node
        if node >= 0 and view.largest[node] >= 1:
            count = -(-pods // int(min(pods, view.largest[node])))
        elif node >= 0:
            asked = view.requests.copy()
            for ask in view.group.shape.gpus:
                asked[ask.row] = ask.count * WHOLE
            larger = np.where(asked > self._snapshot.nodes.allocatable[:, node], asked, 0.0)
            if larger.any() and view.knows_gpus(node):
                self._on_new -= np.minimum(view.requests, np.maximum(self._left[:, column], 0.0))
            else:
                node = -1  # such as GPUs with too little memory
        self._new.append(NewNodes(count, pods, node, larger, refusals, view.asks))

    def _take(self, view: FitView, objections: Sequence[Check], here: IntArray, taken: FloatArray) -> None:
        """So many pods go to these nodes, although there is no room for them."""
        if self._miss.near < 0:
            self._miss.near = int(self._nodes[here[0]])
        self._left[:, here] -= np.outer(view.requests, taken)
        self._whole[:, here] -= np.outer(view.requests, taken)
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
            lack.milli, lack.part = milli, "" if milli == WHOLE else f"{milli / WHOLE:g}"
            if ask.memory:
                lack.part = memory_text(ask.memory)
            lack.models = " or ".join(entry.model for entry in view.group.shape.constraint.gpu_models)
