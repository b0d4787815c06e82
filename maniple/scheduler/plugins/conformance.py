"""conformance: pods that the cluster needs are never evicted.

These are pods in kube-system and pods of the classes system-cluster-critical and system-node-critical.
"""

from collections.abc import Sequence

from maniple.model.job import Job
from maniple.scheduler.framework.hooks import Hooks, Victim, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session


class Conformance:
    def __init__(self, arguments: Arguments) -> None:
        del arguments  # it takes none

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(
            preemptable=_ordinary,
            reclaimable=_ordinary,
            protects=lambda pod: pod.is_critical,
            job_kind=nothing_else,
            victim_kind=nothing_else,
        )


def _ordinary(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    del claimant
    return [victim for victim in candidates if not victim.pod.is_critical]
