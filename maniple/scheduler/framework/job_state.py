"""What this cycle has done to a job so far, on top of what the snapshot says."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from maniple.api.types import GpuModel
from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.pod_identity import pod_order
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.free_gpus import FreeGpus, GpuGrants


class Step(NamedTuple):
    """Pods of a job's surplus that go together; for an elastic job also the role's size without them."""

    pods: tuple[PlacedPod, ...]
    size: tuple[str, int] | None


class SurplusCount:
    """How many pods a job has above its minimums, in all and by role. Counts down as pods leave."""

    def __init__(self, job: Job, placed: Mapping[str, int]) -> None:
        self.total = sum(placed.values()) + job.succeeded - max(job.min_member, 1)
        self._by_role = {
            role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
            for role, count in placed.items()
        }

    def take(self, role: str, count: int = 1) -> bool:
        """Takes pods of the role from the surplus. If there are too few, returns False, then and later."""
        if count > self.total or count > self._by_role[role]:
            self._by_role[role] = 0
            return False
        self.total -= count
        self._by_role[role] -= count
        return True


class JobState:
    __slots__ = ("allocated", "cursor", "dropped", "evicted", "job", "models", "nodes", "placed", "promised")

    def __init__(self, job: Job, zero: FloatArray) -> None:
        self.job = job
        self.placed = dict(job.placed_by_role)
        self.promised: dict[str, int] = {}
        self.cursor: dict[int, int] = {}  # group number -> how many of its pods are placed or promised
        self.dropped: dict[int, int] = {}  # group number -> how many of its last pods are no longer wanted
        self.evicted: set[str] = set()
        self.allocated = zero.copy() if job.allocated is None else job.allocated.copy()
        # Nodes and GPU models of its pods; kept only if Session.remembers_members.
        self.nodes: Counter[int] = Counter()
        self.models: dict[tuple[GpuModel, ...], Counter[int]] = {}

    def note(self, node: int, models: tuple[GpuModel, ...], grants: GpuGrants, gpus: FreeGpus, sign: int) -> None:
        """A pod with this list of models was placed there (1), or removed again (-1)."""
        self.nodes[node] += sign
        if grants:
            self.models.setdefault(models, Counter())[gpus.model_of(node, grants)] += sign

    def resize(self, role: str, size: int | None) -> None:
        """Pods of the role with an index of at least `size` no longer wait; None: the role has its old size."""
        for group in self.job.groups:
            if group.role == role:
                beyond = [pod for pod in group.pods if size is not None and pod_order(pod, {})[1] >= size]
                self.dropped[group.number] = len(beyond)

    def left(self, group: TaskGroup) -> int:
        return len(group.pods) - self.cursor.get(group.number, 0) - self.dropped.get(group.number, 0)

    @property
    def placed_count(self) -> int:
        return sum(self.placed.values())

    @property
    def promised_count(self) -> int:
        return sum(self.promised.values())
