"""What is wrong with Kubernetes' own objects beyond their types: the API server's rules, as far as scheduling
relies on them, and the helpers that validate.py shares.

Every pod of a cluster comes through here, so one without fault must pass in a few microseconds: paths and
messages are made only when something is wrong, and equal resource lists are looked at once.
"""

import re
from datetime import datetime
from fractions import Fraction
from functools import lru_cache

from maniple.api import kubernetes
from maniple.api.bind_failures import bind_failure_problems
from maniple.api.errors import Problem, nearest
from maniple.api.gpu import assignment
from maniple.api.gpu.requests import wish_problems
from maniple.api.gpu.topology_annotation import problems as topology_problems
from maniple.api.labels import (
    GPU_TOPOLOGY_ANNOTATION,
    GPUS_ANNOTATION,
    OWN_ANNOTATIONS,
    OWN_LABELS,
    RESERVED_ANNOTATION,
)
from maniple.api.meta import LabelRequirement, LabelSelector, ObjectMeta, ResourceList
from maniple.api.quantity import parse_quantity
from maniple.api.timestamps import LAST_YEAR
from maniple.api.types import GROUP

MAX_USER_PRIORITY = 1_000_000_000

A_LABEL = "a name of lower-case letters, digits and '-', at most 63, with a letter or digit at both ends"
A_NAME = "a name of lower-case letters, digits, '-' and '.', at most 253, with a letter or digit at both ends"

_LABEL_FORM = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_LABEL_FORM)
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL_FORM}(?:\.{_LABEL_FORM})*")
_PERCENT = re.compile(r"(?:100|[0-9]{1,2})%")

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUESTS = ("requests", "limits")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")

Found = list[Problem]
Items = tuple[tuple[str, str | int | float], ...]
Wrong = tuple[tuple[str, str], ...]  # field, message


# --- pods


def check_pod(pod: kubernetes.Pod, found: Found) -> None:
    metadata = pod.metadata
    check_metadata(metadata, found)
    gpus = metadata.annotations.get(GPUS_ANNOTATION)
    if gpus is not None and not assignment.is_assignment(gpus):
        add(found, f"metadata.annotations[{GPUS_ANNOTATION}]", assignment.EXPECTED, shown(gpus))
    if metadata.annotations:
        check_wishes(metadata.annotations, "metadata", found)
        check_gang_notes(metadata, found)
    check_own_words(metadata, found)
    check_pod_spec(pod.spec, "spec", found)
    if pod.status.phase not in _PHASES:
        _one_of(pod.status.phase, _PHASES, "status.phase", found)
    check_time(pod.status.start_time, "status.startTime", found)


def check_own_words(metadata: ObjectMeta, found: Found) -> None:
    """Labels and annotations of our own that there are not: a typing error would be an order that nobody obeys.

    Of objects from an API server (they have a uid) nothing is said: another version may know them.
    """
    if metadata.uid:
        return
    for field, given, known in (
        ("labels", metadata.labels, OWN_LABELS),
        ("annotations", metadata.annotations, OWN_ANNOTATIONS),
    ):
        for key in given:
            if key.startswith(f"{GROUP}/") and key not in known:
                found.append(Problem(f"metadata.{field}[{key}]", f"there is no such word{nearest(key, known)}"))


def check_wishes(annotations: dict[str, str], at: str, found: Found) -> None:
    """The annotations that ask for GPUs."""
    found.extend(Problem(f"{at}.annotations[{name}]", message) for name, message in wish_problems(annotations))


def check_gang_notes(metadata: ObjectMeta, found: Found) -> None:
    """The annotations with which the scheduler remembers what has become of a gang so far."""
    wrong = bind_failure_problems(metadata.annotations)
    found.extend(Problem(f"metadata.annotations[{name}]", message) for name, message in wrong)
    reserved = metadata.annotations.get(RESERVED_ANNOTATION)
    if reserved not in (None, "true", "false"):
        add(found, f"metadata.annotations[{RESERVED_ANNOTATION}]", "'true' or 'false'", shown(reserved))


