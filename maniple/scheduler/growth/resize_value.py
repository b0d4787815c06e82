"""What a change of a job's size is worth: speed gained or lost for the GPUs that it takes or gives back."""

from dataclasses import dataclass

from maniple.model.job import Job
from maniple.model.resources import CPU, FloatArray
from maniple.scheduler.framework.session import Session

_CPU_UNIT = 1000.0  # thousandths, as of GPUs


@dataclass(frozen=True, slots=True)
class Sizing:
    """The policy's view of sizes; the elastic plugin sets it."""

    horizon_s: float = 3600.0  # a resize must have paid for itself by then
    crossing: float = 1.0  # what is left of the gain when a job on one node spreads to a second

    def gain(self, job: Job, before: int, after: int) -> float:
        """Speed that the job gains by going from one number of replicas to another."""
        return speed(job, after) - speed(job, before)

    def pays_back(self, job: Job, before: int, after: int) -> bool:
        """Whether what it gains within the horizon is worth the standstill."""
        if job.elastic is None:
            return False
        gained = self.gain(job, before, after)
        return gained > 0 and gained * self.horizon_s >= speed(job, before) * job.elastic.restart_s


DEFAULT = Sizing()


def sizing(session: Session) -> Sizing:
    return session.sizing or DEFAULT


def speed(job: Job, replicas: int) -> float:
    """A job that says nothing of its speed, and a gang of plain pods, is as fast as it is large."""
    return float(replicas) if job.elastic is None else job.elastic.speed(replicas)


def gpus_of(session: Session, requests: FloatArray) -> float:
    """GPUs of an amount of resources; CPUs of one without GPUs."""
    gpus = sum(float(requests[row]) for row in session.snapshot.axis.gpu_rows)
    return (gpus or float(requests[CPU]) or _CPU_UNIT) / _CPU_UNIT
