"""Explanations in words: counted pods, what a gang lacks node by node, and the change that would let it start."""

from collections.abc import Sequence

from msgspec import UnsetType

from maniple.model.job import TaskGroup
from maniple.model.resources import PODS, Axis, FloatArray
from maniple.scheduler.explain.nearest_miss import Lack, Miss
from maniple.scheduler.framework.plan import Holder, Nearest
from maniple.scheduler.framework.session import Session

_MOST_KINDS = 3  # of lacks that are told apart
_MOST_NAMES = 3


def pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count:,} pods"


def joined(parts: Sequence[str], word: str = "and") -> str:
    """`a, b and c`"""
    return f" {word} ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def listed(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """`a, b, c and 4 others`"""
    if len(names) <= most:
        return joined(names)
    others = len(names) - most
    return f"{', '.join(names[:most])} and {others:,} other{'s' * (others > 1)}"


def amounts(axis: Axis, vector: FloatArray) -> list[str]:
    named = [f"{value} {name}" for name, value in axis.describe(vector).items()]
    return [*named, *([f"room for {pods(int(vector[PODS]))}"] if vector[PODS] > 0 else [])]


# --- the smallest change


def change(session: Session, miss: Miss, groups: Sequence[TaskGroup]) -> str:
    """What would have to be otherwise so that the gang fits; empty if nothing is lacking."""
    if not miss.missing:
        return ""
    if not len(session.snapshot.nodes):
        return f"a node with room for {pods(miss.missing)} were added"
    named = _named(session, miss, groups)
    refused = any(lack.refusals for lack in miss.lacks)
    if named and not miss.beyond and (refused or miss.missing == 1):
        return named
    if named and miss.wanted == miss.missing == 1:
        return named
    if miss.beyond == miss.missing:
        base = f"the cluster had room for {miss.beyond:,}{' more' * (miss.beyond < miss.wanted)}"
    else:
        base = f"room for {miss.missing - miss.beyond:,} more came free{_inside(session, miss)}"
        if miss.beyond:
            base += f" and the cluster were larger by {pods(miss.beyond)}"
    if named or miss.first is None:
        return base + such_as(session, miss, groups)
    return f"{base}; one would fit if {_clause(session, [miss.first], groups)}"


def _inside(session: Session, miss: Miss) -> str:
    if not miss.level:
        return ""
    return f" in {miss.level} {session.snapshot.domains.levels[miss.level].names[miss.domain]}"


def such_as(session: Session, miss: Miss, groups: Sequence[TaskGroup]) -> str:
    """`, such as if node n1 had 1 nvidia.com/gpu more`, where that is short enough to be said."""
    named = _named(session, miss, groups)
    return f", such as if {named}" if named else ""


def _named(session: Session, miss: Miss, groups: Sequence[TaskGroup]) -> str:
    """What each node lacks, if they are few or much alike."""
    if miss.nodes > len(miss.lacks) or miss.homeless:
        return ""
    kinds: dict[tuple[object, ...], list[Lack]] = {}
    for lack in miss.lacks:
        kinds.setdefault((lack.refusals, tuple(lack.amounts), lack.gpus, lack.each), []).append(lack)
    if len(kinds) > _MOST_KINDS or any(len(alike) > _MOST_NAMES for alike in kinds.values()):
        return ""
    return " and ".join(_clause(session, alike, groups) for alike in kinds.values())


def _clause(session: Session, alike: Sequence[Lack], groups: Sequence[TaskGroup]) -> str:
    """`nodes n1 and n2 each had 2 nvidia.com/gpu more`"""
    lack = alike[0]
    names = [session.snapshot.nodes.names[lack.node] for lack in alike]
    who = f"node {names[0]}" if len(names) == 1 else f"nodes {joined(names)} each"
    parts = []
    if lack.refusals:
        parts.append(f"did not refuse it ({'; '.join(lack.refusals)})")
    short = lack.amounts.copy()
    if lack.gpus:
        short[[ask.row for group in groups for ask in group.shape.gpus[:1]]] = 0.0
    more = amounts(session.snapshot.axis, short)
    if more:
        parts.append(f"had {joined(more)} more")
    if lack.gpus:
        parts.append(f"had {lack.gpus} more {'GPU' if lack.gpus == 1 else 'GPUs, each'}{lack.each}")
    return f"{who} {' and '.join(parts)}" if parts else f"{who} had room for {pods(lack.pods)} more"


# --- the nearest miss


def describe_nearest(nearest: Nearest) -> str:
    """`needs 8 nvidia.com/gpu in one rack; rack r3 has 6 free and lacks 2; held by …`"""
    place = "the cluster" if nearest.place == "cluster" else nearest.place
    level = nearest.place.partition(" ")[0]
    inside = f" in one {level}" if level not in ("node", "cluster") else ""
    if nearest.resource and nearest.resource != "pods":
        text = f"needs {nearest.needs} {nearest.resource}{inside}; {place} has {nearest.free} free"
        text += f"{', scattered,' * nearest.is_scattered} and lacks {nearest.lacks}"
    else:
        text = f"needs room for {pods(nearest.pods)}{inside}; {place} has room for {nearest.fits:,}"
    if nearest.refusals:
        text += f"; refused because {'; '.join(nearest.refusals)}"
    if nearest.held_by:
        text += f"; held by {describe_holders(nearest)}"
    return text


def describe_holders(nearest: Nearest) -> str:
    parts = [_holder(holder) for holder in nearest.held_by]
    if nearest.others:
        parts.append(f"{nearest.others:,} other job{'s' * (nearest.others > 1)}")
    return joined(parts)


def _holder(holder: Holder) -> str:
    notes = [holder.what]
    if not isinstance(holder.guard, UnsetType):
        left = "" if isinstance(holder.until, UnsetType) else f" for {holder.until:g} s"
        notes.append(f"{holder.guard}{left}")
    if not holder.job:
        return f"{holder.what} ({holder.amount})"
    return f"{holder.job} ({holder.amount}, {', '.join(notes)})"
