"""What promised gangs count on of what is free now.

A gang is promised room on a node: what its victims leave there, and for the rest what is free already. Nobody else may
use that rest now, even if more leaves the node later: then the gang could not start when its own victims are gone. A
gang that waits for the victims of others counts on nothing: nobody has left for it.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session
    from maniple.scheduler.framework.statement import Placed


class PromisedRoom:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._of_gang: dict[JobKey, dict[int, FloatArray]] = {}  # gang -> node -> amounts
        self.amounts: FloatArray = np.zeros(session.free.shape)  # [R, N] of all gangs
        self._victims: dict[str, dict[int, FloatArray]] = {}  # gang -> node -> what its victims of this cycle hold
        self._seen = 0  # how much of session.evicted is in it

    def __bool__(self) -> bool:
        return bool(self._of_gang)

    def expect(self, job: Job) -> None:
        """Keeps free what the gang counts on where an earlier cycle promised it room."""
        needs: dict[int, FloatArray] = {}
        for group in job.groups:
            for node, pods in group.nominated.items():
                _add(needs, node, group.shape.requests * pods)
        if self.has_evicted(job):
            self._keep(job, needs)

    def keep(self, placed: Iterable["Placed"]) -> None:
        """Keeps free what gangs count on that are promised room in this cycle."""
        by_gang: dict[JobKey, tuple[Job, dict[int, FloatArray]]] = {}
        for done in placed:
            if done.later:
                _, needs = by_gang.setdefault(done.job.key, (done.job, {}))
                for node, used in zip(done.spot.nodes.tolist(), done.used().T, strict=True):
                    _add(needs, node, used)
        for job, needs in by_gang.values():
            if self.has_evicted(job):
                self._keep(job, needs)

    def drop(self, job: Job) -> None:
        for node, amount in self._of_gang.pop(job.key, {}).items():
            self._shift(node, -amount)

    def rank(self, job: Job) -> int:
        """The turn of a promised gang: first those whose victims are gone, last those whose victims are still there."""
        if self._has_leaving_victims(job):
            return 2
        return 0 if job.has_evicted else 1

    def has_evicted(self, job: Job) -> bool:
        """Whether pods were evicted for the gang's promise, in this cycle or earlier."""
        if job.has_evicted or self._has_leaving_victims(job):
            return True
        return job.name in self._victims_by_gang()

    def _has_leaving_victims(self, job: Job) -> bool:
        return job.name in self._session.snapshot.leaving_for

    def _keep(self, job: Job, needs: Mapping[int, FloatArray]) -> None:
        self.drop(job)
        rest = {node: np.maximum(amount - self._leaving(job, node), 0.0) for node, amount in needs.items()}
        self._of_gang[job.key] = {node: amount for node, amount in rest.items() if amount.any()}
        for node, amount in self._of_gang[job.key].items():
            self._shift(node, amount)

    def _leaving(self, job: Job, node: int) -> FloatArray:
        """What the gang's victims on the node hold, and those pods that leave it for no gang."""
        snapshot = self._session.snapshot
        leaving = snapshot.releasing[:, node] - self._leaving_for_gangs.get(node, 0.0)
        own = snapshot.leaving_for.get(job.name, {}).get(node)
        if own is not None:
            leaving += own
        of_victims = self._victims_by_gang().get(job.name, {}).get(node)
        return leaving if of_victims is None else leaving + of_victims

    @cached_property
    def _leaving_for_gangs(self) -> dict[int, FloatArray]:
        """Node -> what victims of earlier cycles hold there, of whatever gang."""
        total: dict[int, FloatArray] = {}
        for by_node in self._session.snapshot.leaving_for.values():
            for node, amount in by_node.items():
                _add(total, node, amount)
        return total

    def _victims_by_gang(self) -> dict[str, dict[int, FloatArray]]:
        evicted = self._session.evicted
        for done in evicted[self._seen :] if self._seen < len(evicted) else ():
            _add(self._victims.setdefault(done.beneficiary, {}), done.pod.node, done.pod.requests)
        self._seen = len(evicted)
        return self._victims

    def _shift(self, node: int, amount: FloatArray) -> None:
        self.amounts[:, node] += amount
        self._session.capacity.changed.append(node)


def _add(needs: dict[int, FloatArray], node: int, amount: FloatArray) -> None:
    needs[node] = needs[node] + amount if node in needs else amount
