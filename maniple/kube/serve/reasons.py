"""Why gangs wait, as far as they were explained. They are explained in turn, a little in each cycle, so that twenty
thousand of them delay nobody.

Gangs that were never explained come first, then those that were not for half a minute, then those of which something
has changed, then the others. Explaining stops when something is reported: deciding is more urgent. Under a load that
never ends it gets a tenth of the time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, takewhile
from typing import NamedTuple

from maniple.api.keys import Key, join_key
from maniple.kube.serve.gang_status import Why, why_it_waits
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.plan import Explanations, Glance

_MOST_S = 0.1  # in one cycle
_MOST_BUSY_S = 0.02  # in a cycle after which another one is due
_SHARE = 0.1  # of the time
_OVERDUE_S = 30.0  # since the last explanation
_KINDS = ("PodGroup", "ElasticJob", "Pod")  # gangs of one name: the first that waits speaks for them


class _Explained(NamedTuple):
    glance: Glance  # when it was explained
    at: float
    why: Why


class Reasons:
    def __init__(self) -> None:
        self.gangs: Mapping[JobKey, Glance] = {}  # that wait
        self._explained: dict[JobKey, _Explained] = {}  # of those, the longest ago first
        self._fresh: set[JobKey] = set()
        self._rests_until = 0.0

    def renew(
        self, explanations: Explanations, is_urgent: Callable[[], bool] = lambda: False, most_s: float = _MOST_S
    ) -> None:
        """Explains some gangs, one at least if any is due. `is_urgent`: whether something else is to be done.

        Runs in a thread while nobody else asks for explanations.
        """
        start, was_urgent = time.monotonic(), is_urgent()
        gangs = self.gangs = explanations.gangs
        for gone in self._explained.keys() - gangs.keys():
            del self._explained[gone]
        may_repeat = start >= self._rests_until
        if was_urgent and not may_repeat:
            return
        until = start + (min(most_s, _MOST_BUSY_S) if was_urgent else most_s)
        is_first = True
        for gang in dict.fromkeys(self._due(gangs, start, may_repeat=may_repeat)):
            now = time.monotonic()
            if not is_first and (now > until or (not was_urgent and is_urgent())):
                break
            is_first = False
            self._explain(explanations, gang, gangs[gang], now)
        self._rests_until = start + (time.monotonic() - start) / _SHARE

    def _due(self, gangs: Mapping[JobKey, Glance], now: float, *, may_repeat: bool) -> Iterator[JobKey]:
        """The gangs that are explained next, some of them twice."""
        explained = self._explained
        new = (gang for gang in gangs if gang not in explained)
        late = takewhile(lambda gang: explained[gang].at < now - _OVERDUE_S, list(explained))
        changed = (gang for gang, before in list(explained.items()) if before.glance != gangs[gang])
        return chain(new, late, changed, list(explained)) if may_repeat else chain(new, changed)

    def _explain(self, explanations: Explanations, gang: JobKey, glance: Glance, now: float) -> None:
        reason = explanations.reason(gang)
        before = self._explained.pop(gang, None)
        if reason is None:
            return
        why = why_it_waits(reason)
        self._explained[gang] = _Explained(glance, now, why)
        if before is None or before.why != why or before.glance != glance:
            self._fresh.add(gang)

    def take_fresh(self) -> set[JobKey]:
        """The gangs of which something new is known since the last call, if they still wait."""
        fresh, self._fresh = self._fresh & self._explained.keys(), set()
        return fresh

    def of(self, key: Key) -> Why | None:
        """Why the gang of that name waits; None if it does not, or was not explained yet."""
        return next((explained.why for gang in gangs_of(key) if (explained := self._explained.get(gang))), None)

    def waits(self, key: Key) -> bool:
        return any(gang in self.gangs for gang in gangs_of(key))


def gangs_of(key: Key) -> Iterator[JobKey]:
    """The gangs that may have that name."""
    name = join_key(key)
    return ((name, kind) for kind in _KINDS)
