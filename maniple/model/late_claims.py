"""Claims that get their volume once their pod has a node (`WaitForFirstConsumer`), and which volume they get there.

The choice is kube-scheduler's: claims in order of size, each the smallest free volume that the node can reach; if there
is none, the class makes one. The predicates ask on which nodes all claims of a pod get one, `serve` which ones.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from maniple.api.kubernetes import NodeSelectorTerm

Terms = tuple[NodeSelectorTerm, ...]


class FreeVolume(NamedTuple):
    name: str
    terms: Terms | None  # where it can be reached. None: anywhere


class LateClaim(NamedTuple):
    """What an unbound claim accepts. Equal for claims that accept the same: it does not name its claim."""

    node: str  # where its volume is being made already. Empty: it has no node yet
    volumes: tuple[FreeVolume, ...]  # existing ones, the best first
    made: tuple[Terms, ...] | None  # a node must meet one of each for a new one to be made; None: none can be made


def reach(terms: Terms) -> Terms | None:
    """The node selector terms of a volume as kube-scheduler reads them: it ignores `matchFields`. None: anywhere."""
    if any(term.match_fields and not term.match_expressions for term in terms):
        return None
    return tuple(NodeSelectorTerm(term.match_expressions) for term in terms)


def pick(
    claims: Iterable[LateClaim], reaches: Callable[[FreeVolume], bool], taken: set[str]
) -> list[FreeVolume | None] | None:
    """The volume of each claim on one node; None for a claim that has to get a new one. Takes them out of the rest.

    None instead of the list: a claim gets no volume, because none is free and its class makes none.
    """
    picked: list[FreeVolume | None] = []
    for claim in claims:
        free = (volume for volume in claim.volumes if volume.name not in taken and reaches(volume))
        volume = None if claim.node else next(free, None)
        if volume is not None:
            taken.add(volume.name)
        elif claim.made is None:
            return None
        picked.append(volume)
    return picked
