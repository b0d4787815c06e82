"""An event on every pod that is stuck on its node: once, as long as it is. Nothing is done to the pod."""

import logging

from maniple.api import kubernetes
from maniple.api.keys import split_name
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.model.snapshot import Snapshot

log = logging.getLogger("maniple.stuck")

STUCK = "Stuck"


class StuckPodEvents:
    def __init__(self, mirror: Mirror, events: Events) -> None:
        self._mirror = mirror
        self._events = events
        self._told: set[str] = set()  # uids

    def write(self, snapshot: Snapshot) -> None:
        stuck: set[str] = set()
        for node, pods in snapshot.stuck.items():
            for pod in pods:
                key = split_name(pod.pod)
                seen = self._mirror.find(kubernetes.Pod, key)
                if seen is None:
                    continue
                stuck.add(seen.uid)
                if seen.uid not in self._told:
                    name = snapshot.nodes.names[node]
                    log.warning("stuck", extra={"pod": pod.pod, "node": name})
                    note = f"{pod.on(name)}: its room is promised to nobody until it is gone"
                    self._events.add(Regarding.of(PODS, key, seen.uid), STUCK, note, "Schedule", "Warning")
        self._told = stuck
