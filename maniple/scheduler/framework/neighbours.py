"""The pods on nodes as the rules of other pods see them: affinity terms and labels, host ports and disks.

There are two views. `now` has the pods that are there, leaving pods included, and those bound in this cycle. `later` is
the time when all leaving pods are gone: without them and without this cycle's victims, with the pods that are promised
room. A pod that is bound must suit `now` and may not clash with a pod of `later`. A promised pod must suit `later`.

Only statements and suppositions change it. In a cluster without such rules nothing here is ever built.
"""

from collections.abc import Mapping

from maniple.model.pod_affinity import AffinityCounts, AffinityInfo
from maniple.model.pod_shape import Exclusive
from maniple.model.snapshot import Snapshot


class View:
    def __init__(self, counts: AffinityCounts, exclusives: Mapping[int, list[Exclusive]]) -> None:
        self.counts = counts
        self.exclusives = dict(exclusives)  # node -> host ports and disks in use

    def add(self, affinity: AffinityInfo | None, exclusives: tuple[Exclusive, ...], node: int, change: int) -> None:
        """Adds `change` equal pods to the node, or removes them if it is negative."""
        if affinity is not None:
            self.counts.add(affinity, node, change)
        if exclusives:
            held = self.exclusives.setdefault(node, [])
            for exclusive in exclusives:
                for _ in range(abs(change)):
                    held.append(exclusive) if change > 0 else held.remove(exclusive)


class Neighbours:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._now: View | None = None
        self._later: View | None = None  # None: as now
        self._is_split = bool(snapshot.leaving_affinity or snapshot.leaving_exclusives)

    @property
    def now(self) -> View:
        if self._now is None:
            snapshot = self._snapshot
            counts = AffinityCounts(snapshot.nodes, snapshot.pod_affinity, snapshot.leaving_affinity)
            self._now = View(counts, {node: list(held) for node, held in snapshot.exclusives.items()})
        return self._now

    @property
    def later(self) -> View:
        now = self.now
        if not self._is_split:
            return now
        if self._later is None:
            exclusives = {node: list(held) for node, held in now.exclusives.items()}
            for node, leaving in self._snapshot.leaving_exclusives.items():
                for exclusive in leaving:
                    exclusives[node].remove(exclusive)
            self._later = View(now.counts.without_leaving(), exclusives)
        return self._later

    def come(
        self, affinity: AffinityInfo | None, exclusives: tuple[Exclusive, ...], node: int, change: int, *, later: bool
    ) -> None:
        """Equal pods are bound to the node, or (`later`) promised room there; not after all, if `change` < 0."""
        if affinity is None and not exclusives:
            return
        if not later:
            if self._is_split:
                self.later.add(affinity, exclusives, node, change)  # before `now`, of which it may still be copied
            self.now.add(affinity, exclusives, node, change)
        else:
            self._split().add(affinity, exclusives, node, change)

    def leave(self, affinity: AffinityInfo | None, exclusives: tuple[Exclusive, ...], node: int, change: int) -> None:
        """Pods will leave the node; they stay after all, if `change` < 0."""
        if affinity is not None or exclusives:
            self._split().add(affinity, exclusives, node, -change)

    def _split(self) -> View:
        self._is_split = True
        return self.later
