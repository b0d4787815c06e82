"""Nobody is told why they wait before somebody asks, and what they are told does not depend on who asked before."""

import json
from pathlib import Path

import pytest
from cli.run_maniple import EXAMPLES

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.pod_identity import JobKey
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.explain.verdict import Explainer
from maniple.scheduler.framework.plan import Waiting
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod

CLUSTERS = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("actions/*.yaml"), *EXAMPLES.glob("plugins/*.yaml")])


def snapshot_of(data: bytes) -> Snapshot:
    return build_snapshot(sort_objects(decode([("test", data)]), scheduler_name="maniple"))


def crowded(waiting: int, queues: int = 1) -> Snapshot:
    """Two nodes full of pods of low priority that nobody may evict, and gangs of different sizes that want them."""
    objects: list[Object] = [{"kind": "Queue", "metadata": {"name": f"q{number}"}} for number in range(queues)]
    objects += [node(f"n{number}") for number in range(2)]
    for number in range(8):
        objects.append(group(f"kept{number}", 1, preemptable=False, queue="q0"))
        where = f"n{number % 2}"
        objects.append(pod(f"kept{number}-0", nodeName=where, priority=-1, labels=member(f"kept{number}")))
    for number in range(waiting):
        objects.append(group(f"w{number:03}", 1, queue=f"q{number % queues}"))
        objects.append(pod(f"w{number:03}-0", cpu=f"{number + 1}", labels=member(f"w{number:03}")))
    for item in objects:
        item.setdefault("apiVersion", "maniple.dev/v1alpha1")
    return snapshot_of(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())


def test_deciding_makes_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Explainer] = []
    real = Explainer.__init__

    def note(self: Explainer, *given: object) -> None:
        made.append(self)
        real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Explainer, "__init__", note)
    plan = schedule(crowded(5))
    assert len(plan.explanations.gangs) == 5
    assert not made
    assert len(plan.waiting) == 5
    assert plan.waiting is plan.waiting
    assert len(made) == 1


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.name)
def test_a_gang_is_told_the_same_alone_and_with_all_others_early_and_late(path: Path) -> None:
    snapshot = snapshot_of(path.read_bytes())
    early = schedule(snapshot).waiting
    plan = schedule(snapshot)
    assert plan.explanations.gangs.keys() == {key_of(entry) for entry in early}
    for entry in reversed(early):
        assert plan.explanations.of(key_of(entry)) == entry
        alone = schedule(snapshot).explanations
        for explanations in (alone, plan.explanations):
            reason = explanations.reason(key_of(entry))
            assert reason is not None
            assert (reason.code, reason.message, reason.would_start_if) == (
                entry.reason,
                entry.message,
                entry.would_start_if,
            )
        assert alone.of(key_of(entry)) == entry
    lines = {queue.name: plan.explanations.line(queue.name) for queue in snapshot.queues}
    assert plan.waiting == early
    assert lines == {queue.name: plan.explanations.line(queue.name) for queue in snapshot.queues}
    assert all(plan.explanations.of(key_of(entry)) is entry for entry in plan.waiting)
    assert plan.explanations.gangs.keys() == {key_of(entry) for entry in early}


def key_of(entry: Waiting) -> JobKey:
    return entry.group, entry.kind


def test_positions_count_all_queues_whoever_asks() -> None:
    snapshot = crowded(9, queues=2)
    places = [(entry.queue, entry.position) for entry in schedule(snapshot).waiting]
    assert sorted(places) == [("q0", n + 1) for n in range(5)] + [("q1", n + 1) for n in range(4)]
    plan = schedule(snapshot)
    last = plan.explanations.of(("default/w008", "PodGroup"))
    assert last is not None
    assert (last.queue, last.position) == ("q0", 5)
    assert [plan.explanations.line(queue) for queue in ("q0", "q1")] == [5, 4]


def test_explaining_one_gang_is_no_more_work_where_more_gangs_wait() -> None:
    def one(waiting: int) -> int:
        snapshot = crowded(waiting)
        schedule(snapshot).explanations.reason(("default/w003", "PodGroup"))  # what is learnt once is learnt
        source = schedule(snapshot).explanations
        assert len(source.gangs) == waiting
        source.reason(("default/w002", "PodGroup"))
        return work_of(lambda: source.reason(("default/w003", "PodGroup")))

    assert one(40) == one(20)


def test_plans_are_equal_if_their_explanations_are() -> None:
    first, second = schedule(crowded(3)), schedule(crowded(3))
    assert first == second
    assert first != schedule(crowded(4))
