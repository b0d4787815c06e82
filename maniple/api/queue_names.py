"""The queue that an object names by the label or the annotation `maniple.dev/queue`.

It counts on a pod without a gang, on a PodGroup or ElasticJob without `spec.queue`, and on a Namespace for all of these
that name none.
"""

from maniple.api.errors import Problem, shown
from maniple.api.labels import QUEUE_ANNOTATION, QUEUE_LABEL
from maniple.api.meta import ObjectMeta
from maniple.api.types import DEFAULT_QUEUE

LABEL_PATH = f"metadata.labels[{QUEUE_LABEL}]"
_ANNOTATION_PATH = f"metadata.annotations[{QUEUE_ANNOTATION}]"


def queue_name(meta: ObjectMeta) -> str:
    """The queue; empty: it names none."""
    return meta.labels.get(QUEUE_LABEL) or meta.annotations.get(QUEUE_ANNOTATION) or ""


def queue_that_counts(own: str, meta: ObjectMeta, namespace: ObjectMeta | None) -> str:
    """The queue of a gang, whether it exists or not. `own`: the one that its spec names."""
    return own or queue_name(meta) or (queue_name(namespace) if namespace is not None else "") or DEFAULT_QUEUE


def queue_path(meta: ObjectMeta) -> str:
    """Where it names the queue, for messages."""
    return LABEL_PATH if QUEUE_LABEL in meta.labels else _ANNOTATION_PATH


def queue_name_problem(meta: ObjectMeta) -> Problem | None:
    """What is wrong with the label and the annotation, whichever queues exist."""
    label, annotation = meta.labels.get(QUEUE_LABEL), meta.annotations.get(QUEUE_ANNOTATION)
    if label is not None and annotation is not None and label != annotation:
        return Problem(_ANNOTATION_PATH, f"expected {shown(label)}, as the label says, found {shown(annotation)}")
    if label == "" or annotation == "":
        return Problem(queue_path(meta), "expected the name of a queue, found ''")
    return None
