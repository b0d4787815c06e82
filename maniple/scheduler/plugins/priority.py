"""priority: jobs and pods of a higher PriorityClass go first, and may preempt jobs of a lower one.

Jobs of equal priority never preempt each other. That is half of why preemption ends; the other half is that victims
wait behind the job that preempted them. With `surplus.preempts: "true"` pods above a minimum take surplus of lower
priority in their queue, too.
"""

from collections.abc import Sequence

from maniple.model.job import Job
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Hooks, Victim, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session


class Priority:
    def __init__(self, arguments: Arguments) -> None:
        self._surplus = arguments.boolean("surplus.preempts", default=False)
        arguments.only_for(Ability.PREEMPT, "surplus.preempts")

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(
            job_order=lambda job: -job.priority,
            task_order=lambda group: -group.priority,
            preemptable=_lower,
            surplus_preempts=self._surplus,
            job_kind=nothing_else,
            is_alike_in_line=True,
            victim_kind=nothing_else,
        )


def _lower(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    return [victim for victim in candidates if victim.job.priority < claimant.priority]
