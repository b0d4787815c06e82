"""nodeorder: the best of the nodes that may take a pod, by a weighted sum of scores between 0 and 10.

| argument | default | prefers nodes |
| leastrequested.weight | 1 | with the most CPU and memory left (spread) |
| mostrequested.weight | 0 | with the least left of `mostrequested.resources` that the pod asks for (pack) |
| balancedresource.weight | 1 | whose CPU and memory would be used to the same degree |
| nodeaffinity.weight | 1 | that the pod's preferred node affinity names |
| podaffinity.weight | 1 | close to, or away from, the pods that its preferred pod affinity names |
| podaffinity.symmetric | 1 | (within podaffinity: the weight of other pods' required affinity to this one) |
| topologyspread.weight | 2 | that keep the pod's `ScheduleAnyway` spread constraints even |
| tainttoleration.weight | 0 | with fewer PreferNoSchedule taints that the pod does not tolerate |
| imagelocality.weight | 0 | that already have the pod's images |
| selectorspread.weight | 0 | with fewer pods of the same owner |
| sparegpunodes.weight | 0 | without GPUs, if the pod asks for no GPU and does not prefer that node itself |

Four default to kube-batch's weights (docs/plugins/nodeorder.md), topologyspread.weight to kube-scheduler's.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from maniple.api.errors import did_you_mean, shown
from maniple.api.kubernetes import NodeSelectorTerm
from maniple.api.types import GPU_RESOURCES
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import CPU, MEMORY, PODS, BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.hooks import Hooks, Rows, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins.predicates import node_checks, tolerates

HIGHEST = 10.0
# kube-scheduler's defaults for missing requests: without them a thousand empty pods would count as nothing.
_UNSTATED = {CPU: 100.0, MEMORY: 200.0 * 1024**2}
# An image below the first size does not count, above the second it counts fully.
_IMAGE_BYTES = (23 * 1024**2, 1000 * 1024**2)
EXTENDED = "extended"
_RawScore = Callable[[TaskGroup], FloatArray | None]


class NodeOrder:
    def __init__(self, arguments: Arguments) -> None:
        number = arguments.number
        self.least = number("leastrequested.weight", 1.0)
        self.most = number("mostrequested.weight", 0.0)
        self.most_resources = arguments.words("mostrequested.resources", ("cpu", "memory"))
        arguments.only_with("mostrequested.weight", '"1"', "mostrequested.resources")
        _check_resources(arguments, self.most_resources)
        self.balanced = number("balancedresource.weight", 1.0)
        self.node_affinity = number("nodeaffinity.weight", 1.0)
        self.pod_affinity = number("podaffinity.weight", 1.0)
        self.symmetric = number("podaffinity.symmetric", 1.0)
        self.topology_spread = number("topologyspread.weight", 2.0)
        self.taints = number("tainttoleration.weight", 0.0)
        self.images = number("imagelocality.weight", 0.0)
        self.spread = number("selectorspread.weight", 0.0)
        self.spare_gpu_nodes = number("sparegpunodes.weight", 0.0)

    def open(self, session: Session) -> Hooks:
        scorer = _Scorer(self, session)
        return Hooks(
            node_order=scorer.by_resources,
            node_order_by_amounts=scorer.looks_at_amounts,
            batch_node_order=scorer.by_everything_else,
            batch_node_order_groups=scorer.looks_at_everything_else,
            is_placed_singly=lambda group: bool(group.owner and self.spread),
            group_kind=nothing_else,
            job_kind=scorer.owners if self.spread else nothing_else,
        )


def _check_resources(arguments: Arguments, names: tuple[str, ...]) -> None:
    """Refuses names that no resource has. Those with a slash, or of huge pages, depend on the cluster."""
    known = (EXTENDED, "cpu", "memory", "ephemeral-storage", "pods")
    for name in names:
        if name not in known and "/" not in name and not name.startswith("hugepages-"):
            expected = "a resource such as nvidia.com/gpu, or 'extended' for all of that form"
            hint = "" if name == "gpu" else did_you_mean(name, known)  # which is not far from cpu
            message = f"unknown resource {shown(name)}{hint or f'; expected {expected}'}"
            raise arguments.error("mostrequested.resources", message)
    if not names:
        raise arguments.error("mostrequested.resources", "expected at least one resource, found none")


class _Scorer:
    def __init__(self, weights: NodeOrder, session: Session) -> None:
        self.weights = weights
        self.session = session
        self._raw: dict[tuple[str, int], FloatArray | None] = {}
        self._gpu_rows = [row for row, name in enumerate(session.snapshot.axis.names) if _is_gpu(name)]
        # The weight, the score of every node, and how the scores of the candidates are normalised.
        self._parts: list[tuple[float, _RawScore, Callable[[FloatArray], FloatArray]]] = [
            (weights.node_affinity, self._preferred, _to_highest),
            (weights.taints, self._untolerated, _from_highest),
            (weights.images, self._image_bytes, _image_score),
            (weights.spread, self._same_owner, _from_highest),
            (weights.pod_affinity, self._close_to, _between),
            (weights.topology_spread, self._crowded, _evenness),
        ]

    # Most cycles score no node, so these arrays are built when they are first needed.

    @cached_property
    def _capacity(self) -> FloatArray:
        """[R, N] allocatable; 0 where a node has none, or no limit."""
        allocatable = self.session.snapshot.nodes.allocatable
        return np.where((allocatable > 0) & np.isfinite(allocatable), allocatable, 0.0)

    @cached_property
    def _inverse(self) -> FloatArray:
        """[R, N] 1/capacity; 0 where there is none. The inner loop multiplies instead of dividing."""
        return np.divide(1.0, self._capacity, out=np.zeros_like(self._capacity), where=self._capacity > 0)

    @cached_property
    def _none(self) -> FloatArray:
        return np.where(self._capacity > 0, 0.0, 1.0)

    @cached_property
    def _has_gpus(self) -> BoolArray:
        return np.asarray((self._capacity[self._gpu_rows] > 0).any(axis=0))

    @cached_property
    def _spares(self) -> bool:
        """Whether there is anything to spare: not where no node has GPUs, or every node has."""
        return bool(self.weights.spare_gpu_nodes) and bool(self._has_gpus.any()) and not self._has_gpus.all()

    def owners(self, job: Job) -> tuple[str, ...] | None:
        """The order of placement decides whether a gang fits only if it has several groups or depends on other pods."""
        is_simple = len(job.groups) == 1 and not self.session.depends_on_pods(job.groups[0])
        return None if is_simple else tuple(group.owner for group in job.groups)

    def by_resources(self, group: TaskGroup, rows: Rows) -> FloatArray | None:
        """Scores that depend only on the row's resources."""
        weights = self.weights
        requests = group.shape.requests
        total: FloatArray | None = None
        if weights.least or weights.balanced:
            cpu = self._used(CPU, requests, rows)
            memory = self._used(MEMORY, requests, rows)
            if weights.least:
                left = np.maximum(1.0 - cpu, 0.0) + np.maximum(1.0 - memory, 0.0)
                total = left * (weights.least * HIGHEST / 2)
            if weights.balanced:
                even = np.where((cpu >= 1.0) | (memory >= 1.0), 0.0, 1.0 - np.abs(cpu - memory))
                part = even * (weights.balanced * HIGHEST)
                total = part if total is None else total + part
        if weights.most:
            wanted = self._most_rows(requests)
            for row in wanted:
                used = self._used(row, requests, rows)
                part = np.where(used <= 1.0, used, 0.0) * (weights.most * HIGHEST / len(wanted))
                total = part if total is None else total + part
        if self._spares and not requests[self._gpu_rows].any():
            part = self._without_gpus(group)[rows.nodes]
            total = part if total is None else total + part
        return total

    def looks_at_amounts(self, group: TaskGroup) -> bool:
        """Whether it does not matter which node it is: nodes that the pod prefers are not spared."""
        return not (self._spares and group.shape.constraint.preferred)

    def looks_at_everything_else(self, group: TaskGroup) -> bool:
        weights, affinity = self.weights, group.pod_affinity
        return bool(
            (affinity is not None and (affinity.has_terms or self.session.pod_terms.may_attract(affinity)))
            or (weights.node_affinity and group.shape.constraint.preferred)
            or (weights.spread and group.owner)
            or (weights.taints and self._untolerated(group) is not None)
            or (weights.images and self._image_bytes(group) is not None)
        )

    def _without_gpus(self, group: TaskGroup) -> FloatArray:
        """[N] the score of nodes without GPUs, and of those that the pod itself prefers."""

        def compute() -> FloatArray:
            preferred = self._preferred(group)
            is_spared = self._has_gpus if preferred is None else self._has_gpus & (preferred <= 0)
            return np.where(is_spared, 0.0, self.weights.spare_gpu_nodes * HIGHEST)

        score = self._cached("gpus", group, compute)
        assert score is not None  # computed for every group
        return score

    def _used(self, row: int, requests: FloatArray, rows: Rows) -> FloatArray:
        """The part of the node's resource that is used with the pod; 1 where the node has none."""
        asked = requests[row] or _UNSTATED.get(row, 0.0)
        nodes = rows.nodes
        free = np.where(np.isfinite(rows.free[row]), rows.free[row], 0.0) if row == PODS else rows.free[row]
        used: FloatArray = (self._capacity[row, nodes] - free + asked) * self._inverse[row, nodes]
        used += self._none[row, nodes]
        return used

    def _most_rows(self, requests: FloatArray) -> list[int]:
        axis = self.session.snapshot.axis
        rows = []
        for name in self.weights.most_resources:
            if name == EXTENDED:
                rows += [row for row in np.flatnonzero(requests).tolist() if "/" in axis.names[row]]
            elif name in ("cpu", "memory") or (name in axis.index and requests[axis.index[name]]):
                rows.append(axis.index[name])
        return list(dict.fromkeys(rows))

    def by_everything_else(self, group: TaskGroup, candidates: IntArray) -> FloatArray | None:
        """Scores that are normalised over the candidates, or depend on other pods."""
        total: FloatArray | None = None
        for weight, raw_score, normalise in self._parts:
            raw = raw_score(group) if weight else None
            if raw is not None:
                part = normalise(raw[candidates]) * weight
                total = part if total is None else total + part
        return total

    def _cached(self, kind: str, group: TaskGroup, compute: Callable[[], FloatArray | None]) -> FloatArray | None:
        key = (kind, group.shape.constraint.number)
        if key not in self._raw:
            self._raw[key] = compute()
        return self._raw[key]

    def _preferred(self, group: TaskGroup) -> FloatArray | None:
        terms = group.shape.constraint.preferred
        if not terms:
            return None
        nodes = self.session.snapshot.nodes

        def selected(term: NodeSelectorTerm) -> FloatArray:
            empty = not (term.match_expressions or term.match_fields)
            return (nodes.everywhere if empty else nodes.selected([term])).astype(np.float64)

        return self._cached(
            "preferred",
            group,
            lambda: sum(t.weight * selected(t.preference) for t in terms) + np.zeros(len(nodes)),
        )

    def _untolerated(self, group: TaskGroup) -> FloatArray | None:
        nodes = self.session.snapshot.nodes
        tolerations = group.shape.constraint.tolerations

        def compute() -> FloatArray | None:
            counts = [
                float(sum(t.effect == "PreferNoSchedule" and not tolerates(tolerations, t) for t in taints))
                for taints in nodes.taint_sets
            ]
            return nodes.by_taints(counts) if any(counts) else None

        return self._cached("taints", group, compute)

    def _image_bytes(self, group: TaskGroup) -> FloatArray | None:
        nodes = self.session.snapshot.nodes

        def compute() -> FloatArray | None:
            total: FloatArray | None = None
            for image in group.shape.constraint.images:
                on_nodes = nodes.images.get(image) or nodes.images.get(f"{image}:latest")
                if on_nodes:
                    indices, size = on_nodes
                    total = np.zeros(len(nodes)) if total is None else total
                    # kube-scheduler's formula: an image counts more if many nodes have it.
                    total[indices] += size * len(indices) / len(nodes)
            return total

        return self._cached("images", group, compute)

    def _same_owner(self, group: TaskGroup) -> FloatArray | None:
        if not group.owner:
            return None
        counts = np.zeros(len(self.session.snapshot.nodes))
        for node, count in self.session.owners.get(group.owner, {}).items():
            counts[node] = count
        return counts

    def _close_to(self, group: TaskGroup) -> FloatArray | None:
        if group.pod_affinity is None:
            return None
        counts = self.session.neighbours.later.counts
        pulled = counts.attracted(group.pod_affinity, self.weights.symmetric)
        if pulled is None and not group.pod_affinity.preferred:
            return None
        total = np.zeros(len(self.session.snapshot.nodes)) if pulled is None else pulled
        for weight, term in group.pod_affinity.preferred:
            total += weight * counts.by_domain(term)
        return total

    def _crowded(self, group: TaskGroup) -> FloatArray | None:
        """How crowded the domains of a node are, by kube-scheduler's formula; inf: it lacks a label."""
        wanted = [] if group.pod_affinity is None else [s for s in group.pod_affinity.spread if not s.is_required]
        if not wanted:
            return None
        counts, nodes = self.session.neighbours.later.counts, self.session.snapshot.nodes
        labelled = np.logical_and.reduce([counts.has_label(spread.term.topology_key) for spread in wanted])
        total = np.zeros(len(nodes))
        for spread in wanted:
            is_counted = labelled
            if spread.honours_affinity:
                chosen = (check.passes for name, check in node_checks(nodes, group) if name == "nodeselector")
                is_counted = np.logical_and.reduce([labelled, *chosen])
            key = spread.term.topology_key
            matching = np.where(is_counted, counts.staying(spread.term), 0.0)
            domains = len(np.unique(nodes.column(key)[0][is_counted]))
            # Pods count more where there are many domains; a larger maxSkew lowers the difference that they make.
            total += counts.spread_out(matching, key) * np.log(domains + 2) + (spread.max_skew - 1)
        return np.where(labelled, total, np.inf)


def _evenness(raw: FloatArray) -> FloatArray:
    known = raw[np.isfinite(raw)]
    if not len(known):
        return np.zeros_like(raw)
    low, high = known.min(), known.max()
    if high <= 0:
        return np.where(np.isfinite(raw), HIGHEST, 0.0)
    return np.where(np.isfinite(raw), (high + low - np.where(np.isfinite(raw), raw, 0.0)) * (HIGHEST / high), 0.0)


def _is_gpu(resource: str) -> bool:
    return resource in GPU_RESOURCES or resource.startswith("nvidia.com/mig-")


def _to_highest(raw: FloatArray) -> FloatArray:
    top = raw.max()
    return raw * (HIGHEST / top) if top > 0 else raw * 0.0


def _from_highest(raw: FloatArray) -> FloatArray:
    return HIGHEST - _to_highest(raw)


def _between(raw: FloatArray) -> FloatArray:
    low, high = raw.min(), raw.max()
    return (raw - low) * (HIGHEST / (high - low)) if high > low else raw * 0.0


def _image_score(raw: FloatArray) -> FloatArray:
    low, high = _IMAGE_BYTES
    return (np.clip(raw, low, high) - low) * (HIGHEST / (high - low))
