"""A cycle does no work for jobs that run and lack nothing, however many there are."""

import json

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import schedule
from maniple.scheduler.framework.policy import default_policy
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod


def snapshot_of(objects: list[Object]) -> Snapshot:
    data = json.dumps({"kind": "List", "items": objects}).encode()
    return build_snapshot(sort_objects(decode([("test", data)]), scheduler_name="maniple"))


def settled(jobs: int) -> list[Object]:
    """Gangs of two pods, and as many pods on their own."""
    objects = [node(f"n{number}", allocatable={"cpu": "400", "memory": "400Gi"}) for number in range(4)]
    for number in range(jobs):
        where = f"n{number % 4}"
        objects.append(group(f"g{number}", 2))
        objects += [pod(f"g{number}-{nth}", labels=member(f"g{number}"), nodeName=where) for nth in range(2)]
        objects.append(pod(f"p{number}", nodeName=where))
    return objects


def test_twice_as_many_settled_jobs_are_no_more_work() -> None:
    def cycle(jobs: int) -> int:
        snapshot = snapshot_of(settled(jobs))
        assert len(snapshot.jobs) == 2 * jobs
        schedule(snapshot)  # what is learnt once is learnt
        return work_of(lambda: schedule(snapshot))

    assert cycle(40) == cycle(20)


def test_release_looks_only_at_gangs_that_lack_pods() -> None:
    def release(jobs: int) -> int:
        broken = [group("broken", 2), pod("broken-0", labels=member("broken"), nodeName="n0")]
        policy = default_policy()
        session = policy.session(snapshot_of([*settled(jobs), *broken]))
        assert [job.name for job in session.snapshot.incomplete] == ["default/broken"]
        action = dict(policy.actions)["release"]
        return work_of(lambda: action.execute(session))

    assert release(40) == release(20)
