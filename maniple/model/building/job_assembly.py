"""A job and its pods: those that wait, those on nodes, those that are over; and what the job counts for."""

from collections.abc import Iterable, Sequence

from maniple.api import kubernetes, types
from maniple.api.phases import FINISHED
from maniple.model.building.job_builder import JobMaker
from maniple.model.building.node_usage import Seat
from maniple.model.building.occupancy import count_succeeded, join, placed_pod
from maniple.model.building.queue_usage import Tally
from maniple.model.building.task_groups import Groups
from maniple.model.job import Job


def fill(
    job: Job, members: Sequence[Seat], growing: Iterable[tuple[types.ElasticRole, kubernetes.Pod]], maker: JobMaker
) -> Tally:
    """Puts the members, which are in order, into a job that has none yet."""
    tally = Tally(job.queue)
    groups = Groups(maker)
    for seat in members:
        maker.note_age(job, seat.pod)
        if not seat.pod.spec.node_name:
            groups.wait(seat.pod, job)
    groups.finish()
    for role, replica in growing:
        groups.may_grow(job, role, replica)
    for seat in members:
        if seat.pod.status.phase in FINISHED:
            count_succeeded(job, seat.pod)
        elif seat.pod.spec.node_name and not seat.is_leaving:
            _place(seat, job, maker, tally)
    maker.settle(job)
    for group in job.groups:
        shape = group.shape
        if job.exists and not job.is_suspended:
            tally.pending.append((shape.request, len(group.pods)))
        if shape.gpus:
            tally.gpus.append(((shape.request, shape.constraint.gpu_models), len(group.pods)))
    tally.owners += groups.owners
    tally.groups = len(job.groups)
    return tally


def _place(seat: Seat, job: Job, maker: JobMaker, tally: Tally) -> None:
    vector = maker.frame.shapes.vector(seat.held)
    placed = placed_pod(maker, seat.pod, job, seat.node, vector, seat.peers)
    if seat.hand is not None:
        placed.gpus = seat.hand.gpus
        placed.gpu_models = maker.models_of(seat.pod, job)
        tally.gpus.append(((seat.request, placed.gpu_models), 1))
    join(job, placed)
    tally.allocated.append(seat.held)
