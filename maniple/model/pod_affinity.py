"""Inter-pod affinity, anti-affinity and topology spread, as counts of pods over nodes.

A Term says which pods count, and which node label makes a domain. AffinityCounts holds, for each term that is asked
about, how many such pods each node has. It is updated as pods are placed and un-placed. A cluster in which no pod has
such terms never builds any of this.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from maniple.api.kubernetes import Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from maniple.api.meta import Labels, LabelSelector
from maniple.model.nodes import NodeTable
from maniple.model.resources import BoolArray, FloatArray

Requirement = tuple[str, str, frozenset[str]]

_NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Term:
    """Pods in some namespaces (None: all) that meet all requirements, together if they share the value of a label."""

    namespaces: frozenset[str] | None
    requirements: tuple[Requirement, ...] | None  # None selects nothing, () selects all
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.requirements is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(_meets(requirement, labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class Spread:
    term: Term
    max_skew: int
    min_domains: int
    honours_affinity: bool
    honours_taints: bool
    is_required: bool


@dataclass(frozen=True, slots=True)
class AffinityInfo:
    """One pod's own labels (those that some term looks at) and the terms it has towards others."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[float, Term], ...] = ()  # anti-affinity has a negative weight
    spread: tuple[Spread, ...] = ()

    @property
    def has_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred or self.spread)

    def match(self, term: Term) -> bool:
        return term.matches(self.namespace, dict(self.labels))


