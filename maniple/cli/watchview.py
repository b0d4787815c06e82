"""The live view as text: a frame for a terminal, and a line for each change where there is none. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from maniple.api import types
from maniple.api.errors import printable
from maniple.cli.jobview import JobView, age, number
from maniple.cli.table import columns

BARS = "▁▂▃▄▅▆▇█"
_SAMPLES = 30
_FEW_SAMPLES = 10  # on a narrow screen
_NARROW = 130

Key = tuple[str, str]


class History:
    """The sizes of each job, one for each time that it was asked to remember."""

    def __init__(self) -> None:
        self._sizes: dict[Key, deque[int]] = {}

    def remember(self, jobs: Iterable[JobView]) -> None:
        sizes = {(job.namespace, job.name): job.running for job in jobs}
        self._sizes = {key: self._sizes.get(key, deque(maxlen=_SAMPLES)) for key in sizes}
        for key, size in sizes.items():
            self._sizes[key].append(size)

    def of(self, job: JobView) -> Sequence[int]:
        return tuple(self._sizes.get((job.namespace, job.name), ()))


def sparkline(sizes: Sequence[int], most: int) -> str:
    """`▁▄▄█`: a bar for each size; none where nothing runs."""
    if most <= 0:
        return ""
    return "".join(" " if size <= 0 else BARS[min(7, max(0, -(-size * 8 // most) - 1))] for size in sizes)


def size(job: JobView) -> str:
    """`4`, or on the way `4→8`"""
    return str(job.running) if job.running == job.target else f"{job.running}→{job.target}"


def frame(
    jobs: Sequence[JobView],
    queues: Iterable[types.Queue],
    gpus: tuple[float, float] | None,
    history: History,
    where: str,
    now: datetime,
    width: int,
    height: int | None = None,
    trouble: str = "",
) -> list[str]:
    """Lines of at most `width` letters, and at most `height` of them; `trouble` is why they are not up to date."""
    note = f"The API server does not answer, all this is as it was: {printable(trouble)}" if trouble else ""
    lines = [_title(gpus, where, now), note]
    listed = sorted(queues, key=lambda queue: queue.metadata.name)
    if listed:
        rows = []
        for one in listed:
            counts = [str(one.status.running_jobs), str(one.status.pending_jobs)]
            rows.append([one.metadata.name, _gpus(one.status.allocated), _gpus(one.status.deserved), *counts])
        lines += [*columns(["QUEUE", "HOLDS", "DESERVES", "RUNNING", "WAITING"], rows), ""]
    shown = _SAMPLES if width >= _NARROW else _FEW_SAMPLES
    header = ["JOB", "QUEUE", "PHASE", "SIZE", "RANGE", "OVER TIME".ljust(shown), "GPUS", "PROGRESS", "AGE", "REASON"]
    rows = [
        [
            f"{job.namespace}/{job.name}",
            job.queue,
            job.phase or "-",
            size(job),
            job.range,
            sparkline(history.of(job)[-shown:], job.max),
            number(job.gpus),
            str(job.progress or "-"),
            age(job.created, now),
            job.reason,
        ]
        for job in sorted(jobs, key=_order)
    ]
    lines += columns(header, rows) if rows else ["no jobs"]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… and {hidden} more"]
    return [line[:width] for line in lines]


def _order(job: JobView) -> tuple[bool, str, str]:
    """Those that are over come last."""
    return job.phase in ("Succeeded", "Failed"), job.namespace, job.name


def _title(gpus: tuple[float, float] | None, where: str, now: datetime) -> str:
    title = f"{where}  {now:%Y-%m-%d %H:%M:%S}Z"
    if gpus is None:
        return title
    used, total = gpus
    filled = round(20 * used / total) if total else 0
    return f"{title}  GPUs: {number(used)} of {number(total)} used, {number(total - used)} idle  {bar(filled, 20)}"


def bar(filled: int, length: int) -> str:
    return "█" * filled + "░" * (length - filled)


def _gpus(resources: Mapping[str, str | int | float]) -> str:
    found = [str(resources[name]) for name in types.GPU_RESOURCES if name in resources]
    return "+".join(found) or "0"


def changes(before: Mapping[Key, JobView], after: Mapping[Key, JobView], now: datetime) -> list[str]:
    """A line for each job that is not as it was."""
    moment = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    lines = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None:
            lines.append(f"{moment} {'/'.join(key)} deleted")
        elif old is None or _said(old) != _said(new):
            lines.append(f"{moment} {'/'.join(key)} {_said(new)}")
    return lines


def _said(job: JobView) -> str:
    phase = job.phase or "New"
    waits = f": {job.reason}" if job.reason and job.reason != phase else ""
    return printable(f"{phase}{waits}, size {size(job)} of {job.range}, {number(job.gpus)} GPUs, queue {job.queue}")
