"""A planning run as tables for people: what starts, what moves, who waits and the one thing that would change it."""

from collections.abc import Iterable

from maniple.cli.table import render
from maniple.cluster.memory import Outcome, Round
from maniple.scheduler.plan import Bind, QueueShare


def describe(outcome: Outcome) -> str:
    parts = []
    for number, round_ in enumerate(outcome.rounds, start=1):
        title = f"Round {number}" if len(outcome.rounds) > 1 else ""
        parts.append("\n\n".join(part for part in (title, *_round(round_)) if part))
    parts.append(_queues(outcome.rounds[-1].plan.queues))
    return "\n\n".join(part for part in parts if part)


def _round(round_: Round) -> Iterable[str]:
    plan = round_.plan
    gang_of = {pod: job for job in round_.snapshot.waiting for group in job.groups for pod in group.pods}
    queues = round_.snapshot.queues
    gangs: dict[str, list[Bind]] = {}
    queue_of: dict[str, str] = {}
    for bind in plan.binds:
        job = gang_of[bind.pod]
        gangs.setdefault(job.name, []).append(bind)
        queue_of[job.name] = queues[job.queue].name
    if gangs:
        rows = [[name, queue_of[name], str(len(binds)), _nodes(binds)] for name, binds in sorted(gangs.items())]
        yield "Starts\n" + render(["GANG", "QUEUE", "PODS", "NODES"], rows)
    if plan.evictions:
        rows = [[e.pod, e.reason, e.beneficiary] for e in plan.evictions]
        yield "Leaves\n" + render(["POD", "REASON", "FOR"], rows)
    if plan.resizes:
        rows = [[r.job, r.role, str(r.from_size), str(r.to_size)] for r in plan.resizes]
        yield "Resizes\n" + render(["JOB", "ROLE", "FROM", "TO"], rows)
    if plan.nominations:
        rows = [[n.pod, n.node] for n in plan.nominations]
        yield "Is promised\n" + render(["POD", "NODE"], rows)
    if plan.waiting:
        rows = [[w.group, w.queue, w.reason, _sentence(w.message, w.would_start_if)] for w in plan.waiting]
        yield "Waits\n" + render(["GANG", "QUEUE", "REASON", "WHY, AND WHAT WOULD CHANGE IT"], rows)
    if not (plan.binds or plan.evictions or plan.nominations or plan.waiting or plan.resizes):
        yield "Nothing to do."


def _sentence(message: str, would: str) -> str:
    return f"{message}; would start if {would}" if would else message


def _nodes(binds: list[Bind]) -> str:
    """`n1 ×2 (gpu 0-1), n2` — nodes with the number of pods and the GPUs they get."""
    by_node: dict[str, list[Bind]] = {}
    for bind in binds:
        by_node.setdefault(bind.node, []).append(bind)
    parts = []
    for node, here in sorted(by_node.items()):
        gpus = sorted(int(gpu) for bind in here for gpu in bind.gpus)
        parts.append(node + (f" ×{len(here)}" if len(here) > 1 else "") + (f" (gpu {_ranges(gpus)})" if gpus else ""))
    shown = parts if len(parts) <= 12 else [*parts[:11], f"… and {len(parts) - 11} more nodes"]
    return ", ".join(shown)


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _queues(queues: Iterable[QueueShare]) -> str:
    rows = [
        [queue.name, _resources(queue.deserved), _resources(queue.allocated), f"{queue.share:.2f}"] for queue in queues
    ]
    return "Queues\n" + render(["NAME", "DESERVED", "ALLOCATED", "SHARE"], rows)


def _resources(resources: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in resources.items()) or "-"
