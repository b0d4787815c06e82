"""Writes why pods wait: the condition PodScheduled of each, and an event where no gang has it.

The number of pods written in a cycle is limited. What changes only in its wording is written seldom.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from maniple.api import kubernetes
from maniple.api.keys import Key, split_name
from maniple.kube.serve.background_writes import Background
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.gang_status import BACKING_OFF, Why
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.serve.object_patches import Patches
from maniple.kube.serve.skip_repeated_writes import Throttle
from maniple.kube.transport.client import STRATEGIC_PATCH
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS, ObjectRef
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.plan import Glance

_MOST_PODS = 100  # whose condition is written in one cycle
_REWORD_S = 30.0  # the same reason in other words, at most this often
_REPEAT_EVENT_S = 300.0  # an event with the same reason
_REMEMBERED = 1000

WhyOf = Callable[[Key], Why | None]  # why the gang of a name waits


class PodConditions:
    def __init__(self, patches: Patches, mirror: Mirror, gangs: Gangs, events: Events, writes: Background) -> None:
        self._patches = patches
        self._mirror = mirror
        self._gangs = gangs
        self._events = events
        self._writes = writes
        self._written: Throttle[str] = Throttle()  # uid of a pod -> the condition that it has
        self._told: Throttle[str] = Throttle()  # uid of a pod -> the reason that its last event gave
        self._open: dict[JobKey, None] = {}  # gangs of which not every pod has it, as far as is known

    def write(self, fresh: Iterable[JobKey], gangs: Mapping[JobKey, Glance], why_of: WhyOf) -> None:
        """`fresh`: gangs with new pods, or with a new reason; `gangs`: all that wait."""
        left = _MOST_PODS - self._writes.count_busy(PODS)
        self._open.update(dict.fromkeys(fresh))
        for gang in list(self._open):
            if left <= 0:
                break
            glance, key = gangs.get(gang), split_name(gang[0])
            why = why_of(key)
            if glance is None or glance.job is None or why is None:
                del self._open[gang]
                continue
            is_complete = True
            must_tell = why.reason != BACKING_OFF and self._gangs.find(key) is None
            for pod in (pod for group in glance.job.groups for pod in group.pods):
                if left <= 0:
                    is_complete = False
                    break
                is_written = self.write_pod(split_name(pod), why, gang, must_tell=must_tell)
                left -= is_written
                is_complete &= not is_written and self._has_condition(split_name(pod), why)
            if is_complete:
                del self._open[gang]
        if len(self._written) > _REMEMBERED:
            # Most are of pods that are gone; writing the rest again changes nothing on the server.
            waiting_pods = sum(glance.job.waiting_pods for glance in gangs.values() if glance.job is not None)
            if len(self._written) > 2 * waiting_pods + _REMEMBERED:
                self._written.clear()
                self._open.update(dict.fromkeys(gangs))
                self._told.keep(lambda uid: self._told.is_recent(uid, _REPEAT_EVENT_S))

    def _has_condition(self, key: Key, why: Why) -> bool:
        pod = self._mirror.find(kubernetes.Pod, key)
        return pod is None or self._written.is_same(pod.uid, why.reason, why.message)

    def write_pod(self, key: Key, why: Why, gang: JobKey | None = None, *, must_tell: bool = False) -> bool:
        """Whether there was something to write. `must_tell`: with an event, which `kubectl describe` shows."""
        pod = self._mirror.find(kubernetes.Pod, key)
        if pod is None or not isinstance(pod.item, kubernetes.Pod) or pod.item.spec.node_name:
            return False
        uid, ref = pod.uid, pod.ref
        if self._writes.is_busy(ref) or not self._written.admit(uid, why.reason, why.message, reword_s=_REWORD_S):
            return False
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",  # the word that cluster autoscalers look for; ours begins the message
            "message": f"{why.reason}: {why.message}",
            "lastTransitionTime": pod.item.metadata.creation_timestamp,  # it has never been scheduled
        }
        self._writes.begin(self._write_condition(ref, uid, gang, condition), ref)
        if must_tell and self._told.admit(uid, why.reason, repeat_s=_REPEAT_EVENT_S):
            self._events.add(Regarding.of(*ref, uid), why.reason, why.message, "Schedule", "Warning")
        return True

    async def _write_condition(self, ref: ObjectRef, uid: str, gang: JobKey | None, condition: dict[str, Any]) -> None:
        body = {"status": {"conditions": [condition]}}
        if not await self._patches.write(*ref, body, "status", STRATEGIC_PATCH):
            self._written.forget(uid)
            if gang is not None:
                self._open[gang] = None
