"""Evictions through the Eviction API: PodDisruptionBudgets hold, pods have their grace, DisruptionTarget is set.

If a budget refuses (429), the eviction is tried again later, with longer pauses. Meanwhile every cycle plans anew, and
may find another victim.
"""

import logging
import time

import msgspec

from maniple.api import kubernetes
from maniple.api.keys import split_name
from maniple.kube.serve.kube_events import Events, Regarding
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.scheduler.framework.plan import STALE, Eviction

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

    def assume(self, evictions: list[Eviction]) -> list[Eviction]:
        """The evictions that can be tried now. Their pods count as leaving from now on."""
        now = time.monotonic()
        self._refused = {uid: (again, pause) for uid, (again, pause) in self._refused.items() if again + pause > now}
        chosen = []
        for eviction in evictions:
            pod = self._mirror.find(kubernetes.Pod, split_name(eviction.pod))
            if pod is None or self._refused.get(pod.uid, (0.0, 0.0))[0] > now:
                continue
            self._mirror.cache.assume_eviction(eviction.pod, eviction.beneficiary)
            chosen.append(eviction)
        return chosen

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
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key[1], "namespace": key[0]},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        regarding = Regarding.of(PODS, key, uid)
        backoff = self._client.backoff()
        for _ in range(_TRIES):
            try:
                await self._client.write(
                    self._client.evictions, "POST", PODS.path(*key, "eviction"), msgspec.json.encode(body)
                )
            except ApiError as error:
                if error.status in (404, 409):
                    return "gone"
                if error.status == 429:
                    self._refuse(uid)
                    self._events.add(regarding, "EvictionRefused", error.message, "Evict", "Warning")
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
                elif eviction.reason == STALE:
                    purpose = f"its gang {eviction.beneficiary} stays below its minimum, and gives back what it holds"
                self._events.add(regarding, "Evicted", f"{eviction.reason}: {purpose}", "Evict")
                log.info("evicted", extra={"pod": eviction.pod, "why": eviction.reason, "for": eviction.beneficiary})
                return "evicted"
        return "failed"

    def _refuse(self, uid: str) -> None:
        pause = min(_LONGEST_S, 2 * self._refused[uid][1]) if uid in self._refused else _FIRST_S
        self._refused[uid] = (time.monotonic() + pause, pause)
