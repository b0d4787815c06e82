"""The conditions of an upstream PodGroup. Pure.

`PodGroupInitiallyScheduled` is upstream's, and once it is True it stays so. Whether the gang is whole now, and why not,
is a condition of our own.
"""

from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.kube.serve.gang_index import SCHEDULED_NOW
from maniple.kube.serve.gang_status import Conditions, Count, Why, condition_of, gang_conditions

INITIALLY = "PodGroupInitiallyScheduled"
_UNSCHEDULABLE = "Unschedulable"  # the word that upstream has for it; ours begins the message
_NONE_BOUND = Why("Waiting", "none of its pods has been bound; each of them says why")


def upstream_conditions(group: UpstreamPodGroup, count: Count, why: Why | None, now: str) -> Conditions:
    """All conditions of the group; those of others stay as they are. One pod is enough for a group that is no gang."""
    before, gang = group.status.conditions, group.spec.scheduling_policy.gang
    minimum, was = 1 if gang is None else gang.min_count, group.has(SCHEDULED_NOW)
    is_scheduled = count.is_scheduled(minimum, was)
    if gang is None and not is_scheduled:
        why = why or _NONE_BOUND
    after = gang_conditions(before, count, minimum, was, why, now, group.metadata.generation, SCHEDULED_NOW)
    if group.has(INITIALLY):
        return after
    ours = next(condition for condition in after if condition.type == SCHEDULED_NOW)
    initially = Why(ours.reason, ours.message)
    if not is_scheduled:
        initially = Why(_UNSCHEDULABLE, f"{ours.reason}: {ours.message}")
    return condition_of(after, INITIALLY, is_scheduled, initially, now, group.metadata.generation)
