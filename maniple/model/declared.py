"""PodGroups and ElasticJobs that somebody wrote: which of them are right, how large they are, how they would grow."""

from collections.abc import Iterable

from maniple.api import core, types
from maniple.model.census import Census
from maniple.model.elastic import current_sizes
from maniple.model.frame import Ours
from maniple.model.job import Job
from maniple.model.jobs import JobKey, JobMaker, is_loose, job_key
from maniple.model.objects import next_replicas


class Declared:
    """Jobs by key. `touched` are those that something has happened to since they were last looked at."""

    def __init__(self, ours: Ours, census: Census) -> None:
        self._ours = ours
        self._census = census
        self._groups: dict[JobKey, types.PodGroup] = {}
        self._elastic: dict[JobKey, types.ElasticJob] = {}
        self._sizes: dict[JobKey, dict[str, int]] = {}
        self.right: set[JobKey] = set()
        self.loose: set[JobKey] = set()  # groups whose pods are each on their own
        self.growing: dict[JobKey, list[tuple[types.ElasticRole, core.Pod]]] = {}
        self.touched: set[JobKey] = set()

    def put(self, item: types.PodGroup | types.ElasticJob) -> None:
        if isinstance(item, types.PodGroup):
            key = job_key(item.metadata, "PodGroup")
            self._groups[key] = item
        else:
            key = job_key(item.metadata, "ElasticJob")
            self._elastic[key] = item
        self.touched.add(key)

    def remove(self, key: JobKey) -> None:
        self._groups.pop(key, None)
        self._elastic.pop(key, None)
        self.touched.add(key)

    def touch_all(self) -> None:
        """As if all had just been written."""
        self.right.clear()
        self.loose.clear()
        self._sizes.clear()
        self.growing.clear()
        self.touched |= self._groups.keys() | self._elastic.keys()

    def touch_named(self, gangs: Iterable[str]) -> None:
        """Pods came to gangs of these names, or left them: elastic jobs among these may have another size."""
        self.touched.update(key for key in ((gang, "ElasticJob") for gang in gangs) if key in self._elastic)

    def look(self, checker: JobMaker, wrong: set[JobKey]) -> set[JobKey]:
        """Looks at those that were touched, and says which they are. `wrong`: those that the checker complains of."""
        looked_at, self.touched = self.touched, set()
        for key in looked_at:
            group, elastic = self._groups.get(key), self._elastic.get(key)
            wrong.discard(key)
            if group is not None:
                checker.of_group(group)
            elif elastic is not None:
                checker.of_elastic(elastic, current_sizes(elastic, []))
            is_right = (group is not None or elastic is not None) and key not in wrong
            is_gang = is_right and (group is None or not is_loose(group))
            self._sort_into(self.right, key, is_gang)
            self._sort_into(self.loose, key, is_right and not is_gang)
            self._measure(key, elastic if is_right else None)
        return looked_at

    def _sort_into(self, some: set[JobKey], key: JobKey, is_among: bool) -> None:
        if is_among != (key in some):
            self._census.touch_members(key[0])
            (some.add if is_among else some.discard)(key)

    def _measure(self, key: JobKey, job: types.ElasticJob | None) -> None:
        """How large an elastic job is, and what the next replica of each of its roles would be."""
        census = self._census
        for role, _ in self.growing.pop(key, ()):
            census.number(f"{key[0]} {role.name}", None)
        self._sizes.pop(key, None)
        if job is None:
            return
        own = job.metadata.name
        pods = [pod for pod in census.members(key[0]) if pod.metadata.labels.get(types.JOB_LABEL) == own]
        sizes = self._sizes[key] = current_sizes(job, pods)
        growing = self.growing[key] = next_replicas(job, sizes, self._ours.scheduler_name)
        for role, replica in growing:
            census.number(f"{key[0]} {role.name}", replica)

    def begin(self, key: JobKey, maker: JobMaker) -> Job | None:
        """The job without its pods; None if nobody wrote it, or something is wrong with it."""
        if key not in self.right:
            return None
        if key in self._groups:
            return maker.of_group(self._groups[key])
        return maker.of_elastic(self._elastic[key], self._sizes[key])
