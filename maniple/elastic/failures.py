"""Which ends of a replica are failures, whether they are retried, and when."""

from dataclasses import dataclass

from maniple.elastic.events import Replica
from maniple.elastic.job_spec import JobSpec

SETTLE_S = 2.0  # one cause kills many workers: failures within this time count as one
_FIRST_S, LONGEST_S = 5.0, 300.0  # pauses after failures
# Reasons of failed pods that are not the pod's fault: its node was lost, shut down or full, or it was evicted.
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
    is_final: bool  # not retried, whatever the backoffLimit
    in_place: bool  # all pods are there: only their workers start again


def is_excused(replica: Replica) -> bool:
    return replica.is_disrupted or replica.reason in _EXCUSED or replica.reason.startswith("OutOf")


def has_failed(job: JobSpec, replica: Replica) -> bool:
    """Whether its end counts as a failure. A replica that is being deleted does not fail any more."""
    if replica.is_leaving:
        return False
    if replica.stage == "succeeded":
        return job.spec.restart_policy == "Always"
    return replica.stage == "failed" and not is_excused(replica)


def is_final(job: JobSpec, code: int | None) -> bool:
    """Whether a worker with this exit code is not started again."""
    if job.spec.restart_policy == "ExitCode":
        return code is None or code < 128
    return job.spec.restart_policy == "Never"


def backoff_s(count: int) -> float:
    """The pause after failure number `count`."""
    return min(LONGEST_S, _FIRST_S * 2.0 ** min(count - 1, 20))


def of_pod(job: JobSpec, replica: Replica) -> Failure:
    message = f"{job.pod(replica.key)} ended with {_exit(replica.exit)}"
    if replica.reason:
        message += f" ({replica.reason})"
    return Failure("ReplicaFailed", message, is_final(job, replica.exit), in_place=False)


def of_worker(job: JobSpec, pod: str, code: int) -> Failure:
    return Failure("WorkerFailed", f"a worker of {pod} ended with {_exit(code)}", is_final(job, code), in_place=True)


def of_start(job: JobSpec, replica: Replica) -> Failure:
    """A replica that has a node and was not ready in time."""
    return Failure("StartTimeout", start_timeout(job, replica), job.spec.restart_policy == "Never", in_place=False)


def start_timeout(job: JobSpec, replica: Replica) -> str:
    why = replica.trouble or "it is not ready"
    return f"{job.pod(replica.key)} on {replica.node} did not start within {job.spec.start_seconds} s: {why}"


def _exit(code: int | None) -> str:
    return "no exit code" if code is None else f"exit code {code}"
