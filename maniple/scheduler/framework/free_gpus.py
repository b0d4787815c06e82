"""The GPUs of a session: how many pods fit on the devices of each node, and which devices a pod gets.

The resource vector counts whole, unshared GPUs exactly. Devices are counted one by one only where it does not: where
pods hold or ask for shares of a GPU, where a node has unlike GPUs, or has more devices than it allocates.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from maniple.api.gpu.requests import ANY_MODEL, WHOLE, matches
from maniple.api.quantity import format_quantity
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import MIXED, GpuAsk, GpuGrant, GpuTable, Millis
from maniple.model.job import TaskGroup
from maniple.model.pod_shape import Shape
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.gpu_arithmetic import count_pods, devices_in, in_use_first, leaving_enough, subtract
from maniple.scheduler.framework.hooks import Check
from maniple.scheduler.framework.owed_gpus import OwedGpus, Pick, usable_on, without

GpuGrants = tuple[GpuGrant, ...]

_ANY = 10**9  # thousandths of a device where nothing is reserved


class FreeGpus:
    def __init__(self, snapshot: Snapshot) -> None:
        self.tables = snapshot.gpus.tables
        self.models = snapshot.gpus.models
        self.free = {row: array.copy() for row, array in snapshot.gpus_free.items()}
        # What will be free when all leaving pods have left and all promised pods have started.
        self.future = {row: array + snapshot.gpus_releasing[row] for row, array in snapshot.gpus_free.items()}
        # What reservations leave of the devices of their nodes; {}: there are no reservations.
        self.spare: dict[int, Millis] = {}
        self._plain = {row for row in self.tables if self._is_plain(snapshot, row)}
        self.owed = OwedGpus(self.tables, self.allowed)  # to pods that earlier cycles promised room
        self._promised: set[int] = set()  # nodes with free devices that this cycle has promised
        self._allowed: dict[tuple[GpuModel, ...], tuple[int, ...] | None] = {}
        self._whole: dict[tuple[int, int], GpuGrants] = {}
        # What a device is worth to other pods by its free thousandths; None: all are worth the same.
        self.worth: list[float] | None = None
        # Whether it matters which model a gang goes to.
        kinds = [table.node_model[table.node_model >= 0] for table in self.tables.values()]
        self.is_mixed = any(len(codes) and bool((codes != codes[0]).any()) for codes in kinds)
        self.has_mixed_nodes = any(bool((table.node_model == MIXED).any()) for table in self.tables.values())
        self.is_mixed |= self.has_mixed_nodes

    def _is_plain(self, snapshot: Snapshot, row: int) -> bool:
        """Whether the sum over a node's devices is enough to count pods."""
        free, future = self.free[row], self.future[row]
        return bool(
            ((free == 0) | (free == WHOLE)).all()
            and ((future == 0) | (future == WHOLE)).all()
            and (free.sum(axis=1) == snapshot.free[row]).all()
            and (future.sum(axis=1) == snapshot.free[row] + snapshot.releasing[row]).all()
            and not (self.tables[row].node_model == MIXED).any()
        )

    # -- models

    def allowed(self, models: tuple[GpuModel, ...]) -> tuple[int, ...] | None:
        """The codes of the models in a pod's list, the most preferred first; None: all."""
        if not models:
            return None
        if models not in self._allowed:
            codes: dict[int, None] = {}
            named = [entry.model for entry in models if entry.model != ANY_MODEL]
            for entry in models:
                for code in sorted(range(len(self.models)), key=lambda code: self.models[code]):
                    product = self.models[code]
                    taken = any(matches(name, product) for name in named)
                    if (not taken) if entry.model == ANY_MODEL else matches(entry.model, product):
                        codes.setdefault(code)
            self._allowed[models] = tuple(codes)
        return self._allowed[models]

    def checks(self, shape: Shape) -> Iterator[Check]:
        """Whether each node has GPUs of the kind that the shape asks for, free or not."""
        ask = shape.gpus[0]
        table = self.tables.get(ask.row)
        if table is None:
            return
        has_none = ~table.there.any(axis=1)
        codes = self.allowed(shape.constraint.gpu_models)
        if codes is not None:
            yield Check("GPU model not among those it allows", has_none | _any(np.isin(table.model, codes)))
        if ask.memory:
            yield Check("GPU memory unknown", has_none | _any(table.there & (table.memory > 0)))
            enough = table.there & (table.milli_for(ask.memory) <= WHOLE)
            least = format_quantity(ask.memory, per_unit=1, binary=True)
            yield Check(f"GPU memory below {least}", has_none | _any(enough))

    def has_model(self, shape: Shape, model: int) -> BoolArray:
        """Nodes with a GPU of the model, of the resource that the shape asks for; none if the shape does not allow it.

        Running pods of a gang may be on a model that is not in its list any more.
        """
        table, allowed = self.tables[shape.gpus[0].row], self.allowed(shape.constraint.gpu_models)
        if allowed is not None and model not in allowed:
            return np.zeros(len(table.node_model), dtype=bool)
        has_model: BoolArray = (table.node_model == model) | (
            (table.node_model == MIXED) & (table.model == model).any(axis=1) if self.has_mixed_nodes else False
        )
        return has_model

    def has_unhealthy(self, row: int) -> BoolArray:
        """Nodes with GPUs that are listed but lost or unhealthy."""
        table = self.tables[row]
        return np.asarray(np.array([len(ids) for ids in table.ids]) > table.there.sum(axis=1), dtype=bool)

    def model_of(self, node: int, grants: GpuGrants) -> int:
        """The model of the GPUs that a pod has on a node; -1: the pod has none."""
        return int(self.tables[grants[0].row].model[node, grants[0].device]) if grants else -1

    # -- room

    def is_counted(self, shape: Shape) -> bool:
        """Whether devices must be counted one by one, because the resource vector does not say how many pods fit."""
        return any(ask.row not in self._plain or not ask.is_whole for ask in shape.gpus)

    def fits(
        self,
        shape: Shape,
        nodes: IntArray | None,
        free: FloatArray,
        *,
        later: bool = False,
        empty: bool = False,
        model: int | None = None,
        reserved: BoolArray | None = None,
    ) -> FloatArray:
        """How many pods of the shape fit on the devices of `nodes` (None: all); `free` [R, n] is what is free there.

        On nodes with unlike GPUs only devices of `model` count, or of all models that the shape allows (None). `checks`
        and `has_model` tell whether a node with one model has the right one. Of the nodes that are `reserved` [n] only
        what reservations leave counts.
        """
        codes = self._codes(shape, model)
        fits: FloatArray = np.full(free.shape[1], np.inf)
        for number, ask in enumerate(shape.gpus):
            table = self.tables.get(ask.row)
            if table is None or not table.there.size:
                return np.zeros(free.shape[1])
            if empty:
                usable = (table.there if nodes is None else table.there[nodes]) * np.int32(WHOLE)
            else:
                usable = self.usable(ask.row, nodes, reserved, later=later)
            # A pod's list of models is about the first of its GPU resources.
            np.minimum(fits, self._count(ask, table, nodes, usable, codes if number == 0 else None), out=fits)
        ask = shape.gpus[0]
        # The resource vector holds the share that such a pod would have of the largest device.
        return np.minimum(fits, self._by_memory(ask, free[ask.row], nodes)) if ask.memory else fits

    def _codes(self, shape: Shape, model: int | None) -> tuple[int, ...] | None:
        return self.allowed(shape.constraint.gpu_models) if model is None else (model,)

    def _count(
        self, ask: GpuAsk, table: GpuTable, nodes: IntArray | None, usable: Millis, codes: tuple[int, ...] | None
    ) -> FloatArray:
        """How many pods fit into what is `usable` of the devices of `nodes`, on models in `codes` (None: all)."""
        need: int | Millis = table.milli_for(ask.memory, nodes) if ask.memory else ask.milli
        fits = count_pods(ask, usable, need)
        if not self.has_mixed_nodes:
            return fits
        mixed = np.flatnonzero((table.node_model if nodes is None else table.node_model[nodes]) == MIXED)
        if len(mixed):
            # The GPUs of one pod are of one model, so each model of the node is counted separately.
            models = table.model[mixed if nodes is None else nodes[mixed]]
            present = np.unique(models)
            need = need if isinstance(need, int) else need[mixed]
            parts = [
                count_pods(ask, np.where(models == code, usable[mixed], 0), need)
                for code in present[present >= 0].tolist()
                if codes is None or code in codes
            ]
            fits[mixed] = np.sum(parts, axis=0) if parts else 0.0
        return fits

    def _by_memory(self, ask: GpuAsk, free: FloatArray, nodes: IntArray | None) -> FloatArray:
        """How many pods that ask by GPU memory fit into what is `free` of each node's GPUs in all."""
        milli = self.tables[ask.row].milli_for(ask.memory, nodes)
        share = np.where(milli <= WHOLE, milli, 0).max(axis=1, initial=0)
        free = np.maximum(free, 0.0)  # a reservation may leave others less than nothing
        return np.asarray(np.floor(np.divide(free, share * ask.count, out=np.zeros_like(free), where=share > 0)))

    def usable(
        self, row: int, nodes: IntArray | None, reserved: BoolArray | None = None, *, later: bool = False
    ) -> Millis:
        """[nodes, G] what a pod may use of each device: the lower of now and later, so that promises are kept.

        On `reserved` ones [nodes] only what the reservation leaves.
        """
        chosen = slice(None) if nodes is None else nodes
        usable = self.future[row][chosen]
        if not later:
            usable = np.minimum(self.free[row][chosen], usable)
        if reserved is None:
            return usable
        return np.where(reserved[:, None], np.minimum(usable, self.spare[row][chosen]), usable)

    # -- choice

    def choose(
        self,
        group: TaskGroup,
        nodes: IntArray,
        counts: FloatArray,
        *,
        later: bool,
        model: int | None,
        reserved: BoolArray | None = None,
    ) -> tuple[GpuGrants, ...]:
        """Returns the devices of each pod, for `counts` pods on each of `nodes`, in that order. Changes nothing."""
        shape = group.shape
        if not shape.gpus:
            return ()
        codes = self._codes(shape, model)
        if len(nodes) == 1 and reserved is None:  # most gangs
            rows = [[usable_on(int(nodes[0]), self.free[a.row], self.future[a.row], later=later)] for a in shape.gpus]
        else:
            rows = [self.usable(ask.row, nodes, reserved, later=later).tolist() for ask in shape.gpus]
        chosen: list[GpuGrants] = []
        for index, (node, count) in enumerate(zip(nodes.tolist(), counts.tolist(), strict=True)):
            first, is_owed = len(chosen), self.owed.is_owed_on(node)
            for following in range(int(count) - 1, -1, -1):
                grants: GpuGrants = ()
                for number, ask in enumerate(shape.gpus):
                    models = codes if number == 0 else None
                    now = rows[number][index]
                    usual = self._take(ask, node, left := now.copy(), models, following, later=later)
                    better = None
                    if is_owed:
                        pick = Pick(group, ask, node, models, now, usual)
                        better = self.owed.better(pick, chosen[first:], following, self.future[ask.row])
                    rows[number][index] = left if better is None else without(now, better)
                    grants += usual if better is None else better
                chosen.append(grants)
        return tuple(chosen)

    def _take(
        self, ask: GpuAsk, node: int, left: list[int], codes: tuple[int, ...] | None, following: int, *, later: bool
    ) -> GpuGrants:
        """Takes devices for one pod from what is `left` of the node's; `following` more pods will come."""
        table = self.tables[ask.row]
        if table.node_model[node] == MIXED:
            return self._take_of_one_model(table, ask, node, left, codes, following)
        if ask.is_whole:
            free = [amount == WHOLE for amount in left]
            if later:
                free = in_use_first(free, self.free[ask.row][node].tolist(), ask.count)
            return self._take_whole(table, ask, node, left, free)
        return self._take_shares(table, ask, node, left, [True] * len(left), following)

    def _take_of_one_model(
        self, table: GpuTable, ask: GpuAsk, node: int, left: list[int], codes: tuple[int, ...] | None, following: int
    ) -> GpuGrants:
        models = table.model[node].tolist()
        for code in codes if codes is not None else sorted({code for code in models if code >= 0}):
            mine = [model == code for model in models]
            own = np.array([[amount if is_mine else 0 for amount, is_mine in zip(left, mine, strict=True)]])
            room = count_pods(ask, own, table.milli_for(ask.memory, np.array([node])) if ask.memory else ask.milli)[0]
            if room >= 1:
                if ask.is_whole:
                    return self._take_whole(table, ask, node, left, (own[0] == WHOLE).tolist())
                return self._take_shares(table, ask, node, left, mine, min(following, int(room) - 1))
        raise AssertionError("placed where its GPUs do not fit")

    def _take_whole(self, table: GpuTable, ask: GpuAsk, node: int, left: list[int], free: Sequence[bool]) -> GpuGrants:
        mask = 0
        for device, is_free in enumerate(free):
            if is_free:
                mask |= 1 << device
        chosen = table.links[table.link_class[node]].choose(mask, ask.count)
        key = (ask.row, chosen)
        grants = self._whole.get(key)
        if grants is None:
            grants = self._whole[key] = tuple(GpuGrant(ask.row, device, WHOLE) for device in devices_in(chosen))
        for grant in grants:
            left[grant.device] = 0
        return grants

    def _take_shares(
        self, table: GpuTable, ask: GpuAsk, node: int, left: list[int], mine: Sequence[bool], following: int
    ) -> GpuGrants:
        """Takes the devices that other pods miss least, the fullest first; of whole ones those with the worst links."""
        if ask.memory:
            need = table.milli_for(ask.memory, np.array([node]))[0].tolist()
        else:
            need = [ask.milli] * len(left)
        worth = self.worth

        def loss(device: int) -> tuple[float, int, int]:
            before, after = left[device], left[device] - need[device]
            return 0.0 if worth is None else worth[before] - worth[after], after, device

        roomy = [device for device in range(len(left)) if mine[device] and left[device] >= need[device]]
        chosen = sorted(roomy, key=loss)
        if ask.count > 1 and following:
            times = {device: left[device] // need[device] for device in roomy}
            chosen = leaving_enough(chosen, times, ask.count, following + 1)
        chosen = chosen[: ask.count]
        opened = [device for device in chosen if left[device] < WHOLE]
        if len(opened) < len(chosen):
            mask = sum(1 << device for device in roomy if left[device] == WHOLE)
            whole = table.links[table.link_class[node]].choose(mask, len(chosen) - len(opened))
            chosen = opened + devices_in(whole)
        for device in chosen:
            left[device] -= need[device]
        return tuple(GpuGrant(ask.row, device, need[device]) for device in sorted(chosen))

    def shift(self, nodes: Sequence[int], grants: Sequence[GpuGrants], sign: int, *, now: bool) -> None:
        """Takes (1) or gives back (-1) the devices of pods; `nodes` has the node of each pod."""
        for row in self.tables:
            parts = [
                (node, grant.device, grant.milli * sign)
                for node, of_pod in zip(nodes, grants, strict=True)
                for grant in of_pod
                if grant.row == row
            ]
            if not parts:
                continue
            for amounts in filter(None, (self.future, self.spare, self.free if now else {})):
                subtract(amounts[row], parts)
            if row in self._plain and any(abs(milli) != WHOLE for _, _, milli in parts):
                self._plain.discard(row)
            elif not now:
                self._promised.update([node for node, device, _ in parts if self.free[row][node, device] > 0])
                if not self._promised.isdisjoint(nodes):
                    self._check_crossed(row, np.array([node for node, _, _ in parts]))

    def _check_crossed(self, row: int, nodes: IntArray) -> None:
        """If one free GPU of a node is promised and another one is about to be freed, a pod can use neither now. The
        sums of what is free and of what will be free do not show that.
        """
        if row in self._plain:
            free, future = self.free[row][nodes], self.future[row][nodes]
            if ((free > future).any(axis=1) & (free < future).any(axis=1)).any():
                self._plain.discard(row)

    def leave(self, node: int, grants: GpuGrants, sign: int, *, is_spare: bool) -> None:
        """A pod will give back its devices (1), or will not after all (-1). Lost devices do not count.

        `is_spare`: no reservation has counted on them yet.
        """
        for grant in grants:
            if grant.milli != WHOLE:
                self._plain.discard(grant.row)  # shares add up in the vector, but not on one device
            if self.tables[grant.row].there[node, grant.device]:
                self.future[grant.row][node, grant.device] += grant.milli * sign
                if self.spare and is_spare:
                    self.spare[grant.row][node, grant.device] += grant.milli * sign
                if node in self._promised:
                    self._check_crossed(grant.row, np.array([node]))

    def leave_all(
        self, row: int, nodes: IntArray, devices: IntArray, millis: IntArray, is_spare: BoolArray | None
    ) -> None:
        """The same for many parts of devices of one resource, none of them lost; `is_spare` None: all are spare.

        `millis` is negative where pods will not leave after all.
        """
        if row in self._plain and (np.abs(millis) != WHOLE).any():
            self._plain.discard(row)
        np.add.at(self.future[row], (nodes, devices), millis)
        if self.spare:
            millis = millis if is_spare is None else np.where(is_spare, millis, 0)
            np.add.at(self.spare[row], (nodes, devices), millis)

    def clear(self, nodes: IntArray, devices: Mapping[int, Millis], amounts: FloatArray, sign: int) -> None:
        """Adds what pods would give back of the devices [nodes, G], by row (1), or removes it again (-1).

        `amounts` [R, nodes]: what they give back in all.
        """
        for row, millis in devices.items():
            self.future[row][nodes] += millis * sign
            if row in self._plain and ((millis % WHOLE).any() or (millis.sum(axis=1) != amounts[row]).any()):
                self._plain.discard(row)

    def open_spare(self) -> None:
        """Starts to count what reservations leave of devices."""
        self.spare = {row: np.full_like(array, _ANY) for row, array in self.free.items()}

    def set_spare(self, nodes: IntArray, devices: Mapping[int, Millis]) -> None:
        """Sets how much of the devices [nodes, G] other gangs may use on these nodes, by row; a missing row: all."""
        for row, array in self.spare.items():
            array[nodes] = devices.get(row, _ANY)

    def ring_gbs(self, node: int, grants: GpuGrants) -> float | None:
        """The bandwidth of a ring over a pod's GPUs in GB/s; None: one GPU only, or unknown links."""
        if len(grants) < 2 or len({grant.row for grant in grants}) > 1:
            return None
        table = self.tables[grants[0].row]
        speed = table.links[table.link_class[node]].ring(sum(1 << grant.device for grant in grants))
        return speed / 1000 if speed else None


def _any(mask: BoolArray) -> BoolArray:
    return np.asarray(mask.any(axis=1), dtype=bool)