def check_pod_spec(spec: kubernetes.PodSpec, at: str, found: Found) -> None:
    if not spec.containers:
        add(found, f"{at}.containers", "at least one container", "none")
    for index, container in enumerate(spec.containers):
        _container(container, f"{at}.containers[{index}]", found)
    for index, container in enumerate(spec.init_containers):
        _container(container, f"{at}.initContainers[{index}]", found)
    resources = spec.resources
    if resources.requests or resources.limits:
        check_pair(_REQUESTS, resources.requests, resources.limits, f"{at}.resources", found)
    if spec.overhead:
        check_quantities(spec.overhead, f"{at}.overhead", found)
    if spec.affinity is not None:
        _affinity(spec.affinity, f"{at}.affinity", found)
    if spec.tolerations:
        _tolerations(spec.tolerations, f"{at}.tolerations", found)
    for index, spread in enumerate(spec.topology_spread_constraints):
        _spread(spread, f"{at}.topologySpreadConstraints[{index}]", found)
    if spec.preemption_policy and spec.preemption_policy not in _PREEMPTION_POLICIES:
        _one_of(spec.preemption_policy, _PREEMPTION_POLICIES, f"{at}.preemptionPolicy", found)


def _container(container: kubernetes.Container, at: str, found: Found) -> None:
    if container.name and not is_label(container.name):
        add(found, f"{at}.name", A_LABEL, shown(container.name))
    resources = container.resources
    if resources.requests or resources.limits:
        check_pair(_REQUESTS, resources.requests, resources.limits, f"{at}.resources", found)
    for index, port in enumerate(container.ports):
        _port(port, f"{at}.ports[{index}]", found)


def _port(port: kubernetes.ContainerPort, at: str, found: Found) -> None:
    if not 0 <= port.container_port <= 65535:
        add(found, f"{at}.containerPort", "a port between 1 and 65535", port.container_port)
    if not 0 <= port.host_port <= 65535:
        add(found, f"{at}.hostPort", "a port between 1 and 65535", port.host_port)
    if port.protocol not in _PROTOCOLS:
        _one_of(port.protocol, _PROTOCOLS, f"{at}.protocol", found)


def _tolerations(tolerations: tuple[kubernetes.Toleration, ...], at: str, found: Found) -> None:
    for index, toleration in enumerate(tolerations):
        operator = toleration.operator
        if operator == "Exists":
            if toleration.value:
                add(found, f"{at}[{index}].value", "none for the operator Exists", shown(toleration.value))
        elif operator not in ("Equal", ""):
            _one_of(operator, ("Equal", "Exists"), f"{at}[{index}].operator", found)
        elif not toleration.key:
            add(found, f"{at}[{index}].operator", "Exists where no key is given", shown(operator))
        if toleration.effect and toleration.effect not in _EFFECTS:
            _one_of(toleration.effect, _EFFECTS, f"{at}[{index}].effect", found)


