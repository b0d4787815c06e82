"""What a pod says about itself: its gang, its role, its owner and its place in the count."""

import re
from math import inf

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

_LONGEST_S = 2**31 - 1  # Kubernetes takes no longer deadline; who writes one means that there is none
_VOLCANO_ROLE = "volcano.sh/task-spec"
_COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
_KUBE_BATCH_GROUP = "scheduling.k8s.io/group-name"
_VOLCANO_GROUP = "scheduling.volcano.sh/group-name"
# The labels and annotations in which a pod may name its gang.
GANG_NAMES = frozenset({JOB_LABEL, POD_GROUP_LABEL, _COSCHEDULING_GROUP, _KUBE_BATCH_GROUP, _VOLCANO_GROUP})
# The annotations that are read here or elsewhere; others make no difference to a decision.
READ_ANNOTATIONS = frozenset(
    {
        *OWN_ANNOTATIONS,
        _KUBE_BATCH_GROUP,
        _VOLCANO_GROUP,
        _VOLCANO_ROLE,
    }
) - {GENERATION_ANNOTATION, NPROC_ANNOTATION}  # of no concern to a scheduler, and the first is long
_TRAILING_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)


def group_name(pod: Pod) -> str:
    """The gang that the pod names, in any of the ways there are; empty if it names none."""
    labels, annotations, group = pod.metadata.labels, pod.metadata.annotations, pod.spec.scheduling_group
    return (
        labels.get(POD_GROUP_LABEL)
        or (group.pod_group_name if group is not None else "")
        or labels.get(_COSCHEDULING_GROUP)
        or annotations.get(_KUBE_BATCH_GROUP)
        or annotations.get(_VOLCANO_GROUP)
        or ""
    )


def pod_role(meta: ObjectMeta) -> str:
    labels = meta.labels
    return labels.get(ROLE_LABEL) or labels.get(_VOLCANO_ROLE) or meta.annotations.get(_VOLCANO_ROLE, "")


def lasts_s(pod: Pod) -> float:
    """How long the pod runs at most; inf if it does not say."""
    deadline = pod.spec.active_deadline_seconds
    return inf if deadline is None or deadline > _LONGEST_S else float(deadline)


def pod_owner(meta: ObjectMeta) -> str:
    for reference in meta.owner_references:
        if reference.controller:
            return reference.uid or f"{reference.kind}/{meta.namespace}/{reference.name}"
    return ""


def pod_order(name: str, labels: Labels) -> tuple[str, int, str]:
    """Pods in the order people count them: by index label, else by the number at the end of the name."""
    index = labels.get(INDEX_LABEL)
    if index is not None and index.isdecimal() and len(index) <= 18:
        return "", int(index), name
    match = _TRAILING_NUMBER.search(name)
    if match:
        return name[: match.start()], int(match[1]), name
    return name, 0, name
