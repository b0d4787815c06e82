"""Why pods are kept is found once a pod and a job: twice as large gangs are twice the work."""

import json

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler.explain.kept_pods import KeptPods
from maniple.scheduler.framework.policy import default_policy
from scheduler.counted_work import work_of
from scheduler.small_clusters import Object, group, member, node, pod


def asking(size: int) -> tuple[int, int, set[str]]:
    """The work of asking why a gang of so many pods is kept, first and again, and the answers."""
    objects: list[Object] = [node("n1", allocatable={"cpu": "900", "memory": "900Gi", "pods": "900"})]
    objects += [group("runs", size), pod("claims", cpu="100")]
    objects += [pod(f"runs-{number}", nodeName="n1", priority=-1, labels=member("runs")) for number in range(size)]
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    snapshot = build_snapshot(sort_objects(decode([("test", data)]), scheduler_name="maniple"))
    session = default_policy().session(snapshot)
    runs, claims = (
        next(job for job in snapshot.jobs if job.name == name) for name in ("default/runs", "default/claims")
    )
    kept, answers = KeptPods(session), set[str]()

    def ask() -> None:
        for each in runs.placed:
            answers.add(kept.why_kept(claims, runs, each, [], of_surplus=False).what)

    return work_of(ask), work_of(ask), answers


def test_the_work_grows_with_the_pods_and_not_with_their_square() -> None:
    first, again, answers = asking(40)
    first_of_twice, again_of_twice, _ = asking(80)
    assert answers == {"kept by plugins of the policy"}
    assert first_of_twice < 2.2 * first
    assert again_of_twice < 2.2 * again
    assert again < first / 2
