"""What searches for victims and growth cost: work is counted while one dimension doubles."""

import json

import numpy as np
import pytest

from benchmarks import generated_clusters
from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.eviction.counted_room import CountedRoom, RoomLeft
from maniple.scheduler.eviction.trial import Trial
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import offered_units
from maniple.scheduler.framework.policy import default_policy
from maniple.scheduler.framework.supposition import Supposition
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object

SMALL = (1, "4", "16Gi")
LARGE = (8, "32", "128Gi")


def snapshot_of(objects: list[Object]) -> Snapshot:
    data = json.dumps({"kind": "List", "items": objects}).encode()
    return build_snapshot(sort_objects(decode([("test", data)]), scheduler_name="maniple"))


def full(nodes: int, gangs: int, shape: tuple[int, str, str], *, start: int = 20) -> Snapshot:
    """A queue holds all nodes with gangs of four; gangs of another queue wait, each larger than the one before."""
    objects: list[Object] = list(generated_clusters.nodes(nodes))
    queue: Object = {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "spec": {}}
    objects += [queue | {"metadata": {"name": name}} for name in ("a", "b")]
    for number in range(nodes * 2):
        places = [f"node-{number // 2:05d}"] * 4
        objects += generated_clusters.gang(f"run-{number:03d}", 4, SMALL, "b", 0, nodes=places)
    for number in range(gangs):
        objects += generated_clusters.gang(f"wait-{number:03d}", start + number, shape, "a", 60 + number)
    return snapshot_of(objects)


def actions(snapshot: Snapshot) -> None:
    schedule(snapshot)


def test_gangs_that_nobody_makes_room_for_suppose_nothing_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room after all on offer have left is counted once for a shape, however many gangs of the shape wait."""
    counted: list[object] = []
    after = CountedRoom.after

    def count(room: CountedRoom, units: np.ndarray) -> float:
        counted.append(units)
        return after(room, units)

    def fewest(*_: object) -> None:
        raise AssertionError("a search for a gang that has no room even if all leave")

    monkeypatch.setattr(CountedRoom, "after", count)
    monkeypatch.setattr(Trial, "fewest", fewest)

    def counts(gangs: int) -> int:
        counted.clear()
        actions(full(4, gangs, LARGE))
        return len(counted)

    assert 0 < counts(8) == counts(16)


def test_a_search_by_arithmetic_supposes_nothing_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object, **__: object) -> None:
        raise AssertionError("supposed gone")

    monkeypatch.setattr(Supposition, "leave", leave)
    plan = schedule(full(4, 1, SMALL, start=8))
    assert len(plan.evictions) == 8


def test_units_put_back_cost_their_own_nodes() -> None:
    """Twice the nodes are twice the units to put back, and no more work for each."""

    def work(nodes: int) -> int:
        session = default_policy().session(full(nodes, 1, SMALL))
        table = UnitTable(session, (unit for job in session.snapshot.jobs for unit in offered_units(session, job)))
        room = CountedRoom(session, table, session.snapshot.waiting[0].groups[0])
        units = np.arange(len(table))
        left = RoomLeft(room, units, room.after(units))

        def put_back() -> None:
            for unit in units.tolist():
                left.without(unit)
                left.put_back(unit)

        done = work_of(put_back)
        assert left.total == room.before.sum()
        return done

    work(2)
    assert work(8) <= 2 * work(4) * 1.05


def test_rooms_are_those_of_a_supposition() -> None:
    session = default_policy().session(full(4, 1, SMALL))
    table = UnitTable(session, (unit for job in session.snapshot.jobs for unit in offered_units(session, job)))
    group = session.snapshot.waiting[0].groups[0]
    order = np.arange(len(table))[::-1]
    totals = CountedRoom(session, table, group).after_each(order).total.tolist()
    supposed, supposition = [float(session.room_for(group, later=True).sum())], Supposition(session)
    for unit in order:
        supposition.leave(table.pods, table.pods_of(np.array([unit])), 1, as_neighbours=False)
        supposed.append(float(session.room_for(group, later=True).sum()))
    assert totals == supposed


def test_twice_the_waiting_gangs_are_twice_the_work() -> None:
    def work(gangs: int) -> int:
        snapshot = full(4, gangs, LARGE)
        actions(snapshot)
        return work_of(lambda: actions(snapshot))

    assert work(16) <= 2.1 * work(8)


def elastic(jobs: int, size: int, free: int) -> Snapshot:
    nodes = -(-(jobs * size + free) // 8)
    return snapshot_of(generated_clusters.elastic(nodes, jobs, size))


def grow(snapshot: Snapshot) -> int:
    def cycle() -> None:
        session = default_policy().session(snapshot)
        action = dict(default_policy().actions)["grow"]
        work.append(work_of(lambda: action.execute(session)))

    work: list[int] = []
    cycle()
    cycle()
    return work[-1]


def test_a_job_at_its_maximum_or_without_room_is_looked_at_and_no_more() -> None:
    """A job of which nothing can grow costs less than a tenth of one that takes a step."""
    at_most = grow(elastic(16, 40, 0)) - grow(elastic(8, 40, 0))
    without_room = grow(elastic(16, 8, 0)) - grow(elastic(8, 8, 0))
    growing = grow(elastic(16, 8, 512)) - grow(elastic(8, 8, 256))
    assert 0 < at_most < growing / 10
    assert 0 < without_room < growing / 10


def test_twice_the_steps_of_growth_are_twice_the_work() -> None:
    assert grow(elastic(8, 8, 512)) <= 2.2 * grow(elastic(8, 24, 512))
