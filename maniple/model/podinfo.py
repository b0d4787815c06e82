"""What a pod's metadata says about it: its gang, its role, its owner and its place in the count."""

import re

from maniple.api import types
from maniple.api.meta import Labels, ObjectMeta

_GROUP_LABELS = (types.POD_GROUP_LABEL, "scheduling.x-k8s.io/pod-group")
_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_ROLE_LABELS = (types.ROLE_LABEL, "volcano.sh/task-spec")
_TRAILING_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)


def group_name(meta: ObjectMeta) -> str:
    labels, annotations = meta.labels, meta.annotations
    for key in _GROUP_LABELS:
        if key in labels:
            return labels[key]
    for key in _GROUP_ANNOTATIONS:
        if key in annotations:
            return annotations[key]
    return ""


def pod_role(meta: ObjectMeta) -> str:
    for key in _ROLE_LABELS:
        if key in meta.labels:
            return meta.labels[key]
    return meta.annotations.get(_ROLE_LABELS[1], "")


def pod_owner(meta: ObjectMeta) -> str:
    for reference in meta.owner_references:
        if reference.controller:
            return reference.uid or f"{reference.kind}/{meta.namespace}/{reference.name}"
    return ""


def pod_order(name: str, labels: Labels) -> tuple[str, int, str]:
    """Pods in the order people count them: by index label, else by the number at the end of the name."""
    index = labels.get(types.INDEX_LABEL)
    if index is not None and index.isdecimal() and len(index) <= 18:
        return "", int(index), name
    match = _TRAILING_NUMBER.search(name)
    if match:
        return name[: match.start()], int(match[1]), name
    return name, 0, name
