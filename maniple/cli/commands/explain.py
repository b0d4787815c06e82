"""`maniple explain`: what becomes of one job, and why."""

import click
import msgspec
from msgspec import UnsetType

from maniple.api.errors import printable
from maniple.cli.support.cluster_input import ClusterInput, input_options
from maniple.cli.support.plan_table import describe_queue
from maniple.cli.support.table import render
from maniple.scheduler import schedule
from maniple.scheduler.explain.job_report import WAITS, JobReport, PodReport, find_job, report_job
from maniple.scheduler.explain.words import describe_nearest
from maniple.scheduler.framework.plan import Waiting

_ABOVE_MAX = "; larger than its max: it keeps what it has until a blocked gang takes surplus back, and does not grow"


@click.command(
    epilog="""\b
Examples:
  maniple explain -f examples/topology/nvlink.yaml default/pair
  maniple explain -f cluster.yaml train --policy examples/policies/kube-batch.yaml -o json
  kubectl get nodes,pods -A -o json | maniple explain -f - --all ml/train
  maniple explain --live bert
  maniple explain --live -n research bert --policy policy.yaml

JOB is the name of a PodGroup, an ElasticJob or a pod, with its namespace in front
unless that is default, or with --live that of the kubeconfig's context. Where several
have that name, their kind stands in front of both: PodGroup/default/train.
Exit codes: 0 explained, 2 wrong input or no such job.
"""
)
@input_options
@click.argument("job", metavar="JOB")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace of JOB, where its name has none in front.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(source: ClusterInput, job: str, namespace: str | None, output: str) -> None:
    """Explain one job: where its pods are or go, on which GPUs, or why it waits."""
    cluster, policy, default_namespace = source.read()
    snapshot = cluster.snapshot()
    gang = find_job(snapshot, job if "/" in job else f"{namespace or default_namespace}/{job}")
    report = report_job(snapshot, schedule(snapshot, policy, thorough=gang.name), gang)
    if report.kind == "ElasticJob" and report.state == WAITS:
        report = msgspec.structs.replace(report, state=cluster.why_at_rest(report.job) or WAITS)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=1).decode())
    else:
        click.echo("\n\n".join(_parts(report)))


def _parts(report: JobReport) -> list[str]:
    parts = [_head(report)]
    if report.pods:
        parts.append("Pods\n" + _pods(report.pods))
    why = report.waiting
    if why is not None:
        parts.append(f"Waits ({why.reason})\n" + _lines(_waiting(why)))
        if why.nodes:
            parts.append("Nodes\n" + render(["NODES", "REASON"], [[str(n.count), n.reason] for n in why.nodes]))
        if why.tried:
            rows = [[tried.action, tried.why] for tried in why.tried]
            parts.append("Tried\n" + render(["ACTION", "WHY IT DID NOT HELP"], rows))
    return parts


def _head(report: JobReport) -> str:
    wishes = [
        f"{word} {level}" for word, level in (("required", report.required), ("preferred", report.preferred)) if level
    ]
    lines = [
        ("State", report.state),
        ("Kind", report.kind),
        ("Minimum", f"{report.min_member} pod{'s' * (report.min_member > 1)}, {report.running} running"),
        ("Gated", f"{report.gated} pod{'s' * (report.gated > 1)} held by scheduling gates" if report.gated else ""),
        *(("Size", line) for line in _sizes(report)),
        ("Cool-down", f"{report.cools_down_s:g} s more" if report.cools_down_s is not None else ""),
        ("Priority", f"{report.priority}{'' if report.preemptable else ', preemptable: false'}"),
        ("Topology", ", ".join(wishes)),
        ("Ring", f"{report.ring_gbs:g} GB/s, the slowest of its pods'" if report.ring_gbs is not None else ""),
        ("Queue", describe_queue(report.queue)),
        ("Line", f"{report.position} of {report.line}" if report.position is not None else ""),
        ("Reserved", _reservation(report)),
        ("Back-off", f"{report.backs_off_s:g} s more" if report.backs_off_s is not None else ""),
    ]
    return f"{report.job}\n" + _lines([(name, value) for name, value in lines if value])


def _lines(lines: list[tuple[str, str]]) -> str:
    return "\n".join(f"  {name + ':':11}{printable(value)}" for name, value in lines)


def _sizes(report: JobReport) -> list[str]:
    """`worker 4 of 2 to 8 in steps of 2, to become 8`"""
    made = []
    for role in report.roles:
        step = f" in steps of {role.step}" if role.step > 1 else ""
        then = f"; becomes {role.resize}" if role.resize is not None else _ABOVE_MAX * (role.size > role.max)
        made.append(f"{role.role} {role.size}, from {role.min} to {role.max}{step}, {role.running} running{then}")
    return made


def _reservation(report: JobReport) -> str:
    """`n1 ×2, n2: expected at …, in 400 s`"""
    kept = report.reservation
    if kept is None:
        return ""
    nodes = [name + (f" ×{count}" if count > 1 else "") for name, count in kept.nodes.items()]
    shown = nodes if len(nodes) <= 12 else [*nodes[:11], f"… and {len(nodes) - 11} more nodes"]
    return f"{', '.join(shown)}: expected at {kept.expected}, in {kept.in_s:g} s"


def _waiting(why: Waiting) -> list[tuple[str, str]]:
    lines = [
        ("Why", why.message),
        ("Nearest", "" if why.nearest is None else describe_nearest(why.nearest)),
        ("Starts if", why.would_start_if),
    ]
    return [(name, value) for name, value in lines if value]


def _pods(pods: tuple[PodReport, ...]) -> str:
    """Waiting pods are all alike here: more than a few are counted."""
    shown = [pod for pod in pods if pod.node]
    left = [pod for pod in pods if not pod.node]
    rows = [
        [
            pod.pod,
            pod.state,
            pod.node,
            pod.domain or "-",
            ",".join(pod.gpus) + (f" ({pod.gpu_share:g} of each)" if not isinstance(pod.gpu_share, UnsetType) else "")
            or "-",
            "-" if isinstance(pod.ring_gbs, UnsetType) else f"{pod.ring_gbs:g} GB/s",
            _note(pod),
        ]
        for pod in shown
    ]
    rows += [[pod.pod, pod.state, "-", "-", "-", "-", _note(pod)] for pod in left[:3]]
    header = ["POD", "STATE", "NODE", "DOMAIN", "GPUS", "RING", "NOTE"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    text = render(header, rows)
    return text if len(left) <= 3 else f"{text}\n  … and {len(left) - 3} more that wait"


def _note(pod: PodReport) -> str:
    """Why it leaves, or when it will."""
    if not isinstance(pod.reason, UnsetType):
        return f"{pod.reason} for {pod.beneficiary}"
    return "" if isinstance(pod.backfill, UnsetType) else f"makes way for {pod.backfill}"
