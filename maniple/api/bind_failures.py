"""The annotations that count how often binding a gang has failed. After each failure the gang waits longer.

The scheduler sets them on the PodGroup, on the ElasticJob or on a pod without either. It removes them after a bind.
"""

from dataclasses import dataclass
from datetime import datetime

from maniple.api.labels import BIND_FAILURES_ANNOTATION as COUNT
from maniple.api.labels import LAST_BIND_FAILURE_ANNOTATION as LAST
from maniple.api.timestamps import parse_timestamp

_FIRST_S = 10.0
LONGEST_S = 300.0
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class BindFailures:
    count: int
    last: datetime

    @property
    def pause_s(self) -> float:
        """Twice as long after every failure, at most five minutes."""
        return min(_FIRST_S * 2.0 ** min(self.count - 1, 10), LONGEST_S)


def read_bind_failures(annotations: dict[str, str]) -> BindFailures | None:
    """None if no bind has failed. Invalid annotations are reported by validation, and ignored here."""
    if COUNT not in annotations or bind_failure_problems(annotations):
        return None
    count = int(annotations[COUNT])
    return BindFailures(count, parse_timestamp(annotations[LAST])) if count else None


def bind_failure_problems(annotations: dict[str, str]) -> list[tuple[str, str]]:
    """(annotation, what is wrong with it)."""
    problems = []
    count, last = annotations.get(COUNT), annotations.get(LAST)
    if count is not None and not (count.isascii() and count.isdigit()):
        problems.append((COUNT, f"expected a whole number of 0 or more, such as 3, found {count!r:.80}"))
    elif count is not None and len(count) > _MOST_DIGITS:
        problems.append((COUNT, f"expected a whole number of at most {_MOST_DIGITS} digits, found {count!r:.80}"))
    elif count is None and last is not None:
        problems.append((LAST, f"expected {COUNT} beside it, found none"))
    elif count is not None and int(count) and last is None:
        problems.append((COUNT, f"expected {LAST} beside it, found none"))
    if last is not None:
        try:
            parse_timestamp(last)
        except ValueError as error:
            problems.append((LAST, str(error)))
    return problems
