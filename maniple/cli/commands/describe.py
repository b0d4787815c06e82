"""`maniple describe`: all there is to say about one job."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from maniple.api import types
from maniple.api.errors import printable
from maniple.cli.support.job_options import complete_jobs, job_key, run_visit, visit_options
from maniple.cli.support.table import render
from maniple.views.jobs import JobView, age, counted, number, view

if TYPE_CHECKING:
    from maniple.kube.user.client import Event, Visit
    from maniple.kube.user.replica_view import Replica

_MOST_EVENTS = 20
_MOST_SIZES = 20
_SIZE = re.compile(r"\b(\d+) replicas? in generation (\d+)")  # so the controller tells of a new size


@click.command(
    epilog="""\b
Examples:
  maniple describe bert
  maniple describe research/bert -o json

Exit codes: 0 described, 2 wrong input or no such job.
"""
)
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@visit_options
def command(job: str, output: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
    """Describe a job: its sizes, its replicas and their GPUs, what happened, and why it waits."""

    async def read(visit: "Visit") -> "tuple[types.ElasticJob, list[Replica], list[Event]]":
        key = job_key(job, visit)
        found = await visit.job(key)
        replicas = sorted(await visit.replicas(*key), key=lambda replica: (replica.role, replica.index))
        return found, replicas, await visit.events(found, replicas)

    found, replicas, events = run_visit(kubeconfig, context, namespace, read)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(_json(found, replicas, events)), indent=1).decode())
    else:
        click.echo("\n\n".join(described(found, replicas, events, datetime.now(UTC))))


def _json(job: types.ElasticJob, replicas: "Sequence[Replica]", events: "Sequence[Event]") -> dict[str, Any]:
    return {
        **msgspec.to_builtins(view(job, replicas)),
        "conditions": job.status.conditions,
        "failures": job.status.failures.count,
        "generation": job.status.generation,
        "speeds": job.status.speeds,
        "replicas": [
            {
                "pod": one.name,
                "role": one.role,
                "index": one.index,
                "state": one.state,
                "node": one.node,
                "gpus": one.gpus.split(",") if one.gpus else [],
                "message": one.why,
            }
            for one in replicas
        ],
        "sizes": [
            {"time": at, "replicas": size, "generation": generation} for at, size, generation in sizes_told(events)
        ],
        "events": [
            {"time": one.at, "type": one.type, "reason": one.reason, "count": one.count, "about": one.regarding.name}
            | {"note": one.note}
            for one in events
        ],
    }


def described(
    job: types.ElasticJob, replicas: "Sequence[Replica]", events: "Sequence[Event]", now: datetime
) -> list[str]:
    seen = view(job, replicas)
    parts = [f"{seen.namespace}/{seen.name}\n" + _lines(_head(job, seen, now))]
    if seen.reason:
        what = "Failed" if seen.phase == "Failed" else "Waits"
        parts.append(f"{what} ({seen.reason})\n" + _lines([("Why", seen.message)]))
    parts.append("Roles\n" + _roles(job, seen))
    if job.status.generation.number:
        parts.append(_generation(job))
    if job.status.speeds:
        rows = [[str(one.replicas), f"{one.throughput:g}"] for one in sorted(job.status.speeds, key=_replicas_of)]
        parts.append("Measured speed\n" + render(["REPLICAS", "THROUGHPUT"], rows))
    if sizes := sizes_told(events):
        rows = [[age(at, now), str(size), str(generation)] for at, size, generation in sizes[-_MOST_SIZES:]]
        parts.append("Sizes over time\n" + render(["AGE", "REPLICAS", "GENERATION"], rows))
    if replicas:
        parts.append("Replicas\n" + _replicas(replicas, now))
    if job.status.conditions:
        parts.append("Conditions\n" + _conditions(job, now))
    if events:
        parts.append("Events\n" + _events(events, now))
    return parts


def _replicas_of(speed: types.MeasuredSpeed) -> int:
    return speed.replicas


def _generation(job: types.ElasticJob) -> str:
    """Who takes part, in the order of their ranks."""
    now = job.status.generation
    head = f"Generation {now.number}"
    if now.stop:
        return f"{head}\n  all are to checkpoint and stop"
    who = "" if len(now.members) == 1 else "who meet "
    meet = f", {who}at {now.coordinator}:{now.port}" if now.coordinator else ""
    rows, rank = [], 0
    for member in now.members:
        last = rank + member.slots - 1
        rows.append([str(rank) if rank == last else f"{rank}-{last}", member.pod, member.address or "-"])
        rank = last + 1
    return f"{head}: {counted(len(now.members), 'member')}{meet}\n" + render(["RANKS", "POD", "ADDRESS"], rows)


def sizes_told(events: "Sequence[Event]") -> list[tuple[str, int, int]]:
    """(when, replicas, generation) of each size that the job has had, as far as its events are still there."""
    found = []
    for event in events:
        match = _SIZE.search(event.note) if event.regarding.kind == "ElasticJob" else None
        if match is not None:
            found.append((event.event_time or event.at, int(match[1]), int(match[2])))
    return sorted(found, key=lambda one: one[2])


def _head(job: types.ElasticJob, seen: JobView, now: datetime) -> list[tuple[str, str]]:
    spec, status = job.spec, job.status
    wishes = [f"{word} {name}" for word in ("required", "preferred") if (name := getattr(spec.topology, word))]
    running = f"{seen.running} running" + (f" of {seen.target}" if seen.target else "")  # 0: over, or suspended
    resized = f", last {age(status.last_resize_time, now)} ago" if status.last_resize_time else ""
    return [
        ("Phase", status.phase or "none yet"),
        ("Queue", seen.queue + (f", priority {spec.priority_class_name}" if spec.priority_class_name else "")),
        ("Size", f"{running}, from {seen.min} to {seen.max}"),
        ("GPUs", number(seen.gpus)),
        ("Progress", _progress(seen, now)),
        ("Framework", spec.framework),
        ("Topology", ", ".join(wishes)),
        ("Resizes", f"{status.resizes}{resized}"),
        ("Restarts", str(status.restarts)),
        ("Failures", f"{status.failures.count} of {spec.backoff_limit} allowed ({spec.restart_policy})"),
        ("Created", f"{seen.created}, {age(seen.created, now)} ago"),
        ("Started", f"{age(status.start_time, now)} ago" if status.start_time else ""),
        ("Ended", f"{age(status.completion_time, now)} ago" if status.completion_time else ""),
    ]


def _progress(seen: JobView, now: datetime) -> str:
    """`step 1200 of 5000 (24%), throughput 310, 12s ago`"""
    said = seen.progress
    if said is None:
        return ""
    of = f" of {said.total} ({said})" if said.total else ""
    speed = f", throughput {said.throughput:g}" if said.throughput is not None else ""
    return f"step {said.step}{of}{speed}, {age(said.time, now)} ago"


def _lines(lines: list[tuple[str, str]]) -> str:
    return "\n".join(f"  {name + ':':11}{printable(value)}" for name, value in lines if value)


def _roles(job: types.ElasticJob, seen: JobView) -> str:
    rows = []
    for role, one in zip(job.spec.roles, seen.roles, strict=True):
        images = ", ".join(container.image for container in role.template.spec.containers)
        rows.append([one.name, str(one.running), str(one.target), one.range, str(role.step), images])
    return render(["ROLE", "SIZE", "TARGET", "RANGE", "STEP", "IMAGE"], rows)


def _replicas(replicas: "Sequence[Replica]", now: datetime) -> str:
    rows = [
        [
            one.name,
            one.state,
            one.node or "-",
            one.gpus or "-",
            age(one.pod.metadata.creation_timestamp, now),
            "" if one.is_running else one.why,
        ]
        for one in replicas
    ]
    return render(["POD", "STATE", "NODE", "GPUS", "AGE", "WHY"], rows)


def _conditions(job: types.ElasticJob, now: datetime) -> str:
    rows = [
        [one.type, one.status, age(one.last_transition_time, now), one.reason, one.message]
        for one in job.status.conditions
    ]
    return render(["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], rows)


def _events(events: "Sequence[Event]", now: datetime) -> str:
    shown = list(events)[-_MOST_EVENTS:]
    rows = [
        [
            age(one.at, now),
            one.type,
            one.reason + (f" ×{one.count}" if one.count > 1 else ""),
            one.regarding.name,
            one.note,
        ]
        for one in shown
    ]
    text = render(["AGE", "TYPE", "REASON", "ABOUT", "WHAT"], rows)
    return text if len(shown) == len(events) else f"{text}\n  … and {len(events) - len(shown)} older ones"
