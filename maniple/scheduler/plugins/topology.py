"""topology: prefers nodes whose free GPUs have the best links.

| argument | default | prefers nodes |
| links.weight | 1 | where a ring over the pod's GPUs would be fast, compared with the fastest in the cluster |

Unknown links count as half as fast as that.

The framework chooses the GPUs of a node and the domains of a Topology, with or without this plugin.
"""

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import GpuAsk
from maniple.model.gpu.links import LinkClass
from maniple.model.job import TaskGroup
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Hooks, Rows, by_amounts, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session

HIGHEST = 10.0
_WIDEST = 62  # GPUs of a node that a bit mask in an int64 can tell apart


class TopologyPlugin:
    def __init__(self, arguments: Arguments) -> None:
        self.links = arguments.number("links.weight", 1.0)

    def open(self, session: Session) -> Hooks:
        if not self.links:
            return Hooks()
        links = _Links(self.links, session)
        return Hooks(node_order=links.score, node_order_by_amounts=by_amounts, group_kind=nothing_else)


class _Links:
    def __init__(self, weight: float, session: Session) -> None:
        self._weight = weight * HIGHEST
        self._session = session
        self._rings: dict[tuple[LinkClass, int, int], list[int]] = {}
        self._best: dict[tuple[int, int], int] = {}
        # If all nodes have the same links, and all links are equal, there is nothing to prefer.
        self._matter = {
            row
            for row, table in session.gpus.tables.items()
            if table.there.shape[1] <= _WIDEST
            and any(links.is_known for links in table.links)
            and (len(table.links) > 1 or not table.links[0].is_uniform)
        }

    def score(self, group: TaskGroup, rows: Rows) -> FloatArray | None:
        ask = group.shape.gpus[0] if group.shape.gpus else None
        if ask is None or ask.row not in self._matter or ask.count < 2 or not ask.is_whole:
            return None
        best = self._fastest(ask)
        if not best:
            return None
        table, usable = self._session.gpus.tables[ask.row], self._session.gpus.usable(ask.row, rows.nodes)
        masks = (usable == WHOLE) @ (1 << np.arange(usable.shape[1], dtype=np.int64))
        # The row may be for a node's second or third pod: then the GPUs of the pods before it are taken.
        before = (self._session.free[ask.row, rows.nodes] - rows.free[ask.row]) // (ask.count * WHOLE)
        keys = np.stack([table.link_class[rows.nodes], masks, before.astype(np.int64)], axis=1)
        if len(keys) > 8:
            distinct, where = np.unique(keys, axis=0, return_inverse=True)
        else:
            distinct, where = keys, np.arange(len(keys))
        rings = [
            self._ring(table.links[number], mask, ask.count, nth) if table.links[number].is_known else best / 2
            for number, mask, nth in distinct.tolist()
        ]
        return np.array(rings, dtype=np.float64)[where] * (self._weight / best)

    def _fastest(self, ask: GpuAsk) -> int:
        """The fastest ring over so many GPUs on any empty node of the cluster."""
        key = (ask.row, ask.count)
        if key not in self._best:
            classes = self._session.gpus.tables[ask.row].links
            empty = [(links, (1 << links.size) - 1) for links in classes if links.size >= ask.count]
            self._best[key] = max((links.quality(mask, ask.count) for links, mask in empty), default=0)
        return self._best[key]

    def _ring(self, links: LinkClass, mask: int, count: int, nth: int) -> int:
        """The ring of the (nth + 1)th pod that takes `count` of the GPUs in `mask`; 0: none."""
        key = (links, mask, count)
        rings = self._rings.get(key)
        if rings is None:
            rings = self._rings[key] = []
            left = mask
            while links.is_known and left.bit_count() >= count:
                chosen = links.choose(left, count)
                rings.append(links.ring(chosen))
                left &= ~chosen
        return rings[nth] if nth < len(rings) else 0
