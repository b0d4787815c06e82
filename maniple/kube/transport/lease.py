"""Leader election by a Lease, as Kubernetes' own components do it.

Only the holder writes. If it cannot renew the lease it stops writing well before the lease runs out, so that there are
never two writers. Other replicas watch the lease and take over when it has not been renewed for its duration. Clocks of
different machines are never compared: what counts is how long we have seen the lease unchanged.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

import msgspec

from maniple.api.timestamps import format_micro_time
from maniple.kube.transport.client import ApiError, Client, UnansweredError

log = logging.getLogger("maniple.lease")

DURATION_S = 11
WRITE_S = 8.5  # for so long after asking for a renewal the holder may write; the rest is for writes on their way
RENEW_S = 1.5
_ANSWER_S = 3.0
_QUICK_ANSWER_S = 1.0
_AGAIN_S = (0.1, 0.5)  # the first and the longest pause after a turn that failed
_WARN_S = 60.0  # between warnings while turns go on failing


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Meta
    spec: _Spec
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Lease:
    def __init__(
        self, client: Client, namespace: str, name: str, identity: str, report: Callable[[bool], None]
    ) -> None:
        self.identity = identity
        self.term = 0  # how many times we have become the leader
        self.since = 0.0  # when another may have written last, on the monotonic clock
        self._client = client
        self._namespace, self._name = namespace, name
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._report = report  # takes whether we lead, at every change
        self._known: _Lease | None = None
        self._changed_at = 0.0  # when the lease last changed, as far as we have seen
        self._write_until = 0.0
        self._is_leader = False
        self._turned = asyncio.Condition()
        self._backoff = client.backoff(*_AGAIN_S)
        self._error: Exception | None = None  # of the last turn
        self._failures = 0  # in a row
        self._failing_since = self._warned_at = 0.0
        self._tenure: tuple[str | None, int] | None = None  # when we took the lease, and its how many-th holder we are

    def seconds_left(self) -> float:
        """For how long we may write; nothing if we do not lead."""
        return self._write_until - time.monotonic() if self._is_leader else 0.0

    @property
    def is_leading(self) -> bool:
        return self.seconds_left() > 0

    async def led(self) -> None:
        """Returns when we lead."""
        async with self._turned:
            await self._turned.wait_for(lambda: self.is_leading)

    async def run(self) -> None:
        while True:
            await self.turn()
            if self._error is None:
                await asyncio.sleep(self._pause_s())
            else:
                await self._backoff.wait(self._error)

    async def turn(self, *, is_patient: bool = True) -> None:
        """Renews the lease, takes it if it is free, or reads who holds it.

        If the server does not answer, the next turn tries again; without patience the error is raised.
        """
        asked_at = time.monotonic()
        tenure = self._tenure
        try:
            is_ours = await self._renew_or_take()
        except (ApiError, UnansweredError) as error:
            if not is_patient:
                raise
            self._note_failure(error)
            is_ours = self._is_leader and self._write_until > time.monotonic()
        else:
            self._note_success()
            if is_ours:
                self._write_until = asked_at + WRITE_S
        if is_ours != self._is_leader:
            self._is_leader = is_ours
            self.term += is_ours
            if is_ours and tenure != self._tenure:  # otherwise nobody else has led meanwhile: all writes were ours
                self.since = time.monotonic()
            self._report(is_ours)
            log.info("leading" if is_ours else "no longer leading", extra={"identity": self.identity})
        async with self._turned:
            self._turned.notify_all()

    async def release(self) -> None:
        """Gives the lease back, so that another replica need not wait. No write may be on its way."""
        was_leader, self._is_leader, self._write_until = self._is_leader, False, 0.0
        self._report(False)
        if was_leader and self._known is not None:
            spec = msgspec.structs.replace(self._known.spec, holder_identity="", lease_duration_seconds=1)
            try:
                await self._put(msgspec.structs.replace(self._known, spec=spec))
                log.info("lease released", extra={"identity": self.identity})
            except (ApiError, UnansweredError) as error:
                log.warning("lease not released", extra={"error": str(error)})

    def _note_failure(self, error: Exception) -> None:
        """One warning when it begins to fail, and one a minute while it goes on."""
        now = time.monotonic()
        if self._error is None:
            self._failing_since, self._warned_at, self._failures = now, -math.inf, 0
        self._error = error
        self._failures += 1
        is_due = now - self._warned_at >= _WARN_S
        if is_due:
            self._warned_at = now
        extra = {"error": str(error), "leading": self.is_leading, "seconds": round(now - self._failing_since, 1)}
        log.log(logging.WARNING if is_due else logging.DEBUG, "lease not renewed", extra=extra)

    def _note_success(self) -> None:
        if self._error is not None:
            lasted_s = round(time.monotonic() - self._failing_since, 1)
            log.info("lease answered again", extra={"seconds": lasted_s, "failures": self._failures})
        self._error = None
        self._backoff.reset()

    def _pause_s(self) -> float:
        pause = RENEW_S * random.uniform(0.9, 1.1)
        if self._is_leader or self._known is None:
            return pause
        return max(0.05, min(pause, self._free_at(self._known) - time.monotonic()))

    def _free_at(self, lease: _Lease) -> float:
        return self._changed_at + (lease.spec.lease_duration_seconds or DURATION_S)

    async def _renew_or_take(self) -> bool:
        if self._is_leader and self._known is not None:
            try:
                return await self._put(self._mine(self._known.spec, self._known.metadata.resource_version))
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        try:
            answer = await self._client.get_urgently(f"{self._folder}/{self._name}", self._read_s())
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._write("POST", self._folder, self._mine(_Spec(), ""))
        lease = msgspec.json.decode(answer, type=_Lease)
        self._note(lease)
        holder = lease.spec.holder_identity
        if holder not in ("", self.identity) and time.monotonic() < self._free_at(lease):
            return False
        try:
            return await self._put(self._mine(lease.spec, lease.metadata.resource_version))
        except ApiError as error:
            if error.status == 409:  # another replica was faster
                return False
            raise

    def _read_s(self) -> float:
        """How long a read may take. While the server is away most are short: one that is stuck stays so for a while."""
        return _ANSWER_S if self._error is None or self._failures % 3 == 0 else _QUICK_ANSWER_S

    def _note(self, lease: _Lease) -> None:
        known = self._known
        if known is None or known.metadata.resource_version != lease.metadata.resource_version:
            self._known, self._changed_at = lease, time.monotonic()

    def _mine(self, before: _Spec, version: str) -> _Lease:
        now = format_micro_time(time.time())
        changes = before.holder_identity != self.identity
        spec = _Spec(
            holder_identity=self.identity,
            lease_duration_seconds=DURATION_S,
            acquire_time=now if changes else before.acquire_time,
            renew_time=now,
            lease_transitions=before.lease_transitions + changes,
        )
        return _Lease(_Meta(self._name, self._namespace, version), spec)

    async def _put(self, lease: _Lease) -> bool:
        return await self._write("PUT", f"{self._folder}/{self._name}", lease)

    async def _write(self, method: str, path: str, lease: _Lease) -> bool:
        body = msgspec.json.encode(lease)
        written = msgspec.json.decode(await self._client.contend(method, path, body, _ANSWER_S), type=_Lease)
        self._note(written)
        self._tenure = (written.spec.acquire_time, written.spec.lease_transitions)
        return True
