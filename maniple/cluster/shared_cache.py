"""The Cache, shared with the thread that takes a snapshot: changes wait until the snapshot is done.

The first snapshot of a large cluster takes seconds, in which watches must be read and the lease renewed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from maniple.api.decode.decode import Object
from maniple.api.keys import ObjectKey
from maniple.cluster.cache import Cache
from maniple.model.building.input_objects import Objects
from maniple.model.job import Job
from maniple.model.plugin_reads import Reads
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.plan import Bind

T = TypeVar("T")


class SharedCache:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._is_busy = False
        self._later: list[Callable[[], object]] = []
        self.problems: Mapping[ObjectKey, list[str]] = {}  # as of the last snapshot

    @property
    def reads(self) -> Reads:
        return self._cache.reads

    async def snapshot(self, now: float) -> Snapshot:
        snapshot, _ = await self.decide(now, lambda _: None)
        return snapshot

    async def decide(self, now: float, decide: Callable[[Snapshot], T]) -> tuple[Snapshot, T]:
        """The snapshot, and what is decided on it in the same thread. Changes wait for the snapshot only."""
        loop = asyncio.get_running_loop()
        self._is_busy = True

        def work() -> tuple[Snapshot, T]:
            problems = self.problems
            try:
                snapshot = self._cache.snapshot(now)
                problems = self._cache.problems()
            finally:
                loop.call_soon_threadsafe(self._release, problems)
            return snapshot, decide(snapshot)

        return await asyncio.to_thread(work)

    def _release(self, problems: Mapping[ObjectKey, list[str]]) -> None:
        self.problems = problems
        self._is_busy = False
        later, self._later = self._later, []
        for call in later:
            call()

    def _call(self, method: Callable[..., object], *given: Any) -> None:
        if self._is_busy:
            self._later.append(lambda: method(*given))
        else:
            method(*given)

    @property
    def is_changed(self) -> bool:
        return bool(self._later) if self._is_busy else self._cache.changed()

    async def drift(self, fresh: Callable[[], Objects]) -> list[str]:
        """`fresh` is called when the Cache is free: changes until then must not be undone."""
        while self._is_busy:
            await asyncio.sleep(0.05)
        return self._cache.drift(fresh())

    def put(self, item: Object) -> None:
        self._call(self._cache.put, item)

    def remove(self, kind: type, namespace: str, name: str) -> None:
        self._call(self._cache.remove, kind, namespace, name)

    def assume_bind(self, pod: str, bind: Bind) -> None:
        self._call(self._cache.assume_bind, pod, bind)

    def job_of(self, pod: str) -> Job | None:
        """The gang of a pod, as of the last snapshot."""
        return self._cache.job_of(pod)

    def is_assumed_bound(self, pod: str) -> bool:
        return self._cache.is_assumed_bound(pod)

    def assume_eviction(self, pod: str, gang: str) -> None:
        self._call(self._cache.assume_eviction, pod, gang)

    def forget(self, pod: str) -> None:
        self._call(self._cache.forget, pod)

    def assume_size(self, job: str, sizes: Mapping[str, int], now: float) -> None:
        self._call(self._cache.assume_size, job, sizes, now)

    def forget_size(self, job: str) -> None:
        self._call(self._cache.forget_size, job)

    def assume_move(self, kind: type, gang: str, annotation: str) -> None:
        self._call(self._cache.assume_move, kind, gang, annotation)

    def forget_move(self, kind: type, gang: str) -> None:
        self._call(self._cache.forget_move, kind, gang)

    def mark_reserved(self, holders: Iterable[str] | None) -> None:
        self._call(self._cache.mark_reserved, holders)

    def promise(self, nominations: Mapping[str, str] | None, claimants: Iterable[str] = ()) -> None:
        self._call(self._cache.promise, nominations, claimants)
