"""`maniple explain`: what becomes of one job, and why."""

import click
import msgspec
from msgspec import UnsetType

from maniple.cli.inputs import cluster_options, read_cluster
from maniple.cli.plan_table import describe_queue, sentence
from maniple.cli.table import render
from maniple.cluster.memory import run_rounds
from maniple.scheduler.story import PodStory, Story, tell


@click.command(
    epilog="""\b
Examples:
  maniple explain -f examples/topology/nvlink.yaml default/pair
  maniple explain -f cluster.yaml train --policy examples/policies/kube-batch.yaml -o json
  kubectl get nodes,pods -A -o json | maniple explain -f - --all ml/train

JOB is the name of a PodGroup, an ElasticJob or a pod, with its namespace in front
unless that is default.
Exit codes: 0 explained, 2 wrong input or no such job.
"""
)
@cluster_options
@click.argument("job", metavar="JOB")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    files: tuple[str, ...],
    job: str,
    policy: str | None,
    output: str,
    scheduler_name: str,
    every_pod: bool,
    now: str | None,
) -> None:
    """Explain one job: where its pods are or go, on which GPUs, or why it waits."""
    cluster, chosen = read_cluster(files, policy, scheduler_name, every_pod, now)
    done = run_rounds(cluster, chosen, 1).rounds[0]
    story = tell(done.snapshot, done.plan, job)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(story), indent=1).decode())
    else:
        click.echo("\n\n".join(_parts(story)))


def _parts(story: Story) -> list[str]:
    wishes = [
        f"{word} {level}" for word, level in (("required", story.required), ("preferred", story.preferred)) if level
    ]
    lines = [
        ("State", story.state),
        ("Kind", story.kind),
        ("Minimum", f"{story.min_member} pod{'s' * (story.min_member > 1)}"),
        ("Priority", str(story.priority)),
        ("Topology", ", ".join(wishes)),
        ("Ring", f"{story.ring_gbs:g} GB/s, the slowest of its pods'" if story.ring_gbs is not None else ""),
        ("Queue", describe_queue(story.queue)),
    ]
    parts = [f"{story.job}\n" + "\n".join(f"  {name + ':':10}{value}" for name, value in lines if value)]
    if story.pods:
        parts.append("Pods\n" + _pods(story.pods))
    if story.waiting is not None:
        why = story.waiting
        parts.append(f"Waits ({why.reason})\n  " + sentence(why.message, why.would_start_if))
        if why.nodes:
            parts.append("Nodes\n" + render(["NODES", "REASON"], [[str(n.count), n.reason] for n in why.nodes]))
    return parts


def _pods(pods: tuple[PodStory, ...]) -> str:
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
        ]
        for pod in shown
    ]
    rows += [[pod.pod, pod.state, "-", "-", "-", "-"] for pod in left[:3]]
    text = render(["POD", "STATE", "NODE", "DOMAIN", "GPUS", "RING"], rows)
    return text if len(left) <= 3 else f"{text}\n  … and {len(left) - 3} more that wait"
