"""Gangs that are alike share one turn, and are kept together from cycle to cycle."""

import json

import pytest

from maniple.api.decode.decode import decode
from maniple.model.alike_jobs import group_jobs, kind_of
from maniple.model.building.incremental import SnapshotBuilder, key_of_object
from maniple.model.building.input_objects import sort_objects
from maniple.model.pods_we_schedule import Ours
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.policy import Policy, default_policy, load_policy
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod, queue

KUBE_BATCH = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
BINARY_SEARCH = 300  # bytecodes: a gang that was given something is found among its equals
POLICIES = {"default": default_policy(), "kube-batch": load_policy(KUBE_BATCH.encode(), "test")}


def builder_of(objects: list[Object]) -> SnapshotBuilder:
    data = json.dumps({"kind": "List", "items": objects}).encode()
    builder = SnapshotBuilder(Ours())
    for items in sort_objects(decode([("test", data)]), scheduler_name="maniple").by_kind().values():
        for item in items:
            builder.put(item)
    return builder


def full_cluster(waiting: int, queues: int = 3) -> list[Object]:
    """Two full nodes, and so many gangs of two pods waiting in each queue."""
    objects = [node(f"n{number}", allocatable={"cpu": "4", "memory": "4Gi"}) for number in range(2)]
    for number in range(queues):
        objects.append(queue(f"q{number}"))
        objects.append(pod(f"run-{number}", cpu="2", nodeName=f"n{number % 2}"))
        objects.append(group(f"run-{number}", 1, queue=f"q{number}"))
        objects[-2]["metadata"]["labels"] = member(f"run-{number}")
        for nth in range(waiting):
            name = f"w-{number}-{nth:04d}"
            objects.append(group(name, 2, queue=f"q{number}"))
            objects += [pod(f"{name}-{index}", cpu="2", labels=member(name)) for index in range(2)]
    return objects


@pytest.mark.parametrize("name", POLICIES)
def test_twice_as_many_gangs_that_are_alike_are_no_more_work(name: str) -> None:
    policy = POLICIES[name]

    def cycle(waiting: int) -> int:
        snapshot = builder_of(full_cluster(waiting)).snapshot(1e9)
        assert not schedule(snapshot, policy).binds  # what is learnt once is learnt
        return work_of(lambda: schedule(snapshot, policy))

    assert cycle(80) <= cycle(40) + BINARY_SEARCH


def test_a_pod_that_ends_costs_no_look_at_the_gangs_that_wait() -> None:
    """Apart from copies of lists, which are not counted as work."""

    def cycle(waiting: int) -> int:
        builder = builder_of(full_cluster(waiting))
        schedule(builder.snapshot(1e9))
        running = next(item for item in builder.index.pods.values() if item.metadata.name == "run-0")
        builder.remove(key_of_object(running))
        return work_of(lambda: schedule(builder.snapshot(1e9 + 1)))

    assert cycle(80) <= cycle(40) + BINARY_SEARCH


def turns(snapshot: Snapshot, policy: Policy) -> list[str]:
    return [bind.pod for bind in schedule(snapshot, policy).binds]


def test_the_oldest_of_those_that_are_alike_start_first() -> None:
    objects = [node("n0", allocatable={"cpu": "5", "memory": "5Gi"})]
    for name, minute in (("young", 3), ("old", 1), ("middle", 2)):
        created = {"creationTimestamp": f"2026-01-01T00:0{minute}:00Z"}
        objects.append({**group(name, 2), "metadata": {"name": name, **created}})
        objects += [pod(f"{name}-{index}", labels=member(name), metadata=created) for index in range(2)]
    snapshot = builder_of(objects).snapshot(1767226000.0)
    assert [len(jobs) for jobs in group_jobs(snapshot.waiting).alike.values()] == [3]
    started = [f"default/{name}-{index}" for name in ("middle", "old") for index in (0, 1)]
    assert turns(snapshot, default_policy()) == started


def test_groups_follow_what_changes_and_old_snapshots_stay() -> None:
    builder = builder_of(full_cluster(5, queues=1))
    first = builder.snapshot(1e9)
    groups = group_jobs(first.waiting)
    assert groups is first.waiting
    (before,) = groups.alike.values()
    names = [job.name for job in before]
    gone = next(item for item in builder.index.pods.values() if item.metadata.name == "w-0-0002-0")
    builder.remove(key_of_object(gone))
    second = group_jobs(builder.snapshot(1e9).waiting)
    assert [job.name for job in next(iter(groups.alike.values()))] == names
    (alike,) = [jobs for jobs in second.alike.values() if len(jobs) > 1]
    assert [job.name for job in alike] == [name for name in names if name != "default/w-0-0002"]
    assert sorted(job.key for jobs in second.alike.values() for job in jobs) + sorted(
        job.key for job in second.others
    ) == sorted(job.key for job in second)
    assert all(kind_of(job) == kind for kind, jobs in second.alike.items() for job in jobs)


class Undeclared:
    """Looks at names of pods, and does not say that it does not."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(task_order=lambda group: float(len(group.pods[0])))


def test_gangs_share_no_turn_where_a_plugin_may_look_at_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "undeclared", Undeclared)
    policy = load_policy(
        KUBE_BATCH.replace("{name: priority}", "{name: priority}, {name: undeclared}").encode(), "test"
    )
    snapshot = builder_of(full_cluster(5)).snapshot(1e9)
    assert not policy.session(snapshot).are_alike_in_line
    assert POLICIES["kube-batch"].session(snapshot).are_alike_in_line
    assert len(list(policy.session(snapshot).waiting)) == len(snapshot.waiting)
