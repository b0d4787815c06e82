"""The API server's rules for Kubernetes' own objects, as far as scheduling relies on them, and helpers for ours.py.

Every pod of a cluster is checked here, so a valid one must take only a few microseconds: paths and messages are made
only when something is wrong, and equal resource lists are checked once.
"""

import re
from datetime import datetime
from functools import lru_cache

from maniple.api import kubernetes
from maniple.api.bind_failures import bind_failure_problems
from maniple.api.errors import Problem, shown
from maniple.api.gpu import assignment
from maniple.api.gpu.requests import gpu_request_problems
from maniple.api.gpu.topology_annotation import problems as topology_problems
from maniple.api.incomplete_since import incomplete_since_problem
from maniple.api.labels import (
    GPU_TOPOLOGY_ANNOTATION,
    GPUS_ANNOTATION,
    INCOMPLETE_SINCE_ANNOTATION,
    RESERVED_ANNOTATION,
)
from maniple.api.meta import LabelRequirement, LabelSelector, ObjectMeta
from maniple.api.moves import move_problems
from maniple.api.quantity import whole_number
from maniple.api.timestamps import LAST_YEAR
from maniple.api.validate.own_keys import check_own_keys, check_queue_name
from maniple.api.validate.resources import REQUESTS, check_pair, check_quantities

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
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")
_TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")

Errors = list[Problem]


# --- pods


def check_pod(pod: kubernetes.Pod, errors: Errors) -> None:
    metadata = pod.metadata
    check_metadata(metadata, errors)
    gpus = metadata.annotations.get(GPUS_ANNOTATION)
    if gpus is not None and not assignment.is_assignment(gpus):
        add(errors, f"metadata.annotations[{GPUS_ANNOTATION}]", assignment.EXPECTED, shown(gpus))
    if metadata.annotations:
        check_gpu_requests(metadata.annotations, "metadata", errors)
        check_gang_annotations(metadata, errors)
    check_queue_name(metadata, errors)
    check_pod_spec(pod.spec, "spec", errors, is_live=bool(metadata.uid))
    _one_of(pod.status.phase, _PHASES, "status.phase", errors)
    check_time(pod.status.start_time, "status.startTime", errors)
    _container_statuses(pod.status.container_statuses, "status.containerStatuses", errors)
    _container_statuses(pod.status.init_container_statuses, "status.initContainerStatuses", errors)
    _status_resources(pod.status, "status", errors)


def _container_statuses(containers: tuple[kubernetes.ContainerStatus, ...], path: str, errors: Errors) -> None:
    for index, container in enumerate(containers):
        if container.allocated_resources or container.resources is not None:
            _status_resources(container, f"{path}[{index}]", errors)


def _status_resources(status: kubernetes.ContainerStatus | kubernetes.PodStatus, path: str, errors: Errors) -> None:
    if status.allocated_resources:
        check_quantities(status.allocated_resources, f"{path}.allocatedResources", errors)
    if status.resources is not None and status.resources.requests:
        check_quantities(status.resources.requests, f"{path}.resources.requests", errors)


def check_gpu_requests(annotations: dict[str, str], path: str, errors: Errors) -> None:
    """The annotations that ask for GPUs."""
    wrong = gpu_request_problems(annotations)
    errors.extend(Problem(f"{path}.annotations[{key}]", message) for key, message in wrong)


def check_gang_annotations(metadata: ObjectMeta, errors: Errors) -> None:
    """The annotations in which the scheduler remembers what has happened to a gang."""
    wrong = [*bind_failure_problems(metadata.annotations), *move_problems(metadata.annotations)]
    errors.extend(Problem(f"metadata.annotations[{key}]", message) for key, message in wrong)
    wrong_since = incomplete_since_problem(metadata.annotations)
    if wrong_since:
        errors.append(Problem(f"metadata.annotations[{INCOMPLETE_SINCE_ANNOTATION}]", wrong_since))
    reserved = metadata.annotations.get(RESERVED_ANNOTATION)
    if reserved not in (None, "true", "false"):
        add(errors, f"metadata.annotations[{RESERVED_ANNOTATION}]", "'true' or 'false'", shown(reserved))


