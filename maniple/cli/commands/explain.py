"""`maniple explain`: what becomes of one job, and why."""

from collections.abc import Iterator

import click
import msgspec
from msgspec import UNSET

from maniple.api.errors import InputError
from maniple.cli.support.cluster_input import ClusterInput, input_options
from maniple.cli.support.plan_table import describe_queue, node_counts
from maniple.cli.support.table import echo_json, render, render_fields
from maniple.cli.support.terminal import say
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.job import Job
from maniple.model.pods_we_schedule import how_to_plan
from maniple.model.snapshot import Snapshot
from maniple.scheduler import default_policy, schedule
from maniple.scheduler.explain.words import describe_nearest, listed, pods
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.plan import Waiting
from maniple.views.job_report import LEAVES, WAITS, JobReport, PodReport, RoleReport, find_job, pods_of, report_job

_MOST_WAITING = 3  # pods without a node that are listed
_ABOVE_MAX = "; larger than its max: it keeps what it has until a blocked gang takes surplus back, and does not grow"


@click.command(
    epilog="""\b
Examples:
  maniple explain -f examples/topology/nvlink.yaml default/pair
  maniple explain -f cluster.yaml train --policy examples/policies/kube-batch.yaml -o json
  kubectl get nodes,pods,podgroups,queues -A -o json | maniple explain -f - --all ml/train
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
    own_namespace = job.split("/")[-2] if "/" in job else None
    if namespace and own_namespace and namespace != own_namespace:
        raise InputError([f"{job}: namespace: expected {namespace!r}, as --namespace says, found {own_namespace!r}"])
    cluster, policy, default_namespace = source.read()
    snapshot = cluster.snapshot()
    name = job if "/" in job else f"{namespace or default_namespace}/{job}"
    gang = _find_job(cluster, snapshot, name)
    report = report_job(snapshot, schedule(snapshot, policy), gang)
    is_released = (policy or default_policy()).has_action(Ability.RELEASE)
    if gang.key[1] == "PodGroup":
        short = cluster.incomplete_gangs(snapshot, is_released=is_released)
        report = msgspec.structs.replace(report, incomplete=short.get(gang.name))
    if gang.strangers and report.waiting is None and report.state == WAITS:
        report = msgspec.structs.replace(report, waiting=_of_others(gang, report, cluster.schedulers_of(gang.key)))
    if report.state == WAITS and report.waiting is None and not report.pods and cluster.is_leaving(gang.key):
        report = msgspec.structs.replace(report, state=LEAVES)
    if report.kind == "ElasticJob" and report.state == WAITS:
        report = msgspec.structs.replace(report, state=cluster.why_at_rest(report.job) or WAITS)
    if output == "json":
        echo_json(report)
    else:
        say("\n\n".join(_sections(report)))


def _find_job(cluster: MemoryCluster, snapshot: Snapshot, name: str) -> Job:
    try:
        return find_job(snapshot, name)
    except InputError:
        pod = "/".join(name.split("/")[-2:])
        why = cluster.why_not_planned(pod)
        if why and not any(job.name == name for job in snapshot.jobs):
            raise InputError([f"{name}: {why}"]) from None
        owned = cluster.owned_by(pod)
        gangs = [job for job in snapshot.jobs if owned & pods_of(job)]
        if len(gangs) > 1:
            names = listed([job.name for job in gangs])
            raise InputError([f"{name}: its pods are planned one by one; write the name of one: {names}"]) from None
        if gangs:
            return gangs[0]
        raise


def _of_others(gang: Job, report: JobReport, schedulers: list[str]) -> Waiting:
    """Why a gang waits of which all pods belong to other schedulers."""
    message = f"{pods(gang.strangers)} of it {'waits' if gang.strangers == 1 else 'wait'} for a node, of scheduler"
    would = f"it is planned too, with {how_to_plan(schedulers[0])}" if schedulers else ""
    return Waiting(
        group=gang.name,
        kind=gang.key[1],
        queue=report.queue.name,
        reason="OtherScheduler",
        message=f"{message} {' and '.join(schedulers)}",
        needs={},
        nodes=(),
        would_start_if=would,
        position=None,
        tried=(),
        nearest=None,
    )


def _sections(report: JobReport) -> Iterator[str]:
    yield f"{report.job}\n" + render_fields(_head(report))
    if report.pods:
        yield "Pods\n" + _pods(report.pods)
    why = report.waiting
    if why is None:
        return
    nearest = "" if why.nearest is None else describe_nearest(why.nearest)
    fields = [("Why", why.message), ("Nearest", nearest), ("Starts if", why.would_start_if)]
    yield f"Waits ({why.reason})\n" + render_fields(fields)
    if why.nodes:
        yield "Nodes\n" + render(["NODES", "REASON"], [[str(entry.count), entry.reason] for entry in why.nodes])
    if why.tried:
        rows = [[tried.action, tried.why] for tried in why.tried]
        yield "Tried\n" + render(["ACTION", "WHY IT DID NOT HELP"], rows)


def _head(report: JobReport) -> Iterator[tuple[str, str]]:
    yield "State", report.state
    yield "Kind", report.kind
    yield "Minimum", f"{pods(report.min_member)}, {report.running} running"
    if report.incomplete is not None:
        yield "Missing", report.incomplete
    if report.gated:
        yield "Gated", f"{pods(report.gated)} held by scheduling gates"
    for role in report.roles:
        yield "Size", _size(role)
    if report.cools_down_s is not None:
        yield "Cool-down", f"{report.cools_down_s:g} s more"
    yield "Priority", f"{report.priority}{'' if report.preemptable else ', preemptable: false'}"
    levels = {"required": report.required, "preferred": report.preferred}
    yield "Topology", ", ".join(f"{word} {level}" for word, level in levels.items() if level)
    if report.ring_gbs is not None:
        yield "Ring", f"{report.ring_gbs:g} GB/s, the slowest of its pods'"
    yield "Queue", describe_queue(report.queue)
    if report.position is not None:
        yield "Line", f"{report.position} of {report.line}"
    if report.reservation is not None:
        nodes, expected = node_counts(report.reservation.nodes), report.reservation.expected
        yield "Reserved", f"{nodes}: expected at {expected}, in {report.reservation.in_s:g} s"
    if report.backs_off_s is not None:
        yield "Back-off", f"{report.backs_off_s:g} s more"


def _size(role: RoleReport) -> str:
    """`worker 4, from 2 to 8 in steps of 2, 4 running; becomes 8`"""
    step = f" in steps of {role.step}" if role.step > 1 else ""
    then = f"; becomes {role.resize}" if role.resize is not None else _ABOVE_MAX * (role.size > role.max)
    return f"{role.role} {role.size}, from {role.min} to {role.max}{step}, {role.running} running{then}"


def _pods(pods: tuple[PodReport, ...]) -> str:
    """Waiting pods are all alike: more than a few are counted."""
    with_node = [pod for pod in pods if pod.node]
    others = [pod for pod in pods if not pod.node]
    header = ["POD", "STATE", "NODE", "DOMAIN", "GPUS", "RING", "NOTE"]
    rows = [_row(pod) for pod in (*with_node, *others[:_MOST_WAITING])]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    table = render(header, rows)
    more = len(others) - _MOST_WAITING
    return f"{table}\n  … and {more} more that wait" if more > 0 else table


def _row(pod: PodReport) -> list[str]:
    share = "" if pod.gpu_share is UNSET else f" ({pod.gpu_share:g} of each)"
    ring = "-" if pod.ring_gbs is UNSET else f"{pod.ring_gbs:g} GB/s"
    note = "" if pod.backfill is UNSET else f"makes way for {pod.backfill}"
    if pod.reason is not UNSET:
        note = f"{pod.reason} for {pod.beneficiary}"
    return [pod.pod, pod.state, pod.node or "-", pod.domain or "-", ",".join(pod.gpus) + share or "-", ring, note]
