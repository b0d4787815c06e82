"""A cluster in memory: objects in, plans applied to them at once. What `maniple plan` and the tests run on.

Applying is idealised: bound pods run, evicted pods go and come back as pending, whoever was leaving has left. One
round takes one second.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from maniple.api import core, types
from maniple.api.decode import decode
from maniple.model.build import Ours, build_snapshot
from maniple.model.objects import Objects, implied_pods, sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, load_policy, schedule
from maniple.scheduler.plan import Bind

ROUND_S = 1.0


class MemoryCluster:
    def __init__(self, objects: Objects, ours: Ours | None = None, now: float | None = None) -> None:
        self._objects = objects
        self._ours = ours or Ours()
        self._now = now

    def snapshot(self) -> Snapshot:
        made = build_snapshot(self._objects, self._ours, self._now)
        self._now = made.now
        return made

    def apply(self, plan: Plan) -> None:
        now = datetime.fromtimestamp(self._now or 0.0, UTC)
        binds = {bind.pod: bind for bind in plan.binds}
        evicted = {eviction.pod for eviction in plan.evictions}
        promised = {nomination.pod: nomination.node for nomination in plan.nominations}
        after = []
        for pod in self._objects.pods:
            name = _name(pod)
            if name in binds:
                after.append(_bound(pod, binds[name], now))
            elif name in evicted:
                after.append(_replacement(pod, now))
            elif pod.metadata.deletion_timestamp is None:
                after.append(_nominated(pod, promised.get(name, "")))
        implied = self._objects.implied
        after += [_bound(pod, binds[_name(pod)], now) for pod in implied if _name(pod) in binds]
        kept = [_nominated(pod, promised.get(_name(pod), "")) for pod in implied if _name(pod) not in binds]
        # A job whose last pods have just left is one without pods again.
        jobs, name = self._objects.elastic_jobs, self._ours.scheduler_name
        self._objects.implied = [*kept, *implied_pods(jobs, [*after, *kept], scheduler_name=name)]
        self._objects.pods = after
        self._now = (self._now or 0.0) + ROUND_S


def _name(pod: core.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _bound(pod: core.Pod, bind: Bind, now: datetime) -> core.Pod:
    metadata = pod.metadata
    if bind.gpus:
        annotations = {**metadata.annotations, types.GPUS_ANNOTATION: ",".join(bind.gpus)}
        metadata = msgspec.structs.replace(metadata, annotations=annotations)
    return core.Pod(
        metadata=metadata,
        spec=msgspec.structs.replace(pod.spec, node_name=bind.node),
        status=core.PodStatus(phase="Running", start_time=now),
    )


def _nominated(pod: core.Pod, node: str) -> core.Pod:
    if pod.status.nominated_node_name == node:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def _replacement(pod: core.Pod, now: datetime) -> core.Pod:
    """What its controller creates in the place of an evicted pod: the same, pending and new."""
    kept = {key: value for key, value in pod.metadata.annotations.items() if key != types.GPUS_ANNOTATION}
    metadata = msgspec.structs.replace(
        pod.metadata, annotations=kept, uid="", creation_timestamp=now, deletion_timestamp=None
    )
    return core.Pod(metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


@dataclass
class Round:
    snapshot: Snapshot
    plan: Plan


@dataclass
class Outcome:
    """The rounds of a planning run and how long each took."""

    rounds: list[Round] = field(default_factory=list)
    load_s: float = 0.0
    schedule_s: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """The documented JSON form, as plain values with a stable order."""
        return {
            "rounds": [
                {
                    "binds": _plain(round_.plan.binds),
                    "evictions": _plain(round_.plan.evictions),
                    "nominations": _plain(round_.plan.nominations),
                    "resizes": _plain(round_.plan.resizes),
                    "waiting": _plain(round_.plan.waiting),
                }
                for round_ in self.rounds
            ],
            "queues": _plain(self.rounds[-1].plan.queues) if self.rounds else [],
            "timings": {
                "load_s": round(self.load_s, 6),
                "schedule_s": [round(s, 6) for s in self.schedule_s],
            },
        }


def _plain(values: Sequence[object]) -> object:
    return msgspec.to_builtins(values)


def run_rounds(
    cluster: MemoryCluster, policy: Policy | None, rounds: int, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Plans, applies and plans again, `rounds` times."""
    outcome = Outcome()
    for number in range(rounds):
        start = time.perf_counter()
        snapshot = cluster.snapshot()
        built = time.perf_counter()
        plan = schedule(snapshot, policy)
        outcome.schedule_s.append(time.perf_counter() - built)
        if number == 0:
            outcome.load_s = built - start
        outcome.rounds.append(Round(snapshot, plan))
        cluster.apply(plan)
        if progress:
            progress(number + 1)
    return outcome


def plan_objects(
    objects: Sequence[Mapping[str, object]],
    policy: str | None = None,
    rounds: int = 1,
    ours: Ours | None = None,
) -> dict[str, object]:
    """`maniple plan` as a function: plain Kubernetes objects in, the documented JSON form out."""
    ours = ours or Ours()
    decoded = decode([("objects", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    cluster = MemoryCluster(sort_objects(decoded, scheduler_name=ours.scheduler_name), ours)
    chosen = None if policy is None else load_policy(policy.encode(), "policy")
    return run_rounds(cluster, chosen, rounds).to_json()
