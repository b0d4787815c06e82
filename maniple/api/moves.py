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
from maniple.api.timestamps import LAST_YEAR, format_timestamp, parse_timestamp, to_seconds

KEPT_S = 300.0  # so long the places are kept, once the moved pods must be gone, for pods that do not come
HOUR_S = 3600.0  # the moves of the last hour are counted
_EXAMPLE = '{"at":"2026-01-31T12:00:00Z","size":2,"places":[{"node":"n1","pods":1,"requests":{"nvidia.com/gpu":"1"}}]}'
_Count = Annotated[int, Meta(ge=1, le=100_000)]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place for some equal pods of a role on a node."""

    node: str
    pods: _Count
    requests: ResourceList  # of one pod
    role: str = ""


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    at: datetime
    size: _Count  # pods of the gang, those that were moved included
    places: tuple[Place, ...]
    until: datetime | None = None  # the end of the places
    earlier: tuple[datetime, ...] = ()  # moves of the gang within the hour before

    @property
    def at_s(self) -> float:
        return to_seconds(self.at)

    @property
    def until_s(self) -> float:
        return self.at_s + KEPT_S if self.until is None else to_seconds(self.until)

    def keeps_places(self, now: float) -> bool:
        """Whether it names places, and is not over by its age."""
        return bool(self.places) and now < self.until_s

    def times_since(self, since: float) -> list[float]:
        """When the gang was moved after that."""
        return [at for at in (self.at_s, *map(to_seconds, self.earlier)) if at > since]


def format_move(
    at: float, size: int, places: Iterable[Place], *, leaving_s: float = 0.0, earlier: Iterable[float] = ()
) -> str:
    """The value of the annotation. `leaving_s`: how long the moved pods may take to leave."""
    until = None if not leaving_s else _to_the_second(at + leaving_s + KEPT_S)
    move = Move(_to_the_second(at), size, tuple(places), until, tuple(map(_to_the_second, earlier)))
    return msgspec.json.encode(move).decode()


def _to_the_second(seconds: float) -> datetime:
    return parse_timestamp(format_timestamp(seconds))


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
    if move is None or not move.keeps_places(now):
        return None
    return format_move(move.at_s, move.size, (), earlier=map(to_seconds, move.earlier))


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
    named = [("at", move.at), ("until", move.until), *(("earlier", time) for time in move.earlier)]
    for name, time in named:
        if time is not None and (time.tzinfo is None or time.year >= LAST_YEAR):
            raise ValueError(f"{name}: expected a time with a time zone, found {time}")
    for place in move.places:
        for quantity in place.requests.values():
            parse_quantity(str(quantity))
    return move
