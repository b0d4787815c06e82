"""Which pods and jobs this scheduler plans, and which other pods make a difference to it."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from maniple.api import kubernetes, types
from maniple.api.labels import JOB_LABEL
from maniple.model.pod_identity import group_name, may_wait

DEFAULT_SCHEDULER = "maniple"
KUBE_SCHEDULER = "default-scheduler"  # of pods that name none


@dataclass(frozen=True)
class Ours:
    """Which pods this scheduler plans."""

    scheduler_name: str = DEFAULT_SCHEDULER
    every_pod: bool = False

    def claims(self, pod: kubernetes.Pod) -> bool:
        return self.every_pod or (pod.spec.scheduler_name or KUBE_SCHEDULER) == self.scheduler_name

    def runs(self, job: types.ElasticJob) -> bool:
        """Whether a live job is this scheduler's: the one that its first role names, maniple if it names none."""
        named = job.spec.roles[0].template.spec.scheduler_name if job.spec.roles else ""
        return self.every_pod or (named or DEFAULT_SCHEDULER) == self.scheduler_name


def pending_elsewhere(pods: Iterable[kubernetes.Pod], ours: Ours) -> dict[str, int]:
    """Other schedulers with pending pods, which are not planned, and how many; most first."""
    waiting = (pod for pod in pods if not pod.spec.node_name and may_wait(pod) and not ours.claims(pod))
    return dict(Counter(map(scheduler_of, waiting)).most_common())


def how_to_plan(scheduler: str) -> str:
    """The options with which the pods of another scheduler are planned."""
    name = scheduler if re.fullmatch(r"[\w.-]+", scheduler, re.ASCII) else repr(scheduler)
    return f"`--all` or `--scheduler-name {name}`"


def scheduler_of(pod: kubernetes.Pod) -> str:
    return pod.spec.scheduler_name or KUBE_SCHEDULER


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
