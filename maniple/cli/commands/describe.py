"""`maniple describe`: all there is to say about one job."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from maniple.api.gpu.assignment import format_assignment
from maniple.api.keys import join_key
from maniple.cli.support.job_options import Connection, job_argument, job_key, job_options, run_with_client
from maniple.cli.support.table import echo_json, render, render_fields
from maniple.cli.support.terminal import say
from maniple.views.ages_and_amounts import age, counted, number

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient
    from maniple.views.job_detail import EventView, JobDescription
    from maniple.views.jobs import JobView

_MOST_EVENTS = 20
_MOST_SIZES = 20


@click.command(
    epilog="""\b
Examples:
  maniple describe bert
  maniple describe research/bert -o json

Exit codes: 0 described, 2 wrong input or no such job.
"""
)
@job_argument
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@job_options
def command(name: str, output: str, connection: Connection) -> None:
    """Describe a job: its sizes, its replicas and their GPUs, its events, and why it waits."""

    async def read(client: "UserClient") -> "JobDescription":
        from maniple.views.job_detail import describe_job

        key = job_key(name, client)
        job = await client.job(key)
        replicas = await client.replicas(*key)
        return describe_job(job, replicas, await client.events(job, replicas))

    description = run_with_client(connection, read)
    if output == "json":
        echo_json(description.detail)
    else:
        say("\n\n".join(sections(description, datetime.now(UTC))))


def sections(description: "JobDescription", now: datetime) -> Iterable[str]:
    """The text, without those sections that have nothing to say."""
    job = description.detail
    yield f"{join_key(job.key)}\n" + render_fields(_head(description, now))
    if job.reason:
        title = "Failed" if job.phase == "Failed" else "Waits"
        yield f"{title} ({job.reason})\n" + render_fields([("Why", job.message)])
    rows = []
    for role, spec in zip(job.roles, description.spec.roles, strict=True):
        images = ", ".join(container.image for container in spec.template.spec.containers)
        rows.append([role.name, str(role.running), str(role.target), role.range, str(spec.step), images])
    yield "Roles\n" + render(["ROLE", "SIZE", "TARGET", "RANGE", "STEP", "IMAGE"], rows)
    if job.generation.number:
        yield _generation(description)
    if job.speeds:
        speeds = sorted(job.speeds, key=lambda speed: speed.replicas)
        rows = [[str(speed.replicas), f"{speed.throughput:g}"] for speed in speeds]
        yield "Measured speed\n" + render(["REPLICAS", "THROUGHPUT"], rows)
    if job.sizes:
        rows = [[age(size.time, now), str(size.replicas), str(size.generation)] for size in job.sizes[-_MOST_SIZES:]]
        yield "Sizes over time\n" + render(["AGE", "REPLICAS", "GENERATION"], rows)
    if job.replicas:
        yield "Replicas\n" + _replicas(description, now)
    if job.conditions:
        rows = [
            [entry.type, entry.status, age(entry.last_transition_time, now), entry.reason, entry.message]
            for entry in job.conditions
        ]
        yield "Conditions\n" + render(["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], rows)
    if job.events:
        yield "Events\n" + _events(job.events, now)


def _head(description: "JobDescription", now: datetime) -> list[tuple[str, str]]:
    job, spec, status = description.detail, description.spec, description.status
    topology = (("required", spec.topology.required), ("preferred", spec.topology.preferred))
    priority = f", priority {spec.priority_class_name}" if spec.priority_class_name else ""
    last_resize = f", last {_ago(status.last_resize_time, now)}" if status.last_resize_time else ""
    running = f"{job.running} running" + (f" of {job.target}" if job.target else "")  # 0: finished, or suspended
    return [
        ("Phase", job.phase or "none yet"),
        ("Queue", f"{job.queue}{priority}"),
        ("Size", f"{running}, from {job.min} to {job.max}"),
        ("GPUs", number(job.gpus)),
        ("Progress", _progress(job, now)),
        ("Framework", job.framework),
        ("Topology", ", ".join(f"{word} {level}" for word, level in topology if level)),
        ("Resizes", f"{job.resizes}{last_resize}"),
        ("Restarts", str(job.restarts)),
        ("Failures", f"{job.failures} of {spec.backoff_limit} allowed ({spec.restart_policy})"),
        ("Created", f"{job.created}, {age(job.created, now)} ago"),
        ("Started", _ago(status.start_time, now)),
        ("Ended", _ago(status.completion_time, now)),
    ]


def _ago(time: datetime | None, now: datetime) -> str:
    return "" if time is None else f"{age(time, now)} ago"


def _progress(job: "JobView", now: datetime) -> str:
    """`step 1200 of 5000 (24%), throughput 310, 12s ago`"""
    progress = job.progress
    if progress is None:
        return ""
    total = f" of {progress.total} ({progress})" if progress.total else ""
    speed = f", throughput {progress.throughput:g}" if progress.throughput is not None else ""
    return f"step {progress.step}{total}{speed}, {_ago(progress.time, now)}"


def _generation(description: "JobDescription") -> str:
    """Its members, in the order of their ranks."""
    generation = description.detail.generation
    title = f"Generation {generation.number}"
    if generation.stop:
        return f"{title}\n  all replicas checkpoint and stop"
    coordinator = f", coordinator {generation.coordinator}:{generation.port}" if generation.coordinator else ""
    rows = [
        [str(rank.first) if rank.first == rank.last else f"{rank.first}-{rank.last}", rank.pod, rank.address or "-"]
        for rank in description.ranks
    ]
    return f"{title}: {counted(len(rows), 'member')}{coordinator}\n" + render(["RANKS", "POD", "ADDRESS"], rows)


def _replicas(description: "JobDescription", now: datetime) -> str:
    rows = [
        [
            replica.pod,
            replica.state,
            replica.node or "-",
            format_assignment(replica.gpus) or "-",
            age(created, now),
            "" if replica.state == "Running" else replica.message,
        ]
        for replica, created in zip(description.detail.replicas, description.replicas_created, strict=True)
    ]
    return render(["POD", "STATE", "NODE", "GPUS", "AGE", "WHY"], rows)


def _events(events: "tuple[EventView, ...]", now: datetime) -> str:
    shown = events[-_MOST_EVENTS:]
    rows = [
        [
            age(event.time, now),
            event.type,
            event.reason + (f" ×{event.count}" if event.count > 1 else ""),
            event.about,
            event.note,
        ]
        for event in shown
    ]
    text = render(["AGE", "TYPE", "REASON", "ABOUT", "WHAT"], rows)
    return text if len(shown) == len(events) else f"{text}\n  … and {len(events) - len(shown)} older events"
