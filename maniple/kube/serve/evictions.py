"""Evictions through the Eviction API: PodDisruptionBudgets hold, pods have their grace, DisruptionTarget is set.

If a budget refuses (429), the eviction is tried again later, with longer pauses. Meanwhile every cycle plans anew, and
may find another victim.
"""

import logging
import time
from collections.abc import Iterable

import msgspec

from maniple.api import kubernetes
from maniple.api.keys import Key, split_name
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.scheduler.framework.plan import MOVED, STALE, Eviction

log = logging.getLogger("maniple.evictions")

GANG_TIMEOUT = "GangTimeout"  # the reason of evictions for the pod's own gang, which starts over
_FIRST_S, _LONGEST_S = 5.0, 60.0
_TRIES = 5


class Evictor:
    def __init__(self, client: Client, mirror: Mirror, metrics: Metrics, events: Events) -> None:
        self._client = client
        self._mirror = mirror
        self._metrics = metrics
        self._events = events
        self._refused: dict[str, tuple[float, float]] = {}  # uid -> when to try again, and the pause before that

    def assume(self, evictions: Iterable[Eviction]) -> list[Eviction]:
        """The evictions that can be tried now. Their pods count as leaving from now on."""
        now = time.monotonic()
        self._refused = {uid: (again, pause) for uid, (again, pause) in self._refused.items() if again + pause > now}
        chosen = [eviction for eviction in evictions if self.may_try(eviction)]
        for eviction in chosen:
            self._mirror.cache.assume_eviction(eviction.pod, eviction.beneficiary)
        return chosen

    def may_try(self, eviction: Eviction) -> bool:
        """Whether the pod is there, and its eviction was not refused a moment ago."""
        pod = self._mirror.find(kubernetes.Pod, split_name(eviction.pod))
        return pod is not None and self._refused.get(pod.uid, (0.0, 0.0))[0] <= time.monotonic()

    def forget(self, evictions: Iterable[Eviction]) -> None:
        """The pods are not to be evicted after all."""
        for eviction in evictions:
            self._mirror.cache.forget(eviction.pod)

    async def would_evict(self, eviction: Eviction) -> bool:
        """Asks the server whether it would evict the pod. It checks everything and changes nothing."""
        key = split_name(eviction.pod)
        pod = self._mirror.find(kubernetes.Pod, key)
        if pod is None:
            return False
        try:
            await self._post(key, pod.uid, "?dryRun=All")
        except ApiError as error:
            if error.status not in (404, 409):
                self._refuse(pod.uid)
                self._note_refusal(key, pod.uid, error)
            return False
        except (UnansweredError, NotLeadingError):
            return False
        return True

    async def evict(self, eviction: Eviction) -> None:
        try:
            outcome = await self._outcome(eviction)
        except NotLeadingError:
            outcome = "not leading"
        except Exception:
            log.exception("eviction", extra={"pod": eviction.pod})
            outcome = "failed"
        self._metrics.evictions.labels(eviction.reason, outcome).inc()
        if outcome != "evicted":
            self._mirror.cache.forget(eviction.pod)

    async def _outcome(self, eviction: Eviction) -> str:
        key = split_name(eviction.pod)
        pod = self._mirror.find(kubernetes.Pod, key)
        if pod is None:
            return "gone"
        uid = pod.uid
        backoff = self._client.backoff()
        for _ in range(_TRIES):
            try:
                await self._post(key, uid)
            except ApiError as error:
                if error.status in (404, 409):
                    return "gone"
                if error.status == 429:
                    self._refuse(uid)
                    self._note_refusal(key, uid, error)
                    return "refused by a budget"
                log.warning("eviction failed", extra={"pod": eviction.pod, "error": str(error)})
                if not self._client.may_pass(error):
                    self._refuse(uid)
                    return "failed"
                await backoff.wait(error)
            except UnansweredError as error:
                await backoff.wait(error)  # repeating the request is harmless
            else:
                purpose = f"makes room for {eviction.beneficiary}"
                if eviction.reason == GANG_TIMEOUT:
                    purpose = f"not all pods of its gang {eviction.beneficiary} could be bound; the gang starts over"
                elif eviction.reason == MOVED:
                    purpose = f"a place elsewhere is kept for it, for {eviction.beneficiary}"
                elif eviction.reason == STALE:
                    purpose = f"its gang {eviction.beneficiary} stays below its minimum, and gives back what it holds"
                self._events.add(Regarding.of(PODS, key, uid), "Evicted", f"{eviction.reason}: {purpose}", "Evict")
                log.info("evicted", extra={"pod": eviction.pod, "why": eviction.reason, "for": eviction.beneficiary})
                return "evicted"
        return "failed"

    async def _post(self, key: Key, uid: str, query: str = "") -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key[1], "namespace": key[0]},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = PODS.path(*key, "eviction") + query
        await self._client.write(self._client.evictions, "POST", path, msgspec.json.encode(body))

    def _note_refusal(self, key: Key, uid: str, error: ApiError) -> None:
        self._events.add(Regarding.of(PODS, key, uid), "EvictionRefused", error.message, "Evict", "Warning")

    def _refuse(self, uid: str) -> None:
        pause = min(_LONGEST_S, 2 * self._refused[uid][1]) if uid in self._refused else _FIRST_S
        self._refused[uid] = (time.monotonic() + pause, pause)
