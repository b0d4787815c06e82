"""PodGroups and ElasticJobs that somebody wrote: which of them are right, how large they are, how they would grow."""

from collections.abc import Iterable

from maniple.api import kubernetes, types
from maniple.api.labels import BIND_FAILURES_ANNOTATION, JOB_LABEL
from maniple.model.building.cluster_tables import Ours
from maniple.model.building.input_objects import next_replicas
from maniple.model.building.job_builder import JobKey, JobMaker, is_loose, job_key, key_of
from maniple.model.building.pod_index import Census
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.elastic import current_sizes
from maniple.model.job import Job


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
        self.growing: dict[JobKey, list[tuple[types.ElasticRole, kubernetes.Pod]]] = {}
        self.touched: set[JobKey] = set()
        self._contrary: dict[JobKey, dict[str, str]] = {}  # job -> ns/name of pods that cannot be its replicas -> why

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
        self._contrary.clear()
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
            self._set_aside(key, {})
            return
        own = job.metadata.name
        pods = [pod for pod in census.members(key[0]) if pod.metadata.labels.get(JOB_LABEL) == own]
        pods = [pod for pod in pods if misplaced_note(pod, key) is None]
        contrary = {pod.metadata.name: str(problem) for pod, problem in replica_problems(job, pods)}
        self._set_aside(key, {f"{job.metadata.namespace}/{name}": why for name, why in contrary.items()})
        sizes = self._sizes[key] = current_sizes(job, [pod for pod in pods if pod.metadata.name not in contrary])
        growing = self.growing[key] = next_replicas(job, sizes, self._ours.scheduler_name)
        for role, replica in growing:
            census.number(f"{key[0]} {role.name}", replica)

    def _set_aside(self, key: JobKey, contrary: dict[str, str]) -> None:
        before = self._contrary.pop(key, {})
        self._census.touched.update(name for name, _ in before.items() ^ contrary.items())
        if contrary:
            self._contrary[key] = contrary

    def contradiction(self, pod: kubernetes.Pod) -> str:
        """Why the pod cannot be what it says it is; empty if it can."""
        meta = pod.metadata
        job = meta.labels.get(JOB_LABEL) if self._contrary else None
        if job:
            contrary = self._contrary.get((f"{meta.namespace}/{job}", "ElasticJob"), {})
            if why := contrary.get(f"{meta.namespace}/{meta.name}"):
                return why
        note = misplaced_note(pod, self._named(pod)) if BIND_FAILURES_ANNOTATION in meta.annotations else None
        return str(note or "")

    def key_of(self, pod: kubernetes.Pod) -> JobKey | None:
        """The gang of the pod; None if it has none, or contradicts it."""
        return None if self.contradiction(pod) else self._named(pod)

    def _named(self, pod: kubernetes.Pod) -> JobKey | None:
        return key_of(pod, self._ours, self.right, self._census.called, self.loose)

    def begin(self, key: JobKey, maker: JobMaker) -> Job | None:
        """The job without its pods; None if nobody wrote it, or something is wrong with it."""
        if key not in self.right:
            return None
        if key in self._groups:
            return maker.of_group(self._groups[key])
        return maker.of_elastic(self._elastic[key], self._sizes[key])
