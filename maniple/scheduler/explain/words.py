"""Explanations in words: counted pods, the smallest change that would let a gang start, and the nearest miss."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from msgspec import UNSET

from maniple.model.pod_requests import readable
from maniple.model.resources import PODS, FloatArray
from maniple.scheduler.explain.nearest_miss import Lack, Miss, NewNodes
from maniple.scheduler.explain.running_pods import MOST_HOLDERS, PROMISED, RESERVED, STUCK
from maniple.scheduler.framework.plan import Holder, Nearest, format_rounded_up

_MOST_KINDS = 3  # of lacks that are told apart
_MOST_NAMES = 3
_MOST_KEEPERS = 2

# How reasons begin for which no node would take the pod, whatever is done to the node.
_OF_THE_POD = ("PersistentVolumeClaim ", "resourceClaims ", "another pod uses ")

# Room that no running pod holds.
_KEEPERS = {RESERVED: "the reservation of {}", PROMISED: "the promise to {}"}
# What keeps a holder where it is, as long as nobody changes it.
_PROTECTED = {
    "PodDisruptionBudget": "which a PodDisruptionBudget protects",
    "preemptable: false": "which is not preemptable",
    "critical to the system": "which is critical to the system",
    "reclaimable: false": "whose queue is not reclaimable",
}


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


def change(miss: Miss, held: str = "") -> str:
    """What would have to be different so that the gang fits; empty if nothing is lacking.

    One form for all: what on which nodes, who holds it, and which nodes would have to be added.
    """
    if not miss.missing:
        return ""
    alike = _by(miss.lacks, lambda lack: (tuple(lack.amounts), lack.pods, lack.gpus, lack.part, lack.models))
    by_refusal = _by((lack for lack in miss.lacks if lack.refusals), lambda lack: lack.refusals)
    inside = "" if miss.is_one_node or not miss.level else f" in {miss.level} {miss.domain}"
    parts = []
    if miss.is_complete and len(alike) <= _MOST_KINDS and len(by_refusal) <= _MOST_KINDS:
        parts += [_without_refusals(miss, lacks) for lacks in by_refusal]
        lacking = [lacks for lacks in alike if lacks[0].gpus or lacks[0].amounts.any() or not lacks[0].refusals]
        freed = [f"{_amounts(miss, lacks[0])} on {_nodes(miss, lacks, each='each of ')}" for lacks in lacking]
        parts += [f"{joined(freed)} came free{inside}{held}"] * bool(freed)
    elif miss.lacks:
        missing = miss.missing - sum(new.pods for new in miss.new)
        reasons = list(dict.fromkeys(reason for lack in miss.lacks for reason in lack.refusals))
        others = "; …" * (len(reasons) > _MOST_NAMES)
        refused = f"did not refuse it ({_in_brackets(reasons[:_MOST_NAMES])}{others})"
        taking = f" on nodes that {refused}" * bool(reasons)
        first = miss.lacks[0]
        example = f", such as {_amounts(miss, first)} on {_nodes(miss, [first])}"
        if miss.is_complete and all(lack.refusals and not lack.gpus and not lack.amounts.any() for lack in miss.lacks):
            parts.append(f"{len(miss.lacks)} nodes{inside} such as {miss.snapshot.nodes.names[first.node]} {refused}")
        else:
            more = f"room for {missing:,} more pod{'s' * (missing > 1)}"
            parts.append(f"{more} came free{inside}{held}{taking}{example}")
    return " and ".join([*parts, *(f"{_new_nodes(miss, new)}{inside}" for new in _counted(miss.new))])


def _counted(new: Iterable[NewNodes]) -> Iterable[NewNodes]:
    """Nodes that would be written alike, as one entry."""
    kinds: dict[object, NewNodes] = {}
    for one in new:
        kind = (one.like, tuple(one.larger), one.refusals, one.asks if one.like < 0 else "", one.is_instead)
        same = kinds.get(kind)
        kinds[kind] = one if same is None else replace(same, count=same.count + one.count, pods=same.pods + one.pods)
    return kinds.values()


def _without_refusals(miss: Miss, lacks: Sequence[Lack]) -> str:
    refusals = lacks[0].refusals
    if all(reason.startswith(_OF_THE_POD) for reason in refusals):
        return f"this were not so: {'; '.join(refusals)}"
    return f"{_nodes(miss, lacks)} did not refuse it ({_in_brackets(refusals)})"


def _in_brackets(reasons: Sequence[str]) -> str:
    """`pod anti-affinity: a pod there keeps others away`, without brackets of its own at its end."""
    return "; ".join(re.sub(r"^(.+) \(([^()]+)\)$", r"\2: \1", reason) for reason in reasons)


def _by(lacks: Iterable[Lack], kind: Callable[[Lack], object]) -> list[list[Lack]]:
    """Those of one kind together."""
    kinds: dict[object, list[Lack]] = {}
    for lack in lacks:
        kinds.setdefault(kind(lack), []).append(lack)
    return list(kinds.values())


def _nodes(miss: Miss, lacks: Sequence[Lack], each: str = "") -> str:
    """`node n1`, `nodes n1 and n2`"""
    names = [miss.snapshot.nodes.names[lack.node] for lack in lacks]
    return f"node {names[0]}" if len(names) == 1 else f"{each}nodes {listed(names)}"


def _amounts(miss: Miss, lack: Lack) -> str:
    """`1 cpu and 2 nvidia.com/gpu`, `0.5 of a GPU of A100`: what the node lacks."""
    amounts = lack.amounts.copy()
    if lack.gpus:
        amounts[list(miss.gpu_rows)] = 0.0
    parts = _listed_amounts(miss, amounts)
    if lack.gpus:
        models = f" of {lack.models}" * bool(lack.models)
        gpus = "a GPU" if lack.gpus == 1 else f"each of {lack.gpus} GPUs"
        whole = f"{lack.gpus} whole GPU{'s' * (lack.gpus > 1)}"
        parts.append(f"{f'{lack.part} of {gpus}' if lack.part else whole}{models}")
    return joined(parts or [f"room for {pods(lack.pods)}"])


def _listed_amounts(miss: Miss, amounts: FloatArray) -> list[str]:
    parts = miss.snapshot.axis.list_words(amounts, up=True)
    return [*parts, *[f"room for {pods(int(amounts[PODS]))}"] * bool(amounts[PODS] > 0)]


def _new_nodes(miss: Miss, new: NewNodes) -> str:
    """`a node like n1 were added`, `3 nodes like n1 but with 8 nvidia.com/gpu were added`"""
    count = "a node" if new.count == 1 else f"{new.count:,} nodes"
    if new.like < 0 and new.count < new.pods:
        kind = f"for {pods(new.pods)} of {new.asks}" if new.asks else f"for its {pods(new.pods)}"
        return f"{count} with room {kind} were added"
    if new.like < 0:
        return f"{count} with room for a pod{' of ' * bool(new.asks)}{new.asks}{' each' * (new.count > 1)} were added"
    name, larger = miss.snapshot.nodes.names[new.like], joined(_listed_amounts(miss, new.larger))
    if new.is_instead:
        return f"node {name} had {larger} in all"
    but = f" but with {larger}" * bool(larger)
    taking = f" that did not refuse it ({_in_brackets(new.refusals)})" * bool(new.refusals)
    return f"{count} like {name}{but}{taking} were added"


def held_by(nearest: Nearest | None, now: float, *, is_complete: bool = True) -> str:
    """` (held by default/a until 2026-01-01T10:00:00Z, default/b and 3 others)`; empty if nobody holds it.

    `is_complete`: whether all nodes that lack something were looked at; else others are not counted.
    """
    if nearest is None or not nearest.held_by:
        return ""
    keepers: dict[str, str] = {}  # a job, or pods of no job -> in words
    for holder in nearest.held_by:
        text = _describe_keeper(holder, now)
        keepers.setdefault(holder.job or text, text)
    names = list(keepers.values())
    # Further jobs matter only if these do not hold enough.
    others = len(names[_MOST_KEEPERS:]) + (nearest.others if len(nearest.held_by) == MOST_HOLDERS else 0)
    more = [f"{others:,} other{'s' * (others > 1)}"] * bool(others) if is_complete else ["others"]
    return f" (held by {joined([*names[:_MOST_KEEPERS], *more])})"


def _describe_keeper(holder: Holder, now: float) -> str:
    """Who holds it, and until when, as far as that is known."""
    if not holder.job:
        return holder.guard if holder.what == STUCK and holder.guard is not UNSET else holder.what
    if holder.ends is not UNSET:
        return f"{holder.job} until {holder.ends}"
    if holder.until is not UNSET:
        return f"{holder.job} until at least {format_rounded_up(now + holder.until)}"
    if holder.guard is not UNSET:
        return f"{holder.job}, {_PROTECTED.get(holder.guard, f'protected: {holder.guard}')}"
    return _KEEPERS.get(holder.what, "{}").format(holder.job)


# --- the nearest miss


def describe_nearest(nearest: Nearest) -> str:
    """`needs 8 nvidia.com/gpu in one rack; rack r3 has 6 free and lacks 2; held by …`"""
    place = "the cluster" if nearest.place == "cluster" else nearest.place
    level = nearest.place.partition(" ")[0]
    inside = f" in one {level}" if level not in ("node", "cluster") else ""
    if nearest.resource and nearest.resource != "pods":
        name = nearest.resource
        needs, free, lacks = (readable(name, text) for text in (nearest.needs, nearest.free, nearest.lacks))
        text = f"needs {needs} {name}{inside}; {place} has {free} free"
        text += f"{', scattered,' * nearest.is_scattered} and lacks {lacks}"
    else:
        text = f"needs room for {pods(nearest.pods)}{inside}; {place} has room for {nearest.fits:,}"
    if nearest.refusals:
        text += f"; refused because {'; '.join(nearest.refusals)}"
    holders = [_describe_holder(holder, nearest.resource) for holder in nearest.held_by]
    if holders and nearest.others:
        holders.append(f"{nearest.others:,} other job{'s' * (nearest.others > 1)}")
    return f"{text}; held by {joined(holders)}" if holders else text


def _describe_holder(holder: Holder, resource: str) -> str:
    amount = readable(resource, holder.amount)
    if not holder.job:
        return f"{holder.what if holder.guard is UNSET else holder.guard} ({amount})"
    guard = "" if holder.guard is UNSET else f", {holder.guard}"
    until = "" if holder.until is UNSET else f" for {holder.until:g} s"
    until += "" if holder.ends is UNSET else f", until {holder.ends}"
    return f"{holder.job} ({amount}, {holder.what}{guard}{until})"
