"""Explanations in words: counted pods, the smallest change that would let a gang start, and the nearest miss."""

from collections.abc import Sequence

from msgspec import UNSET

from maniple.model.resources import PODS
from maniple.scheduler.explain.nearest_miss import Lack, Miss
from maniple.scheduler.framework.plan import Holder, Nearest

_MOST_KINDS = 3  # of lacks that are told apart
_MOST_NAMES = 3


def pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count:,} pods"


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 4 others`"""
    if len(names) <= _MOST_NAMES:
        return joined(names)
    others = len(names) - _MOST_NAMES
    return f"{', '.join(names[:_MOST_NAMES])} and {others:,} other{'s' * (others > 1)}"


# --- the smallest change


def change(miss: Miss) -> str:
    """What would have to be different so that the gang fits; empty if nothing is lacking."""
    if not miss.missing:
        return ""
    if not len(miss.snapshot.nodes):
        return f"a node with room for {pods(miss.missing)} were added"
    by_node = _by_node(miss)
    is_refused = any(lack.refusals for lack in miss.lacks)
    is_one = miss.missing == 1 and (not miss.beyond or miss.wanted == 1)
    if by_node and (is_one or (is_refused and not miss.beyond)):
        return by_node
    if miss.beyond == miss.missing:
        text = f"the cluster had room for {miss.beyond:,}{' more' * (miss.beyond < miss.wanted)}"
    else:
        inside = f" in {miss.level} {miss.domain}" if miss.level else ""
        text = f"room for {miss.missing - miss.beyond:,} more came free{inside}"
        if miss.beyond:
            text += f" and the cluster were larger by {pods(miss.beyond)}"
    if by_node or miss.first is None:
        return text + such_as(miss)
    return f"{text}; one would fit if {_of_nodes(miss, [miss.first])}"


def such_as(miss: Miss) -> str:
    """`, such as if node n1 had 1 nvidia.com/gpu more`, if that is short enough."""
    by_node = _by_node(miss)
    return f", such as if {by_node}" if by_node else ""


def _by_node(miss: Miss) -> str:
    """What each node lacks, if they are few or much alike."""
    kinds: dict[tuple[object, ...], list[Lack]] = {}
    for lack in miss.lacks if miss.is_complete else ():
        kinds.setdefault((lack.refusals, tuple(lack.amounts), lack.gpus, lack.each), []).append(lack)
    if len(kinds) > _MOST_KINDS or any(len(alike) > _MOST_NAMES for alike in kinds.values()):
        return ""
    return " and ".join(_of_nodes(miss, alike) for alike in kinds.values())


def _of_nodes(miss: Miss, alike: Sequence[Lack]) -> str:
    """`nodes n1 and n2 each had 2 nvidia.com/gpu more`"""
    lack = alike[0]
    names = [miss.snapshot.nodes.names[lack.node] for lack in alike]
    nodes = f"node {names[0]}" if len(names) == 1 else f"nodes {joined(names)} each"
    parts = [f"did not refuse it ({'; '.join(lack.refusals)})"] if lack.refusals else []
    amounts = lack.amounts.copy()
    if lack.gpus:
        amounts[list(miss.gpu_rows)] = 0.0
    more = [f"{value} {name}" for name, value in miss.snapshot.axis.describe(amounts).items()]
    if amounts[PODS] > 0:
        more.append(f"room for {pods(int(amounts[PODS]))}")
    if more:
        parts.append(f"had {joined(more)} more")
    if lack.gpus:
        parts.append(f"had {lack.gpus} more {'GPU' if lack.gpus == 1 else 'GPUs, each'}{lack.each}")
    return f"{nodes} {' and '.join(parts or [f'had room for {pods(lack.pods)} more'])}"


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
    holders = [_describe_holder(holder) for holder in nearest.held_by]
    if holders and nearest.others:
        holders.append(f"{nearest.others:,} other job{'s' * (nearest.others > 1)}")
    return f"{text}; held by {joined(holders)}" if holders else text


def _describe_holder(holder: Holder) -> str:
    if not holder.job:
        return f"{holder.what} ({holder.amount})"
    guard = "" if holder.guard is UNSET else f", {holder.guard}"
    until = "" if holder.until is UNSET else f" for {holder.until:g} s"
    return f"{holder.job} ({holder.amount}, {holder.what}{guard}{until})"
