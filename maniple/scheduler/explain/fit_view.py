"""How the nodes look to the pods of one group that a gang needs: where they fit, would fit, or are refused."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.quantity import format_quantity
from maniple.api.types import GpuModel
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.hooks import Check
from maniple.scheduler.framework.node_capacity import capacity
from maniple.scheduler.framework.session import Session

_MOST_PATTERNS = 24  # sets of objections, each of some nodes, that are lifted one by one and in pairs

Models = Mapping[tuple[GpuModel, ...], int]  # which model each list of models stands for


def usable_room(session: Session, *, later: bool = False) -> FloatArray:
    """[R, N] what a gang may use: promises and reservations are kept."""
    usable = session.future if later else np.minimum(session.free, session.future)
    mask, spare = session.reserved.mask, session.reserved.spare
    return usable if mask is None or spare is None else np.where(mask, np.minimum(usable, spare), usable)


class FitView:
    """How every node looks to `count` pods of a group; `usable`: what they may use there (usable_room)."""

    def __init__(
        self,
        session: Session,
        group: TaskGroup,
        count: int,
        usable: FloatArray,
        models: Models | None = None,
        *,
        later: bool = False,
    ) -> None:
        self.group, self.count = group, count
        self.counts_gpus = False  # whether its GPUs are looked at one by one
        shape = group.shape
        self.requests = shape.requests
        model = models.get(shape.constraint.gpu_models) if models and shape.gpus else None
        self.now = session.room_for(group, later=later, model=model, is_next=True)
        self.checks = session.capacity.checks(group)
        self.pod_checks = session.pod_checks(group)
        self._gpus, self._usable, self._later, self._model = session.gpus, usable, later, model
        # Where GPUs are of the model that was chosen.
        self.suited: BoolArray = np.ones(len(self.now), dtype=bool)
        if model is not None:
            self.suited = session.gpus.has_model(shape, model)
        # If nothing were running and no node objected.
        self.largest = self._limited(session.snapshot.nodes.allocatable, empty=True)
        self.allowed = all_pass(self.checks, len(self.now))
        self.empty: FloatArray = np.where(self.allowed, self.largest, 0.0)

    def unrefused(self) -> FloatArray:
        """Pods that would fit now if no node objected."""
        return self._limited(self._usable, empty=False)

    def _limited(self, free: FloatArray, *, empty: bool) -> FloatArray:
        """Pods that fit into what is free, on GPUs of the right model and one by one where they are counted so."""
        shape = self.group.shape
        room = np.where(self.suited, capacity(self.requests, free), 0.0)
        if self._gpus.is_counted(shape):
            later = self._later and not empty
            devices = self._gpus.fits(shape, None, free, later=later, empty=empty, model=self._model)
            room = np.minimum(room, devices)
        return np.minimum(room, 1.0) if shape.is_one_per_node else room

    def gpus_for(self, node: int, count: int, *, is_first: bool) -> tuple[int, int]:
        """(GPUs that the node would need beside those it has for so many pods more, thousandths of each); (0, 0) where
        amounts say it all. What is left of GPUs in use is not counted on, but what is free of whole ones is, once.
        """
        shape = self.group.shape
        if not self.counts_gpus:
            return 0, 0
        ask = shape.gpus[0]
        milli = ask.milli
        if ask.memory:
            shares = self._gpus.tables[ask.row].milli_for(ask.memory, np.array([node]))[0]
            milli = min(WHOLE, int(shares.min(initial=WHOLE)))
        number = ask.count * -(-count // max(1, WHOLE // max(milli, 1)))
        if ask.is_whole and is_first:
            free = int((self._gpus.usable(ask.row, np.array([node]))[0] >= WHOLE).sum())
            number -= min(free % ask.count, number)
        return number, milli

    def each_gpu(self, milli: int) -> str:
        """What each of them must be like, in words."""
        shape = self.group.shape
        kinds = " or ".join(entry.model for entry in shape.constraint.gpu_models)
        share = "all" if milli == WHOLE else f"{milli / WHOLE:g}"
        if shape.gpus[0].memory:
            share = format_quantity(shape.gpus[0].memory, per_unit=1, binary=True)
        return f"{f' of {kinds}' * bool(kinds)} with {share} of it free"

    def lift(self, nodes: IntArray) -> tuple[Check, ...]:
        """The fewest objections without which the pods would have a place on these nodes, now or if they were empty.

        None where there are places enough without that, or too few even then. What is lifted must be all that some
        nodes object to, else it opens none: so the objections of nodes, and of pairs of them, are all that is tried.
        """
        failing = [check for check in self.checks if not check.passes[nodes].all()]
        if not failing or float(self.empty[nodes].sum()) >= self.count:
            return ()
        patterns, which = np.unique([~check.passes[nodes] for check in failing], axis=1, return_inverse=True)
        rooms = [np.bincount(which, weights=room[nodes]) for room in (self.unrefused(), self.largest)]
        single = sorted(patterns.T.tolist(), key=sum)[:_MOST_PATTERNS]
        tried = [*single, *(np.logical_or(*pair).tolist() for pair in itertools.combinations(single, 2))]
        for lifted in sorted([*tried, [True] * len(failing)], key=sum):
            opened = ~(patterns & ~np.array(lifted)[:, None]).any(axis=0)
            if any(float(room[opened].sum()) >= self.count for room in rooms):
                return tuple(check for check, is_lifted in zip(failing, lifted, strict=True) if is_lifted)
        return ()


def is_in(check: Check, lifted: Sequence[Check]) -> bool:
    """By identity: arrays are not compared for a verdict."""
    return any(other is check for other in lifted)


def all_pass(checks: Sequence[Check], count: int) -> BoolArray:
    passes = np.ones(count, dtype=bool)
    for check in checks:
        passes &= check.passes
    return passes
