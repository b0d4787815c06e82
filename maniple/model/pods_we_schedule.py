"""Which pods and jobs this scheduler plans, and which other pods make a difference to it."""

from dataclasses import dataclass

from maniple.api import kubernetes, types
from maniple.api.labels import JOB_LABEL
from maniple.model.pod_identity import group_name

DEFAULT_SCHEDULER = "maniple"


@dataclass(frozen=True)
class Ours:
    """Which pods this scheduler plans."""

    scheduler_name: str = DEFAULT_SCHEDULER
    every_pod: bool = False

    def claims(self, pod: kubernetes.Pod) -> bool:
        return self.every_pod or pod.spec.scheduler_name == self.scheduler_name

    def runs(self, job: types.ElasticJob) -> bool:
        """Whether a live job is this scheduler's: the one that its first role names, maniple if it names none."""
        named = job.spec.roles[0].template.spec.scheduler_name if job.spec.roles else ""
        return self.every_pod or (named or DEFAULT_SCHEDULER) == self.scheduler_name


def matters(pod: kubernetes.Pod, ours: Ours) -> bool:
    """Whether the pod can make a difference: it is on a node, is ours to place, or counts for a gang."""
    phase, is_placed = pod.status.phase, bool(pod.spec.node_name)
    if JOB_LABEL in pod.metadata.labels:
        return True
    if phase == "Running" and is_placed:
        return True
    if phase == "Failed" or (phase == "Succeeded" and not is_placed):
        return False
    if phase != "Succeeded" and (is_placed or ours.claims(pod)):
        return is_placed or pod.metadata.deletion_timestamp is None
    return bool(group_name(pod))
