"""A Snapshot kept up to date: objects come, change and go, and only what follows from that is made anew.

The unit of work is the job and the node: a pod that changes makes its gang and its node dirty, and those are made again
from their pods, by the same code that makes a snapshot from scratch (build.py). What a Snapshot was given is never
changed afterwards. If the cluster itself changes (nodes, queues, classes, topologies, which resources there are), or if
most of what was numbered is dead, everything is made anew.

Objects that contradict others are left out, and `wrong` says why; nobody else is held up by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from maniple.api import core, types
from maniple.api.decode import Object
from maniple.api.meta import LabelSelector
from maniple.model.budgets import Budget, find_budgets
from maniple.model.census import Census
from maniple.model.devices import gpu_problems
from maniple.model.domains import Domains
from maniple.model.elastic import current_sizes
from maniple.model.frame import OVER, Frame, Ours, fixed_names
from maniple.model.groups import Groups, is_waiting
from maniple.model.job import Job
from maniple.model.jobs import JobKey, JobMaker, is_loose, key_of
from maniple.model.nodes import same_resources
from maniple.model.objects import next_replicas
from maniple.model.occupancy import count_succeeded, join, placed_pod
from maniple.model.peers import PeerReader
from maniple.model.podinfo import group_name
from maniple.model.queues import sound_queues
from maniple.model.resources import RequestTable
from maniple.model.seats import Seat, Seats
from maniple.model.snapshot import Snapshot
from maniple.model.tallies import Line, Tallies, Tally

Key = tuple[type, str, str]  # kind, namespace, name

_FRAMED = (core.Node, core.PriorityClass, types.Queue, types.Topology)
_KINDS = (
    *_FRAMED,
    core.PersistentVolume,
    core.PersistentVolumeClaim,
    core.Namespace,
    core.PodDisruptionBudget,
    types.PodGroup,
    types.ElasticJob,
)
_FEW = 1000  # numbers that may be dead, whatever is alive
_MOSTLY = 4


def key_of_object(item: Object) -> Key:
    return type(item), item.metadata.namespace, item.metadata.name


class Ledger:
    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.census = Census(ours)
        self._things: dict[type, dict[tuple[str, str], Any]] = {kind: {} for kind in _KINDS}
        self.wrong: dict[Key, list[str]] = {}
        self._declared: set[JobKey] = set()
        self._loose: set[str] = set()  # ns/name of groups whose pods are each on their own
        self._sizes: dict[JobKey, dict[str, int]] = {}
        self._growing: dict[JobKey, list[tuple[types.ElasticRole, core.Pod]]] = {}
        self._touched_jobs: set[JobKey] = set()
        self._touched_nodes: set[str] = set()
        self._touched_budgets: set[str] = set()  # namespaces
        self._volumes: dict[str, core.PersistentVolume] = {}
        self._frame: Frame | None = None
        self._is_stale = True  # the frame is
        self._last: Snapshot | None = None
        self._is_updated = False  # since the last snapshot

    @property
    def is_changed(self) -> bool:
        """Whether the next snapshot will differ from the last in more than the time."""
        return self._is_updated or self._has_touched

    @property
    def _has_touched(self) -> bool:
        census = self.census
        touched = (census.touched, self._touched_jobs, self._touched_nodes, self._touched_budgets)
        return self._is_stale or any(touched)

    # -- objects

    def put(self, item: Object) -> None:
        """Added, or in the place of the one that was there under its name."""
        self._set(key_of_object(item), item)

    def remove(self, key: Key) -> None:
        self._set(key, None)

    def _set(self, key: Key, item: Any) -> None:
        kind, namespace, name = key
        if kind is core.Pod:
            self.census.put(f"{namespace}/{name}", item)
            return
        things = self._things[kind]
        old = things.get((namespace, name))
        if old == item:
            return
        if item is None:
            del things[namespace, name]
            self.wrong.pop(key, None)
        else:
            things[namespace, name] = item
        self._touch(key, old, item)

    def _touch(self, key: Key, old: Any, item: Any) -> None:
        kind, namespace, name = key
        if kind in (types.PodGroup, types.ElasticJob):
            self._touched_jobs.add((f"{namespace}/{name}", kind.__name__))
        elif kind is core.PodDisruptionBudget:
            self._touched_budgets.add(namespace)
        elif kind is core.PersistentVolumeClaim:
            self._touch_users({(namespace, name)})
        elif kind is core.PersistentVolume:
            claims = self._things[core.PersistentVolumeClaim]
            self._touch_users({at for at, claim in claims.items() if claim.spec.volume_name == name})
            self._volumes.pop(name, None)
            if item is not None:
                self._volumes[name] = item
        elif kind is core.Namespace:
            real = self.census.minding.keys() & self.census.pods.keys()
            self.census.touched.update(real)
            if len(real) < len(self.census.minding):
                self._touched_jobs.update(self._growing)
        elif kind is core.Node and old is not None and item is not None and same_resources(old, item):
            self._touched_nodes.add(name)
        else:
            self._is_stale = True

    def _touch_users(self, claims: set[tuple[str, str]]) -> None:
        """Pods that wait with one of these claims are to be looked at again; so are jobs that may grow."""
        if not claims:
            return
        for name, pod in self.census.pods.items():
            if pod.spec.volumes and not pod.spec.node_name and not claims.isdisjoint(_claims(pod)):
                self.census.touched.add(name)
        for key, growing in self._growing.items():
            if any(not claims.isdisjoint(_claims(replica)) for _, replica in growing):
                self._touched_jobs.add(key)

    # -- the snapshot

    def snapshot(self, now: float) -> Snapshot:
        self.update()
        if self._last is None or self._is_updated:
            self._last = self._assemble(now)
            self._is_updated = False
        return replace(self._last, now=now)

    def update(self) -> None:
        """Makes anew what follows from the objects that have changed."""
        if not self._has_touched:
            return
        self._is_updated = True
        if self._is_stale or not self._fits_frame():
            self._start_over()
        self._refresh_budgets()
        self._seat()
        self._seats.settle()
        self._make_jobs()

    def _fits_frame(self) -> bool:
        """Counts what has changed; False if the tables cannot hold it, or hold mostly what is dead."""
        assert self._frame is not None
        census, frame = self.census, self._frame
        elastic = self._things[types.ElasticJob]
        for gang in census.touched_gangs:
            if tuple(gang.split("/", 1)) in elastic:
                self._touched_jobs.add((gang, "ElasticJob"))
        census.touched_gangs.clear()
        self._declare(self._touched_jobs)
        for name in census.touched:
            census.number(name, census.pods.get(name))
        if census.has_new_requests:
            census.has_new_requests = False
            if self._fixed | census.resource_names() != set(frame.axis.names):
                return False
        if bool(census.minding) != frame.reader.anyone:
            return False
        requests, shapes = len(census.requests.requests), len(frame.shapes)
        if requests > _FEW + _MOSTLY * len(census.live) or shapes > _FEW + _MOSTLY * self._tallies.groups:
            return False
        self._read_peers()
        self._change_nodes()
        return True

    def _read_peers(self) -> None:
        assert self._frame is not None
        census, reader = self.census, self._frame.reader
        if not census.minding:
            return
        if reader.keys != census.keys.keys():
            census.touched |= census.labelled(reader.keys ^ census.keys.keys())
            self._seats.dirty_jobs.update(self._growing)
        self._frame.reader = self._reader()

    def _reader(self) -> PeerReader:
        census = self.census
        namespaces = {name: item.metadata.labels for (_, name), item in self._things[core.Namespace].items()}
        return PeerReader(namespaces, anyone=bool(census.minding), keys=frozenset(census.keys))

    def _change_nodes(self) -> None:
        assert self._frame is not None
        if not self._touched_nodes:
            return
        frame, before = self._frame, self._frame.nodes
        nodes = self._things[core.Node]
        changes = {before.index[name]: nodes["", name] for name in self._touched_nodes if name in before.index}
        frame.nodes = before.changed(changes)
        if any(before.labels(at) != node.metadata.labels for at, node in changes.items()):
            frame.domains = Domains(frame.topologies, frame.nodes)
        self._touched_nodes.clear()

    def _start_over(self) -> None:
        census, things = self.census, self._things
        self.wrong.clear()
        queues, wrong = sound_queues(_ordered(things[types.Queue]))
        for name, texts in wrong.items():
            self.wrong[types.Queue, "", name] = texts
        nodes = []
        for item in _ordered(things[core.Node]):
            problems = gpu_problems(item)
            if problems:
                self.wrong[key_of_object(item)] = problems
            else:
                nodes.append(item)
        rest: dict[str, Any] = {
            "queues": queues,
            "priority_classes": _ordered(things[core.PriorityClass]),
            "topologies": _ordered(things[types.Topology]),
            "claims": things[core.PersistentVolumeClaim],
            "volumes": self._volumes,
        }
        census.forget_numbers()
        # Whether a job is right does not depend on nodes or pods, but which resources there are depends on jobs.
        self._checker = JobMaker(Frame(self._ours, RequestTable(), nodes=[], **rest), self._note)
        self._declared.clear()
        self._loose.clear()
        self._sizes.clear()
        self._growing.clear()
        kinds = (types.PodGroup, types.ElasticJob)
        self._declare({(f"{ns}/{name}", kind.__name__) for kind in kinds for ns, name in things[kind]})
        for name, pod in census.pods.items():
            census.number(name, pod)
        census.has_new_requests = False
        self._fixed = {"cpu", "memory", "pods"} | fixed_names(nodes, queues)
        self._frame = Frame(self._ours, census.requests, nodes=nodes, **rest)
        self._frame.reader = self._reader()
        self._maker = JobMaker(self._frame, _silent)  # what is wrong has been noted before
        self._seats = Seats(self._frame)
        self._tallies = Tallies(self._frame)
        self._line, self._waiting = Line(), Line()
        census.touched.update(census.pods)
        census.touched_gangs.clear()
        self._touched_nodes.clear()
        self._touched_budgets = {namespace for namespace, _ in things[core.PodDisruptionBudget]}
        self._seats.dirty_jobs |= self._declared
        self._is_stale = False

    def _note(self, item: Object, text: str) -> None:
        self.wrong.setdefault(key_of_object(item), []).append(text)

    def _declare(self, keys: set[JobKey]) -> None:
        """Looks at jobs that somebody wrote, changed or took away, or whose number of pods may have changed."""
        for key in keys:
            name, kind = key[0], types.PodGroup if key[1] == "PodGroup" else types.ElasticJob
            namespace, own = name.split("/", 1)
            item = self._things[kind].get((namespace, own))
            self.wrong.pop((kind, namespace, own), None)
            if isinstance(item, types.PodGroup):
                self._checker.of_group(item)
            elif item is not None:
                self._checker.of_elastic(item, current_sizes(item, []))
            is_right = item is not None and (kind, namespace, own) not in self.wrong
            if kind is types.PodGroup:
                is_right = self._declare_loose(name, item if is_right else None)
            if is_right != (key in self._declared):
                self.census.touch_members(name)
                (self._declared.add if is_right else self._declared.discard)(key)
            if kind is types.ElasticJob:
                self._measure(key, item if is_right else None)
            if self._frame is not None:
                self._seats.dirty_jobs.add(key)
        self._touched_jobs.clear()

    def _declare_loose(self, name: str, group: types.PodGroup | None) -> bool:
        """Notes whether a group's pods are each on their own; whether it is a gang."""
        is_now = group is not None and is_loose(group)
        if is_now != (name in self._loose):
            self.census.touch_members(name)
            (self._loose.add if is_now else self._loose.discard)(name)
        return group is not None and not is_now

    def _measure(self, key: JobKey, job: types.ElasticJob | None) -> None:
        """How large an elastic job is, and what the next replica of each of its roles would be."""
        census = self.census
        for role, _ in self._growing.pop(key, ()):
            census.number(f"{key[0]} {role.name}", None)
        self._sizes.pop(key, None)
        if job is None:
            return
        own = job.metadata.name
        pods = [pod for pod in census.members(key[0]) if pod.metadata.labels.get(types.JOB_LABEL) == own]
        sizes = self._sizes[key] = current_sizes(job, pods)
        growing = self._growing[key] = next_replicas(job, sizes, self._ours.scheduler_name)
        for role, replica in growing:
            census.number(f"{key[0]} {role.name}", replica)

    def _refresh_budgets(self) -> None:
        assert self._frame is not None
        budgets = self._things[core.PodDisruptionBudget]
        is_counted = any(budget.status.disruptions_allowed is None for budget in budgets.values())
        if not self._touched_budgets and not (is_counted and self.census.touched):
            return
        before, after = self._frame.budgets, find_budgets(_ordered(budgets), self.census.pods.values())
        self._frame.budgets = after
        # Whose pods may be evicted is asked later; who is covered at all is part of the groups that wait.
        for namespace in self._touched_budgets:
            if _covers(before, namespace) != _covers(after, namespace):
                jobs = (job for job in self._waiting.jobs() if job.name.startswith(f"{namespace}/"))
                self._seats.dirty_jobs.update(job.key for job in jobs)
        self._touched_budgets = set()

    # -- pods and jobs

    def _seat(self) -> None:
        assert self._frame is not None
        census = self.census
        for name in census.touched:
            self._seats.leave(name)
            pod = census.pods.get(name)
            namespace, own = name.split("/", 1)
            self.wrong.pop((core.Pod, namespace, own), None)
            if pod is None:
                continue
            is_placed, is_over = bool(pod.spec.node_name), pod.status.phase in OVER
            if is_over and (pod.status.phase == "Failed" or not is_placed or not _names_a_gang(pod)):
                continue
            if not is_placed and not is_waiting(pod):
                continue
            job = key_of(pod, self._ours, self._declared, census.called, self._loose)
            if job is None and (is_over or not is_placed):
                continue
            if not is_over and self._frame.priorities.of_pod(pod) is None:
                unknown = self._frame.priorities.unknown(pod.spec.priority_class_name)
                self._note(pod, f"spec.priorityClassName: {unknown}")
                if not is_placed:
                    continue
            self._seats.take(name, pod, job, census.numbers[name])
        census.touched.clear()

    def _make_jobs(self) -> None:
        dirty = self._seats.dirty_jobs
        changes: dict[JobKey, Job | None] = {}
        for key in dirty:
            made = self._make(key)
            self._tallies.put(key, made[1] if made else None)
            changes[key] = made[0] if made else None
        dirty.clear()
        if changes:
            self._line.change(changes)
            waits = {
                key: job if job is not None and (job.groups or job.gated) else None for key, job in changes.items()
            }
            self._waiting.change(waits)

    def _make(self, key: JobKey) -> tuple[Job, Tally] | None:
        members = [seat for _, seat in sorted(self._seats.members.get(key, {}).items())]
        job = self._begin(key, members)
        if job is None:
            return None
        maker, tally = self._maker, Tally(job.queue)
        groups = Groups(maker)
        for seat in members:
            maker.note_age(job, seat.pod)
            if not seat.pod.spec.node_name:
                groups.wait(seat.pod, job)
        groups.finish()
        for role, replica in self._growing.get(key, ()):
            groups.may_grow(job, role, replica)
        for seat in members:
            if seat.pod.status.phase in OVER:
                count_succeeded(job, seat.pod)
            elif seat.pod.spec.node_name and not seat.is_leaving:
                self._place(seat, job, tally)
        maker.settle(job)
        for group in job.groups:
            shape = group.shape
            if job.exists and not job.is_suspended:
                tally.pending.append((shape.request, len(group.pods)))
            if shape.gpus:
                tally.gpus.append(((shape.request, shape.constraint.gpu_models), len(group.pods)))
        tally.owners += groups.owners
        tally.groups = len(job.groups)
        return job, tally

    def _begin(self, key: JobKey, members: list[Seat]) -> Job | None:
        """The job without its pods; None if it is not there any more."""
        name, kind = key
        namespace, own = name.split("/", 1)
        if key not in self._declared:
            if not members:
                return None
            return self._maker.of_pod(members[0].pod) if kind == "Pod" else self._maker.unwritten(key)
        if kind == "PodGroup":
            return self._maker.of_group(self._things[types.PodGroup][namespace, own])
        return self._maker.of_elastic(self._things[types.ElasticJob][namespace, own], self._sizes[key])

    def _place(self, seat: Seat, job: Job, tally: Tally) -> None:
        assert self._frame is not None
        vector = self._frame.shapes.vector(seat.held)
        placed = placed_pod(self._maker, seat.pod, job, seat.node, vector, seat.peers)
        if seat.hand is not None:
            placed.gpus = seat.hand.gpus
            placed.gpu_models = self._maker.models_of(seat.pod, job)
            tally.gpus.append(((seat.request, placed.gpu_models), 1))
        join(job, placed)
        tally.allocated.append(seat.held)

    def _assemble(self, now: float) -> Snapshot:
        assert self._frame is not None
        frame, seats, tallies = self._frame, self._seats, self._tallies
        queue_allocated, queue_pending = tallies.sums(seats.vectors())
        return Snapshot(
            now=now,
            axis=frame.axis,
            nodes=frame.nodes,
            free=frame.nodes.allocatable - seats.used,
            releasing=seats.releasing.copy(),
            total=frame.total(seats.used, seats.foreign),
            queues=frame.queues,
            queue_allocated=queue_allocated,
            queue_pending=queue_pending,
            jobs=self._line.jobs(),
            waiting=self._waiting.jobs(),
            gpus=frame.gpus,
            gpus_free={row: free.copy() for row, free in seats.gpus_free.items()},
            gpus_releasing={row: releasing.copy() for row, releasing in seats.gpus_releasing.items()},
            domains=frame.domains,
            gpu_pods=tallies.gpu_pods(),
            peers=dict(seats.peers),
            exclusives=dict(seats.exclusives),
            owners={owner: dict(seats.owners.get(owner, {})) for owner in tallies.owners},
            budgets=frame.budgets,
        )

    def job(self, pod: str) -> Job | None:
        """The job of a pod, as of the last update."""
        held = self.census.pods.get(pod)
        key = None if held is None else key_of(held, self._ours, self._declared, self.census.called, self._loose)
        return None if key is None or self._frame is None else self._line.get(key)


def _silent(_item: Object, _text: str) -> None:
    pass


def _ordered(things: Mapping[tuple[str, str], Any]) -> list[Any]:
    return [things[key] for key in sorted(things)]


def _claims(pod: core.Pod) -> set[tuple[str, str]]:
    claims = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return {(pod.metadata.namespace, claim.claim_name) for claim in claims if claim}


def _names_a_gang(pod: core.Pod) -> bool:
    return bool(group_name(pod)) or types.JOB_LABEL in pod.metadata.labels


def _covers(budgets: Sequence[Budget], namespace: str) -> list[LabelSelector | None]:
    return [budget.selector for budget in budgets if budget.namespace == namespace]
