"""Pods that are stuck: still there a minute after the end of their grace. Their room is neither free nor coming.

`metadata.deletionTimestamp` is the moment at which the grace of a deleted pod ends, not the moment of the request. A
kubelet that is alive has removed the pod by then or shortly after; one that is not may never do it.
"""

from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from maniple.api.meta import ObjectMeta
from maniple.api.timestamps import format_timestamp, to_seconds
from maniple.model.resources import FloatArray

STUCK_AFTER_S = 60.0
# Of a pod that we have evicted, as long as the API server has not said when its grace ends: it is not stuck yet.
GRACE_UNKNOWN = datetime.fromtimestamp(0, UTC)


class StuckPod(NamedTuple):
    pod: str
    since: float  # the end of its grace
    requests: FloatArray

    def on(self, node: str) -> str:
        return f"pod {self.pod}, stuck on node {node} since {format_timestamp(self.since)}"


def stuck_after(meta: ObjectMeta) -> float:
    """The time after which the pod is stuck if it is still there; inf: never, as things are."""
    ends = meta.deletion_timestamp
    return inf if ends is None or ends == GRACE_UNKNOWN else to_seconds(ends) + STUCK_AFTER_S
