"""What one more pod costs does not depend on the number of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from maniple.api.labels import QUEUE_LABEL
from maniple.model.job import TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.framework.hooks import Rows
from maniple.scheduler.framework.node_capacity import NodeCapacity
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod, queue
from scheduler.test_settled_jobs_cost_nothing import snapshot_of


def singles(nodes: int, pods: int) -> Snapshot:
    objects: list[Object] = [node(f"n{number:04d}") for number in range(nodes)]
    return snapshot_of([*objects, *(pod(f"p{number:03d}", str(1 + number % 3)) for number in range(pods))])


def gangs(nodes: int, pods: int) -> Snapshot:
    objects: list[Object] = [node(f"n{number:04d}") for number in range(nodes)]
    for number in range(pods // 4):
        objects.append(group(f"g{number:03d}", 4))
        objects += [pod(f"g{number:03d}-{nth}", labels=member(f"g{number:03d}")) for nth in range(4)]
    return snapshot_of(objects)


def looks(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows are counted or scored: a node, or what one more pod would leave of it."""
    rows = Counter[str]()
    fits_on, score_rows = NodeCapacity.fits_on, NodeCapacity.score_rows

    def counted_fits(capacity: NodeCapacity, shape: TaskGroup, nodes: IntArray, *, later: bool) -> FloatArray:
        rows["fits"] += len(nodes)
        return fits_on(capacity, shape, nodes, later=later)

    def counted_scores(capacity: NodeCapacity, shape: TaskGroup, some: Rows) -> FloatArray:
        rows["scores"] += len(some.nodes)
        return score_rows(capacity, shape, some)

    with monkeypatch.context() as patch:
        patch.setattr(NodeCapacity, "fits_on", counted_fits)
        patch.setattr(NodeCapacity, "score_rows", counted_scores)
        plan = schedule(snapshot)
    assert len(plan.binds) == sum(job.waiting_pods for job in snapshot.waiting)
    return rows.total()


@pytest.mark.parametrize("cluster", [singles, gangs])
def test_a_pod_looks_at_what_has_changed_only(
    cluster: Callable[[int, int], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_further_pods(nodes: int) -> int:
        return looks(cluster(nodes, 120), monkeypatch) - looks(cluster(nodes, 60), monkeypatch)

    assert of_further_pods(800) <= of_further_pods(400) <= 120


@pytest.mark.parametrize("cluster", [singles, gangs])
def test_nodes_in_the_same_state_are_scored_once(
    cluster: Callable[[int, int], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = 3 * 400  # each shape's room is counted on all nodes once
    assert looks(cluster(400, 120), monkeypatch) <= rooms + 120


@pytest.mark.parametrize("cluster", [singles, gangs])
def test_a_pod_is_as_much_work_among_twice_as_many_nodes(cluster: Callable[[int, int], Snapshot]) -> None:
    def of_further_pods(nodes: int) -> int:
        few, many = (cluster(nodes, pods) for pods in (60, 120))
        for snapshot in (few, many):
            schedule(snapshot)
        costs = [work_of(lambda: schedule(snapshot)) for snapshot in (few, many)]  # noqa: B023
        return costs[1] - costs[0]

    # The square root: nodes are looked at in blocks.
    assert of_further_pods(1_600) < 1.2 * of_further_pods(400)


def test_each_start_moves_its_queue_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues wait, only the one whose gang has started is compared anew."""

    def keys(queues: int, pods: int) -> int:
        objects: list[Object] = [node(f"n{number:04d}") for number in range(8)]
        objects += [queue(f"q{number}") for number in range(queues)]
        for number in range(pods):
            objects.append(pod(f"p{number:03d}", "0.1", labels={QUEUE_LABEL: f"q{number % queues}"}))
        # What does not fit makes CPUs scarce, so that dues count.
        objects += [pod(f"large{number}", "500", labels={QUEUE_LABEL: f"q{number}"}) for number in range(queues)]
        count = Counter[str]()
        compute = JobQueue._let_pass

        def counted(*arguments: Any, **options: Any) -> Any:
            count["keys"] += 1
            return compute(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(JobQueue, "_let_pass", counted)
            assert len(schedule(snapshot_of(objects)).binds) == pods
        return count["keys"]

    assert keys(2, 120) - keys(2, 60) <= 60
    assert keys(20, 120) - keys(20, 60) <= 60
