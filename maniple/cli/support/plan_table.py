"""Draws a planning run as tables."""

from collections.abc import Iterable, Mapping

from maniple.cli.support.table import render
from maniple.cluster.in_memory_cluster import Outcome
from maniple.model.pod_requests import readable
from maniple.scheduler.framework.plan import QueueShare, Waiting
from maniple.views.plan import GangStart, GpuSets, RoundView, plan_view

_MOST_NODES = 12  # named in a cell; more are counted


def describe(outcome: Outcome, *, with_times: bool = False, elsewhere: int = 0) -> str:
    """`elsewhere`: how many pods wait for other schedulers."""
    view = plan_view(outcome)
    parts = []
    for number, round_ in enumerate(view.rounds[: view.settled_after], start=1):
        title = f"Round {number}" if len(view.rounds) > 1 else ""
        if with_times:
            title = f"Round {number}, {round_.time}"
        parts.append("\n\n".join(part for part in (title, *_round(round_, elsewhere)) if part))
    if view.settled_after is not None:
        same = f"round {len(view.rounds)} is"
        if len(view.rounds) > view.settled_after + 1:
            same = f"rounds {view.settled_after + 1} to {len(view.rounds)} are"
        parts.append(f"Settled after round {view.settled_after}: {same} the same.")
    parts.append(_queues(view.queues))
    return "\n\n".join(part for part in parts if part)


def _round(view: RoundView, elsewhere: int) -> Iterable[str]:
    if view.starts:
        rows = [[start.gang, start.queue, str(start.pods), _nodes(start)] for start in view.starts]
        yield "Starts\n" + render(["GANG", "QUEUE", "PODS", "NODES"], rows)
    if view.leaving:
        rows = [[eviction.pod, eviction.reason, eviction.beneficiary] for eviction in view.leaving]
        yield "Leaves\n" + render(["POD", "REASON", "FOR"], rows)
    if view.moves:
        rows = [[move.pod, move.from_node, move.to_node, move.beneficiary] for move in view.moves]
        yield "Moves\n" + render(["POD", "FROM", "TO", "FOR"], rows)
    if view.resizes:
        rows = [[resize.job, resize.role, str(resize.from_size), str(resize.to_size)] for resize in view.resizes]
        yield "Resizes\n" + render(["JOB", "ROLE", "FROM", "TO"], rows)
    if view.nominations:
        rows = [[nomination.pod, nomination.node] for nomination in view.nominations]
        yield "Nominates\n" + render(["POD", "NODE"], rows)
    if view.reservations:
        rows = [[entry.group, node_counts(entry.nodes), entry.expected] for entry in view.reservations]
        yield "Reserves\n" + render(["GANG", "NODES", "EXPECTED"], rows)
    if view.waiting:
        rows = [[gang.group, gang.queue, _position(gang), gang.reason, _why(gang)] for gang in view.waiting]
        yield "Waits\n" + render(["GANG", "QUEUE", "LINE", "REASON", "WHY, AND WHAT WOULD CHANGE IT"], rows)
    if view.is_idle:
        pods = "1 pending pod belongs" if elsewhere == 1 else f"{elsewhere} pending pods belong"
        yield f"Nothing to do: {pods} to other schedulers; `--all` plans them." if elsewhere else "Nothing to do."


def _position(gang: Waiting) -> str:
    return "-" if gang.position is None else str(gang.position)


def _why(gang: Waiting) -> str:
    return f"{gang.message}; would start if {gang.would_start_if}" if gang.would_start_if else gang.message


def _nodes(start: GangStart) -> str:
    """`n1 ×2 (gpu 0-1), n2`: nodes with the number of pods and the GPUs they get."""
    parts = []
    for use in start.nodes:
        gpus = "; ".join(map(_gpus, use.gpus))
        parts.append(_times(use.node, use.pods) + (f" ({gpus})" if gpus else ""))
    return _some(parts) + (f"; makes way for {', '.join(start.makes_way_for)}" if start.makes_way_for else "")


def node_counts(nodes: Mapping[str, int]) -> str:
    """`n1 ×2, n2`: nodes with the number of pods."""
    return _some([_times(node, count) for node, count in nodes.items()])


def _times(node: str, count: int) -> str:
    return f"{node} ×{count}" if count > 1 else node


def _some(parts: list[str]) -> str:
    is_short = len(parts) <= _MOST_NODES
    shown = parts if is_short else [*parts[: _MOST_NODES - 1], f"… and {len(parts) - _MOST_NODES + 1} more nodes"]
    return ", ".join(shown)


def _gpus(gpus: GpuSets) -> str:
    """`gpu 0-1 + 2-3 at 50 GB/s`, `gpu 7`, `0.25 of gpu 6`"""
    share = "" if gpus.share == 1 else f"{gpus.share:g} of "
    speed = "" if gpus.ring_gbs is None else f" at {gpus.ring_gbs:g} GB/s"
    return f"{share}gpu {' + '.join(gpus.sets)}{speed}"


def describe_queue(queue: QueueShare) -> str:
    """A queue in one line."""
    deserved, held = _resources(queue.deserved), _resources(queue.allocated)
    return f"{queue.name}: deserves {deserved}, holds {held}, share {queue.share:.2f}"


def _queues(queues: Iterable[QueueShare]) -> str:
    rows = [
        [queue.name, _resources(queue.deserved), _resources(queue.allocated), f"{queue.share:.2f}"] for queue in queues
    ]
    return "Queues\n" + render(["NAME", "DESERVED", "ALLOCATED", "SHARE"], rows)


def _resources(resources: Mapping[str, str]) -> str:
    return " ".join(f"{name}={readable(name, value)}" for name, value in resources.items()) or "-"
