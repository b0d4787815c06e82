"""What the machine knows of one job. `status` is all that it must remember; the rest can be seen again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from maniple.api import types
from maniple.elastic.events import Replica
from maniple.elastic.job import Job, Place, read_job
from maniple.elastic.speeds import Samples

Phase = Literal[
    "", "Pending", "Starting", "Running", "Growing", "Shrinking", "Restarting", "Suspended", "Succeeded", "Failed"
]
OVER: tuple[Phase, ...] = ("Succeeded", "Failed")
WAITING: tuple[Phase, ...] = ("Pending", "Starting")
ACTIVE: tuple[Phase, ...] = ("Running", "Growing", "Shrinking")  # a generation runs
LIVE: tuple[Phase, ...] = (*WAITING, *ACTIVE, "Restarting")


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A replica has said that one of its workers failed."""

    pod: str
    generation: int
    exit: int
    at: float


@dataclass(frozen=True, slots=True)
class State:
    job: Job
    status: types.ElasticJobStatus
    written: types.ElasticJobStatus  # as the API server has it, if the last instructions were done
    replicas: Mapping[Place, Replica] = field(default_factory=dict)
    told: int = 0  # the last generation that was published since `restore`
    crashed: WorkerFailure | None = None
    refused: str = ""
    hindrance: tuple[str, str] = ("", "")  # reason and message
    samples: Samples = field(default_factory=Samples)
    lags_since: float = 0.0  # since when what is written is not what is to be; 0: it is
    is_gone: bool = False
    taken: tuple[str, ...] = ()  # rows of the table that the last step took


def restore(item: types.ElasticJob, replicas: Iterable[Replica], now: float) -> State:
    """The state of a job of which nothing is known but what the API server has."""
    there = {one.place: replace(one, failed_at=now) if one.stage == "failed" else one for one in replicas}
    return State(read_job(item), item.status, item.status, there)


def take_others(status: types.ElasticJobStatus, item: types.ElasticJob) -> types.ElasticJobStatus:
    """`status` with what others write: the scheduler its decision."""
    theirs = item.status
    return msgspec.structs.replace(
        status, target=theirs.target, last_resize_time=theirs.last_resize_time, resizes=theirs.resizes
    )
