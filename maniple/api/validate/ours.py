"""What is wrong with an object beyond its types: `problems(obj)`.

For our own kinds, which stand here, these are the rules that the CRDs state in CEL (see crds.py); those for
Kubernetes' kinds are in validate_core.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.errors import Problem, nearest
from maniple.api.labels import NPROC_ANNOTATION
from maniple.api.validate import kubernetes as kube
from maniple.api.validate.kubernetes import (
    A_LABEL,
    Found,
    add,
    check_metadata,
    check_pair,
    is_label,
    is_service_name,
    shown,
)

MAX_REPLICAS = 100_000
LONGEST_HOST_NAME = 63
A_SERVICE_NAME = "a name of lower-case letters, digits and '-' that begins with a letter"


def problems(obj: object) -> list[Problem]:
    """Everything that is wrong with `obj`; nothing, if it is right or of a kind that has no rules."""
    found: Found = []
    if check := _CHECKS.get(type(obj)):
        check(obj, found)
    return found


def _queue(queue: types.Queue, found: Found) -> None:
    check_metadata(queue.metadata, found)
    spec = queue.spec
    if spec.parent and spec.parent == queue.metadata.name:
        add(found, "spec.parent", "another queue", f"{shown(spec.parent)}, the queue itself")
    check_pair(("guaranteed", "limit"), spec.guaranteed, spec.limit, "spec", found)


def _pod_group(group: types.PodGroup, found: Found) -> None:
    check_metadata(group.metadata, found)
    kube.check_gang_notes(group.metadata, found)
    spec = group.spec
    _role_names([role.name for role in spec.roles], found)
    for index, role in enumerate(spec.roles):
        _models(role.gpu_models, f"spec.roles[{index}].gpuModels", found)
    needed = sum(role.min_member for role in spec.roles)
    if needed > spec.min_member:
        add(found, "spec.minMember", f"at least {needed}, the sum of its roles' minMember", spec.min_member)


def _elastic_job(job: types.ElasticJob, found: Found) -> None:
    check_metadata(job.metadata, found)
    kube.check_gang_notes(job.metadata, found)
    if len(job.metadata.name) > 63:
        # It is the value of the pods' label maniple.dev/job, and labels are shorter than names.
        add(found, "metadata.name", "at most 63 characters", len(job.metadata.name))
    roles = job.spec.roles
    _role_names([role.name for role in roles], found)
    for index, role in enumerate(roles):
        at = f"spec.roles[{index}]"
        if role.min > role.max:
            add(found, f"{at}.max", f"at least min ({role.min})", role.max)
        elif role.pin is not None and not role.min <= role.pin <= role.max:
            add(found, f"{at}.pin", f"at least min ({role.min}) and at most max ({role.max})", role.pin)
        _workers(role.template.metadata.annotations, f"{at}.template.metadata", found)
        _models(role.gpu_models, f"{at}.gpuModels", found)
        kube.check_wishes(role.template.metadata.annotations, f"{at}.template.metadata", found)
        kube.check_pod_spec(role.template.spec, f"{at}.template.spec", found)
    if job.spec.framework == "torchrun":
        _host_names(job, found)
    most = sum(role.max for role in roles)
    if not any(role.min for role in roles):
        # A gang of nobody would be running before it has started.
        add(found, "spec.roles", "at least one role with a min of 1 or more", "none")
    if most > MAX_REPLICAS:
        add(found, "spec.roles", f"a max of at most {MAX_REPLICAS} for all roles together", most)
    _distinct([point.replicas for point in job.spec.elastic.speedup], "spec.elastic.speedup", "replicas", found)
    names = [role.name for role in roles]
    for index, target in enumerate(job.status.target):
        if target.role not in names:
            near = nearest(target.role[:80], names)
            found.append(Problem(f"status.target[{index}].role", f"unknown role {shown(target.role)}{near}"))
    _distinct([target.role for target in job.status.target], "status.target", "role", found)
    kube.check_time(job.status.last_resize_time, "status.lastResizeTime", found)
    kube.check_time(job.status.grow_after, "status.growAfter", found)
    _distinct([speed.replicas for speed in job.status.speeds], "status.speeds", "replicas", found)


def _host_names(job: types.ElasticJob, found: Found) -> None:
    """Replicas of torchrun look for each other by name, and not every object's name is a host's."""
    name, other = job.metadata.name, "or another framework than torchrun, whose replicas look for each other by name"
    if name and not is_service_name(name):
        add(found, "metadata.name", f"{A_SERVICE_NAME}, {other}", shown(name))
    for index, role in enumerate(job.spec.roles):
        longest = f"{name}-{role.name}-{max(role.max - 1, 0)}"
        if len(longest) > LONGEST_HOST_NAME:
            wanted = f"one with which the pods' names have at most {LONGEST_HOST_NAME} characters, {other}"
            at = f"{shown(role.name)}: {shown(longest)} has {len(longest)}"
            add(found, f"spec.roles[{index}].name", wanted, at)


def _workers(annotations: Mapping[str, str], at: str, found: Found) -> None:
    text = annotations.get(NPROC_ANNOTATION, "1")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_REPLICAS):
        where = f"{at}.annotations[{NPROC_ANNOTATION}]"
        add(found, where, "a number of workers of 1 or more, such as '8'", shown(text))


def _topology(topology: types.Topology, found: Found) -> None:
    check_metadata(topology.metadata, found)
    levels = topology.spec.levels
    _distinct([level.name for level in levels], "spec.levels", "name", found)
    _distinct([level.node_label for level in levels], "spec.levels", "nodeLabel", found)


def _models(models: tuple[types.GpuModel, ...], at: str, found: Found) -> None:
    _distinct([entry.model.lower() for entry in models], at, "model", found)
    for index, entry in enumerate(models):
        if "," in entry.model or "=" in entry.model or entry.model != entry.model.strip():
            add(found, f"{at}[{index}].model", "words of a product label, such as A100", shown(entry.model))


def _role_names(names: list[str], found: Found) -> None:
    for index, name in enumerate(names):
        if not is_label(name):
            add(found, f"spec.roles[{index}].name", A_LABEL, shown(name))
    _distinct(names, "spec.roles", "name", found)


def _distinct(values: Iterable[str | int], at: str, field: str, found: Found) -> None:
    seen: set[str | int] = set()
    for index, value in enumerate(values):
        if value in seen:
            add(found, f"{at}[{index}].{field}", "a value of its own", f"{shown(value)} a second time")
        seen.add(value)


_CHECKS: dict[type, Callable[[Any, Found], None]] = {
    types.Queue: _queue,
    types.PodGroup: _pod_group,
    types.ElasticJob: _elastic_job,
    types.Topology: _topology,
    kubernetes.Pod: kube.check_pod,
    kubernetes.Node: kube.check_node,
    kubernetes.PriorityClass: kube.check_priority_class,
    kubernetes.PodDisruptionBudget: kube.check_pod_disruption_budget,
    kubernetes.PersistentVolume: kube.check_persistent_volume,
    kubernetes.PersistentVolumeClaim: kube.check_persistent_volume_claim,
    kubernetes.Namespace: kube.check_namespace,
}