def check_pod_spec(spec: kubernetes.PodSpec, path: str, errors: Errors, *, is_live: bool = False) -> None:
    """`is_live`: the API server has checked it, and may know more values than this version of Maniple."""
    if not spec.containers:
        add(errors, f"{path}.containers", "at least one container", "none")
    for index, container in enumerate(spec.containers):
        _container(container, f"{path}.containers[{index}]", errors)
    for index, container in enumerate(spec.init_containers):
        _container(container, f"{path}.initContainers[{index}]", errors)
    _resources(spec.resources, path, errors)
    if spec.overhead:
        check_quantities(spec.overhead, f"{path}.overhead", errors)
    if spec.affinity is not None:
        _affinity(spec.affinity, f"{path}.affinity", errors)
    if spec.tolerations:
        _tolerations(spec.tolerations, f"{path}.tolerations", errors, is_live=is_live)
    for index, spread in enumerate(spec.topology_spread_constraints):
        _spread(spread, f"{path}.topologySpreadConstraints[{index}]", errors)
    for index, volume in enumerate(spec.volumes):
        if volume.ephemeral is not None:
            template = f"{path}.volumes[{index}].ephemeral.volumeClaimTemplate"
            _claim_spec(volume.ephemeral.volume_claim_template.spec, f"{template}.spec", errors)
    if spec.preemption_policy:
        _one_of(spec.preemption_policy, _PREEMPTION_POLICIES, f"{path}.preemptionPolicy", errors)


def _container(container: kubernetes.Container, path: str, errors: Errors) -> None:
    if container.name and not is_label(container.name):
        add(errors, f"{path}.name", A_LABEL, shown(container.name))
    if container.restart_policy:
        _one_of(container.restart_policy, _RESTART_POLICIES, f"{path}.restartPolicy", errors)
    _resources(container.resources, path, errors)
    for index, port in enumerate(container.ports):
        _port(port, f"{path}.ports[{index}]", errors)


def _resources(resources: kubernetes.ResourceRequirements, path: str, errors: Errors) -> None:
    if resources.requests or resources.limits:
        check_pair(REQUESTS, resources.requests, resources.limits, f"{path}.resources", errors)


def _port(port: kubernetes.ContainerPort, path: str, errors: Errors) -> None:
    for field, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
        if not 0 <= number <= 65535:
            add(errors, f"{path}.{field}", "a port between 1 and 65535", number)
    _one_of(port.protocol, ("TCP", "UDP", "SCTP"), f"{path}.protocol", errors)


def _tolerations(tolerations: tuple[kubernetes.Toleration, ...], path: str, errors: Errors, *, is_live: bool) -> None:
    for index, toleration in enumerate(tolerations):
        operator = toleration.operator
        if is_live and operator not in _TOLERATION_OPERATORS:
            continue  # of a newer Kubernetes; it tolerates nothing
        if operator == "Exists":
            if toleration.value:
                add(errors, f"{path}[{index}].value", "none for the operator Exists", shown(toleration.value))
        elif operator in ("Gt", "Lt"):
            if not toleration.key:
                add(errors, f"{path}[{index}].key", f"the key of a taint for the operator {operator}", "none")
            if whole_number(toleration.value) is None:
                add(errors, f"{path}[{index}].value", "a whole number, such as 900", shown(toleration.value))
        elif operator not in ("Equal", ""):
            _one_of(operator, _TOLERATION_OPERATORS, f"{path}[{index}].operator", errors)
        elif not toleration.key:
            add(errors, f"{path}[{index}].operator", "Exists where no key is given", shown(operator))
        if toleration.effect and toleration.effect not in _EFFECTS:
            _one_of(toleration.effect, _EFFECTS, f"{path}[{index}].effect", errors)


