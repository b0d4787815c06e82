"""fragmentation: place pods so that pods typical of the cluster still fit afterwards.

| argument | default | |
| weight | 1 | points for a tenth of a GPU that is not lost to others |

The snapshot's running and waiting pods are what is typical. The cost of a placement is how much of the node's free GPU
becomes worth little to them (model/gpu/fragmentation.py): remainders that no pod asks for, and GPUs without enough CPU
and memory. A share goes to the GPU of a node where least is lost.
"""

from collections import Counter
from functools import lru_cache

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import GpuAsk, GpuPod, Millis
from maniple.model.gpu.fragmentation import Mix, PodRequests, choose_devices, fragmentation, learn
from maniple.model.job import TaskGroup
from maniple.model.resources import CPU, MEMORY, FloatArray
from maniple.scheduler.framework.hooks import Hooks, Rows, by_amounts, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session

_PER_POINT = 1000.0  # fragmentation() counts ten thousand for a GPU
_FINENESS = 64  # significant steps of a count: one pod more or less does not make another mix


class Fragmentation:
    def __init__(self, arguments: Arguments) -> None:
        self.weight = arguments.number("weight", 1.0)

    def open(self, session: Session) -> Hooks:
        row = _row_of(session)
        if row is None or not self.weight:
            return Hooks()
        mix = mix_of(session, row)
        cost = _Cost(self.weight / _PER_POINT, session, row, mix)
        return Hooks(
            node_order=cost.score,
            node_order_by_amounts=by_amounts,
            device_worth=mix.worth,
            group_kind=nothing_else,
        )


def _row_of(session: Session) -> int | None:
    """The GPU resource that most pods ask for. The mix is about one resource."""
    counts: Counter[int] = Counter()
    for pod, count in session.snapshot.gpu_pods.items():
        counts[pod.ask.row] += count
    return max(counts, key=lambda row: (counts[row], -row), default=None)


def mix_of(session: Session, row: int) -> Mix:
    counts: Counter[PodRequests] = Counter()
    codes = len(session.gpus.models)
    for pod, count in session.snapshot.gpu_pods.items():
        if pod.ask.row == row:
            kind = PodRequests(pod.cpu, pod.memory, pod.ask.count, pod.ask.milli, _mask(session, pod, codes))
            counts[kind] += count
    return _learn(_rounded(counts), codes)


def _mask(session: Session, pod: GpuPod, codes: int) -> tuple[bool, ...] | None:
    allowed = session.gpus.allowed(pod.models)
    return None if allowed is None else tuple(code in allowed for code in range(codes))


def _rounded(counts: Counter[PodRequests]) -> tuple[tuple[PodRequests, int], ...]:
    """Counts with few significant bits. Learning is slow, so it is repeated only when the mix has changed."""
    rounded = []
    for kind, count in counts.items():
        step = 1 << max(0, count.bit_length() - _FINENESS.bit_length())
        rounded.append((kind, max(1, round(count / step)) * step))
    return tuple(sorted(rounded, key=lambda item: (item[0][:4], item[0].models or ())))


@lru_cache(maxsize=32)
def _learn(counts: tuple[tuple[PodRequests, int], ...], codes: int) -> Mix:
    return learn(dict(counts), codes)


class _Cost:
    def __init__(self, scale: float, session: Session, row: int, mix: Mix) -> None:
        self._scale = scale
        self._session = session
        self._row = row
        self._mix = mix
        self._table = session.gpus.tables[row]

    def score(self, group: TaskGroup, rows: Rows) -> FloatArray | None:
        shape = group.shape
        ask = shape.gpus[0] if shape.gpus else None
        if ask is not None and ask.row != self._row:
            return None
        devices = np.maximum(self._session.gpus.usable(self._row, rows.nodes), 0)
        before, after = (devices, devices) if ask is None else self._taken(ask, rows, devices)
        cpu, memory = rows.free[CPU], rows.free[MEMORY]
        model = np.maximum(self._table.node_model[rows.nodes], -1)
        # Both in one call: for few rows the calls cost more than the arithmetic.
        potential = fragmentation(
            self._mix,
            np.concatenate([cpu, cpu - shape.requests[CPU]]),
            np.concatenate([memory, memory - shape.requests[MEMORY]]),
            np.concatenate([before, after]),
            np.concatenate([model, model]),
        )
        count = len(rows.nodes)
        return (potential[:count] - potential[count:]) * self._scale

    def _taken(self, ask: GpuAsk, rows: Rows, devices: Millis) -> tuple[Millis, Millis]:
        """Devices before and after the row's pod, which may be the second or third of this placement on the node."""
        taken = self._session.free[self._row, rows.nodes] - rows.free[self._row]
        nth = np.rint(taken / (ask.count * ask.milli)).astype(np.intp)
        if ask.is_whole:
            # All whole GPUs cost the same, so pods take them from the left.
            whole = devices == WHOLE
            order = np.cumsum(whole, axis=1)
            gone = (nth * ask.count)[:, None]
            before = np.where(whole & (order <= gone), 0, devices) if nth.any() else devices
            return before, np.where(whole & (order <= gone + ask.count), 0, devices)
        need = self._table.milli_for(ask.memory, rows.nodes) if ask.memory else np.array([[ask.milli]], dtype=np.int32)
        need = np.broadcast_to(need, devices.shape)
        before = devices.copy()
        for step in range(int(nth.max(initial=0))):
            more = np.flatnonzero(nth > step)
            before[more] -= choose_devices(self._mix, before[more], ask.count, need[more]) * need[more]
        return before, before - choose_devices(self._mix, before, ask.count, need) * need
