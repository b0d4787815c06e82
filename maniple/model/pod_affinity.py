"""Inter-pod affinity, anti-affinity and topology spread, as counts of pods over nodes.

A Term says which pods count, and which node label makes a domain. AffinityCounts holds, for each term that is asked
about, how many such pods each node has. It is updated as pods are placed and un-placed. A cluster in which no pod has
such terms never builds any of this.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from maniple.api.kubernetes import Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from maniple.api.meta import Labels, LabelSelector
from maniple.model.nodes import NodeTable
from maniple.model.resources import BoolArray, FloatArray
from maniple.model.term_index import ByLabel, Requirement, labels_of

_NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Term:
    """Selects pods that meet all requirements in some namespaces (None: all). A domain is a value of `topology_key`."""

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
    """A pod's terms, and its labels that the terms of any pod select by."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[float, Term], ...] = ()  # anti-affinity has a negative weight
    spread: tuple[Spread, ...] = ()

    @property
    def has_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred or self.spread)

    @property
    def has_required_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity) or any(spread.is_required for spread in self.spread)

    @property
    def needs_pods(self) -> bool:
        """Whether a pod that leaves elsewhere can close a node: the pod wants company, or an even spread."""
        return bool(self.affinity) or any(spread.is_required for spread in self.spread)

    @property
    def company(self) -> tuple[Term, ...]:
        """The terms of its required affinity as kube-scheduler applies them: only pods that match all of them count."""
        return self.affinity if len(self.affinity) < 2 else _jointly(self.affinity)

    def match(self, term: Term) -> bool:
        return term.matches(self.namespace, dict(self.labels))


