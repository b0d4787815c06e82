"""Gives the claims of pods their volumes before the pods are bound, as kube-scheduler does.

A claim of a class with `WaitForFirstConsumer` waits for a node. A free volume that suits is reserved for it
(`claimRef`); otherwise an annotation on the claim tells its provisioner the node. The controllers of Kubernetes and of
the driver do the rest. All claims of a gang are bound before the first of its pods, so a gang whose volumes cannot be
made never starts in part.
"""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass

from maniple.api import kubernetes
from maniple.api.keys import Key, join_key, key_of, split_name
from maniple.kube.serve.object_patches import Patches
from maniple.kube.transport.client import NotLeadingError
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import CLAIMS, PODS, VOLUMES, Resource
from maniple.model.late_claims import FreeVolume, pick
from maniple.model.nodes import NodeTable
from maniple.model.resources import Axis
from maniple.model.volume_claims import SELECTED_NODE, STORAGE_KINDS, Storage, is_bound
from maniple.scheduler.framework.plan import Bind

log = logging.getLogger("maniple.volumes")

_TIMEOUT_S = 600.0  # as in kube-scheduler
_BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"  # the binding may be undone with the claim


@dataclass(frozen=True)
class _Choice:
    """The volume of a claim: an existing one, or a new one that is made for a node."""

    claim: kubernetes.PersistentVolumeClaim
    node: str
    volume: str  # empty: a new one

    @property
    def key(self) -> Key:
        return key_of(self.claim.metadata)

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {join_key(self.key)}"


