"""What a pod says about itself: the gangs it names, its role, its owner and its index."""

from collections.abc import Container
from math import inf

from maniple.api.keys import name_of
from maniple.api.kubernetes import Pod
from maniple.api.labels import (
    GENERATION_ANNOTATION,
    INDEX_LABEL,
    JOB_LABEL,
    NPROC_ANNOTATION,
    OWN_ANNOTATIONS,
    POD_GROUP_LABEL,
    ROLE_LABEL,
)
from maniple.api.meta import Labels, ObjectMeta
from maniple.api.phases import FINISHED

JobKey = tuple[str, str]  # "namespace/name" and kind of a gang

_LONGEST_S = 2**31 - 1  # Kubernetes accepts no longer deadline; a longer one means that there is none
_GRACE_S, _DAY_S = 30, 86_400  # Kubernetes' default; and the longest that counts
_VOLCANO_ROLE = "volcano.sh/task-spec"
_COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
_KUBE_BATCH_GROUP = "scheduling.k8s.io/group-name"
_VOLCANO_GROUP = "scheduling.volcano.sh/group-name"
# Marks a pod that belongs to no gang, whatever it names. Its labels stay, because affinity and budgets select by them.
# No annotation of a cluster has a space in its name.
OF_NO_GANG = "of no gang"
# Annotations that decisions depend on, apart from those that plugins declare.
READ_ANNOTATIONS = frozenset(
    {
        *OWN_ANNOTATIONS,
        _KUBE_BATCH_GROUP,
        _VOLCANO_GROUP,
        _VOLCANO_ROLE,
    }
) - {GENERATION_ANNOTATION, NPROC_ANNOTATION}  # of no concern to a scheduler, and the first is long
_MOST_DIGITS = 18


def job_key(meta: ObjectMeta, kind: str) -> JobKey:
    return name_of(meta), kind


def named_gangs(pod: Pod) -> tuple[JobKey, ...]:
    """The gangs that the pod names: its ElasticJob, then its PodGroup. Most pods name one or none.

    Which of them it belongs to depends on which exist, see `gang_of`.
    """
    meta = pod.metadata
    if OF_NO_GANG in meta.annotations:
        return ()
    group, job = group_name(pod), meta.labels.get(JOB_LABEL)
    if not job:
        return ((f"{meta.namespace}/{group}", "PodGroup"),) if group else ()
    elastic = (f"{meta.namespace}/{job}", "ElasticJob")
    return (elastic, (f"{meta.namespace}/{group}", "PodGroup")) if group else (elastic,)


def gang_of(
    pod: str,
    named: tuple[JobKey, ...],
    is_ours: bool,
    gangs: Container[JobKey],
    called: Container[JobKey] = (),
    gangless: Container[JobKey] = (),
) -> JobKey | None:
    """The gang that a pod belongs to: itself if it names none, None if it does not concern us.

    `pod`: "namespace/name". `named`: as `named_gangs` returns them. `gangs`: those that have an object. `called`: those
    that pods of ours name, because of which a gang without an object exists. `gangless`: PodGroups whose pods do not
    wait for each other.
    """
    if named:
        if named[0] in gangs and named[0][1] == "ElasticJob":
            return named[0]
        key = named[-1]
        if key not in gangless:
            return key if is_ours or key in gangs or key in called else None
    return (pod, "Pod") if is_ours else None


def group_names(pod: Pod) -> list[str]:
    """The different PodGroups that the pod names; the first counts."""
    labels, annotations, group = pod.metadata.labels, pod.metadata.annotations, pod.spec.scheduling_group
    names = (
        group_name(pod),
        group.pod_group_name if group is not None else "",
        labels.get(_COSCHEDULING_GROUP),
        annotations.get(_KUBE_BATCH_GROUP),
        annotations.get(_VOLCANO_GROUP),
    )
    return list(dict.fromkeys(filter(None, names)))


def group_name(pod: Pod) -> str:
    """The PodGroup that the pod names, in any of the supported ways; empty if it names none."""
    labels, annotations, group = pod.metadata.labels, pod.metadata.annotations, pod.spec.scheduling_group
    return (
        labels.get(POD_GROUP_LABEL)
        or (group.pod_group_name if group is not None else "")
        or labels.get(_COSCHEDULING_GROUP)
        or annotations.get(_KUBE_BATCH_GROUP)
        or annotations.get(_VOLCANO_GROUP)
        or ""
    )


def grace_s(pod: Pod) -> float:
    """How long the pod has to end, at most a day."""
    seconds = pod.spec.termination_grace_period_seconds
    return float(min(max(_GRACE_S if seconds is None else seconds, 0), _DAY_S))


def may_wait(pod: Pod) -> bool:
    """Whether the pod has not finished and is not terminating. Without a node it waits for one."""
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def pod_role(meta: ObjectMeta) -> str:
    labels = meta.labels
    return labels.get(ROLE_LABEL) or labels.get(_VOLCANO_ROLE) or meta.annotations.get(_VOLCANO_ROLE, "")


def lasts_s(pod: Pod) -> float:
    """The longest time that the pod runs; inf if it has no deadline."""
    deadline = pod.spec.active_deadline_seconds
    return inf if deadline is None or deadline > _LONGEST_S else float(deadline)


def pod_owner(meta: ObjectMeta) -> str:
    for reference in meta.owner_references:
        if reference.controller:
            return reference.uid or f"{reference.kind}/{meta.namespace}/{reference.name}"
    return ""


def pod_order(name: str, labels: Labels) -> tuple[str, int, str]:
    """Sort key of a job's pods: by the index label, else by the number at the end of the name."""
    index = labels.get(INDEX_LABEL)
    if index is not None and index.isdecimal() and len(index) <= _MOST_DIGITS:
        return "", int(index), name
    start = max(len(name.rstrip("0123456789")), len(name) - _MOST_DIGITS)
    return name[:start], int(name[start:] or 0), name