@lru_cache(maxsize=4096)
def _jointly(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms, each of which selects only the pods that all of them select."""
    named = [term.namespaces for term in terms if term.namespaces is not None]
    namespaces = frozenset.intersection(*named) if named else None
    every = [term.requirements for term in terms]
    requirements = None if None in every else tuple(chain.from_iterable(filter(None, every)))
    return tuple(Term(namespaces, requirements, term.topology_key) for term in terms)


def term_keys(pod: Pod) -> frozenset[str] | None:
    """The label keys that the pod's terms select by. None if the pod has no terms."""
    terms = list(_all_terms(pod))
    if not terms:
        return None
    keys: set[str] = set()
    for term in terms:
        if term.label_selector:
            keys.update(term.label_selector.match_labels)
            keys.update(e.key for e in term.label_selector.match_expressions)
        keys.update(term.match_label_keys)
        if isinstance(term, PodAffinityTerm):
            keys.update(term.mismatch_label_keys)
    return frozenset(keys)


class AffinityReader:
    """Reads the AffinityInfo of pods. It keeps only the labels that terms select by."""

    def __init__(
        self, namespaces: Mapping[str, Labels], *, has_terms: bool = False, keys: AbstractSet[str] = frozenset()
    ) -> None:
        """`has_terms`: whether any pod has terms. `keys`: the label keys that they select by."""
        # API servers set this label on every namespace. In a file it may be missing.
        self._namespaces = {name: {_NAMESPACE_NAME: name, **labels} for name, labels in namespaces.items()}
        self.has_terms = has_terms
        self.keys = frozenset(keys)

    def read(self, pod: Pod) -> AffinityInfo:
        meta, affinity = pod.metadata, pod.spec.affinity
        toward = affinity.pod_affinity if affinity and affinity.pod_affinity else PodAffinity()
        away = affinity.pod_anti_affinity if affinity and affinity.pod_anti_affinity else PodAffinity()
        preferred = [
            (sign * weighted.weight, weighted.pod_affinity_term)
            for sign, part in ((1.0, toward), (-1.0, away))
            for weighted in part.preferred_during_scheduling_ignored_during_execution
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
                namespaces = None  # an empty selector selects all namespaces, also those without an object
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


PodsOnNodes = Mapping[tuple[AffinityInfo, int], int]  # (affinity of pods, node) -> number of pods


class AffinityCounts:
    """The number of pods on each node that match a term, and that have a term. Updated as pods come and go."""

    def __init__(self, nodes: NodeTable, placed: PodsOnNodes, leaving: PodsOnNodes | None = None) -> None:
        """`leaving`: those of the placed pods that are terminating."""
        self._nodes = nodes
        self._placed = dict(placed)
        self._leaving = AffinityCounts(nodes, leaving) if leaving else None
        self._matching: dict[Term, FloatArray] = {}
        self._repelling: defaultdict[Term, FloatArray] = defaultdict(self._zeros)  # required anti-affinity
        # (term, is required) -> weight of affinity terms
        self._attracting: defaultdict[tuple[Term, bool], FloatArray] = defaultdict(self._zeros)
        self._asked = ByLabel[Term]()  # keys of _matching
        self._repellers = ByLabel[Term]()  # keys of _repelling
        self._attractors = ByLabel[tuple[Term, bool]]()  # keys of _attracting
        self._pods: ByLabel[tuple[AffinityInfo, int]] | None = None  # keys of _placed; made when a term is asked about
        for (info, node), count in self._placed.items():
            self._add_terms(info, node, count)

    def without_leaving(self) -> "AffinityCounts":
        """A copy that does not count terminating pods."""
        placed = dict(self._placed)
        for key, count in self._leaving._placed.items() if self._leaving is not None else ():
            placed[key] -= count
        return AffinityCounts(self._nodes, {key: count for key, count in placed.items() if count})

    def _zeros(self) -> FloatArray:
        return np.zeros(len(self._nodes))

    def add(self, info: AffinityInfo, node: int, count: int) -> None:
        if self._pods is not None and (info, node) not in self._placed:
            self._pods.add((info, node), info.labels)
        self._placed[info, node] = self._placed.get((info, node), 0) + count
        for term in self._asked.found(info.labels):
            if info.match(term):
                self._matching[term][node] += count
        self._add_terms(info, node, count)

    def _add_terms(self, info: AffinityInfo, node: int, count: int) -> None:
        for term in info.anti_affinity:
            if term not in self._repelling:
                self._repellers.add(term, labels_of(term.requirements))
            self._repelling[term][node] += count
        for weight, term in info.preferred:
            self._attract(term, False)[node] += weight * count
        for term in info.affinity:
            self._attract(term, True)[node] += count

    def _attract(self, term: Term, is_required: bool) -> FloatArray:
        if (term, is_required) not in self._attracting:
            self._attractors.add((term, is_required), labels_of(term.requirements))
        return self._attracting[term, is_required]

    def matching(self, term: Term) -> FloatArray:
        """The number of pods that match the term, by node."""
        counts = self._matching.get(term)
        if counts is None:
            counts = self._matching[term] = self._zeros()
            labels = labels_of(term.requirements)
            self._asked.add(term, labels)
            for info, node in self._placed if labels is None else self._pods_with(labels):
                count = self._placed[info, node]
                if count and info.match(term):
                    counts[node] += count
        return counts

    def _pods_with(self, labels: Iterable[tuple[str, str]]) -> Iterable[tuple[AffinityInfo, int]]:
        if self._pods is None:
            self._pods = ByLabel()
            for info, node in self._placed:
                self._pods.add((info, node), info.labels)
        return self._pods.found(labels)

    def staying(self, term: Term) -> FloatArray:
        """The same for topology spread: without terminating pods, and none if the selector is empty."""
        if term.requirements == ():
            return self._zeros()
        counts = self.matching(term)
        return counts if self._leaving is None else counts - self._leaving.matching(term)

    def by_domain(self, term: Term) -> FloatArray:
        """By node: the pods in its domain that match the term. 0 if the node lacks the label."""
        return self.spread_out(self.matching(term), term.topology_key)

    def spread_out(self, counts: FloatArray, topology_key: str) -> FloatArray:
        codes, values = self._nodes.column(topology_key)
        sums: FloatArray = np.bincount(codes + 1, weights=counts, minlength=len(values) + 1).astype(np.float64)
        sums[0] = 0.0
        return sums[codes + 1]

    def has_label(self, topology_key: str) -> BoolArray:
        return self._nodes.column(topology_key)[0] >= 0

    def attracted(self, info: AffinityInfo, required_weight: float) -> FloatArray | None:
        """By node: the summed weight of the affinity terms of pods in its domain that this pod matches."""
        total: FloatArray | None = None
        for term, is_required in self._attractors.found(info.labels):
            weight = required_weight if is_required else 1.0
            if weight and info.match(term):
                part = weight * self.spread_out(self._attracting[term, is_required], term.topology_key)
                total = part if total is None else total + part
        return total

    def repelled(self, info: AffinityInfo) -> BoolArray | None:
        """Nodes whose domain has a pod with a required anti-affinity term that this pod matches."""
        banned: BoolArray | None = None
        for term in self._repellers.found(info.labels):
            counts = self._repelling[term]
            if info.match(term) and counts.any():
                mask = self.spread_out(counts, term.topology_key) > 0
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
    requirements: list[Requirement] = [
        ("In", key, frozenset([value])) for key, value in sorted(selector.match_labels.items())
    ]
    requirements += [(e.operator, e.key, frozenset(e.values)) for e in selector.match_expressions]
    return tuple(requirements)


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects `labels`. None selects nothing, an empty selector everything."""
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
