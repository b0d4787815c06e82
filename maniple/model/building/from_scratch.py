"""Objects to Snapshot, from scratch. Collects every contradiction between objects and raises them together.

`ledger.py` keeps a snapshot up to date instead; both put it together from the same parts.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.errors import InputError
from maniple.model.budgets import find_budgets
from maniple.model.building.cluster_tables import DEFAULT_SCHEDULER, OVER, Frame, Ours, matters
from maniple.model.building.input_objects import Objects, next_replicas, pods_by_job
from maniple.model.building.job_builder import JobKey, JobMaker, called_by, is_loose, job_key, key_of
from maniple.model.building.occupancy import Occupancy, count_succeeded
from maniple.model.building.task_groups import Groups, may_wait
from maniple.model.elastic import current_sizes
from maniple.model.gpu.devices import GpuPod, count_gpu_pods, gpu_problems
from maniple.model.job import Job
from maniple.model.pod_affinity import PeerReader, term_keys
from maniple.model.queues import tree_problems, with_default
from maniple.model.reads import Reads
from maniple.model.resources import RequestTable
from maniple.model.snapshot import Snapshot

__all__ = ["DEFAULT_SCHEDULER", "Ours", "build_snapshot"]


def build_snapshot(
    objects: Objects, ours: Ours | None = None, now: float | None = None, reads: Reads | None = None
) -> Snapshot:
    """The snapshot of `objects` at `now` (default: the newest moment that any of them mentions)."""
    return _Builder(objects, ours or Ours(), reads).build(now)


class _Builder:
    def __init__(self, objects: Objects, ours: Ours, reads: Reads | None) -> None:
        self.objects = objects
        self.ours = ours
        self.wrong: list[str] = []
        pods = [pod for pod in objects.pods if matters(pod, ours)]
        self.placed = [pod for pod in pods if pod.spec.node_name]
        self.waiting = [*(pod for pod in pods if not pod.spec.node_name), *objects.implied]
        requests = RequestTable()
        self.placed_requests = [requests.number(pod) for pod in self.placed]
        self.sizes, self.growing = self._elastic_jobs()
        unplaced = [*self.waiting, *(replica for _, _, replica in self.growing)]
        for pod in unplaced:
            requests.number(pod)
        queues = with_default(objects.queues)
        for queue, text in tree_problems(queues):
            self._report(queue, text)
        self._stop_if_wrong()
        self.frame = Frame(
            ours,
            requests,
            nodes=objects.nodes,
            queues=queues,
            priority_classes=objects.priority_classes,
            topologies=objects.topologies,
            claims={(claim.metadata.namespace, claim.metadata.name): claim for claim in objects.claims},
            volumes={volume.metadata.name: volume for volume in objects.volumes},
            reads=reads,
        )
        terms = [keys for pod in chain(pods, objects.implied, unplaced) if (keys := term_keys(pod)) is not None]
        namespaces = {namespace.metadata.name: namespace.metadata.labels for namespace in objects.namespaces}
        self.frame.reader = PeerReader(namespaces, anyone=bool(terms), keys=frozenset().union(*terms))
        self.frame.budgets = find_budgets(objects.budgets, objects.pods)
        self.maker = JobMaker(self.frame, self._report)
        self.jobs: dict[JobKey, Job] = {}
        self.declared: set[JobKey] = set()
        self.loose: set[JobKey] = set()

    def _elastic_jobs(
        self,
    ) -> tuple[dict[JobKey, dict[str, int]], list[tuple[JobKey, types.ElasticRole, kubernetes.Pod]]]:
        """The sizes of each job by role, and of every role that may grow its next replica."""
        sizes, growing = {}, []
        jobs = self.objects.elastic_jobs
        there = pods_by_job((*self.objects.pods, *self.objects.implied)) if jobs else {}
        for job in jobs:
            key = job_key(job.metadata, "ElasticJob")
            now = sizes[key] = current_sizes(job, there.get((job.metadata.namespace, job.metadata.name), []))
            growing += [(key, role, replica) for role, replica in next_replicas(job, now, self.ours.scheduler_name)]
        return sizes, growing

    def _report(self, item: Object, text: str) -> None:
        made_up = (*self.objects.implied, *(replica for _, _, replica in self.growing))
        if not any(item is pod for pod in made_up):  # nobody wrote those; their ElasticJob is to blame, and has been
            self.wrong.append(f"{self.objects.place_of(item)}: {text}")

    def _stop_if_wrong(self) -> None:
        if self.wrong:
            raise InputError(dict.fromkeys(self.wrong))  # each once, in order

    def build(self, now: float | None) -> Snapshot:
        self._declare_jobs()
        groups = Groups(self.maker)
        for pod in self.waiting:
            if may_wait(pod):
                job = self._job_of(pod)
                if job is not None:
                    groups.wait(pod, job)
        groups.finish()
        for key, role, replica in self.growing:
            groups.may_grow(self.jobs[key], role, replica)
        there = Occupancy(self.maker, owners=groups.owners)
        for pod, request in zip(self.placed, self.placed_requests, strict=True):
            if pod.status.phase in OVER:
                self._count_finished(pod)
            else:
                there.place(pod, request, self._job_of(pod))
        self._stop_if_wrong()
        for job in self.jobs.values():
            self.maker.settle(job)
        return self._snapshot(there, now)

    def _snapshot(self, there: Occupancy, now: float | None) -> Snapshot:
        frame = self.frame
        jobs = sorted(self.jobs.values(), key=lambda job: job.key)
        waiting = [job for job in jobs if job.groups or job.gated]
        queue_pending = np.zeros((len(frame.queues), len(frame.axis)))
        for job in waiting:
            if job.pending is not None and job.exists and not job.is_suspended:
                queue_pending[job.queue] += job.pending
        used, releasing, foreign, queue_allocated = there.sums()
        gpus_free, gpus_releasing = there.gpus()
        return Snapshot(
            now=self.maker.latest if now is None else now,
            axis=frame.axis,
            nodes=frame.nodes,
            free=frame.nodes.allocatable - used,
            releasing=releasing,
            total=frame.total(used, foreign),
            queues=frame.queues,
            queue_allocated=queue_allocated,
            queue_pending=queue_pending,
            jobs=jobs,
            waiting=waiting,
            gpus=frame.gpus,
            gpus_free=gpus_free,
            gpus_releasing=gpus_releasing,
            domains=frame.domains,
            gpu_pods=self._gpu_pods(there, waiting),
            peers=there.peers,
            exclusives={node: tuple(held) for node, held in there.exclusives.items()},
            owners=there.owners,
            budgets=frame.budgets,
        )

    def _gpu_pods(self, there: Occupancy, waiting: Sequence[Job]) -> dict[GpuPod, int]:
        """What pods with GPUs are like here, those that run and those that wait."""
        found: dict[GpuPod, int] = {}
        shapes = self.frame.shapes
        for (request, models), count in there.gpu_requests.items():
            count_gpu_pods(found, shapes.vector(request), shapes.asks(request), models, count)
        for group in (group for job in waiting for group in job.groups):
            shape = group.shape
            count_gpu_pods(found, shape.requests, shape.gpus, shape.constraint.gpu_models, len(group.pods))
        return found

    def _declare_jobs(self) -> None:
        for node in self.objects.nodes:
            self.wrong += [f"Node {node.metadata.name}: {problem}" for problem in gpu_problems(node)]
        for group in self.objects.pod_groups:
            job = self.maker.of_group(group)
            if is_loose(group):
                self.loose.add(job.key)
            else:
                self.jobs[job.key] = job
        for item in self.objects.elastic_jobs:
            job = self.maker.of_elastic(item, self.sizes[job_key(item.metadata, "ElasticJob")])
            self.jobs[job.key] = job
        self.declared.update(self.jobs)  # later come those that nobody wrote

    def _key_of(self, pod: kubernetes.Pod) -> JobKey | None:
        return key_of(pod, self.ours, self.declared, self, self.loose)

    def _job_of(self, pod: kubernetes.Pod) -> Job | None:
        key = self._key_of(pod)
        if key is None:
            return None
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = self.maker.of_pod(pod) if key[1] == "Pod" else self.maker.unwritten(key)
        if not job.exists:
            self.maker.note_age(job, pod)
        return job

    def __contains__(self, key: object) -> bool:
        """Whether a pod of ours names this group."""
        return key in self._called

    @cached_property
    def _called(self) -> set[JobKey | None]:
        return {called_by(pod) for pod in chain(self.waiting, self.placed) if self.ours.claims(pod)}

    def _count_finished(self, pod: kubernetes.Pod) -> None:
        """Only a gang remembers who has done its part."""
        key = self._key_of(pod) if pod.status.phase == "Succeeded" else None
        job = None if key is None or key[1] == "Pod" else self._job_of(pod)
        if job is not None:
            count_succeeded(job, pod)
