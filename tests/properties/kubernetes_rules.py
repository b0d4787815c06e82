"""Whether a pod may run on a node: Kubernetes' required rules, from its documentation, for the referee.

Rules between pods look at a whole set of placements at once, because a plan has no order: a set is
objected to only if no order of binding could have been legal. Company that is leaving satisfies the
affinity of a pod that is bound, and counts in no spread. It is no company to a pod that is promised room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from properties.cluster_facts import Facts, Node, Pod
from properties.raw_objects import at, number, rows, strings, table, text


@dataclass(frozen=True, eq=False)
class Site:
    """A pod on a node."""

    pod: Pod
    node: Node


def matches_expression(expression: object, labels: Mapping[str, str]) -> bool:
    key, operator = text(expression, "key"), text(expression, "operator")
    values = [str(value) for value in rows(expression, "values")]
    found = labels.get(key)
    match operator:
        case "In":
            return found is not None and found in values
        case "NotIn":
            return found is None or found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            if found is None or not found.lstrip("-").isdigit() or len(values) != 1:
                return False
            return int(found) > int(values[0]) if operator == "Gt" else int(found) < int(values[0])
    raise ValueError(f"unknown operator {operator!r}")


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """A LabelSelector: absent selects nothing, empty selects everything."""
    if not isinstance(selector, Mapping):
        return False
    wanted = strings(selector, "matchLabels")
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        matches_expression(expression, labels) for expression in rows(selector, "matchExpressions")
    )


def matches_terms(terms: list[object], node: Node) -> bool:
    """Node selector terms: one of them must hold, and an empty one never does."""

    def holds(term: object) -> bool:
        expressions, fields = rows(term, "matchExpressions"), rows(term, "matchFields")
        return (
            bool(expressions or fields)
            and all(matches_expression(expression, node.labels) for expression in expressions)
            and all(matches_expression(expression, {"metadata.name": node.name}) for expression in fields)
        )

    return any(holds(term) for term in terms)


def is_wanted_by(pod: Pod, node: Node) -> bool:
    """The pod's own choice of nodes: nodeSelector and required node affinity."""
    selector = strings(pod.spec, "nodeSelector")
    required = at(pod.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return all(node.labels.get(key) == value for key, value in selector.items()) and (
        required is None or matches_terms(rows(required, "nodeSelectorTerms"), node)
    )


def tolerates(pod: Pod, taint: object) -> bool:
    def covers(toleration: object) -> bool:
        key, effect = text(toleration, "key"), text(toleration, "effect")
        if effect and effect != text(taint, "effect"):
            return False
        operator = text(toleration, "operator", default="Equal")
        if operator == "Exists":
            return not key or key == text(taint, "key")
        if key != text(taint, "key"):
            return False
        bound, value = text(toleration, "value"), text(taint, "value")
        if operator in {"Gt", "Lt"}:
            if not all(number.removeprefix("-").isdigit() for number in (bound, value)):
                return False
            return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
        return operator == "Equal" and value == bound

    return any(covers(toleration) for toleration in rows(pod.spec, "tolerations"))


def objections_of_node(facts: Facts, pod: Pod, node: Node) -> Iterator[str]:
    """Everything about the node itself that forbids this pod, regardless of other pods."""
    if not is_wanted_by(pod, node):
        yield "its nodeSelector or node affinity does not match"
    for taint in node.taints:
        if text(taint, "effect") in {"NoSchedule", "NoExecute"} and not tolerates(pod, taint):
            yield f"it does not tolerate the taint {text(taint, 'key')}:{text(taint, 'effect')}"
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node.is_unschedulable and not tolerates(pod, cordon):
        yield "the node is unschedulable"
    if not node.is_ready:
        yield "the node is not ready"
    for volume in rows(pod.spec, "volumes"):
        claim = text(volume, "persistentVolumeClaim", "claimName")
        terms = facts.volume_terms.get(f"{pod.namespace}/{claim}")
        if claim and terms and not matches_terms(terms, node):
            yield f"the volume of its claim {claim} cannot be reached from there"
        if claim and f"{pod.namespace}/{claim}" in facts.unready_claims:
            yield f"its claim {claim} is not bound, or is being deleted"
    if rows(pod.spec, "resourceClaims"):
        yield "it has resource claims, which nobody allocates"


def host_ports(pod: Pod) -> list[tuple[str, str, int]]:
    on_host = at(pod.spec, "hostNetwork") is True
    ports: list[tuple[str, str, int]] = []
    sidecars = [row for row in rows(pod.spec, "initContainers") if text(row, "restartPolicy") == "Always"]
    for container in [*rows(pod.spec, "containers"), *sidecars]:
        for port in rows(container, "ports"):
            wanted = number(port, "hostPort") or (number(port, "containerPort") if on_host else 0)
            if wanted:
                address = text(port, "hostIP") or "0.0.0.0"
                ports.append((address, text(port, "protocol", default="TCP"), wanted))
    return ports


def clashing_port(one: Pod, other: Pod) -> int | None:
    for address, protocol, port in host_ports(one):
        for other_address, other_protocol, other_port in host_ports(other):
            same_address = address == other_address or "0.0.0.0" in {address, other_address}
            if same_address and (protocol, port) == (other_protocol, other_port):
                return port
    return None


def clashing_disk(one: Pod, other: Pod) -> str:
    """A disk that both mount, unless both only read it; empty if there is none."""
    ours, theirs = ({text(disk, "pdName"): at(disk, "readOnly") is True for disk in disks(pod)} for pod in (one, other))
    return next((name for name in ours.keys() & theirs.keys() if not (ours[name] and theirs[name])), "")


def disks(pod: Pod) -> list[object]:
    return [disk for volume in rows(pod.spec, "volumes") if (disk := at(volume, "gcePersistentDisk")) is not None]


def claims(pod: Pod) -> set[str]:
    names = (text(volume, "persistentVolumeClaim", "claimName") for volume in rows(pod.spec, "volumes"))
    return {f"{pod.namespace}/{name}" for name in names if name}


def pod_terms(pod: Pod, kind: str) -> list[object]:
    return rows(pod.spec, "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")


def term_selects(facts: Facts, owner: Pod, term: object, other: Pod) -> bool:
    namespaces, selector = rows(term, "namespaces"), at(term, "namespaceSelector")
    if not namespaces and selector is None:
        is_in_scope = other.namespace == owner.namespace
    else:
        labels = facts.namespaces.get(other.namespace, {"kubernetes.io/metadata.name": other.namespace})
        is_in_scope = other.namespace in namespaces or selects(selector, labels)
    return is_in_scope and is_selected(term, owner, other)


def is_selected(term: object, owner: Pod, other: Pod) -> bool:
    """Whether the other pod has the labels: the selector's, and the owner's values of some keys, or other values."""
    same = {key: owner.labels[key] for key in map(str, rows(term, "matchLabelKeys")) if key in owner.labels}
    unlike = {key: owner.labels[key] for key in map(str, rows(term, "mismatchLabelKeys")) if key in owner.labels}
    return (
        selects(at(term, "labelSelector"), other.labels)
        and all(other.labels.get(key) == value for key, value in same.items())
        and all(other.labels.get(key) != value for key, value in unlike.items())
    )


def shares_domain(term: object, one: Node, other: Node) -> bool:
    key = text(term, "topologyKey")
    return key in one.labels and one.labels.get(key) == other.labels.get(key)


def repels(facts: Facts, owner: Site, other: Site) -> bool:
    return any(
        term_selects(facts, owner.pod, term, other.pod) and shares_domain(term, owner.node, other.node)
        for term in pod_terms(owner.pod, "podAntiAffinity")
    )


def objections_between(facts: Facts, new: list[Site], present: list[Site]) -> Iterator[str]:
    """Host ports, disks, claims of one pod, and required anti-affinity, in both directions, where one of the two pods
    at least is new.
    """
    for index, site in enumerate(new):
        for other in new[index + 1 :] + present:
            for claim in claims(site.pod) & claims(other.pod) & facts.claims_of_one_pod:
                yield f"{site.pod.key} and {other.pod.key} both use the ReadWriteOncePod claim {claim}"
            disk = clashing_disk(site.pod, other.pod) if site.node.name == other.node.name else ""
            if disk:
                yield f"{site.pod.key} and {other.pod.key} both mount disk {disk} on {site.node.name}"
            port = clashing_port(site.pod, other.pod) if site.node.name == other.node.name else None
            if port is not None:
                yield f"{site.pod.key} and {other.pod.key} both want host port {port} of {site.node.name}"
            if repels(facts, site, other) or repels(facts, other, site):
                yield (
                    f"the required anti-affinity between {site.pod.key} on {site.node.name} "
                    f"and {other.pod.key} on {other.node.name} is broken"
                )


def without_company(facts: Facts, new: list[Site], present: list[Site]) -> list[Site]:
    """The new sites whose required pod affinity no order of binding could satisfy.

    Of several terms, only pods that all of them select are company. A pod that selects itself may be the first of its
    kind, wherever it likes. More company never hurts anyone but such a first one, so it is enough to look for an order
    in which the first ones come before all others.
    """
    choosy = [site for site in new if pod_terms(site.pod, "podAffinity")]
    others = [site for site in new if site not in choosy]

    def is_company(site: Site, other: Pod) -> bool:
        return all(term_selects(facts, site.pod, term, other) for term in pod_terms(site.pod, "podAffinity"))

    def is_accompanied(site: Site, placed: list[Site]) -> bool:
        company = [other for other in placed if is_company(site, other.pod)]
        return all(
            any(shares_domain(term, site.node, other.node) for other in company)
            for term in pod_terms(site.pod, "podAffinity")
        )

    def may_be_first(site: Site, placed: list[Site]) -> bool:
        keys = [text(term, "topologyKey") for term in pod_terms(site.pod, "podAffinity")]
        if not all(key in site.node.labels for key in keys) or not is_company(site, site.pod):
            return False
        return not any(
            any(key in other.node.labels for key in keys) and is_company(site, other.pod) for other in placed
        )

    def left_over(firsts: list[Site]) -> list[Site]:
        placed, waiting = present + firsts + others, [site for site in choosy if site not in firsts]
        while ready := [site for site in waiting if is_accompanied(site, placed)]:
            placed = placed + ready
            waiting = [site for site in waiting if site not in ready]
        return waiting

    def fewest_left(firsts: list[Site]) -> list[Site]:
        best = left_over(firsts)
        for site in choosy:
            if best and site not in firsts and may_be_first(site, present + firsts):
                best = min(best, fewest_left([*firsts, site]), key=len)
        return best

    return fewest_left([])


def is_counted(facts: Facts, pod: Pod, constraint: object, node: Node, keys: list[str]) -> bool:
    """Whether topology spread counts this node."""
    if not all(key in node.labels for key in keys):
        return False
    if text(constraint, "nodeAffinityPolicy", default="Honor") == "Honor" and not is_wanted_by(pod, node):
        return False
    return text(constraint, "nodeTaintsPolicy", default="Ignore") == "Ignore" or not any(
        "taint" in objection or "unschedulable" in objection for objection in objections_of_node(facts, pod, node)
    )


def spread_constraints(pod: Pod) -> list[object]:
    return [
        constraint
        for constraint in rows(pod.spec, "topologySpreadConstraints")
        if text(constraint, "whenUnsatisfiable", default="DoNotSchedule") == "DoNotSchedule"
    ]


def skew_broken(facts: Facts, site: Site, new: list[Site], present: list[Site]) -> str | None:
    """A topology spread constraint that no order of binding `new` could have kept for this site.

    Counts only rise while binding. So the last pod with the constraint that entered a domain saw no
    higher minimum than the final one, and all other pods with the same constraint there. Those without it
    may have come later.
    """
    constraints = spread_constraints(site.pod)
    keys = [text(constraint, "topologyKey") for constraint in constraints]
    for constraint in constraints:
        key, most = text(constraint, "topologyKey"), number(constraint, "maxSkew", default=1)
        if key not in site.node.labels:
            return f"node {site.node.name} has no label {key} to spread over"
        nodes = [node for node in facts.nodes.values() if is_counted(facts, site.pod, constraint, node, keys)]
        counted = {node.name for node in nodes}
        at_least = dict.fromkeys((node.labels[key] for node in nodes), 0)
        at_most = dict(at_least)
        is_empty = not any(table(constraint, "labelSelector").values())
        if is_empty and not any(key in site.pod.labels for key in rows(constraint, "matchLabelKeys")):
            continue  # an empty selector counts nobody
        for other in present + new:
            selected = is_selected(constraint, site.pod, other.pod)
            if other.node.name in counted and selected and other.pod.namespace == site.pod.namespace:
                domain = other.node.labels[key]
                at_most[domain] += 1
                if other not in new or constraint in spread_constraints(other.pod):
                    at_least[domain] += 1
        fewest = min(at_most.values(), default=0)
        if len(at_most) < number(constraint, "minDomains", default=1):
            fewest = 0
        here = at_least.get(site.node.labels[key], 0)
        if here - fewest > most:
            return f"{here} pods in {key}={site.node.labels[key]} against {fewest} elsewhere, maxSkew {most}"
    return None


def objections_of_company(
    facts: Facts, new: list[Site], staying: list[Site], leaving: list[Site], victims: list[Site]
) -> Iterator[str]:
    """Required pod affinity and topology spread of the new sites, beside pods that stay, that are leaving already, and
    that are evicted in the same round: these are still there, or gone, when a pod is bound.
    """
    lonely = without_company(facts, new, staying + leaving + victims)
    if lonely and (leaving or victims):
        lonely = [site for site in without_company(facts, new, staying) if site in lonely]
    for site in lonely:
        yield f"the required pod affinity of {site.pod.key} on {site.node.name} is not met"
    for site in new:
        broken = skew_broken(facts, site, new, staying)
        if broken and (not victims or skew_broken(facts, site, new, staying + victims)):
            yield f"the topology spread of {site.pod.key} is broken: {broken}"


def is_plain(facts: Facts, pod: Pod) -> bool:
    """No rule between this pod and others: whether it fits depends on its node and on numbers only."""
    spec = pod.spec
    affinity = table(spec, "affinity")
    return (
        not disks(pod)
        and not claims(pod) & facts.claims_of_one_pod
        and "podAffinity" not in affinity
        and "podAntiAffinity" not in affinity
        and not rows(spec, "topologySpreadConstraints")
        and at(spec, "hostNetwork") is not True
        and not any(rows(row, "ports") for row in [*rows(spec, "containers"), *rows(spec, "initContainers")])
    )
