"""Explanations that are made when somebody asks: all of them, or of one gang.

They are read from the finished session. It belongs to one cycle, and nobody changes it afterwards. Two threads must not
ask at once: gangs are placed in it in thought.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from maniple.model.job import Job
from maniple.model.paused_gc import paused_gc
from maniple.model.pod_identity import JobKey
from maniple.scheduler.explain.verdict import Explainer
from maniple.scheduler.explain.who_waits import who_waits
from maniple.scheduler.framework.hooks import Reason
from maniple.scheduler.framework.plan import Glance, Waiting
from maniple.scheduler.framework.session import Session


class Unexplained:
    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def gangs(self) -> Mapping[JobKey, Glance]:
        return who_waits(self._session)

    def explain_all(self) -> Iterable[Waiting]:
        """What was said of some gangs before changes nothing: how much is looked at is limited for all together."""
        with paused_gc():
            return list(Explainer(self._session).explain_all())

    def explain(self, gang: JobKey, *, is_thorough: bool = False) -> Waiting | None:
        job = self._jobs.get(gang)
        if job is None:
            return None
        explainer = Explainer(self._session, job.name) if is_thorough else self._for_some
        with paused_gc():
            return explainer.explain(job)

    def reason(self, gang: JobKey) -> Reason | None:
        job = self._jobs.get(gang)
        with paused_gc():
            return None if job is None else self._for_reasons.reason(job)

    def line(self, queue: str) -> int:
        index = next(each.index for each in self._session.snapshot.queues if each.name == queue)
        return self._for_some.line(index)

    @cached_property
    def _for_some(self) -> Explainer:
        return Explainer(self._session)

    @cached_property
    def _for_reasons(self) -> Explainer:
        return Explainer(self._session, is_brief=True)

    @cached_property
    def _jobs(self) -> dict[JobKey, Job]:
        snapshot = self._session.snapshot
        jobs = {job.key: job for job in snapshot.jobs} if self._session.not_released else {}
        return jobs | {job.key: job for job in snapshot.waiting}