def _spread(spread: kubernetes.TopologySpreadConstraint, path: str, errors: Errors) -> None:
    if spread.max_skew < 1:
        add(errors, f"{path}.maxSkew", "at least 1", spread.max_skew)
    if spread.min_domains is not None and spread.min_domains < 1:
        add(errors, f"{path}.minDomains", "at least 1", spread.min_domains)
    if not spread.topology_key:
        add(errors, f"{path}.topologyKey", "a node label", "none")
    _one_of(spread.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{path}.whenUnsatisfiable", errors)
    _one_of(spread.node_affinity_policy, ("Honor", "Ignore"), f"{path}.nodeAffinityPolicy", errors)
    _one_of(spread.node_taints_policy, ("Honor", "Ignore"), f"{path}.nodeTaintsPolicy", errors)
    _label_selector(spread.label_selector, f"{path}.labelSelector", errors)


def _affinity(affinity: kubernetes.Affinity, path: str, errors: Errors) -> None:
    if (node := affinity.node_affinity) is not None:
        required = node.required_during_scheduling_ignored_during_execution
        _node_selector(required, f"{path}.nodeAffinity.{_REQUIRED}", errors)
        for index, preferred in enumerate(node.preferred_during_scheduling_ignored_during_execution):
            term_path = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
            _weight(preferred.weight, term_path, errors)
            _node_term(preferred.preference, f"{term_path}.preference", errors)
    for field, pods in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if pods is None:
            continue
        for index, term in enumerate(pods.required_during_scheduling_ignored_during_execution):
            _pod_term(term, f"{path}.{field}.{_REQUIRED}[{index}]", errors)
        for index, weighted in enumerate(pods.preferred_during_scheduling_ignored_during_execution):
            term_path = f"{path}.{field}.{_PREFERRED}[{index}]"
            _weight(weighted.weight, term_path, errors)
            _pod_term(weighted.pod_affinity_term, f"{term_path}.podAffinityTerm", errors)


def _weight(weight: int, path: str, errors: Errors) -> None:
    if not 1 <= weight <= 100:
        add(errors, f"{path}.weight", "1 to 100", weight)


def _pod_term(term: kubernetes.PodAffinityTerm, path: str, errors: Errors) -> None:
    if not term.topology_key:
        add(errors, f"{path}.topologyKey", "a node label", "none")
    _label_selector(term.label_selector, f"{path}.labelSelector", errors)
    _label_selector(term.namespace_selector, f"{path}.namespaceSelector", errors)


# --- selectors


def _node_selector(selector: kubernetes.NodeSelector | None, path: str, errors: Errors) -> None:
    if selector is None:
        return
    if not selector.node_selector_terms:
        add(errors, f"{path}.nodeSelectorTerms", "at least one term", "none")
    for index, term in enumerate(selector.node_selector_terms):
        _node_term(term, f"{path}.nodeSelectorTerms[{index}]", errors)


def _node_term(term: kubernetes.NodeSelectorTerm, path: str, errors: Errors) -> None:
    _expressions(term.match_expressions, _NODE_OPERATORS, f"{path}.matchExpressions", errors)
    _expressions(term.match_fields, _FIELD_OPERATORS, f"{path}.matchFields", errors)
    for index, field in enumerate(term.match_fields):
        if field.key != "metadata.name":
            add(errors, f"{path}.matchFields[{index}].key", "metadata.name", shown(field.key))


def _label_selector(selector: LabelSelector | None, path: str, errors: Errors) -> None:
    if selector is not None:
        _expressions(selector.match_expressions, _LABEL_OPERATORS, f"{path}.matchExpressions", errors)


def _expressions(
    expressions: tuple[LabelRequirement, ...], operators: tuple[str, ...], path: str, errors: Errors
) -> None:
    for index, expression in enumerate(expressions):
        operator, count = expression.operator, len(expression.values)
        if operator not in operators:
            _one_of(operator, operators, f"{path}[{index}].operator", errors)
        elif operator in ("In", "NotIn") and count == 0:
            add(errors, f"{path}[{index}].values", f"at least one value for the operator {operator}", "none")
        elif operator in ("Exists", "DoesNotExist") and count > 0:
            add(errors, f"{path}[{index}].values", f"none for the operator {operator}", count)
        elif operator in ("Gt", "Lt") and count != 1:
            add(errors, f"{path}[{index}].values", f"one value for the operator {operator}", count)


# --- Kubernetes' other kinds


def check_node(node: kubernetes.Node, errors: Errors) -> None:
    check_metadata(node.metadata, errors)
    for index, taint in enumerate(node.spec.taints):
        _one_of(taint.effect, _EFFECTS, f"spec.taints[{index}].effect", errors)
    check_quantities(node.status.capacity, "status.capacity", errors)
    check_quantities(node.status.allocatable, "status.allocatable", errors)
    topology = node.metadata.annotations.get(GPU_TOPOLOGY_ANNOTATION)
    if topology is not None:
        path = f"metadata.annotations[{GPU_TOPOLOGY_ANNOTATION}]"
        errors.extend(Problem(path, message) for message in topology_problems(topology))


def check_priority_class(priority: kubernetes.PriorityClass, errors: Errors) -> None:
    check_metadata(priority.metadata, errors)
    most = 2**31 - 1 if priority.metadata.name.startswith("system-") else MAX_USER_PRIORITY
    if not -(2**31) <= priority.value <= most:
        add(errors, "value", f"{-(2**31)} to {most}", priority.value)
    _one_of(priority.preemption_policy, _PREEMPTION_POLICIES, "preemptionPolicy", errors)


def check_pod_disruption_budget(budget: kubernetes.PodDisruptionBudget, errors: Errors) -> None:
    check_metadata(budget.metadata, errors)
    spec = budget.spec
    for field, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if value is None:
            continue
        if value < 0 if isinstance(value, int) else not _PERCENT.fullmatch(value):
            add(errors, f"spec.{field}", "a number of pods, or 0% to 100%", shown(value))
    if spec.min_available is not None and spec.max_unavailable is not None:
        add(errors, "spec", "one of minAvailable and maxUnavailable", "both")
    _label_selector(spec.selector, "spec.selector", errors)


def check_persistent_volume(volume: kubernetes.PersistentVolume, errors: Errors) -> None:
    check_metadata(volume.metadata, errors)
    check_quantities(volume.spec.capacity, "spec.capacity", errors)
    _access_modes(volume.spec.access_modes, "spec.accessModes", errors)
    if volume.spec.node_affinity is not None:
        _node_selector(volume.spec.node_affinity.required, "spec.nodeAffinity.required", errors)


def check_persistent_volume_claim(claim: kubernetes.PersistentVolumeClaim, errors: Errors) -> None:
    check_metadata(claim.metadata, errors)
    _claim_spec(claim.spec, "spec", errors)


def _claim_spec(spec: kubernetes.PersistentVolumeClaimSpec, path: str, errors: Errors) -> None:
    _access_modes(spec.access_modes, f"{path}.accessModes", errors)
    check_quantities(spec.resources.requests, f"{path}.resources.requests", errors)
    _label_selector(spec.selector, f"{path}.selector", errors)


def _access_modes(modes: tuple[str, ...], path: str, errors: Errors) -> None:
    for index, mode in enumerate(modes):
        _one_of(mode, _ACCESS_MODES, f"{path}[{index}]", errors)


def check_storage_class(storage_class: kubernetes.StorageClass, errors: Errors) -> None:
    check_metadata(storage_class.metadata, errors)
    _one_of(storage_class.volume_binding_mode, _BINDING_MODES, "volumeBindingMode", errors)


def check_namespace(namespace: kubernetes.Namespace, errors: Errors) -> None:
    if not is_label(namespace.metadata.name):
        add(errors, "metadata.name", A_LABEL, shown(namespace.metadata.name))
    check_own_keys(namespace.metadata, errors)


# --- names and values


def check_metadata(metadata: ObjectMeta, errors: Errors) -> None:
    name = metadata.name
    if not is_name(name):
        add(errors, "metadata.name", A_NAME, shown(name))
    if metadata.namespace and not is_label(metadata.namespace):
        add(errors, "metadata.namespace", A_LABEL, shown(metadata.namespace))
    check_time(metadata.creation_timestamp, "metadata.creationTimestamp", errors)
    check_time(metadata.deletion_timestamp, "metadata.deletionTimestamp", errors)
    check_own_keys(metadata, errors)


def check_time(time: datetime | None, path: str, errors: Errors) -> None:
    if time is not None and time.year >= LAST_YEAR:
        add(errors, path, f"a time before the year {LAST_YEAR}", time.isoformat())


def is_service_name(text: str) -> bool:
    """Whether it is a name for a Service, for which fewer names are allowed than for other objects."""
    return len(text) <= 63 and _SERVICE_NAME.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether it is a name for an object."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _one_of(value: str, allowed: tuple[str, ...], path: str, errors: Errors) -> None:
    if value not in allowed:
        add(errors, path, f"{', '.join(allowed[:-1])} or {allowed[-1]}", shown(value))


def add(errors: Errors, path: str, expected: str, found: str | int) -> None:
    """A text for `found` is printed as it is; see `shown`."""
    text = found if isinstance(found, str) else shown(found)
    errors.append(Problem(path, f"expected {expected}, found {text}"))
