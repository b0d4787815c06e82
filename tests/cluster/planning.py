"""`maniple plan` as a function, for tests: Kubernetes objects in, the documented JSON form out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from maniple.api.decode.decode import decode
from maniple.api.keys import name_of
from maniple.api.kubernetes import Pod
from maniple.api.labels import EVICTED_FOR_ANNOTATION
from maniple.cluster.in_memory_cluster import MemoryCluster, Outcome, Round, run_rounds
from maniple.model.building.input_objects import Objects, sort_objects
from maniple.model.plugin_reads import Reads
from maniple.scheduler import Plan, Policy, load_policy, schedule
from maniple.scheduler.framework.plan import Explanations


def plan_objects(objects: Sequence[Mapping[str, object]], policy: str | None = None, rounds: int = 1) -> dict[str, Any]:
    loaded = _load(policy)
    return _plain(run_rounds(_cluster(objects, loaded, grace=1), loaded, rounds))


def plan_until_settled(
    objects: Sequence[Mapping[str, object]],
    policy: str | None,
    rounds: int,
    has_reasons: bool,
    grace: int = 1,
    rests: int = 1,
) -> dict[str, Any]:
    """Stops after so many (`rests`) rounds that move no pod and leave the cluster as they found it. Pods that leave are
    gone after `grace` rounds. Without `has_reasons` nothing is said about those who wait.
    """
    loaded, outcome = _load_once(policy), Outcome()
    resting = 0
    cluster = _cluster(objects, loaded, grace)
    for _ in range(rounds):
        snapshot = cluster.snapshot()
        plan = schedule(snapshot, loaded)
        if not has_reasons:
            plan = replace(plan, explanations=Explanations())
        last = outcome.rounds[-1].plan if outcome.rounds else None
        outcome.rounds.append(Round(snapshot.now, plan, {}))
        moves = plan.binds or plan.evictions or plan.resizes
        is_quiet = not moves and not cluster.leaving and last is not None and plan.nominations in ((), last.nominations)
        resting = resting + 1 if is_quiet else 0
        if resting == rests:
            break
        cluster.apply(plan)
    plain = _plain(outcome)
    if not has_reasons:
        for written in plain["rounds"]:
            del written["waiting"]
    return plain


def _load(policy: str | None) -> Policy | None:
    return None if policy is None else load_policy(policy.encode(), "policy")


_load_once = cache(_load)


class SlowCluster(MemoryCluster):
    """A cluster in which pods take `grace` rounds to leave. Their replacements come when they are gone."""

    def __init__(self, objects: Objects, grace: int, reads: Reads | None) -> None:
        super().__init__(objects, reads=reads)
        self._grace = grace
        # Pods that are still there after the current round: the rounds that they take, and what comes in their place.
        going = [pod for pod in objects.pods if pod.metadata.deletion_timestamp is not None]
        self.leaving: dict[str, tuple[int, Pod, Pod | None]] = {
            name_of(pod.metadata): (grace, pod, None) for pod in going
        }

    def apply(self, plan: Plan) -> None:
        before = {name_of(pod.metadata): pod for pod in self._objects.pods}
        super().apply(plan)
        after = {name_of(pod.metadata): pod for pod in self._objects.pods}
        for eviction in plan.leaving():
            old = before[eviction.pod]
            metadata = msgspec.structs.replace(
                old.metadata,
                deletion_timestamp=datetime(2026, 1, 1, 3, tzinfo=UTC),
                annotations=old.metadata.annotations | {EVICTED_FOR_ANNOTATION: eviction.beneficiary},
            )
            pod = msgspec.structs.replace(old, metadata=metadata)
            self.leaving[eviction.pod] = (self._grace, pod, after.pop(eviction.pod, None))
        for name, (rounds, pod, replacement) in list(self.leaving.items()):
            if rounds > 1:
                self.leaving[name] = (rounds - 1, pod, replacement)
                after[name] = pod
                continue
            del self.leaving[name]
            if replacement is not None:
                after[name] = replacement
        self._objects.pods = list(after.values())
        self._objects.implied = [pod for pod in self._objects.implied if name_of(pod.metadata) not in self.leaving]


def _cluster(objects: Sequence[Mapping[str, object]], policy: Policy | None, grace: int) -> SlowCluster:
    decoded = decode([("objects", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    reads = None if policy is None else policy.reads
    return SlowCluster(sort_objects(decoded, scheduler_name="maniple"), grace, reads)


def _plain(outcome: Outcome) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(json.dumps(outcome.to_json()))
    return plan
