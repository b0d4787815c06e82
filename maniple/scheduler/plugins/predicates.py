"""predicates: which nodes may take a pod at all.

There are two kinds. Attributes of a node (labels, taints, conditions, reachable volumes) are checked once for all pods
with the same constraints. Pods on it (host ports, disks, affinity) are checked for every placement, and only for pods
with such rules. Resources are not a predicate: the framework always checks them.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

import numpy as np

from maniple.api.kubernetes import Taint, Toleration
from maniple.api.quantity import whole_number
from maniple.model.job import TaskGroup
from maniple.model.late_claims import FreeVolume, LateClaim, pick
from maniple.model.nodes import NodeTable
from maniple.model.pod_affinity import AffinityCounts, AffinityInfo, Spread
from maniple.model.pod_shape import Exclusive
from maniple.model.repelling_taints import EFFECTS
from maniple.model.resources import BoolArray
from maniple.model.volume_claims import ZONE_LABELS
from maniple.scheduler.framework.hooks import Check, Hooks, no_other_group, nothing_else
from maniple.scheduler.framework.neighbours import View
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session

# The checks by name. kube-scheduler's Policy files select among them; by default all are on.
CHECKS = (
    "nodename",
    "nodeselector",
    "taints",
    "noexecute",
    "unschedulable",
    "ready",
    "memorypressure",
    "diskpressure",
    "pidpressure",
    "hostports",
    "disks",
    "podaffinity",
    "topologyspread",
    "volumes",
    "volumezones",
    "volumelimits",
    "claimsharing",
)
# What a pod could not run without on any node: these checks cannot be switched off.
_ALWAYS = "always"
_MOST_TAINTS = 100  # that are named one by one
# kube-batch's own switches for three of them.
_KUBE_BATCH = {
    "predicate.MemoryPressureEnable": "memorypressure",
    "predicate.DiskPressureEnable": "diskpressure",
    "predicate.PIDPressureEnable": "pidpressure",
}


class Predicates:
    def __init__(self, arguments: Arguments) -> None:
        wanted = arguments.words("checks", CHECKS)
        for name in wanted:
            if name not in CHECKS:
                raise arguments.error("checks", f"unknown check {name!r}; known: {', '.join(CHECKS)}")
        on = set(wanted)
        for argument, name in _KUBE_BATCH.items():
            if arguments.boolean(argument, default=name in on):
                on.add(name)
            else:
                on.discard(name)
        self._on = frozenset({*on, _ALWAYS})

    def open(self, session: Session) -> Hooks:
        nodes = session.snapshot.nodes

        def predicate(group: TaskGroup) -> Iterator[Check]:
            return (check for name, check in node_checks(nodes, group) if name in self._on)

        def pod_predicate(group: TaskGroup, later: bool) -> Iterator[Check]:
            return (check for name, check in pod_checks(session, group, later=later) if name in self._on)

        return Hooks(
            predicate=predicate,
            pod_predicate=pod_predicate,
            pod_predicate_groups=no_other_group,
            group_kind=nothing_else,
        )


def node_checks(nodes: NodeTable, group: TaskGroup) -> Iterator[tuple[str, Check]]:
    """The checks on the node itself, the most telling reason first."""
    constraint = group.shape.constraint
    none = np.zeros(len(nodes), dtype=bool)
    if constraint.claims_resources:
        yield _ALWAYS, Check("resourceClaims (dynamic resource allocation) are not supported yet", none)
    if constraint.obstacles:
        yield "volumes", Check(constraint.obstacles[0], none)
    if constraint.node_name:
        chosen = none.copy()
        if constraint.node_name in nodes.index:
            chosen[nodes.index[constraint.node_name]] = True
        yield "nodename", Check(f"node is not {constraint.node_name}", chosen)
    for key, value in constraint.node_selector:
        yield "nodeselector", Check(f"node lacks label {key}={value}", nodes.labelled(key, value))
    if constraint.required is not None:
        yield "nodeselector", Check("node affinity does not match", nodes.selected(constraint.required))
    for feature in constraint.features:
        yield _ALWAYS, Check(f"node does not declare the feature {feature}", nodes.declaring(feature))
    for terms in constraint.volumes:
        yield "volumes", Check("volume cannot be reached", nodes.selected(terms))
    if constraint.late_claims:
        passes = _gets_volumes(nodes, constraint.late_claims, frozenset())
        yield "volumes", Check("no free volume can be reached, and none can be made there", passes)
    for key, value in constraint.volume_zones:
        yield "volumezones", Check("volume is in another zone", _in_zone(nodes, key, value))
    yield "ready", Check("node is not ready", nodes.ready & ~nodes.pressure["NetworkUnavailable"])
    unschedulable = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if not tolerates(constraint.tolerations, unschedulable):
        yield "unschedulable", Check("node is cordoned", ~nodes.unschedulable)
    if group.shape.is_best_effort:
        yield "memorypressure", Check("node has memory pressure", ~nodes.pressure["MemoryPressure"])
    yield "diskpressure", Check("node has disk pressure", ~nodes.pressure["DiskPressure"])
    yield "pidpressure", Check("node has PID pressure", ~nodes.pressure["PIDPressure"])
    for effect, check in _taint_checks(nodes, constraint.tolerations):
        yield ("noexecute" if effect == "NoExecute" else "taints"), check


def _in_zone(nodes: NodeTable, key: str, value: str) -> BoolArray:
    """As in kube-scheduler: an old zone label of a volume is compared with the node's new label if the node has no old
    one; a node without any zone label passes; a value with an empty part is ignored.
    """
    wanted = [zone.strip() for zone in value.split("__")]
    if "" in wanted:
        return nodes.everywhere
    says_nothing: BoolArray = np.logical_and.reduce([nodes.column(label)[0] < 0 for label in ZONE_LABELS])
    codes, values = nodes.column(key)
    inside: BoolArray = np.array([*(name in wanted for name in values), False], dtype=bool)[codes]
    newer = "topology.kubernetes.io/" + key.rsplit("/", 1)[1]
    if newer != key:
        inside |= (codes < 0) & _in_zone(nodes, newer, value)
    return inside | says_nothing


def _gets_volumes(nodes: NodeTable, claims: Sequence[LateClaim], taken: Set[str]) -> BoolArray:
    """Nodes on which each of the claims gets a volume, in their order: a free one that is not taken, or a new one."""
    passes = nodes.everywhere
    used: dict[str, BoolArray] = {}  # volume -> nodes on which an earlier claim would take it
    for claim in claims:
        gets = np.zeros(len(nodes), dtype=bool)
        for volume in claim.volumes if not claim.node else ():
            if volume.name not in taken:
                takes = ~gets if volume.terms is None else nodes.selected(volume.terms) & ~gets
                if volume.name in used:
                    takes = takes & ~used[volume.name]
                used[volume.name] = takes | used.get(volume.name, False)
                gets = gets | takes
        if claim.made is not None:
            gets = np.logical_or(gets, np.logical_and.reduce([nodes.everywhere, *map(nodes.selected, claim.made)]))
        if claim.node:
            gets = gets & np.array([name == claim.node for name in nodes.names], dtype=bool)
        passes = passes & gets
    return passes


def _taint_checks(nodes: NodeTable, tolerations: tuple[Toleration, ...]) -> Iterator[tuple[str, Check]]:
    """(effect, check) for each taint that some node has and the pod does not tolerate."""
    repelling = nodes.repelling_taints
    keys = {toleration.key for toleration in tolerations}
    tolerated = {
        taint
        for key in (repelling.by_key if "" in keys else keys)
        for taint in repelling.by_key.get(key, ())
        if tolerates(tolerations, taint)
    }
    if len(repelling.sets) - len(tolerated) > _MOST_TAINTS:
        yield from _joint_taint_checks(nodes, tolerated)
        return
    for taint, sets in repelling.sets.items():
        if taint not in tolerated:
            passes = ~np.isin(nodes.taint_class, sets)
            yield taint.effect, Check(f"taint {_show_taint(taint)} is not tolerated", passes)


def _joint_taint_checks(nodes: NodeTable, tolerated: Set[Taint]) -> Iterator[tuple[str, Check]]:
    """One check for all taints of an effect: thousands of checks for each kind of pod would take minutes."""
    repelling = nodes.repelling_taints
    for effect in EFFECTS:
        left = repelling.left(effect, tolerated)
        if left.any():
            first = next(taint for taint in repelling.sets if taint.effect == effect and taint not in tolerated)
            reason = f"taints such as {_show_taint(first)} are not tolerated"
            yield effect, Check(reason, left[nodes.taint_class] == 0)


def _show_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(
        (not t.effect or t.effect == taint.effect)
        and (not t.key or t.key == taint.key)
        and (t.operator == "Exists" or (bool(t.key) and _meets(t, taint.value)))
        for t in tolerations
    )


def _meets(toleration: Toleration, value: str) -> bool:
    """Whether the value of a taint meets the toleration. An operator that is not known tolerates nothing."""
    match toleration.operator:
        case "Equal" | "":
            return toleration.value == value
        case "Gt" | "Lt":
            bound, number = whole_number(toleration.value), whole_number(value)
            if bound is None or number is None:
                return False
            return number > bound if toleration.operator == "Gt" else number < bound
    return False


def pod_checks(session: Session, group: TaskGroup, *, later: bool) -> Iterator[tuple[str, Check]]:
    """The checks on the pods of the node, including those placed in this cycle.

    A pod that is bound now needs the company that is there now. It may clash neither with that nor with the pods that
    are promised room.
    """
    count = len(session.snapshot.nodes)
    neighbours = session.neighbours
    view = neighbours.later if later else neighbours.now
    views = [view] if view is neighbours.later else [view, neighbours.later]
    for kind, name, reason in (
        ("port", "hostports", "host port is taken"),
        ("disk", "disks", "disk is in use"),
    ):
        wanted = [exclusive for exclusive in group.shape.exclusives if exclusive.kind == kind]
        if wanted:
            free = np.ones(count, dtype=bool)
            by_name: dict[str, list[Exclusive]] = {}
            for exclusive in wanted:
                by_name.setdefault(exclusive.name, []).append(exclusive)
            for node, held in (item for view in views for item in view.exclusives.items()):
                if any(exclusive.clashes(other) for other in held for exclusive in by_name.get(other.name, ())):
                    free[node] = False
            yield name, Check(reason, free)
    if group.shape.exclusives:
        yield from _claim_checks(session, group.shape.exclusives, views)
    if group.pod_affinity is not None:
        every_counts = [view.counts for view in views]
        yield from (("podaffinity", check) for check in _affinity_checks(group.pod_affinity, *every_counts))
        eligible: dict[tuple[bool, bool], BoolArray] = {}
        required = [spread for spread in group.pod_affinity.spread if spread.is_required]
        keys = {spread.term.topology_key: view.counts.has_label(spread.term.topology_key) for spread in required}
        yield from (("topologyspread", check) for check in _label_checks(keys, "topology spread"))
        for spread in required:
            honours = (spread.honours_affinity, spread.honours_taints)
            if honours not in eligible:
                eligible[honours] = _eligible(session, group, group.pod_affinity, spread, view.counts)
            passes = _within_skew(session, group.pod_affinity, spread, view.counts, eligible[honours])
            yield "topologyspread", Check("topology spread would be violated", passes)


def _claim_checks(
    session: Session, exclusives: tuple[Exclusive, ...], views: Sequence[View]
) -> Iterator[tuple[str, Check]]:
    """Claims that one pod of the cluster may use, the number of volumes that a node can attach, and free volumes that
    claims of other pods are about to take.
    """
    count = len(session.snapshot.nodes)
    late = {exclusive.name: exclusive.late for exclusive in exclusives if exclusive.late is not None}
    if late:
        taken = _taken_volumes(session.snapshot.nodes, views, late.keys())
        passes = _gets_volumes(session.snapshot.nodes, [*late.values()], taken)
        yield "volumes", Check("the free volumes there are taken by other claims", passes)
    claims = {exclusive for exclusive in exclusives if exclusive.kind == "claim"}
    if claims:
        is_free = all(claims.isdisjoint(held) for view in views for held in view.exclusives.values())
        yield "claimsharing", Check("another pod uses the ReadWriteOncePod claim", np.full(count, is_free))
    volumes = {exclusive for exclusive in exclusives if exclusive.kind == "volume"}
    for driver in sorted({volume.driver for volume in volumes}):
        limits = session.snapshot.volume_limits.get(driver)
        if limits is None:
            continue
        own = {volume for volume in volumes if volume.driver == driver}
        passes = limits >= len(own)
        for node, held in (item for view in views for item in view.exclusives.items()):
            if passes[node]:
                attached = {volume for volume in held if volume.kind == "volume" and volume.driver == driver}
                # As in kube-scheduler: a pod that brings no new volume is not refused.
                passes[node] = own <= attached or len(own | attached) <= limits[node]
        yield "volumelimits", Check(f"node can attach no more volumes of {driver}", passes)


def _taken_volumes(nodes: NodeTable, views: Sequence[View], own: Set[str]) -> set[str]:
    """The volumes that unbound claims of pods on nodes will get, apart from the claims `own`."""
    waiting: dict[str, tuple[int, LateClaim]] = {}
    for node, held in (item for view in views for item in view.exclusives.items()):
        for exclusive in held:
            if exclusive.late is not None and exclusive.name not in own:
                waiting.setdefault(exclusive.name, (node, exclusive.late))
    taken: set[str] = set()
    for _, (node, claim) in sorted(waiting.items()):
        pick([claim], partial(_reaches, nodes, node), taken)
    return taken


def _reaches(nodes: NodeTable, node: int, volume: FreeVolume) -> bool:
    return volume.terms is None or bool(nodes.selected(volume.terms)[node])


def _label_checks(keys: Mapping[str, BoolArray], rule: str) -> Iterator[Check]:
    """`keys`: the labels of the domains that the rule is about, and the nodes that have each."""
    for key, labelled in keys.items():
        if not labelled.all():
            yield Check(f"node lacks label {key} ({rule})", labelled)


def _affinity_checks(pod_affinity: AffinityInfo, counts: AffinityCounts, *others: AffinityCounts) -> Iterator[Check]:
    """Pods to be close to are looked for in `counts`, pods to keep away from also in `others`."""
    if company := pod_affinity.company:
        keys = {term.topology_key: counts.has_label(term.topology_key) for term in company}
        yield from _label_checks(keys, "pod affinity")
        together = [counts.by_domain(term) > 0 for term in company]
        # The first pod of a set with affinity to itself finds no peer. It may go to any node with the labels.
        if not any(peers.any() for peers in together) and pod_affinity.match(company[0]):
            together = [*keys.values()]
        unlabelled = ~np.logical_and.reduce([*keys.values()])
        yield Check("no pod to be close to (pod affinity)", np.logical_and.reduce(together) | unlabelled)
    views = (counts, *others)
    for term in pod_affinity.anti_affinity:
        away = np.logical_and.reduce([view.by_domain(term) == 0 for view in views])
        yield Check("a pod to keep away from is there (pod anti-affinity)", away)
    banned = [mask for view in views if (mask := view.repelled(pod_affinity)) is not None]
    if banned:
        yield Check("a pod there keeps others away (pod anti-affinity)", ~np.logical_or.reduce(banned))


def _eligible(
    session: Session, group: TaskGroup, pod_affinity: AffinityInfo, spread: Spread, counts: AffinityCounts
) -> BoolArray:
    """Nodes that are in a domain. They are the same for all constraints that honour the same."""
    nodes = session.snapshot.nodes
    # Pods can only go to nodes with the labels of all constraints, so other nodes are in no domain.
    eligible: BoolArray = np.logical_and.reduce(
        [counts.has_label(s.term.topology_key) for s in pod_affinity.spread if s.is_required]
    )
    if spread.honours_affinity:
        for name, check in node_checks(nodes, group):
            if name in ("nodeselector", "nodename"):
                eligible &= check.passes
    if spread.honours_taints:
        for _, check in _taint_checks(nodes, group.shape.constraint.tolerations):
            eligible &= check.passes
    return eligible


def _within_skew(
    session: Session, pod_affinity: AffinityInfo, spread: Spread, counts: AffinityCounts, eligible: BoolArray
) -> BoolArray:
    """Nodes where one more pod leaves its domain at most max_skew above the emptiest domain, and nodes in no domain.

    As in kube-scheduler, terminating pods do not count.
    """
    nodes = session.snapshot.nodes
    unlabelled = ~counts.has_label(spread.term.topology_key)
    if not eligible.any():
        return unlabelled
    matching = np.where(eligible, counts.staying(spread.term), 0.0)
    by_domain = counts.spread_out(matching, spread.term.topology_key)
    codes, _ = nodes.column(spread.term.topology_key)
    domains = len(np.unique(codes[eligible]))
    lowest = float(by_domain[eligible].min()) if domains >= spread.min_domains else 0.0
    own = 1.0 if pod_affinity.match(spread.term) else 0.0
    return unlabelled | (by_domain + own - lowest <= spread.max_skew)
