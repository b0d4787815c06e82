"""Which pods can be selected by the affinity terms of others: by those of pods that are placed, wait, or may be added.

In a cluster with a few such terms every pod might matter to them, and hardly any does. What nobody selects is placed as
if there were no terms at all.
"""

from functools import cached_property

from maniple.model.pod_affinity import AffinityInfo, Term
from maniple.model.snapshot import Snapshot
from maniple.model.term_index import ByLabel, labels_of


class PodTerms:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._repelled: dict[AffinityInfo, bool] = {}
        self._attracted: dict[AffinityInfo, bool] = {}

    def may_repel(self, affinity: AffinityInfo) -> bool:
        """Whether some pod has a required anti-affinity term that selects it."""
        is_repelled = self._repelled.get(affinity)
        if is_repelled is None:
            found = self._repelling.found(affinity.labels)
            is_repelled = self._repelled[affinity] = any(map(affinity.match, found))
        return is_repelled

    def may_attract(self, affinity: AffinityInfo) -> bool:
        """Whether some pod has an affinity term, or a preferred term, that selects it."""
        is_attracted = self._attracted.get(affinity)
        if is_attracted is None:
            found = self._attracting.found(affinity.labels)
            is_attracted = self._attracted[affinity] = any(map(affinity.match, found))
        return is_attracted

    @cached_property
    def _every(self) -> set[AffinityInfo]:
        snapshot = self._snapshot
        groups = (group for job in snapshot.jobs for group in (*job.groups, *job.growth.values()))
        waiting = {group.pod_affinity for group in groups if group.pod_affinity is not None}
        return waiting | {affinity for affinity, _ in snapshot.pod_affinity}

    @cached_property
    def _repelling(self) -> ByLabel[Term]:
        return _by_label({term for affinity in self._every for term in affinity.anti_affinity})

    @cached_property
    def _attracting(self) -> ByLabel[Term]:
        preferred = {term for affinity in self._every for _, term in affinity.preferred}
        return _by_label(preferred | {term for affinity in self._every for term in affinity.affinity})


def _by_label(selecting: set[Term]) -> ByLabel[Term]:
    terms = ByLabel[Term]()
    for term in selecting:
        terms.add(term, labels_of(term.requirements))
    return terms
