"""Pods that ElasticJobs will create, and pods that are beyond the size of their job."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from maniple.api import kubernetes, types
from maniple.api.errors import InputError
from maniple.api.gpu.requests import write_models
from maniple.api.keys import Key, key_of, name_of
from maniple.api.labels import GPU_MODELS_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import LabelRequirement, ObjectMeta
from maniple.api.phases import FINISHED
from maniple.model.elastic import current_sizes, replica_index
from maniple.model.pod_identity import OF_NO_GANG, pod_role

MAX_IMPLIED = 200_000  # in one plan: about 300 MB
NextReplica = tuple[types.ElasticRole, kubernetes.Pod]


def implied_pods(
    jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod], *, scheduler_name: str
) -> Iterator[kubernetes.Pod]:
    """The replicas that jobs should have now and that do not exist yet."""
    if not jobs:
        return
    by_job = pods_by_job(pods)
    for job in jobs:
        if job.status.phase in FINISHED:
            continue
        own = by_job.get(key_of(job.metadata), [])
        sizes = current_sizes(job, own)
        decided = {target.role for target in job.status.target}
        for role in job.spec.roles:
            existing = {replica_index(pod) for pod in own if pod_role(pod.metadata) == role.name}
            missing: Iterator[int] = (index for index in range(sizes[role.name]) if index not in existing)
            if own and role.name not in decided:
                # Without a decision, a job that has pods is complete, unless it has fewer than its minimum.
                missing = islice(missing, max(0, role.least - len(existing)))
            for index in missing:
                yield _make_replica(job, role, index, scheduler_name)


def limited_implied_pods(
    jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod], *, scheduler_name: str
) -> list[kubernetes.Pod]:
    """The same, as far as they can be planned at once. InputError if they are more."""
    listed = list(pods)
    implied = list(islice(implied_pods(jobs, listed, scheduler_name=scheduler_name), MAX_IMPLIED + 1))
    if len(implied) > MAX_IMPLIED:
        largest = max(jobs, key=lambda job: sum(role.least for role in job.spec.roles))
        size = sum(role.least for role in largest.spec.roles)
        raise InputError(
            [
                f"the ElasticJobs of the input have more than {MAX_IMPLIED} pods to create; expected at most so many, "
                f"with fewer jobs or a smaller min: that of {name_of(largest.metadata)} is {size}"
            ]
        )
    return implied


def beyond_their_size(jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod]) -> set[str]:
    """ "namespace/name" of replicas beyond the size that was decided for their jobs."""
    by_job = pods_by_job(pods)
    beyond = set()
    for job in jobs:
        decided = {target.role for target in job.status.target}
        own = by_job.get(key_of(job.metadata), []) if decided else []
        sizes = current_sizes(job, own)
        for pod in own:
            role = pod_role(pod.metadata)
            if role in decided and replica_index(pod) >= sizes[role]:
                beyond.add(name_of(pod.metadata))
    return beyond


def pods_by_job(pods: Iterable[kubernetes.Pod]) -> dict[Key, list[kubernetes.Pod]]:
    """Key of an ElasticJob -> the pods that name it."""
    by_job: dict[Key, list[kubernetes.Pod]] = {}
    for pod in pods:
        name = pod.metadata.labels.get(JOB_LABEL)
        if name and OF_NO_GANG not in pod.metadata.annotations:
            by_job.setdefault((pod.metadata.namespace, name), []).append(pod)
    return by_job


def _make_replica(job: types.ElasticJob, role: types.ElasticRole, index: int, scheduler_name: str) -> kubernetes.Pod:
    meta, template = job.metadata, role.template
    labels = {**template.metadata.labels, JOB_LABEL: meta.name, ROLE_LABEL: role.name, INDEX_LABEL: str(index)}
    annotations = template.metadata.annotations
    if role.gpu_models and GPU_MODELS_ANNOTATION not in annotations:
        annotations = {**annotations, GPU_MODELS_ANNOTATION: write_models(role.gpu_models)}
    affinity, node = template.spec.affinity, template.spec.node_name
    spec = replace(
        template.spec,
        scheduler_name=scheduler_name,
        priority_class_name=template.spec.priority_class_name or job.spec.priority_class_name,
        node_name="",
        affinity=_with_node(affinity, node) if node else affinity,
    )
    return kubernetes.Pod(
        metadata=ObjectMeta(
            name=f"{meta.name}-{role.name}-{index}",
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=spec,
    )


def _with_node(affinity: kubernetes.Affinity | None, node: str) -> kubernetes.Affinity:
    """The affinity with a requirement for this node.

    A node's name in a template says where the pod may go. In a pod it would be a binding that bypasses the scheduler.
    """
    affinity = affinity or kubernetes.Affinity()
    nodes = affinity.node_affinity or kubernetes.NodeAffinity()
    required = nodes.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required else (kubernetes.NodeSelectorTerm(),)
    here = LabelRequirement(key="metadata.name", operator="In", values=(node,))
    selector = kubernetes.NodeSelector(tuple(replace(term, match_fields=(*term.match_fields, here)) for term in terms))
    nodes = replace(nodes, required_during_scheduling_ignored_during_execution=selector)
    return replace(affinity, node_affinity=nodes)


def next_replicas(job: types.ElasticJob, sizes: dict[str, int], scheduler_name: str) -> list[NextReplica]:
    """The next replica of every role that may grow."""
    if job.spec.suspend or job.status.phase in FINISHED:
        return []
    return [
        (role, _make_replica(job, role, sizes[role.name], scheduler_name))
        for role in job.spec.roles
        if sizes[role.name] < role.most
    ]
