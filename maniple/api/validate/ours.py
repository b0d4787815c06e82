"""The rules that types cannot express: `problems(obj)`.

The rules for our own kinds are here; the CRDs repeat them in CEL (crds.py). Those for Kubernetes' kinds are in
kubernetes.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.errors import Problem, nearest, shown
from maniple.api.labels import NPROC_ANNOTATION
from maniple.api.meta import ObjectMeta
from maniple.api.queue_names import queue_name, queue_path
from maniple.api.validate import kubernetes as kube
from maniple.api.validate.kubernetes import A_LABEL, Errors, add, check_metadata, is_label, is_service_name
from maniple.api.validate.own_keys import check_queue_name, unknown_own_keys
from maniple.api.validate.resources import check_pair

MAX_REPLICAS = 100_000
LONGEST_HOST_NAME = 63
A_SERVICE_NAME = "a name of lower-case letters, digits and '-' that begins with a letter"


def problems(obj: object) -> list[Problem]:
    """Everything that is wrong with `obj`. Empty if nothing is, or if there are no rules for its kind."""
    errors: Errors = []
    if check := _CHECKS.get(type(obj)):
        check(obj, errors)
    return errors


def _queue(queue: types.Queue, errors: Errors) -> None:
    check_metadata(queue.metadata, errors)
    spec = queue.spec
    if spec.parent and spec.parent == queue.metadata.name:
        add(errors, "spec.parent", "another queue", f"{shown(spec.parent)}, the queue itself")
    check_pair(("guaranteed", "limit"), spec.guaranteed, spec.limit, "spec", errors)
    for resource, weight in spec.weights.items():
        if not 0 <= weight <= types.MOST_WEIGHT:
            add(errors, f"spec.weights[{resource}]", f"0 to {types.MOST_WEIGHT}", weight)


def _gang_metadata(metadata: ObjectMeta, queue: str, errors: Errors) -> None:
    check_metadata(metadata, errors)
    kube.check_gang_annotations(metadata, errors)
    check_queue_name(metadata, errors)
    named = queue_name(metadata)
    if queue and named and named != queue:
        add(errors, queue_path(metadata), f"{shown(queue)}, as spec.queue says, or none", shown(named))


def _pod_group(group: types.PodGroup, errors: Errors) -> None:
    _gang_metadata(group.metadata, group.spec.queue, errors)
    spec = group.spec
    _role_names([role.name for role in spec.roles], errors)
    for index, role in enumerate(spec.roles):
        _gpu_models(role.gpu_models, f"spec.roles[{index}].gpuModels", errors)
    needed = sum(role.min_member for role in spec.roles)
    if needed > spec.min_member:
        add(errors, "spec.minMember", f"at least {needed}, the sum of its roles' minMember", spec.min_member)


def _elastic_job(job: types.ElasticJob, errors: Errors) -> None:
    _gang_metadata(job.metadata, job.spec.queue, errors)
    if len(job.metadata.name) > 63:
        # It is the value of the pods' label maniple.dev/job, and label values are shorter than names.
        add(errors, "metadata.name", "at most 63 characters", len(job.metadata.name))
    roles = job.spec.roles
    _role_names([role.name for role in roles], errors)
    for index, role in enumerate(roles):
        path = f"spec.roles[{index}]"
        if role.min > role.max:
            add(errors, f"{path}.max", f"at least min ({role.min})", role.max)
        elif role.pin is not None and not role.min <= role.pin <= role.max:
            add(errors, f"{path}.pin", f"at least min ({role.min}) and at most max ({role.max})", role.pin)
        _template_queue(job, role.template.metadata, f"{path}.template", errors)
        if not job.metadata.uid:
            errors.extend(unknown_own_keys(role.template.metadata, f"{path}.template.metadata"))
        _nproc(role.template.metadata.annotations, f"{path}.template.metadata", errors)
        _gpu_models(role.gpu_models, f"{path}.gpuModels", errors)
        kube.check_gpu_requests(role.template.metadata.annotations, f"{path}.template.metadata", errors)
        kube.check_pod_spec(role.template.spec, f"{path}.template.spec", errors)
    if job.spec.framework == "torchrun":
        _host_names(job, errors)
    most = sum(role.max for role in roles)
    if not any(role.min for role in roles):
        # A gang with a minimum of 0 would run before it has started.
        add(errors, "spec.roles", "at least one role with a min of 1 or more", "none")
    if most > MAX_REPLICAS:
        add(errors, "spec.roles", f"a max of at most {MAX_REPLICAS} for all roles together", most)
    _distinct([point.replicas for point in job.spec.elastic.speedup], "spec.elastic.speedup", "replicas", errors)
    names = [role.name for role in roles]
    for index, target in enumerate(job.status.target):
        if target.role not in names:
            message = f"unknown role {shown(target.role)}{nearest(target.role[:80], names)}"
            errors.append(Problem(f"status.target[{index}].role", message))
    _distinct([target.role for target in job.status.target], "status.target", "role", errors)
    kube.check_time(job.status.last_resize_time, "status.lastResizeTime", errors)
    kube.check_time(job.status.grow_after, "status.growAfter", errors)
    _distinct([speed.replicas for speed in job.status.speeds], "status.speeds", "replicas", errors)


def _template_queue(job: types.ElasticJob, template: types.TemplateMeta, path: str, errors: Errors) -> None:
    """Its replicas are in the queue of the job."""
    meta = ObjectMeta(labels=template.labels, annotations=template.annotations)
    named, own = queue_name(meta), job.spec.queue or queue_name(job.metadata)
    if named and named != own:
        expected = f"{shown(own)}, the job's queue, or none" if own else "none; name the queue in spec.queue"
        add(errors, f"{path}.{queue_path(meta)}", expected, shown(named))


def _host_names(job: types.ElasticJob, errors: Errors) -> None:
    """torchrun's replicas find each other by host name, and not every object's name is one."""
    name, other = job.metadata.name, "or another framework than torchrun, whose replicas look for each other by name"
    if name and not is_service_name(name):
        add(errors, "metadata.name", f"{A_SERVICE_NAME}, {other}", shown(name))
    for index, role in enumerate(job.spec.roles):
        longest = f"{name}-{role.name}-{max(role.max - 1, 0)}"
        if len(longest) > LONGEST_HOST_NAME:
            expected = f"one with which the pods' names have at most {LONGEST_HOST_NAME} characters, {other}"
            found = f"{shown(role.name)}: {shown(longest)} has {len(longest)}"
            add(errors, f"spec.roles[{index}].name", expected, found)


def _nproc(annotations: Mapping[str, str], path: str, errors: Errors) -> None:
    text = annotations.get(NPROC_ANNOTATION, "1")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_REPLICAS):
        field_path = f"{path}.annotations[{NPROC_ANNOTATION}]"
        add(errors, field_path, "a number of workers of 1 or more, such as '8'", shown(text))


def _topology(topology: types.Topology, errors: Errors) -> None:
    check_metadata(topology.metadata, errors)
    levels = topology.spec.levels
    _distinct([level.name for level in levels], "spec.levels", "name", errors)
    _distinct([level.node_label for level in levels], "spec.levels", "nodeLabel", errors)


def _gpu_models(models: tuple[types.GpuModel, ...], path: str, errors: Errors) -> None:
    _distinct([entry.model.lower() for entry in models], path, "model", errors)
    for index, entry in enumerate(models):
        if "," in entry.model or "=" in entry.model or entry.model != entry.model.strip():
            add(errors, f"{path}[{index}].model", "words of a product label, such as A100", shown(entry.model))


def _role_names(names: list[str], errors: Errors) -> None:
    for index, name in enumerate(names):
        if not is_label(name):
            add(errors, f"spec.roles[{index}].name", A_LABEL, shown(name))
    _distinct(names, "spec.roles", "name", errors)


def _distinct(values: Iterable[str | int], path: str, field: str, errors: Errors) -> None:
    seen: set[str | int] = set()
    for index, value in enumerate(values):
        if value in seen:
            add(errors, f"{path}[{index}].{field}", "a value of its own", f"{shown(value)} a second time")
        seen.add(value)


_CHECKS: dict[type, Callable[[Any, Errors], None]] = {
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
    kubernetes.StorageClass: kube.check_storage_class,
    kubernetes.CSINode: lambda node, errors: check_metadata(node.metadata, errors),
    kubernetes.Namespace: kube.check_namespace,
}
