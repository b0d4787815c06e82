"""drf: dominant resource fairness between jobs.

A job's share is the largest part of the cluster that it holds of any resource. Jobs with lower shares go first. A job
may preempt another only if its share afterwards is not larger than the other's.
"""

from collections.abc import Sequence

import numpy as np

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Hooks, Victim, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import speeds_argument


class Drf:
    def __init__(self, arguments: Arguments) -> None:
        self._speeds = speeds_argument(arguments)

    def open(self, session: Session) -> Hooks:
        accounting = session.accounting(self._speeds)
        total = accounting.total
        nothing = np.zeros(len(total))
        counted = np.flatnonzero(session.snapshot.axis.shared & (total > 0))
        scale = total[counted]

        def share_of(held: FloatArray) -> float:
            return float((held[counted] / scale).max()) if len(counted) else 0.0

        def share(job: Job) -> float:
            held = accounting.job_held(job)
            return 0.0 if held is None else share_of(held)

        def held_by(job: Job) -> FloatArray:
            held = accounting.job_held(job)
            return nothing if held is None else held

        def preemptable(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
            after = share_of(held_by(claimant) + accounting.asked(session.asked(claimant)))
            left: dict[JobKey, FloatArray] = {}
            chosen = []
            for victim in candidates:
                held = left.get(victim.job.key)
                held = (held_by(victim.job) if held is None else held) - accounting.of_pod(victim.pod)
                if after <= share_of(held) + 1e-9:
                    chosen.append(victim)
                    left[victim.job.key] = held  # victims of one job count against each other
            return chosen

        return Hooks(
            job_order=share,
            preemptable=preemptable,
            job_kind=nothing_else,
            is_alike_in_line=True,
            victim_kind=nothing_else,
        )
