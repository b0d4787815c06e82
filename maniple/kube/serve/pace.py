"""How soon a cycle may follow another: at once after a rest, and half of the time while changes keep coming.

Time that was not used is saved, a little of it: a few cycles in a row cost nobody anything. Somebody who could start
never waits longer than a moment: cycles that take more than half of the time then are work that has to be done.
"""

_SHARE = 0.5  # of a core, for cycles, in the long run
_MOST_SAVED_S = 0.25  # of cycles that may follow each other without a pause
URGENT_S = 0.05  # the longest pause while somebody could start


class Pace:
    """Takes the time from its caller."""

    def __init__(self, now: float) -> None:
        self._saved_s = _MOST_SAVED_S  # cycles may take so long at once; below 0 they have taken too long
        self._at = now

    def took(self, now: float, seconds: float) -> None:
        """A cycle of so many seconds has ended."""
        # A long cycle is followed by a pause as long, whatever was before it.
        self._saved_s = max(-seconds * _SHARE, self._saved(now) - seconds)
        self._at = now

    def pause_s(self, now: float, *, is_urgent: bool) -> float:
        """How long to wait before the next cycle."""
        pause_s = max(0.0, -self._saved(now) / _SHARE)
        return min(pause_s, URGENT_S) if is_urgent else pause_s

    def _saved(self, now: float) -> float:
        return min(_MOST_SAVED_S, self._saved_s + (now - self._at) * _SHARE)
