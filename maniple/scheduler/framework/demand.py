"""Which gangs, groups of pods and victims may share what was found out about one of them.

A cycle decides ten thousand gangs of a few kinds: what was tried in vain for one is not tried again for its equals.
Equal means equal in everything that a decision looks at, also in what plugins look at. The framework compares a gang's
queue, priority, need, pods, and the labels and annotations that plugins declare to read. A plugin adds the rest
(Hooks.job_kind, group_kind, victim_kind). A plugin that has callbacks about gangs and declares nothing makes each gang
its own kind: slower, never wrong.

Every memory across gangs must use these keys, never keys of its own.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.reads import Reads
from maniple.scheduler.framework.hooks import Hooks, Victim, nothing_else

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

# Callbacks whose answers depend on a gang, a group or a victim. The others need no declaration: job_order, task_order
# and job_need are asked for each gang and count in its Demand; job_valid is asked for each gang and its answer is never
# shared; overused and admissible see a queue and an amount only.
_ABOUT_JOBS = ("preemptable", "reclaimable", "job_ready", "job_pipelined")
_ABOUT_GROUPS = ("predicate", "pod_predicate", "node_order", "batch_node_order", "is_placed_singly")
_ABOUT_VICTIMS = ("preemptable", "reclaimable")


class Demand(NamedTuple):
    """All that decides whether, where and by whose eviction a gang can start."""

    queue: int
    priority: int
    may_preempt: bool
    needed: int
    needed_by_role: tuple[tuple[str, int], ...]
    groups: tuple[int, ...]  # in task order
    closeness: tuple[str, str, bool]
    own: tuple[str, str] | None  # the gang itself, if it is like no other
    is_exempt: bool  # from the reservation in its queue
    kinds: tuple[Hashable, ...]  # what plugins add
    serial: int


class Demands:
    is_shared: ClassVar[bool] = True  # False, for tests: no answer equals another, so nothing is remembered

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
        # A gang with pods must stay where these are, takes nothing from itself, and holds a share already.
        is_own = session.state(job).nodes or (job.placed and need.total)
        return Demand(
            job.queue,
            job.priority,
            job.may_preempt,
            need.total,
            tuple(need.by_role.items()),
            tuple([self._group(group) for group in session.groups(job)]),
            (job.required, job.preferred, job.mixed_models),
            job.key if is_own else None,
            session.reserved.exempts(job),
            self.kinds(job),
            self.serial(),
        )

    def kinds(self, job: Job) -> tuple[Hashable, ...]:
        """What plugins look at of the job beyond what is compared anyway."""
        return tuple([kind(job) for kind in self._job_kinds])

    def of_group(self, group: TaskGroup) -> int:
        """Groups with the same number have the same nodes, scores and room, as long as their pods mind no others."""
        return self.number_of(group) if self.is_shared else next(self._serials)

    def number_of(self, group: TaskGroup) -> int:
        """The same, for bookkeeping that is no memory."""
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
        """Equal for pods that are the same to every rule on victims: pods of one job, or jobs of which all pods go."""
        session = self._session
        kinds = [
            (
                id(pod.requests),
                pod.role,
                pod.is_critical,
                *(id(measure.of_pod(pod)) for measure in session.by_speed.values()),
                *(budget.covers(pod.pod, pod.labels) for budget in session.snapshot.budgets),
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
    """What plugins look at. One with such callbacks that does not say so may look at everything."""
    kinds = []
    for hook in hooks:
        kind = getattr(hook, declaration)
        if kind is None and any(getattr(hook, name) for name in callbacks):
            return [own]
        if kind is not None and kind is not nothing_else:
            kinds.append(kind)
    return kinds