class VolumeBinder:
    def __init__(self, patches: Patches, mirror: Mirror) -> None:
        self._patches = patches
        self._mirror = mirror
        self.timeout_s = _TIMEOUT_S  # how long the claims of a gang may take
        self._storage = Storage()
        self._taken: Counter[str] = Counter()  # volumes that are chosen, and may not be reported as reserved yet
        self._waiting: dict[Key, set[asyncio.Event]] = {}  # claim or pod -> who waits for a change of it
        self._term = 0  # counts how often we have given up
        mirror.listen(self._hear)

    def _hear(self, resource: Resource, key: Key, _: Seen | None, seen: Seen | None) -> None:
        if resource.struct in STORAGE_KINDS:
            self._storage.put(resource.struct, key, None if seen is None else seen.item)
        if resource in (CLAIMS, PODS):
            for event in self._waiting.get(key, ()):
                event.set()

    def give_up(self) -> None:
        """Stops waiting: another replica may lead now. What is under way goes on, and the next leader sees it."""
        self._term += 1
        for events in self._waiting.values():
            for event in events:
                event.set()

    def are_needed(self, binds: list[Bind]) -> bool:
        """Whether any of the pods has a claim that is not bound yet."""
        pods = (self._pod(bind.pod) for bind in binds)
        return any(pod is not None and pod.spec.volumes and self._storage.late_claims(pod) for pod in pods)

    async def bind(self, binds: list[Bind]) -> list[str]:
        """Binds the claims of all these pods. Returns what failed; then none of the pods may be bound.

        Raises NotLeadingError if another replica leads by now.
        """
        choices: dict[Key, _Choice] = {}
        for bind in binds:
            error = self._choose(bind, choices)
            if error:
                return [error]
        if not choices:
            return []
        taken = Counter(choice.volume for choice in choices.values() if choice.volume)
        self._taken.update(taken)
        try:
            written = await asyncio.gather(*(self._write(choice) for choice in choices.values()))
            refused = [choice for choice, is_done in zip(choices.values(), written, strict=True) if not is_done]
            if refused:
                return [f"{choice} or its volume could not be changed" for choice in refused]
            return await self._settle(binds, list(choices.values()))
        finally:
            self._taken -= taken

    # -- choosing

    def _choose(self, bind: Bind, choices: dict[Key, _Choice]) -> str:
        """Adds the volumes of the pod's unbound claims. A claim that several pods share gets one for the first of them.

        Returns why it cannot; empty: it can.
        """
        pod, nodes = self._pod(bind.pod), self._node(bind.node)
        if pod is None or nodes is None or not pod.spec.volumes:
            return ""  # the binding says that it is gone
        late = [(claim, accepts) for claim, accepts in self._storage.late_claims(pod) if _key(claim) not in choices]
        taken = {*self._taken, *(choice.volume for choice in choices.values())}
        picked = pick([accepts for _, accepts in late], lambda volume: _reaches(nodes, volume), taken)
        if picked is None:
            return f"{bind.pod}: no free PersistentVolume is left for its claims on node {bind.node}"
        for (claim, _), volume in zip(late, picked, strict=True):
            choices[_key(claim)] = _Choice(claim, bind.node, "" if volume is None else volume.name)
        return ""

    def _pod(self, name: str) -> kubernetes.Pod | None:
        seen = self._mirror.find(kubernetes.Pod, split_name(name))
        return seen.item if seen is not None and isinstance(seen.item, kubernetes.Pod) else None

    def _node(self, name: str) -> NodeTable | None:
        seen = self._mirror.find(kubernetes.Node, ("", name))
        return NodeTable([seen.item], Axis(())) if seen and isinstance(seen.item, kubernetes.Node) else None

    # -- writing

    async def _write(self, choice: _Choice) -> bool:
        meta = choice.claim.metadata
        if not choice.volume:
            log.info("claim gets a new volume", extra={"claim": join_key(choice.key), "node": choice.node})
            body = {"metadata": {"uid": meta.uid, "annotations": {SELECTED_NODE: choice.node}}}
            return await self._patches.write(CLAIMS, choice.key, body)
        seen = self._mirror.seen(VOLUMES).get(("", choice.volume))
        if seen is None or not isinstance(seen.item, kubernetes.PersistentVolume):
            return False
        reference = seen.item.spec.claim_ref
        if reference is not None and reference.uid == meta.uid:
            return True
        log.info("claim gets a free volume", extra={"claim": join_key(choice.key), "volume": choice.volume})
        named = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name}
        annotations = {_BOUND_BY_US: "yes"} if reference is None else {}
        body = {
            "metadata": {"resourceVersion": str(seen.version), "annotations": annotations},  # nobody else has taken it
            "spec": {"claimRef": {**named, "uid": meta.uid}},
        }
        return await self._patches.write(VOLUMES, ("", choice.volume), body)

    # -- waiting

    async def _settle(self, binds: list[Bind], choices: list[_Choice]) -> list[str]:
        """Waits until all claims are bound to volumes that the pods can reach. Returns what failed."""
        changed, term = asyncio.Event(), self._term
        keys = {*(choice.key for choice in choices), *(split_name(bind.pod) for bind in binds)}
        for key in keys:
            self._waiting.setdefault(key, set()).add(changed)
        until = time.monotonic() + self.timeout_s
        try:
            while True:
                changed.clear()
                there = [bind for bind in binds if self._pod(bind.pod) is not None]
                failed = [why for choice in choices if (why := self._failure(choice))]
                unbound = [choice for choice in choices if not self._is_bound(choice.key)]
                if not there:
                    return []
                if failed:
                    return failed
                if not unbound:
                    return [why for bind in there if (why := self._unreachable(bind))]
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return [f"{choice} was not bound within {self.timeout_s:g} s" for choice in unbound]
                try:
                    async with asyncio.timeout(left_s):
                        await changed.wait()
                except TimeoutError:
                    continue
                if self._term != term:
                    raise NotLeadingError("volumes")
        finally:
            for key in keys:
                self._waiting[key].discard(changed)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _claim(self, key: Key) -> kubernetes.PersistentVolumeClaim | None:
        return self._storage.claims.get(key)

    def _is_bound(self, key: Key) -> bool:
        claim = self._claim(key)
        return claim is not None and is_bound(claim)

    def _failure(self, choice: _Choice) -> str:
        """Why the claim will not get what was chosen for it; empty: it may."""
        claim = self._claim(choice.key)
        if claim is None or claim.metadata.uid != choice.claim.metadata.uid:
            return f"{choice} is gone"
        if is_bound(claim):
            return ""
        if not choice.volume:
            # A provisioner that cannot make the volume there takes the annotation away.
            node = claim.metadata.annotations.get(SELECTED_NODE)
            return "" if node == choice.node else f"{choice}: no volume could be made for node {choice.node}"
        volume = self._storage.volumes.get(choice.volume)
        reference = None if volume is None else volume.spec.claim_ref
        is_reserved = reference is not None and reference.uid == claim.metadata.uid
        return "" if is_reserved else f"{choice}: PersistentVolume {choice.volume} is not reserved for it any more"

    def _unreachable(self, bind: Bind) -> str:
        pod, nodes = self._pod(bind.pod), self._node(bind.node)
        needs = None if pod is None else self._storage.needs(pod)
        if needs is None or nodes is None:
            return ""
        if needs.obstacles:
            return f"{bind.pod}: {needs.obstacles[0]}"
        is_reached = all(bool(nodes.selected(terms)[0]) for terms in needs.terms)
        return "" if is_reached else f"{bind.pod}: its volumes cannot be reached from node {bind.node}"


def _key(claim: kubernetes.PersistentVolumeClaim) -> Key:
    return key_of(claim.metadata)


def _reaches(nodes: NodeTable, volume: FreeVolume) -> bool:
    return volume.terms is None or bool(nodes.selected(volume.terms)[0])
