"""PodGroups and ElasticJobs: which are valid, their sizes, their next replicas, and pods that contradict them."""

from collections.abc import Iterable

from maniple.api import kubernetes, types
from maniple.api.keys import name_of
from maniple.api.labels import BIND_FAILURES_ANNOTATION, JOB_LABEL
from maniple.api.phases import FINISHED
from maniple.model.building.implied_pods import NextReplica, next_replicas
from maniple.model.building.job_builder import JobBuilder, is_gang
from maniple.model.building.pod_index import PodIndex
from maniple.model.building.queue_choice import QueueChoice
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.elastic import current_sizes
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey, gang_of, job_key
from maniple.model.pods_we_schedule import Ours


class JobSpecs:
    """Jobs by key. `touched`: jobs that have changed since they were last checked."""

    def __init__(self, ours: Ours, index: PodIndex) -> None:
        self._ours = ours
        self._index = index
        self._groups: dict[JobKey, types.PodGroup] = {}
        self._elastic: dict[JobKey, types.ElasticJob] = {}
        self._sizes: dict[JobKey, dict[str, int]] = {}
        self.gangs: set[JobKey] = set()  # valid
        self.gangless: set[JobKey] = set()  # valid PodGroups whose pods do not wait for each other
        self.growing: dict[JobKey, list[NextReplica]] = {}
        self.touched: dict[JobKey, None] = {}  # mostly in the order of their names
        self._built: dict[JobKey, Job] = {}  # by the check, and not yet used
        self._contradictions: dict[JobKey, dict[str, str]] = {}  # job -> pods that cannot be its replicas -> why
        self._queues: dict[JobKey, int] = {}  # of valid gangs
        self.queue_choice: QueueChoice | None = None

    def put(self, item: types.PodGroup | types.ElasticJob) -> None:
        if isinstance(item, types.PodGroup):
            key = job_key(item.metadata, "PodGroup")
            self._groups[key] = item
        else:
            key = job_key(item.metadata, "ElasticJob")
            self._elastic[key] = item
        self.touched[key] = None

    def remove(self, key: JobKey) -> None:
        self._groups.pop(key, None)
        self._elastic.pop(key, None)
        self.touched[key] = None

    def touch_all(self) -> None:
        self.gangs.clear()
        self.gangless.clear()
        self._queues.clear()
        self._sizes.clear()
        self._contradictions.clear()
        self.growing.clear()
        self.touched |= dict.fromkeys([*self._groups, *self._elastic])

    def touch_named(self, gangs: Iterable[str]) -> None:
        """Pods joined or left gangs of these names: the size of an ElasticJob may depend on them."""
        if self._elastic:
            named = [(gang, "ElasticJob") for gang in gangs]
            self.touched |= dict.fromkeys(key for key in named if key in self._elastic)

    def check(self, checker: JobBuilder, wrong: set[JobKey]) -> dict[JobKey, None]:
        """Checks the touched jobs and returns them. `wrong`: jobs that the checker has reported."""
        checked, self.touched = self.touched, {}
        for key in checked:
            group, elastic = self._groups.get(key), self._elastic.get(key)
            wrong.discard(key)
            self._built.pop(key, None)
            job = None
            contradictions: dict[str, str] = {}
            sizes: dict[str, int] = {}
            if group is not None:
                job = checker.of_group(group)
            elif elastic is not None:
                contradictions, sizes = self._read_replicas(key, elastic)
                job = checker.of_elastic(elastic, sizes)
            is_valid = job is not None and key not in wrong
            is_valid_gang = is_valid and (group is None or is_gang(group))
            if job is not None and is_valid_gang:
                self._built[key] = job
            self._set_queue(key, job.queue if job is not None and is_valid_gang else None)
            self._set_member(self.gangs, key, is_valid_gang)
            self._set_member(self.gangless, key, is_valid and not is_valid_gang)
            if key[1] == "ElasticJob":
                self._set_contradictions(key, contradictions if is_valid else {})
                self._set_sizes(key, elastic if is_valid else None, sizes)
        return checked

    def _set_member(self, jobs: set[JobKey], key: JobKey, is_member: bool) -> None:
        if is_member != (key in jobs):
            self._index.touch_members(key[0])
            (jobs.add if is_member else jobs.discard)(key)

    def _set_queue(self, key: JobKey, queue: int | None) -> None:
        if self._queues.get(key) == queue:
            return
        if queue is None:
            del self._queues[key]
        else:
            self._queues[key] = queue
        self._index.touch_members(key[0])  # they may name another queue

    def _read_replicas(self, key: JobKey, job: types.ElasticJob) -> tuple[dict[str, str], dict[str, int]]:
        """Pods that cannot be replicas of the job, and why; and the size of each role without them."""
        own = job.metadata.name
        pods = [
            pod
            for pod in self._index.members(key[0])
            if pod.metadata.labels.get(JOB_LABEL) == own and misplaced_note(pod, key) is None
        ]
        contradictions = {name_of(pod.metadata): str(problem) for pod, problem in replica_problems(job, pods)}
        if contradictions:
            pods = [pod for pod in pods if name_of(pod.metadata) not in contradictions]
        return contradictions, current_sizes(job, pods)

    def _set_sizes(self, key: JobKey, job: types.ElasticJob | None, sizes: dict[str, int]) -> None:
        """Counts the next replica of each role. None: the job is gone or not valid."""
        index = self._index
        for role, _ in self.growing.pop(key, ()):
            index.count_request(replica_to_come(key, role), None)
        self._sizes.pop(key, None)
        if job is None:
            return
        self._sizes[key] = sizes
        growing = self.growing[key] = next_replicas(job, sizes, self._ours.scheduler_name)
        for role, replica in growing:
            index.count_request(replica_to_come(key, role), replica)

    def _set_contradictions(self, key: JobKey, contradictions: dict[str, str]) -> None:
        before = self._contradictions.pop(key, {})
        self._index.touched.update(name for name, _ in before.items() ^ contradictions.items())
        if contradictions:
            self._contradictions[key] = contradictions

    def contradiction(self, name: str, pod: kubernetes.Pod) -> str:
        """Why the pod cannot be what its labels and annotations say; empty if it can."""
        if self._contradictions:
            for gang in self._index.gangs.get(name, ()):
                if why := self._contradictions.get(gang, {}).get(name):
                    return why
        meta = pod.metadata
        if BIND_FAILURES_ANNOTATION in meta.annotations and (note := misplaced_note(pod, self.gang_of(name, pod))):
            return str(note)
        return self._wrong_queue(name, pod) if self.queue_choice and self.queue_choice.has_choice(meta) else ""

    def _wrong_queue(self, name: str, pod: kubernetes.Pod) -> str:
        """Why the pod cannot be in the queue that it names, or its namespace; empty if it can."""
        gang = self.gang_of(name, pod)
        if gang is None or self.queue_choice is None or pod.status.phase in FINISHED:
            return ""
        if gang[1] == "Pod":
            return self.queue_choice.find(pod.metadata)[1]
        queue = self._queues.get(gang)
        return "" if queue is None else self.queue_choice.disagreement(pod.metadata, queue, f"{gang[1]} {gang[0]}")

    def gang_of(self, name: str, pod: kubernetes.Pod) -> JobKey | None:
        """The gang of a pod that contradicts nothing; None if it does not concern us."""
        named = self._index.gangs.get(name, ())
        if len(named) == 1 and named[0] in self.gangs:
            return named[0]  # as nearly every pod: whose pod it is makes no difference
        return gang_of(name, named, self._ours.claims(pod), self.gangs, self._index, self.gangless)

    def build(self, key: JobKey, builder: JobBuilder) -> Job | None:
        """The job without its pods; None if it has no valid object."""
        if key not in self.gangs:
            return None
        built = self._built.pop(key, None)
        if built is not None:
            return built
        group = self._groups.get(key)
        return builder.of_elastic(self._elastic[key], self._sizes[key]) if group is None else builder.of_group(group)


def replica_to_come(key: JobKey, role: types.ElasticRole) -> str:
    """The name under which the next replica of a role is counted. No pod has a space in its name."""
    return f"{key[0]} {role.name}"
