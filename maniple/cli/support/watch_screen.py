"""Draws the live view: a frame for a terminal, and a line for each change elsewhere. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from maniple.api.keys import Key, join_key
from maniple.api.terminal_text import printable
from maniple.api.timestamps import format_timestamp
from maniple.cli.support.table import columns
from maniple.views.ages_and_amounts import age, number
from maniple.views.cluster import ClusterView
from maniple.views.jobs import JobView, SizeHistory
from maniple.views.nodes import NodeView, gpu_use

BARS = "▁▂▃▄▅▆▇█"
SAMPLES = 30
_FEW_SAMPLES = 10  # on a narrow screen
_NARROW = 130
_MIN_NAME = 16  # letters of a job's name that stay, whatever columns have to go
_MIN_NAME_WITH_NAMESPACE = 24  # that stay while there are columns to drop
_LONG_REASON = 24  # a longer one is cut before other columns are dropped for it
# What a narrow screen drops, in this order. Users look for why a job waits and how far it is.
_DROPPED = ("OVER TIME", "QUEUE", "AGE", "RANGE", "GPUS")
_GPU_BAR = 20


def sparkline(sizes: Sequence[int], largest: int) -> str:
    """`▁▄▄█`: a bar for each size; a blank for 0."""
    if largest <= 0:
        return ""
    return "".join(" " if size <= 0 else BARS[min(7, max(0, -(-size * 8 // largest) - 1))] for size in sizes)


def frame(
    view: ClusterView,
    history: SizeHistory,
    namespace: str | None,
    now: datetime,
    width: int,
    height: int | None = None,
    trouble: str = "",
) -> list[str]:
    """Lines of at most `width` letters, and at most `height` of them.

    `namespace`: None is all of them. `trouble`: why the view is out of date.
    """
    note = f"The API server does not answer, this view is out of date: {printable(trouble)}" if trouble else ""
    lines = [_title(view.nodes, namespace or "all namespaces", now), note]
    if view.queues:
        rows = [
            [queue.name, queue.allocated_gpus, queue.deserved_gpus, str(queue.running_jobs), str(queue.pending_jobs)]
            for queue in view.queues
        ]
        lines += [*columns(["QUEUE", "HOLDS", "DESERVES", "RUNNING", "WAITING"], rows), ""]
    lines += _jobs(view.jobs, history, now, width, namespace is None) if view.jobs else ["no jobs"]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… and {hidden} more"]
    return [line[:width] for line in lines]


def _jobs(jobs: Sequence[JobView], history: SizeHistory, now: datetime, width: int, with_namespace: bool) -> list[str]:
    """The table of jobs. Long names are clipped first; then columns are dropped until the rest fits."""
    names = [join_key(job.key) if with_namespace else job.name for job in jobs]
    samples = SAMPLES if width >= _NARROW else _FEW_SAMPLES
    table = {
        "QUEUE": [job.queue for job in jobs],
        "PHASE": [job.phase or "-" for job in jobs],
        "SIZE": [job.size for job in jobs],
        "RANGE": [job.range for job in jobs],
        "OVER TIME": [sparkline(history.of(job)[-samples:], job.max) for job in jobs],
        "GPUS": [number(job.gpus) for job in jobs],
        "PROGRESS": [str(job.progress or "-") for job in jobs],
        "AGE": [age(job.created, now) for job in jobs],
        "REASON": [job.reason for job in jobs],
    }
    # The bars have their full width from the start: otherwise each new bar would move the columns after them.
    widths = {name: max(len(name), *map(len, cells)) for name, cells in table.items()} | {"OVER TIME": samples}
    widths["REASON"] = min(widths["REASON"], _LONG_REASON)
    longest = max(map(len, names))
    needed = min(longest, _MIN_NAME_WITH_NAMESPACE if with_namespace else _MIN_NAME)
    for dropped in _DROPPED:
        if _room(widths, width) >= needed:
            break
        del widths[dropped]
    room = max(_MIN_NAME, _room(widths, width))
    rows = zip((_clip(name, room) for name in names), *(table[name] for name in widths), strict=True)
    return [_clip(line, width) for line in columns(["JOB", *(name.ljust(widths[name]) for name in widths)], list(rows))]


def _room(widths: Mapping[str, int], width: int) -> int:
    """What the other columns leave to the first."""
    return width - sum(widths.values()) - 2 * len(widths)


def _clip(text: str, width: int) -> str:
    """`a-very-long-na…`"""
    return text if len(text) <= width else text[: width - 1] + "…"


def _title(nodes: Sequence[NodeView], where: str, now: datetime) -> str:
    title = f"{where}  {now:%Y-%m-%d %H:%M:%S}Z"
    if not nodes:
        return title
    gpus = gpu_use(nodes)
    filled = round(_GPU_BAR * gpus.used / gpus.total) if gpus.total else 0
    bar = "█" * filled + "░" * (_GPU_BAR - filled)
    return f"{title}  GPUs: {number(gpus.used)} of {number(gpus.total)} used, {number(gpus.idle)} idle  {bar}"


def change_lines(changes: Iterable[tuple[Key, JobView | None]], now: datetime) -> list[str]:
    return [f"{format_timestamp(now)} {join_key(key)} {_summary(job)}" for key, job in changes]


def _summary(job: JobView | None) -> str:
    if job is None:
        return "deleted"
    phase = job.phase or "New"
    reason = f": {job.reason}" if job.reason and job.reason != phase else ""
    return printable(f"{phase}{reason}, size {job.size} of {job.range}, {number(job.gpus)} GPUs, queue {job.queue}")
