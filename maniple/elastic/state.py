"""What the machine knows of one job. Only `status` must be remembered; the rest can be observed again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from maniple.api import types
from maniple.elastic.events import Replica
from maniple.elastic.job_spec import JobSpec, ReplicaKey, read_job_spec
from maniple.elastic.measured_speeds import Samples

Phase = Literal[
    "", "Pending", "Starting", "Running", "Growing", "Shrinking", "Restarting", "Suspended", "Succeeded", "Failed"
]
WAITING: tuple[Phase, ...] = ("Pending", "Starting")
ACTIVE: tuple[Phase, ...] = ("Running", "Growing", "Shrinking")  # a generation runs
LIVE: tuple[Phase, ...] = (*WAITING, *ACTIVE, "Restarting")


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A replica has reported that one of its workers failed."""

    pod: str
    generation: int
    exit: int
    at: float


@dataclass(frozen=True, slots=True)
class State:
    job: JobSpec
    status: types.ElasticJobStatus
    written: types.ElasticJobStatus  # what the API server has, if the last instructions were carried out
    replicas: Mapping[ReplicaKey, Replica] = field(default_factory=dict)
    published: int = 0  # the last generation that was published since `restore`
    worker_failure: WorkerFailure | None = None
    refused: str = ""  # why the API server refuses the job's pods
    hindrance: tuple[str, str] = ("", "")  # reason and message
    samples: Samples = field(default_factory=Samples)
    lags_since: float = 0.0  # since when `written` differs from `status`; 0: it does not
    is_gone: bool = False  # DeleteJob was returned
    taken: tuple[str, ...] = ()  # names of the transitions that the last step took


def restore(item: types.ElasticJob, replicas: Iterable[Replica], now: float) -> State:
    """The state of a job, from what the API server has."""
    by_key = {
        replica.key: replace(replica, failed_at=now) if replica.stage == "failed" else replica for replica in replicas
    }
    return State(read_job_spec(item), item.status, item.status, by_key)


def with_decisions(status: types.ElasticJobStatus, item: types.ElasticJob) -> types.ElasticJobStatus:
    """`status` with the fields that the scheduler writes."""
    observed = item.status
    return msgspec.structs.replace(
        status, target=observed.target, last_resize_time=observed.last_resize_time, resizes=observed.resizes
    )
