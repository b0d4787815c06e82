"""The places that are kept for pods that an earlier cycle moved, until these pods are there.

The annotation of a gang names them (api/moves.py). A pod that comes in the place of a moved one starts there, before
anybody else's turn. Until it exists, its place counts as in use and its queue is charged for it, so that neither the
room nor the share is given to others. A gang that has all its pods again, or was moved too long ago, has no places.

Only pods that are missing because they were moved have places. A pod that is preempted must not come back to one: it
would start before the gang that it was evicted for, again and again. So places are taken out of the annotation when the
gang has all its pods again (`are_back`). Whoever applies a plan does the same to a gang of which pods are evicted for
another reason: cluster/in_memory_cluster.py, kube/serve/moves.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from maniple.api.moves import Move
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_requests import amounts
from maniple.model.resources import FloatArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session
    from maniple.scheduler.framework.statement import Placed


class KeptPlace(msgspec.Struct, frozen=True, eq=False):
    """Places for some pods of a role on a node."""

    node: int
    role: str
    pods: int
    requests: FloatArray  # of each


class KeptPlaces:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._is_open = False

    def open(self) -> Iterator[tuple[Job, list[KeptPlace]]]:
        """Yields the jobs with places, once in a cycle."""
        if self._is_open:
            return
        self._is_open = True
        for job in self._session.snapshot.moved:
            if places := self.of(job):
                yield job, places

    def of(self, job: Job) -> list[KeptPlace]:
        """Returns the places that are still to be kept for pods of the job."""
        session, move = self._session, job.moved
        if move is None or not move.keeps_places(session.snapshot.now) or not job.exists or job.is_suspended:
            return []
        missing = _missing(job, move)
        # Pods that started since then have come in the place of moved ones.
        newcomers = Counter((pod.node, pod.role) for pod in job.placed if pod.started > move.at_s)
        nodes, axis = session.snapshot.nodes, session.snapshot.axis
        places = []
        for place in move.places:
            node = nodes.index.get(place.node, -1)
            there = min(newcomers[node, place.role], place.pods)
            newcomers[node, place.role] -= there
            pods = min(place.pods - there, missing)
            if node >= 0 and pods > 0:
                missing -= pods
                places.append(KeptPlace(node, place.role, pods, axis.vector({**amounts(place.requests), "pods": 1})))
        return places

    def are_back(self) -> Iterator[Job]:
        """Yields the jobs that name places and have all their pods again, or are suspended: their moves are over."""
        now = self._session.snapshot.now
        for job in self._session.snapshot.moved:
            if job.moved is None or not job.moved.keeps_places(now):
                continue
            if job.is_suspended or _missing(job, job.moved) <= 0:
                yield job

    def occupy(self, job: Job, places: Iterable[KeptPlace]) -> None:
        """Keeps the places from all others until the end of the cycle."""
        from maniple.scheduler.framework.supposition import Supposition  # it needs a Session

        supposition = Supposition(self._session)
        for place in places:
            amount = place.requests * place.pods
            supposition.occupy(place.node, amount)
            supposition.charge(job.queue, amount)


def _missing(job: Job, move: Move) -> int:
    size = move.size if job.elastic is None else min(move.size, job.elastic.size)
    return size - len(job.placed) - job.succeeded


def kept_for(group: TaskGroup, places: Iterable[KeptPlace]) -> Mapping[int, int]:
    """Returns node -> the places that pods of the group may take."""
    counts: Counter[int] = Counter()
    for place in places:
        if place.role == group.role and (place.requests == group.shape.requests).all():
            counts[place.node] += place.pods
    return counts


def without(places: Sequence[KeptPlace], placed: Iterable["Placed"], waiting: int) -> list[KeptPlace]:
    """Returns the places that are left when some pods are placed there, and others that wait could not be."""
    taken: Counter[tuple[int, str]] = Counter()
    for done in placed:
        for node, _ in done.slots():
            taken[node, done.group.role] += 1
    left = []
    for place in places:
        there = min(taken[place.node, place.role], place.pods)
        taken[place.node, place.role] -= there
        given_up = min(waiting, place.pods - there)
        waiting -= given_up
        if place.pods > there + given_up:
            left.append(msgspec.structs.replace(place, pods=place.pods - there - given_up))
    return left
