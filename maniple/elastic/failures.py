"""Which ends of a replica are failures, whether it is tried again, and when."""

from dataclasses import dataclass

from maniple.elastic.events import Replica
from maniple.elastic.job import Job

SETTLE_S = 2.0  # one cause kills many workers: what fails within this time has failed once
_FIRST_S, LONGEST_S = 5.0, 300.0  # pauses after failures
# Of a pod: it did nothing wrong. Its node was lost, shut down or full, or somebody else needed the place.
_EXCUSED = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "NodeAffinity",
        "Preempting",
        "Shutdown",
        "Terminated",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    message: str
    is_final: bool  # not to be tried again, whatever the backoffLimit
    in_place: bool  # all pods are there: only their workers start again


def is_excused(replica: Replica) -> bool:
    return replica.is_disrupted or replica.reason in _EXCUSED or replica.reason.startswith("OutOf")


def has_failed(job: Job, replica: Replica) -> bool:
    """Whether its end counts. Whoever is being deleted fails no more."""
    if replica.is_leaving:
        return False
    if replica.stage == "succeeded":
        return job.restart_policy == "Always"
    return replica.stage == "failed" and not is_excused(replica)


def is_final(job: Job, code: int | None) -> bool:
    """Whether a worker that exited so is not to be started again."""
    if job.restart_policy == "ExitCode":
        return code is None or code < 128
    return job.restart_policy == "Never"


def backoff_s(count: int) -> float:
    """The pause before the start after failure number `count`."""
    return min(LONGEST_S, _FIRST_S * 2.0 ** min(count - 1, 20))


def of_pod(job: Job, replica: Replica) -> Failure:
    said = f"{job.pod(replica.place)} ended with {_exit(replica.exit)}"
    if replica.reason:
        said += f" ({replica.reason})"
    return Failure("ReplicaFailed", said, is_final(job, replica.exit), in_place=False)


def of_worker(job: Job, pod: str, code: int) -> Failure:
    return Failure("WorkerFailed", f"a worker of {pod} ended with {_exit(code)}", is_final(job, code), in_place=True)


def of_start(job: Job, replica: Replica) -> Failure:
    """A replica that has a node and is not ready in time."""
    why = replica.trouble or "it is not ready"
    said = f"{job.pod(replica.place)} on {replica.node} did not start within {job.start_s:.0f} s: {why}"
    return Failure("StartTimeout", said, job.restart_policy == "Never", in_place=False)


def _exit(code: int | None) -> str:
    return "no exit code" if code is None else f"exit code {code}"