def has_terms(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(
        pod.spec.topology_spread_constraints or (affinity and (affinity.pod_affinity or affinity.pod_anti_affinity))
    )


def term_keys(pod: Pod) -> frozenset[str] | None:
    """The labels that the pod's terms look at; None if it has no terms."""
    if not has_terms(pod):
        return None
    keys: set[str] = set()
    is_minding = False
    for term in _all_terms(pod):
        is_minding = True
        if term.label_selector:
            keys.update(term.label_selector.match_labels)
            keys.update(e.key for e in term.label_selector.match_expressions)
        keys.update(term.match_label_keys)
        if isinstance(term, PodAffinityTerm):
            keys.update(term.mismatch_label_keys)
    return frozenset(keys) if is_minding else None


class AffinityReader:
    """Reads AffinityInfo off pods, once it has been told which label keys matter."""

    def __init__(
        self, namespaces: Mapping[str, Labels], *, has_terms: bool = False, keys: AbstractSet[str] = frozenset()
    ) -> None:
        """`has_terms`: whether some pod has terms; `keys`: the labels that those look at."""
        # Every API server gives a namespace this label; in a file it may be missing.
        self._namespaces = {name: {_NAMESPACE_NAME: name, **labels} for name, labels in namespaces.items()}
        self.has_terms = has_terms
        self.keys = frozenset(keys)

    def read(self, pod: Pod) -> AffinityInfo:
        meta, affinity = pod.metadata, pod.spec.affinity
        toward = affinity.pod_affinity if affinity and affinity.pod_affinity else PodAffinity()
        away = affinity.pod_anti_affinity if affinity and affinity.pod_anti_affinity else PodAffinity()
        preferred = [
            *(
                (float(w.weight), w.pod_affinity_term)
                for w in toward.preferred_during_scheduling_ignored_during_execution
            ),
            *(
                (-float(w.weight), w.pod_affinity_term)
                for w in away.preferred_during_scheduling_ignored_during_execution
            ),
        ]
        return AffinityInfo(
            namespace=meta.namespace,
            labels=tuple(sorted((k, v) for k, v in meta.labels.items() if k in self.keys)),
            affinity=tuple(self._term(t, pod) for t in toward.required_during_scheduling_ignored_during_execution),
            anti_affinity=tuple(self._term(t, pod) for t in away.required_during_scheduling_ignored_during_execution),
            preferred=tuple((weight, self._term(t, pod)) for weight, t in preferred),
            spread=tuple(self._spread(c, pod) for c in pod.spec.topology_spread_constraints),
        )

    def _term(self, term: PodAffinityTerm, pod: Pod) -> Term:
        namespaces: frozenset[str] | None = frozenset(term.namespaces)
        if term.namespace_selector is not None:
            wanted = _requirements(term.namespace_selector)
            if not wanted:
                namespaces = None  # an empty selector means every namespace, also those nobody wrote down
            else:
                met = {ns for ns, labels in self._namespaces.items() if all(_meets(r, labels) for r in wanted)}
                namespaces = frozenset(term.namespaces) | met
        elif not term.namespaces:
            namespaces = frozenset([pod.metadata.namespace])
        requirements = _requirements(term.label_selector)
        if requirements is not None:
            labels = pod.metadata.labels
            requirements += tuple(("In", k, frozenset([labels[k]])) for k in term.match_label_keys if k in labels)
            requirements += tuple(("NotIn", k, frozenset([labels[k]])) for k in term.mismatch_label_keys if k in labels)
        return Term(namespaces, requirements, term.topology_key)

    def _spread(self, constraint: TopologySpreadConstraint, pod: Pod) -> Spread:
        requirements = _requirements(constraint.label_selector)
        if requirements is not None:
            labels = pod.metadata.labels
            keys = [key for key in constraint.match_label_keys if key in labels]
            requirements += tuple(("In", key, frozenset([labels[key]])) for key in keys)
        return Spread(
            term=Term(frozenset([pod.metadata.namespace]), requirements, constraint.topology_key),
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains or 1,
            honours_affinity=constraint.node_affinity_policy == "Honor",
            honours_taints=constraint.node_taints_policy == "Honor",
            is_required=constraint.when_unsatisfiable == "DoNotSchedule",
        )


class AffinityCounts:
    """How many pods that match (or that hold) a term are on each node, kept up to date as pods come and go."""

    def __init__(self, nodes: NodeTable, placed: Mapping[tuple[AffinityInfo, int], int]) -> None:
        self._nodes = nodes
        self._placed = dict(placed)
        self._matching: dict[Term, FloatArray] = {}
        self._holding: dict[Term, FloatArray] = {}  # required anti-affinity
        self._pulling: dict[tuple[Term, bool], FloatArray] = {}  # (term, is required) -> weight of affinity terms
        for (pod_affinity, node), count in self._placed.items():
            self._hold(pod_affinity, node, count)

    def add(self, pod_affinity: AffinityInfo, node: int, count: int) -> None:
        self._placed[pod_affinity, node] = self._placed.get((pod_affinity, node), 0) + count
        for term, counts in self._matching.items():
            if pod_affinity.match(term):
                counts[node] += count
        self._hold(pod_affinity, node, count)

    def _hold(self, pod_affinity: AffinityInfo, node: int, count: int) -> None:
        for term in pod_affinity.anti_affinity:
            held = self._holding.get(term)
            if held is None:
                held = self._holding[term] = np.zeros(len(self._nodes))
            held[node] += count
        wishes = [(term, False, weight) for weight, term in pod_affinity.preferred]
        for term, is_required, weight in (*wishes, *((term, True, 1.0) for term in pod_affinity.affinity)):
            pull = self._pulling.get((term, is_required))
            if pull is None:
                pull = self._pulling[term, is_required] = np.zeros(len(self._nodes))
            pull[node] += weight * count

    def matching(self, term: Term) -> FloatArray:
        """Pods that match the term, by node."""
        counts = self._matching.get(term)
        if counts is None:
            counts = np.zeros(len(self._nodes))
            for (pod_affinity, node), count in self._placed.items():
                if count and pod_affinity.match(term):
                    counts[node] += count
            self._matching[term] = counts
        return counts

    def by_domain(self, term: Term) -> FloatArray:
        """For each node: the pods that match the term in the node's domain; 0 where the node has no such label."""
        return self.spread_out(self.matching(term), term.topology_key)

    def spread_out(self, counts: FloatArray, topology_key: str) -> FloatArray:
        codes, values = self._nodes.column(topology_key)
        sums: FloatArray = np.bincount(codes + 1, weights=counts, minlength=len(values) + 1).astype(np.float64)
        sums[0] = 0.0
        return sums[codes + 1]

    def has_label(self, topology_key: str) -> BoolArray:
        return self._nodes.column(topology_key)[0] >= 0

    def attracted(self, pod_affinity: AffinityInfo, required_weight: float) -> FloatArray | None:
        """The weight of the terms that pods in the node's domain have towards `pod_affinity`."""
        total: FloatArray | None = None
        for (term, is_required), pull in self._pulling.items():
            weight = required_weight if is_required else 1.0
            if weight and pod_affinity.match(term):
                part = weight * self.spread_out(pull, term.topology_key)
                total = part if total is None else total + part
        return total

    def repelled(self, pod_affinity: AffinityInfo) -> BoolArray | None:
        """Nodes in whose domain some pod holds an anti-affinity term that `pod_affinity` matches."""
        banned: BoolArray | None = None
        for term, held in self._holding.items():
            if pod_affinity.match(term) and held.any():
                mask = self.spread_out(held, term.topology_key) > 0
                banned = mask if banned is None else banned | mask
        return banned


def _all_terms(pod: Pod) -> Iterable[PodAffinityTerm | TopologySpreadConstraint]:
    affinity = pod.spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part:
            yield from part.required_during_scheduling_ignored_during_execution
            yield from (w.pod_affinity_term for w in part.preferred_during_scheduling_ignored_during_execution)
    yield from pod.spec.topology_spread_constraints


def _requirements(selector: LabelSelector | None) -> tuple[Requirement, ...] | None:
    if selector is None:
        return None
    made: list[Requirement] = [("In", key, frozenset([value])) for key, value in sorted(selector.match_labels.items())]
    made += [(e.operator, e.key, frozenset(e.values)) for e in selector.match_expressions]
    return tuple(made)


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects `labels`; no selector selects nothing, an empty one everything."""
    requirements = _requirements(selector)
    return requirements is not None and all(_meets(requirement, labels) for requirement in requirements)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    operator, key, values = requirement
    value = labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
