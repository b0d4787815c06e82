"""What the status of upstream's PodGroup is to say: conditions, and nothing else. Pure.

`PodGroupInitiallyScheduled` is upstream's, and once it is True it stays so. Whether the gang is whole now, and why not,
is a condition of our own.
"""

from maniple.api import types
from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.kube.serve.gang_status import Count, Why, condition_of, gang_conditions
from maniple.kube.serve.gangs import SCHEDULED_NOW

INITIALLY = "PodGroupInitiallyScheduled"
_UNSCHEDULABLE = "Unschedulable"  # the word that upstream has for it; ours begins the message
_NONE_BOUND = Why("Waiting", "none of its pods has been bound; each of them says why")

Conditions = tuple[types.StatusCondition, ...]


def upstream_conditions(group: UpstreamPodGroup, count: Count, why: Why | None, now: str) -> Conditions:
    """All conditions of the group, those of others as they were. Of a group that is no gang one pod is enough."""
    before, gang = group.status.conditions, group.spec.scheduling_policy.gang
    minimum, was = 1 if gang is None else gang.min_count, group.has(SCHEDULED_NOW)
    is_scheduled = count.is_scheduled(minimum, was)
    if gang is None and not is_scheduled:
        why = why or _NONE_BOUND
    after = gang_conditions(before, count, minimum, was, why, now, group.metadata.generation, SCHEDULED_NOW)
    if group.has(INITIALLY):
        return after
    said = next(one for one in after if one.type == SCHEDULED_NOW)
    initially = Why(said.reason, said.message)
    if not is_scheduled:
        initially = Why(_UNSCHEDULABLE, f"{said.reason}: {said.message}")
    return condition_of(after, INITIALLY, is_scheduled, initially, now, group.metadata.generation)


def only_reworded(before: Conditions, after: Conditions) -> bool:
    return sorted((one.type, one.status) for one in before) == sorted((one.type, one.status) for one in after)
