"""Whether no queue could give anything to any other is seen without a look at each gang that waits."""

import json
from collections.abc import Mapping, Sequence

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler import schedule
from maniple.scheduler.eviction.lenders import give_nothing
from maniple.scheduler.framework.policy import default_policy
from maniple.scheduler.framework.session import Session
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod, queue


def session_of(held: Mapping[str, int], waiting: Mapping[str, Sequence[str]], **guaranteed: str) -> Session:
    """A full node: pods of one CPU that each queue holds, and the CPUs of gangs of one pod that wait in each."""
    cpus = sum(held.values())
    objects: list[Object] = [node("n", allocatable={"cpu": str(cpus), "memory": f"{cpus}Gi", "pods": "1000"})]
    for name in held.keys() | waiting.keys():
        guarantee = {"guaranteed": {"cpu": guaranteed[name]}} if name in guaranteed else {}
        objects.append(queue(name, **guarantee))
        gangs = [(f"{name}-run-{nth}", "1", "n") for nth in range(held.get(name, 0))]
        gangs += [(f"{name}-wait-{nth}", cpu, "") for nth, cpu in enumerate(waiting.get(name, ()))]
        for gang, cpu, where in gangs:
            objects.append(group(gang, 1, queue=name))
            spec: Object = {"nodeName": where} if where else {}
            objects.append(pod(f"{gang}-0", cpu, member(gang), None, **spec))
    data = json.dumps({"kind": "List", "items": objects}).encode()
    snapshot = build_snapshot(sort_objects(decode([("test", data)]), scheduler_name="maniple"), now=100.0)
    return default_policy().session(snapshot)


def evicts(session: Session) -> bool:
    return bool(schedule(session.snapshot).evictions)


def test_queues_that_hold_their_dues_give_nothing() -> None:
    session = session_of({"a": 4, "b": 4}, {"a": ["1"] * 4, "b": ["1"] * 4})
    assert give_nothing(session)
    assert not evicts(session)


def test_a_queue_above_its_due_gives() -> None:
    session = session_of({"a": 6, "b": 2}, {"a": ["1"] * 4, "b": ["1"] * 4})
    assert not give_nothing(session)
    assert evicts(session)


def test_a_guarantee_is_asked_about_gang_by_gang() -> None:
    session = session_of({"a": 4, "b": 4}, {"a": ["1"] * 4, "b": ["1"] * 4}, b="6")
    assert not give_nothing(session)
    assert evicts(session)


def test_twice_as_many_kinds_of_gangs_cost_reclaim_nothing_while_nobody_lends() -> None:
    def reclaim(kinds: int) -> int:
        sizes: Sequence[str] = [str(1 + kind) for kind in range(kinds)]
        session = session_of({"a": 4, "b": 4}, {"a": sizes, "b": sizes})
        actions = dict(default_policy().actions)
        actions["allocate"].execute(session)
        assert session.waiting  # the lines are made
        session.action = "reclaim"
        return work_of(lambda: actions["reclaim"].execute(session))

    few, many = reclaim(6), reclaim(12)
    assert many < few * 1.5
