"""Whether the API server is away, as all requests of one client see it together.

Retries are frequent while it is away, and for a minute after it: a server that starts refuses requests for a while. The
first good answer to any request ends the pauses of all others, each at its own moment.
"""

import asyncio
import math
import random
import time

LONGEST_PAUSE_S = 1.0  # between two attempts while the server is away or has just come back
_BRIEF_S = 1.0  # a request that is not answered so soon after an answer to another is no outage
_RECENT_S = 60.0
_SPREAD_S = 0.3  # requests that waited for the server come back within this time, not all at once


class Outage:
    def __init__(self) -> None:
        self._answered_at = -math.inf  # the last good answer, on the monotonic clock
        self._unanswered_at = -math.inf
        self._returned = asyncio.Event()
        self._returned.set()

    @property
    def is_on(self) -> bool:
        return not self._returned.is_set()

    @property
    def is_recent(self) -> bool:
        """Whether the server is away, or was within the last minute."""
        return self.is_on or self._unanswered_at > time.monotonic() - _RECENT_S

    def note_silence(self) -> None:
        """A request was not answered, or a proxy or a server without its etcd answered it."""
        now = time.monotonic()
        if self.is_on or now - self._answered_at > _BRIEF_S:
            self._unanswered_at = now
            self._returned.clear()

    def note_answer(self, status: int) -> None:
        """A server that starts, or whose etcd is away, answers too, but refuses: it is not there."""
        if status >= 500:
            self.note_silence()
            return
        now = time.monotonic()
        is_good = status not in (401, 403, 429)
        if is_good:
            self._answered_at = now
        if is_good or now - self._unanswered_at > _RECENT_S:
            self._returned.set()

    async def pause(self, seconds: float) -> None:
        """Returns earlier if the server comes back."""
        if not self.is_on:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._returned.wait()
                await asyncio.sleep(random.uniform(0.0, _SPREAD_S))
        except TimeoutError:
            pass
