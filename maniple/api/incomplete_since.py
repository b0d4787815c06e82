"""The annotation that says since when a gang that has started is below its minimum.

The scheduler sets it on a PodGroup, so that a restart does not forget it. It removes it when the gang is whole again or
holds nothing.
"""

from math import inf

from maniple.api.labels import INCOMPLETE_SINCE_ANNOTATION as SINCE
from maniple.api.moves import read_move
from maniple.api.timestamps import parse_timestamp, to_seconds
from maniple.api.types import PodGroup


def incomplete_since_problem(annotations: dict[str, str]) -> str:
    """What is wrong with it; empty if nothing is."""
    try:
        parse_timestamp(annotations.get(SINCE, "2026-01-01T00:00:00Z"))
    except ValueError as error:
        return str(error)
    return ""


def stale_at(group: PodGroup) -> float:
    """When the gang gives back what it holds, if it is not whole by then; inf: never, as things are.

    A gang that was moved gives back nothing while places may be kept for its pods. An invalid annotation is reported by
    validation, and ignored here.
    """
    annotations, seconds = group.metadata.annotations, group.spec.stale_seconds
    if SINCE not in annotations or not seconds or incomplete_since_problem(annotations):
        return inf
    at, move = to_seconds(parse_timestamp(annotations[SINCE])) + seconds, read_move(annotations)
    return max(at, move.until_s) if move is not None and move.places else at
