"""Writes that are on their way to the API server, at most one at a time for each object."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from maniple.kube.transport.resource_kinds import ObjectRef, Resource


class Background:
    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._busy: set[ObjectRef] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def is_busy(self, ref: ObjectRef) -> bool:
        return ref in self._busy

    def count_busy(self, resource: Resource) -> int:
        return sum(1 for busy, _ in self._busy if busy is resource)

    def begin(self, work: Coroutine[Any, Any, object], ref: ObjectRef | None = None) -> None:
        """Starts the work. If the object is being written already, the work is dropped: the next cycle repeats it."""
        if ref is not None and ref in self._busy:
            work.close()
            return
        if ref is not None:
            self._busy.add(ref)
        task = asyncio.create_task(self._run(work, ref))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, work: Coroutine[Any, Any, object], ref: ObjectRef | None) -> None:
        try:
            await work
        except Exception:
            self._log.exception(self._what)
        finally:
            if ref is not None:
                self._busy.discard(ref)

    async def settle(self) -> None:
        """Waits until nothing is on its way."""
        while self.tasks:
            await asyncio.wait(self.tasks)
