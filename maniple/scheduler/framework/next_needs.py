"""What each job in line needs next: its place in line depends on it.

Every action asks for the needs of all jobs in line. That of a job to which nothing has happened in this cycle is
computed once. Equal needs are one array, so that answers about them can be kept by its id.
"""

from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class NextNeeds:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._untouched: dict[JobKey, FloatArray] = {}
        self._equal: dict[bytes, FloatArray] = {}
        self._of_pods: dict[tuple[int, int], FloatArray] = {}  # (shape, how many pods) -> what they request

    def of(self, job: Job) -> FloatArray:
        """The requests of the pods that the job needs to start; once it has started, of its next pod."""
        state = self._session.states.get(job.key)
        is_untouched = state is None or not (state.cursor or state.evicted or state.dropped)
        need = self._untouched.get(job.key) if is_untouched else None
        if need is None:
            need = self._compute(job)
            if is_untouched:
                self._untouched[job.key] = need
        return need

    def _compute(self, job: Job) -> FloatArray:
        session = self._session
        if not session.job_ready(job):
            need = session.job_need(job)
            if len(job.groups) > 1 or need.by_role or not job.groups:
                return self._one(session.needed_resources(job))
            (group,) = job.groups
            kind = group.shape.number, min(need.total, session.state(job).left(group))
            if kind not in self._of_pods:
                self._of_pods[kind] = self._one(session.needed_resources(job))
            return self._of_pods[kind]
        following = next((group for group in session.groups(job) if session.state(job).left(group)), None)
        return self._one(np.zeros(len(session.snapshot.axis)) if following is None else following.shape.requests)

    def _one(self, need: FloatArray) -> FloatArray:
        return self._equal.setdefault(need.tobytes(), need)
