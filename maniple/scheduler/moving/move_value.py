"""What moving pods costs and gains, in GPU-seconds, and how many moves an hour may have.

A job stands still while it is moved. Since its last checkpoint it has lost nothing that it declares: jobs that are
moved checkpoint before they stop, or say that they can be moved.
"""

import math
from dataclasses import dataclass

from maniple.api.moves import HOUR_S
from maniple.model.job import Job, PlacedPod
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import gpus_of


@dataclass(frozen=True, slots=True)
class Moving:
    """The policy's view of moves; the consolidation plugin sets it."""

    moves_per_hour: int = 60  # jobs
    cooldown_s: float = 3600.0  # between two moves of a job
    horizon_s: float = 3600.0  # a gang that starts gains its GPUs for so long
    restart_s: float = 60.0  # that a PodGroup stands still. An ElasticJob says so itself
    is_idle: bool = False  # whether running pods are gathered while nothing waits
    idle_interval_s: float = 300.0  # from the last move to one of the idle pass
    idle_worth: float = 0.05  # of a GPU that is tidied, compared with one that starts to work

    def moves_left(self, session: Session) -> int:
        """Returns how many more jobs may be moved in this cycle."""
        moved = len(moves_of_the_last_hour(session)) + len({done.job.key for done in session.moved})
        return max(0, self.moves_per_hour - moved)

    def lost_by(self, session: Session, job: Job, pods: tuple[PlacedPod, ...]) -> float:
        """Returns the GPU-seconds that the job loses. An elastic job stands still as a whole."""
        if job.elastic is not None:
            return job.elastic.restart_s * sum(gpus_of(session, pod.requests) for pod in job.placed)
        return self.restart_s * sum(gpus_of(session, pod.requests) for pod in pods)

    def gained_by(self, session: Session, job: Job) -> float:
        """Returns the GPU-seconds that the gang gains by starting."""
        return self.horizon_s * gpus_of(session, session.needed_resources(job))

    def gained_by_tidying(self, gpus: float) -> float:
        """Returns the GPU-seconds gained if so many GPUs are closer together, or on a node that comes free."""
        return self.horizon_s * self.idle_worth * gpus

    def last_move_s(self, session: Session) -> float:
        """Returns when a job was moved last; -inf: never."""
        return max((job.moved.at_s for job in session.snapshot.moved if job.moved is not None), default=-math.inf)


def moves_of_the_last_hour(session: Session) -> list[float]:
    """When jobs were moved. A job that was moved twice is there twice."""
    since = session.snapshot.now - HOUR_S
    return [at for job in session.snapshot.moved if job.moved is not None for at in job.moved.times_since(since)]


DEFAULT = Moving()
