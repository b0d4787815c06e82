"""What is wrong with a workload beyond its types."""

from maniple.api.errors import Problem, shown
from maniple.api.meta import ObjectMeta
from maniple.api.types import GROUP
from maniple.api.validate import kubernetes as kube
from maniple.api.validate.kubernetes import A_NAME, Errors, add, check_metadata, is_name
from maniple.api.validate.ours import MAX_REPLICAS
from maniple.api.validate.own_keys import check_queue_name, unknown_own_keys
from maniple.api.workloads.common import PodSet, Workload


def workload_problems(item: Workload) -> list[Problem]:
    errors: Errors = []
    check_metadata(item.metadata, errors)
    if errors:
        return errors
    errors.extend(item.wrong())
    sets = item.pod_sets()
    if not sets and not item.why_none():
        add(errors, item.SETS, "at least one entry, with a pod template", "none")
    names: set[tuple[str, bool]] = set()  # copies are numbered, so their names differ from those of other sets
    for pods in sets:
        name = (pods.prefix, bool(pods.copy_label))
        if name in names:
            add(errors, item.SETS, "a name of its own for each entry", f"pods named {shown(pods.prefix)}-… twice")
        names.add(name)
        _template(item, pods, errors)
    total = sum(pods.total for pods in sets)
    if total > MAX_REPLICAS:
        add(errors, item.SETS, f"at most {MAX_REPLICAS} pods", total)
    return errors


def _template(item: Workload, pods: PodSet, errors: Errors) -> None:
    template, path = pods.template, pods.path
    prefix = f"{pods.prefix}-{max(0, pods.copies - 1)}" if pods.copy_label else pods.prefix
    longest = f"{prefix}-{max(0, pods.first + pods.count - 1)}"
    if not is_name(longest):
        add(errors, "metadata.name", f"one with which pods have {A_NAME}", shown(longest))
    kube.check_gpu_requests(template.metadata.annotations, f"{path}.metadata", errors)
    meta = ObjectMeta(labels=template.metadata.labels, annotations=template.metadata.annotations)
    queue: Errors = []
    check_queue_name(meta, queue)
    errors.extend(Problem(f"{path}.{problem.field}", problem.message) for problem in queue)
    if not item.metadata.uid:
        errors.extend(unknown_own_keys(template.metadata, f"{path}.metadata"))
    kube.check_pod_spec(template.spec, f"{path}.spec", errors)


def own_keys_on_workload(meta: ObjectMeta) -> list[str]:
    """Keys of ours on the workload itself, where its controller does not pass them on to the pods."""
    own = (("labels", meta.labels), ("annotations", meta.annotations))
    return [
        f"metadata.{kind}[{key}] is not passed on to its pods and is not read; write it into the pod template"
        for kind, keys in own
        for key in keys
        if key.startswith(f"{GROUP}/")
    ]
