"""A planning run as tables for people: what starts, what moves, who waits and the one thing that would change it."""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import UNSET

from maniple.cli.support.table import render
from maniple.cluster.memory import Outcome, Round
from maniple.scheduler.framework.plan import Bind, QueueShare, Waiting


def describe(outcome: Outcome, *, with_times: bool = False) -> str:
    parts = []
    for number, round_ in enumerate(outcome.rounds, start=1):
        title = f"Round {number}" if len(outcome.rounds) > 1 else ""
        if with_times:
            title = f"Round {number}, {datetime.fromtimestamp(round_.snapshot.now, UTC):%Y-%m-%dT%H:%M:%SZ}"
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
    leaving = sorted(plan.leaving())
    if leaving:
        rows = [[e.pod, e.reason, e.beneficiary] for e in leaving]
        yield "Leaves\n" + render(["POD", "REASON", "FOR"], rows)
    if plan.resizes:
        rows = [[r.job, r.role, str(r.from_size), str(r.to_size)] for r in plan.resizes]
        yield "Resizes\n" + render(["JOB", "ROLE", "FROM", "TO"], rows)
    kept = {entry.group for entry in plan.reservations}
    promised = [n for n in plan.nominations if gang_of[n.pod].name not in kept]
    if promised:
        rows = [[n.pod, n.node] for n in promised]
        yield "Is promised\n" + render(["POD", "NODE"], rows)
    if plan.reservations:
        rows = [[entry.group, _counted(entry.nodes), entry.expected] for entry in plan.reservations]
        yield "Reserves\n" + render(["GANG", "NODES", "EXPECTED"], rows)
    if plan.waiting:
        rows = [[w.group, w.queue, _line(w), w.reason, sentence(w.message, w.would_start_if)] for w in plan.waiting]
        yield "Waits\n" + render(["GANG", "QUEUE", "LINE", "REASON", "WHY, AND WHAT WOULD CHANGE IT"], rows)
    if not (plan.binds or plan.evictions or plan.nominations or plan.waiting or plan.resizes):
        yield "Nothing to do."


def _line(waiting: Waiting) -> str:
    """Its place in the line of its queue."""
    return "-" if waiting.position is None else str(waiting.position)


def sentence(message: str, would: str) -> str:
    return f"{message}; would start if {would}" if would else message


def _nodes(binds: list[Bind]) -> str:
    """`n1 ×2 (gpu 0-1), n2` — nodes with the number of pods and the GPUs they get."""
    by_node: dict[str, list[Bind]] = {}
    for bind in binds:
        by_node.setdefault(bind.node, []).append(bind)
    parts = []
    for node, here in sorted(by_node.items()):
        gpus = _gpus(here)
        parts.append(node + (f" ×{len(here)}" if len(here) > 1 else "") + (f" ({gpus})" if gpus else ""))
    ways = sorted({bind.backfill for bind in binds if bind.backfill is not UNSET})
    return _some(parts) + (f"; makes way for {', '.join(ways)}" if ways else "")


def _counted(nodes: dict[str, int]) -> str:
    """`n1 ×2, n2` — nodes with the number of pods."""
    return _some([node + (f" ×{count}" if count > 1 else "") for node, count in nodes.items()])


def _some(parts: list[str]) -> str:
    shown = parts if len(parts) <= 12 else [*parts[:11], f"… and {len(parts) - 11} more nodes"]
    return ", ".join(shown)


def _gpus(binds: Iterable[Bind]) -> str:
    """`gpu 0-1 + 2-3 at 50 GB/s; gpu 7; 0.25 of gpu 6` — the GPUs of pods on one node.

    A ring has a speed, so sets with rings are told apart; of the others it only matters what they take together.
    """
    kinds: dict[tuple[float, float], list[list[str]]] = {}
    for bind in binds:
        if bind.gpus:
            share = 1.0 if bind.gpu_share is UNSET else bind.gpu_share
            speed = 0.0 if bind.ring_gbs is UNSET else bind.ring_gbs
            kinds.setdefault((share, speed), []).append(sorted(bind.gpus, key=_place))
    parts = []
    for (share, speed), sets in sorted(kinds.items(), reverse=True):
        together = sorted({gpu for gpus in sets for gpu in gpus}, key=_place)
        apart = sorted(sets, key=lambda gpus: _place(gpus[0])) if speed else [together]
        listed = " + ".join(dict.fromkeys(map(_ranges, apart)))
        parts.append(("" if share == 1 else f"{share:g} of ") + f"gpu {listed}" + (f" at {speed:g} GB/s" * bool(speed)))
    return "; ".join(parts)


def _number(gpu: str) -> int | None:
    """Ids are numbers as a rule, but a node may call its GPUs what it likes."""
    return int(gpu) if gpu.isascii() and gpu.isdigit() and (gpu == "0" or gpu[0] != "0") else None


def _place(gpu: str) -> tuple[bool, int, str]:
    number = _number(gpu)
    return number is None, number or 0, gpu


def _ranges(gpus: list[str]) -> str:
    """`0-3,5,a` of sorted ids."""
    runs: list[tuple[str, str]] = []
    for gpu in gpus:
        number, before = _number(gpu), _number(runs[-1][1]) if runs else None
        if number is not None and before is not None and before + 1 == number:
            runs[-1] = (runs[-1][0], gpu)
        else:
            runs.append((gpu, gpu))
    return ",".join(low if low == high else f"{low}-{high}" for low, high in runs)


def describe_queue(queue: QueueShare) -> str:
    """A queue in one line."""
    deserved, held = _resources(queue.deserved), _resources(queue.allocated)
    return f"{queue.name}: deserves {deserved}, holds {held}, share {queue.share:.2f}"


def _queues(queues: Iterable[QueueShare]) -> str:
    rows = [
        [queue.name, _resources(queue.deserved), _resources(queue.allocated), f"{queue.share:.2f}"] for queue in queues
    ]
    return "Queues\n" + render(["NAME", "DESERVED", "ALLOCATED", "SHARE"], rows)


def _resources(resources: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in resources.items()) or "-"