def _spread(spread: kubernetes.TopologySpreadConstraint, at: str, found: Found) -> None:
    if spread.max_skew < 1:
        add(found, f"{at}.maxSkew", "at least 1", spread.max_skew)
    if spread.min_domains is not None and spread.min_domains < 1:
        add(found, f"{at}.minDomains", "at least 1", spread.min_domains)
    if not spread.topology_key:
        add(found, f"{at}.topologyKey", "a node label", "none")
    _one_of(spread.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{at}.whenUnsatisfiable", found)
    _one_of(spread.node_affinity_policy, ("Honor", "Ignore"), f"{at}.nodeAffinityPolicy", found)
    _one_of(spread.node_taints_policy, ("Honor", "Ignore"), f"{at}.nodeTaintsPolicy", found)
    _label_selector(spread.label_selector, f"{at}.labelSelector", found)


def _affinity(affinity: kubernetes.Affinity, at: str, found: Found) -> None:
    if (node := affinity.node_affinity) is not None:
        _node_selector(
            node.required_during_scheduling_ignored_during_execution, f"{at}.nodeAffinity.{_REQUIRED}", found
        )
        for index, preferred in enumerate(node.preferred_during_scheduling_ignored_during_execution):
            here = f"{at}.nodeAffinity.{_PREFERRED}[{index}]"
            _weight(preferred.weight, here, found)
            _node_term(preferred.preference, f"{here}.preference", found)
    for field, pods in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if pods is None:
            continue
        for index, term in enumerate(pods.required_during_scheduling_ignored_during_execution):
            _pod_term(term, f"{at}.{field}.{_REQUIRED}[{index}]", found)
        for index, weighted in enumerate(pods.preferred_during_scheduling_ignored_during_execution):
            here = f"{at}.{field}.{_PREFERRED}[{index}]"
            _weight(weighted.weight, here, found)
            _pod_term(weighted.pod_affinity_term, f"{here}.podAffinityTerm", found)


def _weight(weight: int, at: str, found: Found) -> None:
    if not 1 <= weight <= 100:
        add(found, f"{at}.weight", "1 to 100", weight)


def _pod_term(term: kubernetes.PodAffinityTerm, at: str, found: Found) -> None:
    if not term.topology_key:
        add(found, f"{at}.topologyKey", "a node label", "none")
    _label_selector(term.label_selector, f"{at}.labelSelector", found)
    _label_selector(term.namespace_selector, f"{at}.namespaceSelector", found)


# --- selectors


def _node_selector(selector: kubernetes.NodeSelector | None, at: str, found: Found) -> None:
    if selector is None:
        return
    if not selector.node_selector_terms:
        add(found, f"{at}.nodeSelectorTerms", "at least one term", "none")
    for index, term in enumerate(selector.node_selector_terms):
        _node_term(term, f"{at}.nodeSelectorTerms[{index}]", found)


def _node_term(term: kubernetes.NodeSelectorTerm, at: str, found: Found) -> None:
    _expressions(term.match_expressions, _NODE_OPERATORS, f"{at}.matchExpressions", found)
    _expressions(term.match_fields, _FIELD_OPERATORS, f"{at}.matchFields", found)
    for index, field in enumerate(term.match_fields):
        if field.key != "metadata.name":
            add(found, f"{at}.matchFields[{index}].key", "metadata.name", shown(field.key))


def _label_selector(selector: LabelSelector | None, at: str, found: Found) -> None:
    if selector is not None:
        _expressions(selector.match_expressions, _LABEL_OPERATORS, f"{at}.matchExpressions", found)


def _expressions(expressions: tuple[LabelRequirement, ...], operators: tuple[str, ...], at: str, found: Found) -> None:
    for index, expression in enumerate(expressions):
        operator, count = expression.operator, len(expression.values)
        if operator not in operators:
            _one_of(operator, operators, f"{at}[{index}].operator", found)
        elif operator in ("In", "NotIn") and count == 0:
            add(found, f"{at}[{index}].values", f"at least one value for the operator {operator}", "none")
        elif operator in ("Exists", "DoesNotExist") and count > 0:
            add(found, f"{at}[{index}].values", f"none for the operator {operator}", count)
        elif operator in ("Gt", "Lt") and count != 1:
            add(found, f"{at}[{index}].values", f"one value for the operator {operator}", count)


# --- Kubernetes' other kinds


def check_node(node: kubernetes.Node, found: Found) -> None:
    check_metadata(node.metadata, found)
    check_own_words(node.metadata, found)
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in _EFFECTS:
            _one_of(taint.effect, _EFFECTS, f"spec.taints[{index}].effect", found)
    check_quantities(node.status.capacity, "status.capacity", found)
    check_quantities(node.status.allocatable, "status.allocatable", found)
    topology = node.metadata.annotations.get(GPU_TOPOLOGY_ANNOTATION)
    if topology is not None:
        at = f"metadata.annotations[{GPU_TOPOLOGY_ANNOTATION}]"
        found.extend(Problem(at, message) for message in topology_problems(topology))


def check_priority_class(priority: kubernetes.PriorityClass, found: Found) -> None:
    check_metadata(priority.metadata, found)
    most = 2**31 - 1 if priority.metadata.name.startswith("system-") else MAX_USER_PRIORITY
    if not -(2**31) <= priority.value <= most:
        add(found, "value", f"{-(2**31)} to {most}", priority.value)
    _one_of(priority.preemption_policy, _PREEMPTION_POLICIES, "preemptionPolicy", found)


def check_pod_disruption_budget(budget: kubernetes.PodDisruptionBudget, found: Found) -> None:
    check_metadata(budget.metadata, found)
    spec = budget.spec
    for field, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if value is None:
            continue
        if value < 0 if isinstance(value, int) else not _PERCENT.fullmatch(value):
            add(found, f"spec.{field}", "a number of pods, or 0% to 100%", shown(value))
    if spec.min_available is not None and spec.max_unavailable is not None:
        add(found, "spec", "one of minAvailable and maxUnavailable", "both")
    _label_selector(spec.selector, "spec.selector", found)


def check_persistent_volume(volume: kubernetes.PersistentVolume, found: Found) -> None:
    check_metadata(volume.metadata, found)
    if volume.spec.node_affinity is not None:
        _node_selector(volume.spec.node_affinity.required, "spec.nodeAffinity.required", found)


def check_persistent_volume_claim(claim: kubernetes.PersistentVolumeClaim, found: Found) -> None:
    check_metadata(claim.metadata, found)


def check_namespace(namespace: kubernetes.Namespace, found: Found) -> None:
    if not is_label(namespace.metadata.name):
        add(found, "metadata.name", A_LABEL, shown(namespace.metadata.name))


# --- names, quantities, words


def check_metadata(metadata: ObjectMeta, found: Found) -> None:
    name = metadata.name
    if not is_name(name):
        add(found, "metadata.name", A_NAME, shown(name))
    if metadata.namespace and not is_label(metadata.namespace):
        add(found, "metadata.namespace", A_LABEL, shown(metadata.namespace))
    check_time(metadata.creation_timestamp, "metadata.creationTimestamp", found)
    check_time(metadata.deletion_timestamp, "metadata.deletionTimestamp", found)


def check_time(moment: datetime | None, at: str, found: Found) -> None:
    if moment is not None and moment.year >= LAST_YEAR:
        add(found, at, f"a time before the year {LAST_YEAR}", moment.isoformat())


def is_service_name(text: str) -> bool:
    """Whether a Service can be called so, which is less than any object can."""
    return len(text) <= 63 and _SERVICE_NAME.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether an object can be called so."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def check_quantities(resources: ResourceList, at: str, found: Found) -> None:
    if resources:
        found.extend(Problem(f"{at}{field}", message) for field, message in _parsed(tuple(resources.items()))[1])


def check_pair(names: tuple[str, str], low: ResourceList, high: ResourceList, at: str, found: Found) -> None:
    """Two resource lists, fields of `at`, of which the first may not exceed the second in any resource."""
    wrong = _compared(names, tuple(low.items()), tuple(high.items()))
    if wrong:
        found.extend(Problem(f"{at}.{field}", message) for field, message in wrong)


# A cluster's pods have few different requests: what is found for one is right for thousands.
@lru_cache(maxsize=16384)
def _compared(names: tuple[str, str], low: Items, high: Items) -> Wrong:
    lower, upper = names
    least, wrong_low = _parsed(low)
    most, wrong_high = _parsed(high)
    wrong = [(lower + field, message) for field, message in wrong_low]
    wrong += [(upper + field, message) for field, message in wrong_high]
    if names == _REQUESTS:
        # Kubernetes divides CPU, and no device.
        for field, values in ((lower, least), (upper, most)):
            wrong += [
                (
                    f"{field}[{resource}]",
                    f"expected a whole number, found {dict(low if field == lower else high)[resource]}",
                )
                for resource, value in values.items()
                if "/" in resource and value.denominator != 1
            ]
    for resource, value in least.items():
        if value > most.get(resource, value):
            expected = f"at most {upper}[{resource}] ({dict(high)[resource]})"
            wrong.append((f"{lower}[{resource}]", f"expected {expected}, found {dict(low)[resource]}"))
    return tuple(wrong)


@lru_cache(maxsize=16384)
def _parsed(items: Items) -> tuple[dict[str, Fraction], Wrong]:
    values: dict[str, Fraction] = {}
    wrong: list[tuple[str, str]] = []
    for resource, written in items:
        try:
            value = parse_quantity(str(written))
        except ValueError as error:  # QuantityError, or str() of a number with thousands of digits
            wrong.append((f"[{resource}]", str(error)))
            continue
        if value < 0:
            wrong.append((f"[{resource}]", f"expected 0 or more, found {written}"))
        else:
            values[resource] = value
    return values, tuple(wrong)


def _one_of(value: str, allowed: tuple[str, ...], at: str, found: Found) -> None:
    if value not in allowed:
        add(found, at, f"{', '.join(allowed[:-1])} or {allowed[-1]}", shown(value))


def add(found: Found, field: str, expected: str, value: str | int) -> None:
    seen = value if isinstance(value, str) else shown(value)
    found.append(Problem(field, f"expected {expected}, found {seen}"))


def shown(value: str | int) -> str:
    """As it was written, but not a whole file of it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers with more than 4300 digits
        return "a very long number"
    return text if len(text) <= 80 else f"{text[:77]}…"
