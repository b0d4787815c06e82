"""What a gang says of itself, from its first pod to its last, in our words and in those of other systems."""

from typing import Any

import msgspec
import pytest

from maniple.api import kubernetes, types
from maniple.api.compat import other_schedulers
from maniple.api.meta import ObjectMeta
from maniple.kube.serve.gang_status import Count, Why, foreign_status, is_message_only, job_conditions, pod_group_status

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
WHY = Why("InsufficientResources", "no node has 8 GPUs free")


def pods(*phases: str, bound: int = 0) -> list[kubernetes.Pod]:
    """So many pods in these phases, the first `bound` of them on a node."""
    return [
        kubernetes.Pod(
            metadata=ObjectMeta(name=f"p{index}"),
            spec=kubernetes.PodSpec(node_name="n" if index < bound else ""),
            status=kubernetes.PodStatus(phase=phase),
        )
        for index, phase in enumerate(phases)
    ]


def group(status: types.PodGroupStatus | None = None) -> types.PodGroup:
    spec = types.PodGroupSpec(min_member=2)
    return types.PodGroup(metadata=ObjectMeta(name="g"), spec=spec, status=status or types.PodGroupStatus())


WHOLE = pod_group_status(group(), Count.of(pods("Running", "Running", bound=2)), None, NOW)


@pytest.mark.parametrize(
    ("before", "there", "phase", "scheduled"),
    [
        (None, pods("Pending", "Pending"), "Pending", "False"),
        (None, pods("Running", "Pending", bound=1), "Pending", "False"),
        (None, pods("Pending", "Pending", bound=2), "Pending", "True"),  # such as while a volume is not bound
        (None, pods("Running", "Pending", bound=2), "Running", "True"),
        (WHOLE, pods("Running", "Pending", bound=1), "Unknown", "True"),
        (WHOLE, pods("Pending", "Pending"), "Pending", "False"),
        (WHOLE, pods("Succeeded", "Succeeded", bound=2), "Finished", "True"),
    ],
)
def test_phases(before: types.PodGroupStatus | None, there: list[kubernetes.Pod], phase: str, scheduled: str) -> None:
    after = pod_group_status(group(before), Count.of(there), WHY, LATER)
    assert after.phase == phase
    assert [one.status for one in after.conditions] == [scheduled]


def job_says(
    phase: str, conditions: tuple[types.StatusCondition, ...], there: list[kubernetes.Pod]
) -> list[tuple[str, str]]:
    """Status and reason of Scheduled."""
    role = {"name": "worker", "min": 2, "max": 2, "template": {"spec": {"containers": []}}}
    status = {"phase": phase, "conditions": msgspec.to_builtins(conditions)}
    made = {"metadata": {"name": "j"}, "spec": {"roles": [role]}, "status": status}
    after = job_conditions(msgspec.convert(made, types.ElasticJob), Count.of(there), None, LATER)
    return [(one.status, one.reason) for one in after if one.type == "Scheduled"]


def test_a_job_that_is_over_or_suspended_does_not_say_that_it_waits() -> None:
    waits = types.StatusCondition("Scheduled", "False", "Waiting", "its pods are not all there yet", NOW)
    runs = types.StatusCondition("Scheduled", "True", "Scheduled", "all of its minimum has been bound", NOW)
    stops = types.StatusCondition("Scheduled", "False", "Suspended", "the job is suspended", NOW)
    assert job_says("Failed", (waits,), pods("Failed", "Failed")) == [("False", "Ended")]
    assert job_says("Failed", (runs,), []) == [("True", "Scheduled")]
    assert job_says("Succeeded", (runs,), []) == [("True", "Scheduled")]
    assert job_says("Suspended", (runs,), pods("Running", "Running", bound=2)) == [("True", "Scheduled")]
    assert job_says("Suspended", (runs,), []) == [("False", "Suspended")]
    assert job_says("Suspended", (), []) == [("False", "Suspended")]
    assert job_says("Pending", (stops,), []) == [("False", "Waiting")]
    assert job_says("Starting", (stops,), pods("Pending", "Pending", bound=2)) == [("True", "Scheduled")]
    assert job_says("Restarting", (runs,), []) == [("False", "Waiting")]


def test_what_has_not_changed_is_the_same_later() -> None:
    count = Count.of(pods("Pending", "Pending"))
    first = pod_group_status(group(), count, WHY, NOW)
    assert pod_group_status(group(first), count, WHY, LATER) == first
    assert pod_group_status(group(first), count, None, LATER) == first


def test_the_moment_is_that_of_the_turn() -> None:
    first = pod_group_status(group(), Count.of(pods("Pending", "Pending")), WHY, NOW)
    reworded = pod_group_status(group(first), Count.of(pods("Pending", "Pending")), Why(WHY.reason, "7"), LATER)
    assert reworded.conditions[0].last_transition_time == NOW
    assert is_message_only(first, reworded)
    started = pod_group_status(group(first), Count.of(pods("Running", "Running", bound=2)), None, LATER)
    assert started.conditions[0].last_transition_time == LATER
    assert not is_message_only(first, started)


def test_a_leaving_pod_counts_nowhere() -> None:
    there = pods("Running", "Running", bound=2)
    leaving = msgspec.structs.replace(
        there[0], metadata=msgspec.convert({"name": "p0", "deletionTimestamp": NOW}, ObjectMeta)
    )
    assert Count.of([leaving, there[1]]) == Count(running=1, bound=1)


def volcano(status: dict[str, Any]) -> other_schedulers.VolcanoPodGroup:
    return other_schedulers.VolcanoPodGroup(metadata=ObjectMeta(name="g"), status=status)


def test_volcano_is_told_that_pods_may_be_created() -> None:
    made = foreign_status(volcano({"phase": "Pending"}), 2, Count(), WHY, NOW)
    assert made is not None
    assert made["phase"] == "Inqueue"
    assert made["conditions"][0]["type"] == "Unschedulable"
    assert foreign_status(volcano(made), 2, Count(), WHY, LATER) is None


def test_coscheduling_tells_bound_from_running() -> None:
    source = other_schedulers.CoschedulingPodGroup(metadata=ObjectMeta(name="g"))
    bound = foreign_status(source, 2, Count.of(pods("Pending", "Pending", bound=2)), None, NOW)
    assert bound is not None
    assert bound["phase"] == "Scheduled"
    running = foreign_status(source, 2, Count.of(pods("Running", "Running", bound=2)), None, NOW)
    assert running is not None
    assert running["phase"] == "Running"


def test_a_gang_that_has_started_and_lacks_pods_says_so() -> None:
    count = Count.of(pods("Running", "Pending", bound=1))
    (said,) = pod_group_status(group(WHOLE), count, WHY, LATER).conditions
    assert (said.status, said.reason) == ("True", "Incomplete")
    assert said.message == (
        "it has started; 1 of at least 2 pods are bound; InsufficientResources: no node has 8 GPUs free"
    )


def test_a_gang_that_runs_and_is_set_aside_says_why() -> None:
    count = Count.of(pods("Running", "Running", bound=2))
    (said,) = pod_group_status(group(WHOLE), count, Why("Invalid", "spec.queue: unknown queue 'q'"), LATER).conditions
    assert (said.status, said.reason, said.message) == ("True", "Invalid", "spec.queue: unknown queue 'q'")
    (mended,) = pod_group_status(group(WHOLE), count, None, LATER).conditions
    assert (mended.status, mended.reason) == ("True", "Scheduled")
