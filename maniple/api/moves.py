"""The annotation of a gang that was moved: when, how many pods it had, and the places that are kept for its pods.

The scheduler sets it on the PodGroup or ElasticJob in the cycle in which it evicts the pods. The pods that come in
their place have other names and do not exist yet, so a place is a node and what one pod asks for. When the moved pods
are back, or pods of the gang are evicted for another reason, the places are taken out. The annotation stays afterwards:
it is all that a later cycle knows of the move when it counts the moves of an hour.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from maniple.api.labels import MOVED_ANNOTATION
from maniple.api.meta import ResourceList
from maniple.api.quantity import parse_quantity
from maniple.api.timestamps import LAST_YEAR, format_timestamp, to_seconds

KEPT_S = 300.0  # so long the places are kept for pods that do not come
_EXAMPLE = '{"at":"2026-01-31T12:00:00Z","size":2,"places":[{"node":"n1","pods":1,"requests":{"nvidia.com/gpu":"1"}}]}'
_Count = Annotated[int, Meta(ge=1, le=100_000)]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place for some equal pods of a role on a node."""

    node: str
    pods: _Count
    requests: ResourceList  # of one pod
    role: str = ""


class Move(msgspec.Struct, frozen=True):
    at: datetime
    size: _Count  # pods of the gang, those that were moved included
    places: tuple[Place, ...]

    @property
    def at_s(self) -> float:
        return to_seconds(self.at)

    def keeps_places(self, now: float) -> bool:
        """Whether it names places, and is not over by its age."""
        return bool(self.places) and now - self.at_s < KEPT_S


def format_move(at: float, size: int, places: Iterable[Place]) -> str:
    """The value of the annotation."""
    value = {"at": format_timestamp(at), "size": size, "places": msgspec.to_builtins(tuple(places))}
    return msgspec.json.encode(value).decode()


def read_move(annotations: dict[str, str]) -> Move | None:
    """None if the gang was not moved. An invalid annotation is reported by validation, and ignored here."""
    text = annotations.get(MOVED_ANNOTATION)
    if text is None:
        return None
    try:
        return _parse(text)
    except ValueError:
        return None


def without_places(annotations: dict[str, str], now: float) -> str | None:
    """The value of the annotation without its places; None if no places are kept as it is."""
    move = read_move(annotations)
    return format_move(move.at_s, move.size, ()) if move is not None and move.keeps_places(now) else None


def move_problems(annotations: dict[str, str]) -> list[tuple[str, str]]:
    """(annotation, what is wrong with it)."""
    text = annotations.get(MOVED_ANNOTATION)
    try:
        if text is not None:
            _parse(text)
    except ValueError as error:
        return [(MOVED_ANNOTATION, f"expected JSON such as {_EXAMPLE}: {error!s:.200}")]
    return []


def _parse(text: str) -> Move:
    """Raises ValueError if it is no such value; msgspec's errors are such."""
    move = msgspec.json.decode(text, type=Move)
    if move.at.tzinfo is None or move.at.year >= LAST_YEAR:
        raise ValueError(f"at: expected a time with a time zone, found {move.at}")
    for place in move.places:
        for quantity in place.requests.values():
            parse_quantity(str(quantity))
    return move
