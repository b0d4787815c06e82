"""Keys of caches: equal gangs, groups of pods and victims share the results of one search.

A cycle decides ten thousand gangs of a few kinds. What failed for one gang is not tried again for its equals. Equal
means equal in everything that a decision looks at. The framework compares a gang's queue, priority, need, pods, and the
labels and annotations that plugins declare to read. Plugins add the rest (Hooks.job_kind, group_kind, victim_kind). If
a plugin has such callbacks and declares nothing, each gang is its own kind: slower, never wrong.

Every cache across gangs must use these keys, never keys of its own.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.plugin_reads import Reads
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Hooks, Victim, nothing_else

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

# Callbacks whose answers depend on a gang, a group or a victim. The others need no declaration: job_order, task_order
# and job_need are called for each gang and count in its Demand; job_valid is called for each gang and its answer is
# never shared; overused and admissible see a queue and an amount only.
_ABOUT_JOBS = ("preemptable", "reclaimable", "startable", "job_ready", "job_pipelined")
_ABOUT_GROUPS = ("predicate", "pod_predicate", "node_order", "batch_node_order", "is_placed_singly")
_ABOUT_VICTIMS = ("preemptable", "reclaimable")


class Demand(NamedTuple):
    """Everything that decides whether, where and after which evictions a gang can start."""

    queue: int
    priority: int
    may_preempt: bool
    preemptable: bool
    needed: int
    needed_by_role: tuple[tuple[str, int], ...]
    groups: tuple[int, ...]  # in task order
    closeness: tuple[str, str, bool]
    own: JobKey | None  # the gang itself, if it equals no other
    is_exempt: bool  # from the reservation in its queue
    kinds: tuple[Hashable, ...]  # what plugins add
    serial: int


class Demands:
    is_shared: ClassVar[bool] = True  # False, for tests: no key equals another, so nothing is shared

    def __init__(self, session: "Session", hooks: Sequence[Hooks], reads: Reads) -> None:
        self._session = session
        self._serials = count(-1, -1)
        self._numbers: dict[Hashable, int] = {}
        self._shapes: dict[TaskGroup, int] = {}
        self._groups: dict[TaskGroup, int] = {}
        self._reads = reads
        self._job_kinds = _declared(hooks, _ABOUT_JOBS, "job_kind", lambda job: job.key)
        if reads.job_labels or reads.job_annotations:
            self._job_kinds.append(_written)
        self._group_kinds = _declared(hooks, _ABOUT_GROUPS, "group_kind", id)
        self._victim_kinds = _declared(hooks, _ABOUT_VICTIMS, "victim_kind", lambda victim: victim.pod.pod)

    def of(self, job: Job) -> Demand:
        session = self._session
        need = session.job_need(job)
        # A gang with placed pods must stay near them, does not evict them, and already holds a share.
        is_own = session.state(job).nodes or (job.placed and need.total)
        return Demand(
            job.queue,
            job.priority,
            job.may_preempt,
            job.preemptable,
            need.total,
            tuple(need.by_role.items()),
            tuple([self._group(group) for group in session.groups(job)]),
            (job.required, job.preferred, job.mixed_models),
            job.key if is_own else None,
            session.reserved.exempts(job),
            self.kinds(job),
            self.serial(),
        )

    def kinds_of_waiting(self, job: Job) -> Hashable | None:
        """What plugins look at of the job and its groups beyond what makes jobs alike; None: nothing."""
        if not (self._job_kinds or self._group_kinds):
            return None
        return self.kinds(job), tuple([tuple([kind(group) for kind in self._group_kinds]) for group in job.groups])

    def kinds(self, job: Job) -> tuple[Hashable, ...]:
        """What plugins look at of the job beyond what the framework compares."""
        return tuple([kind(job) for kind in self._job_kinds])

    def of_group(self, group: TaskGroup) -> int:
        """Groups with the same number fit on the same nodes with the same scores, unless they depend on other pods."""
        return self.number_of(group) if self.is_shared else next(self._serials)

    def number_of(self, group: TaskGroup) -> int:
        """The same, for bookkeeping that is not a cache."""
        if not self._group_kinds:
            return group.shape.number
        number = self._shapes.get(group)
        if number is None:
            kinds = tuple(kind(group) for kind in self._group_kinds)
            number = self._shapes[group] = self._number((group.shape.number, kinds))
        return number

    def of_constraint(self, group: TaskGroup) -> int | None:
        """What plugins look at of the group beyond its Constraint; None: nothing."""
        return self.of_group(group) if self._group_kinds or not self.is_shared else None

    def of_victims(self, job: Job, pods: Sequence[PlacedPod]) -> Hashable:
        """Equal for pods that no victim rule tells apart: pods of one job, or whole jobs."""
        session = self._session
        kinds = [
            (
                id(pod.requests),
                pod.role,
                pod.is_critical,
                *(id(accounting.of_pod(pod)) for accounting in session.by_speed.values()),
                session.budget_cover.of(pod.pod, pod.labels),
                *(pod.labels.get(key, "") for key in self._reads.pod_labels),
                *(pod.annotations.get(key, "") for key in self._reads.pod_annotations),
                *(self._number(kind(Victim(job, pod))) for kind in self._victim_kinds),
            )
            for pod in pods
        ]
        if len(kinds) < len(job.placed) or job.succeeded:
            return job.key, tuple(kinds)
        gang = (job.queue, job.priority, job.min_member, tuple(job.role_min.items()), _written(job))
        return gang, tuple(sorted(kinds))

    def serial(self) -> int:
        return 0 if self.is_shared else next(self._serials)

    def _group(self, group: TaskGroup) -> int:
        """The group as a part of a gang."""
        number = self._groups.get(group)
        if number is None:
            key = ("group", self.number_of(group), group.pod_affinity, group.role, group.number, len(group.pods))
            number = self._groups[group] = self._number(key)
        return number

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _written(job: Job) -> Hashable:
    """The labels and annotations of the job that plugins declare to read."""
    return tuple(job.labels.items()), tuple(job.annotations.items())


def _declared(
    hooks: Sequence[Hooks], callbacks: Sequence[str], declaration: str, own: Callable[[Any], Hashable]
) -> list[Callable[[Any], Hashable]]:
    """What plugins look at. A plugin with such callbacks and no declaration may look at everything."""
    kinds = []
    for hook in hooks:
        kind = getattr(hook, declaration)
        if kind is None and any(getattr(hook, name) for name in callbacks):
            return [own]
        if kind is not None and kind is not nothing_else:
            kinds.append(kind)
    return kinds
