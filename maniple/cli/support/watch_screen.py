"""The live view as text: a frame for a terminal, and a line for each change where there is none. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from maniple.api import types
from maniple.api.errors import printable
from maniple.cli.support.table import columns
from maniple.views.jobs import JobView, age, number

BARS = "▁▂▃▄▅▆▇█"
_SAMPLES = 30
_FEW_SAMPLES = 10  # on a narrow screen
_NARROW = 130
_LEAST_NAME = 16  # letters of a job's name that stay, whatever else has to go
_LEAST_WITH_NAMESPACE = 24  # that stay while there are columns to spare
_LONG_REASON = 24  # a longer one is cut before others lose a column by it
# What a narrow screen does without, in this order. Why a job waits and how far it is are what one looks for.
_SPARED = ("OVER TIME", "QUEUE", "AGE", "RANGE", "GPUS")

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
    with_namespace: bool = False,
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
    ordered = sorted(jobs, key=_order)
    lines += _jobs(ordered, history, now, width, with_namespace) if ordered else ["no jobs"]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… and {hidden} more"]
    return [line[:width] for line in lines]


def _jobs(jobs: Sequence[JobView], history: History, now: datetime, width: int, with_namespace: bool) -> list[str]:
    """The table of jobs: long names are clipped first, then the columns of `_SPARED` go until the rest fits."""
    names = [f"{job.namespace}/{job.name}" if with_namespace else job.name for job in jobs]
    samples = _SAMPLES if width >= _NARROW else _FEW_SAMPLES
    table = {
        "QUEUE": [job.queue for job in jobs],
        "PHASE": [job.phase or "-" for job in jobs],
        "SIZE": [size(job) for job in jobs],
        "RANGE": [job.range for job in jobs],
        "OVER TIME": [sparkline(history.of(job)[-samples:], job.max) for job in jobs],
        "GPUS": [number(job.gpus) for job in jobs],
        "PROGRESS": [str(job.progress or "-") for job in jobs],
        "AGE": [age(job.created, now) for job in jobs],
        "REASON": [job.reason for job in jobs],
    }
    # The bars have a place of their own from the start: else the columns behind them would move with each.
    widths = {name: max(len(name), *map(len, cells)) for name, cells in table.items()} | {"OVER TIME": samples}
    widths["REASON"] = min(widths["REASON"], _LONG_REASON)
    longest = max(map(len, names))
    least = min(longest, _LEAST_WITH_NAMESPACE if with_namespace else _LEAST_NAME)
    for spared in _SPARED:
        if _left(widths, width) >= least:
            break
        del widths[spared]
    room = max(_LEAST_NAME, _left(widths, width))
    rows = zip((clip(name, room) for name in names), *(table[name] for name in widths), strict=True)
    return [clip(line, width) for line in columns(["JOB", *(name.ljust(widths[name]) for name in widths)], list(rows))]


def _left(widths: Mapping[str, int], width: int) -> int:
    """What other columns leave to the first."""
    return width - sum(widths.values()) - 2 * len(widths)


def clip(text: str, width: int) -> str:
    """`a-very-long-na…`"""
    return text if len(text) <= width else text[: width - 1] + "…"


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
