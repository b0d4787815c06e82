"""Limits how often something is written: at once when it changes, seldom when only its wording does."""

import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class _Written(NamedTuple):
    what: object
    wording: object
    at: float


class Throttle(Generic[K]):
    """Remembers, by key, what was last written and when."""

    def __init__(self) -> None:
        self._last: dict[K, _Written] = {}

    def __len__(self) -> int:
        return len(self._last)

    def is_recent(self, key: K, pause_s: float) -> bool:
        last = self._last.get(key)
        return last is not None and time.monotonic() - last.at < pause_s

    def is_same(self, key: K, what: object, wording: object = None) -> bool:
        last = self._last.get(key)
        return last is not None and last[:2] == (what, wording)

    def admit(
        self,
        key: K,
        what: object,
        wording: object = None,
        *,
        reword_s: float = math.inf,
        repeat_s: float = math.inf,
    ) -> bool:
        """Whether to write this now, in which case it counts as written.

        Something new is written at once, the same in other words after `reword_s`, the very same after `repeat_s`.
        """
        last = self._last.get(key)
        if last is not None and last.what == what:
            pause_s = repeat_s if last.wording == wording else reword_s
            if time.monotonic() - last.at < pause_s:
                return False
        self.note(key, what, wording)
        return True

    def note(self, key: K, what: object = None, wording: object = None) -> None:
        self._last[key] = _Written(what, wording, time.monotonic())

    def forget(self, key: K) -> None:
        self._last.pop(key, None)

    def clear(self) -> None:
        self._last.clear()

    def keep(self, is_kept: Callable[[K], bool]) -> None:
        self._last = {key: last for key, last in self._last.items() if is_kept(key)}
