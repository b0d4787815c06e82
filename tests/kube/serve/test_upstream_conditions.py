"""What upstream's PodGroup says of itself: its own condition once and for all, ours as it is now."""

import pytest

from maniple.api.compat.upstream_podgroup import (
    GangPolicy,
    Nothing,
    SchedulingPolicy,
    UpstreamPodGroup,
    UpstreamPodGroupSpec,
    UpstreamPodGroupStatus,
)
from maniple.api.meta import ObjectMeta
from maniple.api.types import StatusCondition
from maniple.elastic.conditions import Conditions
from maniple.kube.serve.gang_status import Count, Why, only_reworded, upstream_conditions

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
WHY = Why("InsufficientResources", "no node has 8 GPUs free")
GANG, BASIC = SchedulingPolicy(gang=GangPolicy(2)), SchedulingPolicy(basic=Nothing())
NOBODY, HALF, WHOLE = Count(pending=2), Count(pending=2, bound=1), Count(running=2, bound=2)


def group(conditions: Conditions = (), policy: SchedulingPolicy = GANG) -> UpstreamPodGroup:
    status = UpstreamPodGroupStatus(conditions=conditions)
    return UpstreamPodGroup(ObjectMeta(name="g"), UpstreamPodGroupSpec(policy), status)


def said(conditions: Conditions) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in conditions}


WAITS = upstream_conditions(group(), NOBODY, WHY, NOW)
RUNS = upstream_conditions(group(WAITS), WHOLE, None, NOW)


def test_a_gang_that_waits_says_why_in_upstreams_words_and_in_ours() -> None:
    assert said(WAITS) == {
        "PodGroupInitiallyScheduled": ("False", "Unschedulable"),
        "maniple.dev/Scheduled": ("False", "InsufficientResources"),
    }
    assert {one.message for one in WAITS} == {WHY.message, f"{WHY.reason}: {WHY.message}"}


@pytest.mark.parametrize(
    ("before", "count", "initially", "now"),
    [
        ((), HALF, "False", "False"),
        (WAITS, WHOLE, "True", "True"),
        (RUNS, HALF, "True", "True"),
        (RUNS, NOBODY, "True", "False"),
    ],
)
def test_upstreams_condition_stays_once_true_and_ours_follows(
    before: Conditions, count: Count, initially: str, now: str
) -> None:
    after = said(upstream_conditions(group(before), count, WHY, LATER))
    assert (after["PodGroupInitiallyScheduled"][0], after["maniple.dev/Scheduled"][0]) == (initially, now)


def test_of_a_basic_group_one_pod_is_enough() -> None:
    waits = said(upstream_conditions(group(policy=BASIC), NOBODY, None, NOW))
    assert waits["PodGroupInitiallyScheduled"] == ("False", "Unschedulable")
    runs = said(upstream_conditions(group(policy=BASIC), HALF, None, NOW))
    assert runs["PodGroupInitiallyScheduled"] == ("True", "Scheduled")


def test_what_has_not_changed_is_the_same_later_and_others_conditions_stay() -> None:
    theirs = StatusCondition("DisruptionTarget", "True", "PreemptionByScheduler", "m", NOW, 3)
    before = (*WAITS, theirs)
    after = upstream_conditions(group(before), NOBODY, WHY, LATER)
    assert set(after) == set(before)
    assert set(upstream_conditions(group(before), NOBODY, None, LATER)) == set(before)
    assert theirs in upstream_conditions(group(before), WHOLE, None, LATER)


def test_other_words_for_the_same_are_told_from_a_change() -> None:
    reworded = upstream_conditions(group(WAITS), NOBODY, Why(WHY.reason, "no node has 9"), LATER)
    assert set(reworded) != set(WAITS)
    assert only_reworded(WAITS, reworded)
    assert not only_reworded(WAITS, RUNS)
