"""Why a gang waits that would fit the cluster, if only it could be spread: no one domain, or no one model, holds it."""

from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api.types import GpuModel
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray
from maniple.scheduler.explain.nearest_miss import Miss
from maniple.scheduler.explain.words import change, such_as
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import (
    ANYWHERE,
    by_domain,
    choices_of_models,
    home_of,
    members_of,
    room_in,
)


def not_close(
    session: Session,
    job: Job,
    need: Need,
    wanted: Mapping[TaskGroup, int],
    what: Mapping[TaskGroup, str],
    miss: Miss,
) -> Reason | None:
    """The reason, if it is one of these two; `what` says in words what is wanted of each group."""
    groups = list(wanted)
    if session.gpus.is_mixed and not job.mixed_models:
        for models, mine in _by_list(groups).items():
            part = need if len(mine) == len(groups) else Need({}, 1)
            if not choices_of_models(session, job, part, mine, later=False):
                return _no_model(session, job, models, mine, wanted, what, miss)
    return _no_domain(session, job, groups, wanted, what, miss) if job.required else None


def _by_list(groups: Sequence[TaskGroup]) -> dict[tuple[GpuModel, ...], list[TaskGroup]]:
    by_list: dict[tuple[GpuModel, ...], list[TaskGroup]] = {}
    for group in groups:
        if group.shape.gpus:
            by_list.setdefault(group.shape.constraint.gpu_models, []).append(group)
    return by_list


def _no_model(
    session: Session,
    job: Job,
    models: tuple[GpuModel, ...],
    groups: Sequence[TaskGroup],
    wanted: Mapping[TaskGroup, int],
    what: Mapping[TaskGroup, str],
    miss: Miss,
) -> Reason:
    gpus = session.gpus
    group = max(groups, key=lambda group: wanted[group])
    codes = gpus.allowed(models)
    rooms = {
        code: int(min(1e9, session.room_for(group, later=False, model=code).sum()))
        for code in (range(len(gpus.models)) if codes is None else codes)
    }
    members = [code for code, count in session.state(job).models.get(models, {}).items() if count > 0]
    if members:
        there = _name(gpus.models[members[0]])
        if len(members) > 1:
            return Reason(
                "NoModelFits",
                f"needs {what[group]} on the GPU model of its running pods, which are on several",
                "its pods ran on one model, or spec.mixedGpuModels were true",
            )
        room = rooms.get(members[0], 0)
        return Reason(
            "NoModelFits",
            f"needs {what[group]} on {there}, where its other pods run; there is room for {room} now",
            f"room for {max(1, wanted[group] - room)} more came free on {there}{such_as(session, miss, groups)}, "
            "or spec.mixedGpuModels were true",
        )
    has = [(room, gpus.models[code]) for code, room in rooms.items() if room]
    has.sort(key=lambda pair: (-pair[0], pair[1]))
    listed = ", ".join(f"{_name(name)} has room for {room}" for room, name in has[:5])
    best = miss.models.get(models, -1)
    missing = max(1, wanted[group] - rooms.get(best, 0))
    return Reason(
        "NoModelFits",
        f"needs {what[group]} on one GPU model; {listed or 'none has room'} now",
        f"room for {missing} more came free on {_name(gpus.models[best]) if best >= 0 else 'one model'}"
        f"{such_as(session, miss, groups)}, or spec.mixedGpuModels were true",
    )


def _no_domain(
    session: Session,
    job: Job,
    groups: Sequence[TaskGroup],
    wanted: Mapping[TaskGroup, int],
    what: Mapping[TaskGroup, str],
    miss: Miss,
) -> Reason:
    level = session.snapshot.domains.levels[job.required]
    if not level.names:
        return Reason(
            "NoDomainFits",
            f"must be in one {level.name}, and no node has the labels that say in which it is",
            f"nodes had the node label of level {level.name}",
        )
    rooms = np.array([by_domain(level, room_in(session, group, ANYWHERE, later=False)) for group in groups])
    counts = np.array([max(1, wanted[group]) for group in groups])
    home = home_of(level, members_of(session, job))
    if home is not None and home < 0:
        return Reason(
            "NoDomainFits",
            f"must be in one {level.name}, and its running pods are not",
            f"its running pods were in one {level.name}",
        )
    # The roomiest domain, and in it the group that is shortest; it may be too small for all of them even when empty.
    best = int(np.argmax((rooms / counts[:, None]).min(axis=0))) if home is None else home
    short = int(np.argmin(rooms[:, best] / counts))
    group, room = groups[short], int(min(1e9, rooms[short, best]))
    which = f"the roomiest, {level.names[best]}," if home is None else f"{level.names[best]}, where its other pods run,"
    message = f"needs {what[group]} in one {level.name}; {which} has room for {room} now"
    if room >= counts[short]:
        message = f"needs {what[group]} in one {level.name}; each part of it fits into one, but not all together"
    return Reason("NoDomainFits", message, change(session, miss, groups) or "more room came free in one of them")


def is_torn(session: Session, job: Job) -> bool:
    """Whether the job must be in one domain, and those of its pods that run are not."""
    if not job.required:
        return False
    home = home_of(session.snapshot.domains.levels[job.required], members_of(session, job))
    return home is not None and home < 0


def never_close(
    session: Session,
    job: Job,
    wanted: Mapping[TaskGroup, int],
    empty: Mapping[TaskGroup, FloatArray],
    what: Mapping[TaskGroup, str],
    miss: Miss,
) -> Reason | None:
    """The reason, if no domain could hold what the gang wants of each group even if nothing were running.

    `empty`: how many pods of each group every node could hold then.
    """
    if not job.required:
        return None
    level = session.snapshot.domains.levels[job.required]
    rooms = {group: by_domain(level, empty[group]) for group in wanted}
    if np.all([rooms[group] >= count for group, count in wanted.items()], axis=0).any():
        return None
    short = min(wanted, key=lambda group: rooms[group].max(initial=0.0) - wanted[group])
    most = int(rooms[short].max(initial=0.0))
    if most >= wanted[short]:
        message = f"no {level.name} could hold all its pods together, even if it were empty"
    else:
        message = f"needs {what[short]} in one {level.name}; even an empty one has room for {most}"
    would = f"a {level.name} were large enough{such_as(session, miss, list(wanted))}"
    return Reason("NoDomainFits", message, f"{would}, or spec.topology named a wider level")


def no_such_model(session: Session, group: TaskGroup, count: int) -> tuple[str, str] | None:
    """(message, what would change it), if the cluster has no GPU of a model that the group allows."""
    models = group.shape.constraint.gpu_models
    if not group.shape.gpus or session.gpus.allowed(models) != ():
        return None
    asked = ", ".join(entry.model for entry in models)
    there = ", ".join(sorted(name for name in session.gpus.models if name)) or "none with a known model"
    message = f"allows the GPU models {asked} only; the cluster has: {there}"
    if count == 1:
        return message, f"a node with a GPU of {asked} were added"
    return message, f"nodes with GPUs of {asked} and room for {count} pods were added"


def _name(model: str) -> str:
    return model or "the GPUs without a known model"
