"""What a resize is worth: the speed a job gains or loses for the GPUs that it takes or gives back."""

from dataclasses import dataclass

from maniple.model.job import Job
from maniple.model.resources import CPU, FloatArray
from maniple.scheduler.framework.session import Session

_CPU_UNIT = 1000.0  # CPUs and GPUs are counted in thousandths


@dataclass(frozen=True, slots=True)
class Sizing:
    """The policy's view of sizes; the elastic plugin sets it."""

    horizon_s: float = 3600.0  # a resize must pay for its restart within this time
    crossing: float = 1.0  # factor on the gain of a job on one node that spreads to a second

    def gain(self, job: Job, before: int, after: int) -> float:
        """Returns the speed gained by going from `before` to `after` replicas."""
        return speed(job, after) - speed(job, before)

    def pays_back(self, job: Job, before: int, after: int) -> bool:
        """Whether the gain within the horizon is at least what the restart costs."""
        if job.elastic is None:
            return False
        gained = self.gain(job, before, after)
        return gained > 0 and gained * self.horizon_s >= speed(job, before) * job.elastic.restart_s


DEFAULT = Sizing()


def speed(job: Job, replicas: int) -> float:
    """Returns the speed; without a curve it is the number of replicas."""
    return float(replicas) if job.elastic is None else job.elastic.speed(replicas)


def gpus_of(session: Session, requests: FloatArray) -> float:
    """Returns the number of GPUs in `requests`, or of CPUs if there are no GPUs."""
    gpus = sum(float(requests[row]) for row in session.snapshot.axis.gpu_rows)
    return (gpus or float(requests[CPU]) or _CPU_UNIT) / _CPU_UNIT
