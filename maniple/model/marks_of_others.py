"""Labels and annotations by which other schedulers know a pod's gang, queue or GPU share. They are not read here.

Whoever plans such pods learns it: a plan that starts half a gang must not look like a decision.
"""

from collections.abc import Iterable

from maniple.api import kubernetes
from maniple.api.labels import QUEUE_LABEL
from maniple.model.pod_identity import group_name, may_wait
from maniple.model.pods_we_schedule import Ours

# On pods without a gang that is read here.
_GANGS = {
    "kueue.x-k8s.io/pod-group-name": "Kueue",
    "pod-group-name": "KAI",
    "yunikorn.apache.org/task-group-name": "YuniKorn",
}
_QUEUES = {
    "kueue.x-k8s.io/queue-name": "Kueue",
    "kai.scheduler/queue": "KAI",
    "runai/queue": "KAI",
    "yunikorn.apache.org/queue": "YuniKorn",
}
_SHARES = {"gpu-fraction": "maniple.dev/gpu-fraction", "gpu-memory": "maniple.dev/gpu-memory"}
_ALL = frozenset({*_GANGS, *_QUEUES, *_SHARES})


def notes_on_marks(pods: Iterable[kubernetes.Pod], ours: Ours) -> list[str]:
    """What other schedulers would read of the pods that are planned, one line a kind."""
    counts: dict[str, int] = {}
    for pod in pods:
        if pod.spec.node_name or not may_wait(pod) or not ours.claims(pod):
            continue
        for mark in _marks(pod):
            counts[mark] = counts.get(mark, 0) + 1
    return [f"{count} pending pod{'s' * (count > 1)} {text}" for text, count in counts.items()]


def _marks(pod: kubernetes.Pod) -> Iterable[str]:
    if _ALL.isdisjoint(pod.metadata.labels) and _ALL.isdisjoint(pod.metadata.annotations):
        return  # almost every pod
    marks = {**pod.metadata.labels, **pod.metadata.annotations}
    gang = next((key for key in _GANGS if key in marks), None)
    if gang is not None and not group_name(pod):
        yield f"with {gang}: gangs of {_GANGS[gang]} are not read, so each is planned alone"
    queue = next((key for key in _QUEUES if key in marks), None)
    if queue is not None and QUEUE_LABEL not in marks and not group_name(pod):
        yield f"with {queue}: queues of {_QUEUES[queue]} are not read; {QUEUE_LABEL} names one of ours"
    for key, own in _SHARES.items():
        if key in marks and own not in marks:
            yield f"with {key}, which is not read: {own} asks for a share of a GPU"
