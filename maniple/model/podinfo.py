"""What a pod's metadata says about it: its gang, its role, its owner and its place in the count."""

import re

from maniple.api import types
from maniple.api.meta import ObjectMeta

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


def pod_order(meta: ObjectMeta) -> tuple[str, int, str]:
    """Pods in the order people count them: by index label, else by the number at the end of the name."""
    index = meta.labels.get(types.INDEX_LABEL)
    if index is not None and index.isdecimal():
        return "", int(index), meta.name
    match = _TRAILING_NUMBER.search(meta.name)
    if match:
        return meta.name[: match.start()], int(match[1]), meta.name
    return meta.name, 0, meta.name
