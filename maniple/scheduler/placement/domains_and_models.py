"""The scopes a gang is placed in: topology domains and GPU models, in the order in which they are tried.

A gang without such constraints has one scope, the whole cluster. Otherwise room is counted by domain and by model
before anything is placed: O(groups x levels x nodes) for each choice of models. The narrowest level comes first. Of its
domains that hold the gang, the one that needs the fewest nodes for it comes first, then the one with the least room to
spare, so that large domains stay whole. This module only counts: it never places a pod.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from maniple.api.types import GpuModel
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.topology_domains import Level
from maniple.scheduler.framework.hooks import Need
from maniple.scheduler.framework.session import Session

_MOST_SIZES = 64  # a larger table of nodes by room is compressed to the sizes that occur


@dataclass(frozen=True, slots=True)
class Scope:
    nodes: BoolArray | None = None  # None: all
    # List of models -> the one model for its pods. Pods with another list may use any model on it.
    models: Mapping[tuple[GpuModel, ...], int] = field(default_factory=dict)
    # The levels inside the scope, widest first, if pods are packed close together; None: scores decide.
    levels: tuple[Level, ...] | None = None

    def model_of(self, group: TaskGroup) -> int | None:
        return self.models.get(group.shape.constraint.gpu_models) if group.shape.gpus else None


ANYWHERE = Scope()


def scopes(session: Session, job: Job, need: Need, groups: Sequence[TaskGroup], *, later: bool) -> Iterator[Scope]:
    """Yields all scopes that may hold what the gang needs, best first."""
    if not (job.required or job.preferred) and not session.gpus.is_mixed:
        yield ANYWHERE
        yield from _by_affinity(session, need, groups, later=later)
        return
    for models in _models(session, job, need, groups, later=later):
        scope = Scope(models=models)
        if job.required or job.preferred:
            yield from _domains(session, job, need, groups, scope, later=later)
        else:
            yield scope
            yield from _by_affinity(session, need, groups, scope, later=later)


def room_in(session: Session, group: TaskGroup, scope: Scope, *, later: bool, is_next: bool = False) -> FloatArray:
    """[N] how many pods of the group fit on each node of the scope (Session.room_for)."""
    fits = session.room_for(group, later=later, model=scope.model_of(group), is_next=is_next)
    return fits if scope.nodes is None else np.where(scope.nodes, fits, 0.0)


def total_room(session: Session, group: TaskGroup, scope: Scope, *, later: bool) -> float:
    """How many pods of the group fit in the scope."""
    room = None
    if scope.nodes is None:
        room = session.rankings.room(group, later=later, model=scope.model_of(group))
    return room if room is not None else float(room_in(session, group, scope, later=later).sum())


# --- models


def _models(
    session: Session, job: Job, need: Need, groups: Sequence[TaskGroup], *, later: bool
) -> Iterator[dict[tuple[GpuModel, ...], int]]:
    """Yields the model for each list of models: pods with the same list share one, unless the gang may be mixed."""
    if job.mixed_models or not session.gpus.is_mixed:
        yield {}
        return
    if need.total == len(groups) == 1 and not groups[0].shape.constraint.gpu_models and not session.state(job).nodes:
        yield {}  # the GPUs of one pod are of one model anyway
        return
    lists = list(dict.fromkeys(group.shape.constraint.gpu_models for group in groups if group.shape.gpus))
    choices: dict[tuple[GpuModel, ...], list[int]] = {}
    for models in lists:
        same_list = [group for group in groups if group.shape.gpus and group.shape.constraint.gpu_models == models]
        # How many pods of one list the gang needs is unknown, so room for one is enough here.
        part = need if len(same_list) == len(groups) else Need({}, 1)
        codes = choices_of_models(session, job, part, same_list, later=later)
        there = _models_there(session, job, models)
        if not codes and len(same_list) < len(groups) and len(there) < 2:
            # No pod of this list has room. The gang may not need any: it may have pods of other lists or without GPUs.
            codes = list(there)
        if codes or len(same_list) == len(groups) or len(there) > 1:
            choices[models] = codes
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def _models_there(session: Session, job: Job, models: tuple[GpuModel, ...]) -> tuple[int, ...]:
    """Returns the models on which pods of the gang with this list already are."""
    there = session.state(job).models.get(models)
    return tuple(code for code, count in there.items() if count > 0) if there else ()


def choices_of_models(session: Session, job: Job, need: Need, groups: Sequence[TaskGroup], *, later: bool) -> list[int]:
    """Returns the models with room for what is needed of the groups, best first."""
    gpus = session.gpus
    models = groups[0].shape.constraint.gpu_models
    members = _models_there(session, job, models)
    if len(members) > 1:
        return []
    codes = members or gpus.allowed(models)
    is_ordered = codes is not None
    choices: list[tuple[float, int]] = []
    for code in range(len(gpus.models)) if codes is None else codes:
        scope = Scope(models={models: code})
        rooms = [np.array([total_room(session, group, scope, later=later)]) for group in groups]
        if _hold_each(need, groups, rooms)[0]:
            # Without a list, the policy's scores decide between models.
            best = 0.0 if is_ordered else _best_score(session, groups[0], code, later=later)
            choices.append((-best, code))
    return [code for _, code in (choices if is_ordered else sorted(choices))]


def _best_score(session: Session, group: TaskGroup, model: int, *, later: bool) -> float:
    ranked = session.rankings.best(group, later=later, model=model)
    if ranked is not None:
        return ranked.top
    fits = session.room_for(group, later=later, model=model)
    return float(session.capacity.scores(group)[fits > 0].max(initial=-np.inf))


# --- domains


def _domains(
    session: Session, job: Job, need: Need, groups: Sequence[TaskGroup], scope: Scope, *, later: bool
) -> Iterator[Scope]:
    chain = session.snapshot.domains.chain(job.required or job.preferred)
    widest = next((depth for depth, level in enumerate(chain) if level.name == job.required), 0)
    fits = [room_in(session, group, scope, later=later) for group in groups]
    members = members_of(session, job)
    most = max((float(part.max(initial=0.0)) for part in fits), default=0.0) * len(groups)
    for depth in range(len(chain) - 1, widest - 1, -1):
        level = chain[depth]
        if level.largest * most < need.total:
            continue  # no domain is large enough: seen without counting the room of ten thousand hosts
        for domain in _candidates(need, groups, fits, level.shifted, len(level.names), home_of(level, members)):
            yield Scope(level.codes == domain, scope.models, chain[depth + 1 :])
    if not job.required:
        yield Scope(None, scope.models, chain)


def members_of(session: Session, job: Job) -> IntArray:
    """Returns the nodes that already have pods of the gang; -1 for a node that is not in the snapshot."""
    return np.array([node for node, count in session.state(job).nodes.items() if count > 0], dtype=np.intp)


def home_of(level: Level, members: IntArray) -> int | None:
    """Returns the domain the gang's pods are in: None without pods, -1 if they are in several domains or in none."""
    if not len(members):
        return None
    codes = np.full(len(members), -1)  # of members on nodes that are gone, perhaps all nodes
    codes[members >= 0] = level.codes[members[members >= 0]]
    return int(codes[0]) if (codes == codes[0]).all() else -1


def _candidates(
    need: Need, groups: Sequence[TaskGroup], fits: Sequence[FloatArray], shifted: IntArray, count: int, home: int | None
) -> Iterator[int]:
    """Yields the domains with room for what is needed, best first."""
    rooms = [_by_domain(shifted, part, count) for part in fits]
    enough = _hold_each(need, groups, rooms)
    if home is not None:
        enough &= np.arange(count) == home
    domains = np.flatnonzero(enough)
    if len(domains) > 1:
        # The tightest group decides.
        ratios = [room[domains] / _wanted(need, group) for room, group in zip(rooms, groups, strict=True)]
        spare = np.min(ratios, axis=0)
        opened = np.zeros(len(domains))
        if len(groups) == 1:  # the nodes that several groups need together are not counted
            opened = _fewest_nodes(fits[0], shifted, count, need.total)[domains]
        domains = domains[np.lexsort((domains, spare, opened))]
    yield from domains.tolist()


def _wanted(need: Need, group: TaskGroup) -> int:
    return max(1, min(len(group.pods), need.by_role.get(group.role, need.total)))


def _by_domain(shifted: IntArray, fits: FloatArray, count: int) -> FloatArray:
    return np.bincount(shifted, weights=fits, minlength=count + 1)[1:].astype(np.float64)


def by_domain(level: Level, fits: FloatArray) -> FloatArray:
    """[domains] the sum of `fits` over the nodes of each domain."""
    return _by_domain(level.shifted, fits, len(level.names))


def _hold_each(need: Need, groups: Sequence[TaskGroup], rooms: Sequence[FloatArray]) -> BoolArray:
    """[domains] whether each may hold what is needed, if every group were placed alone."""
    if len(groups) == 1 and len(groups[0].pods) >= need.total and not need.by_role:
        return rooms[0] >= need.total
    capped = np.array([np.minimum(room, len(group.pods)) for room, group in zip(rooms, groups, strict=True)])
    enough: BoolArray = capped.sum(axis=0) >= need.total
    for role, wanted in need.by_role.items():
        enough &= capped[[group.role == role for group in groups]].sum(axis=0) >= wanted
    return enough


def _fewest_nodes(fits: FloatArray, shifted: IntArray, count: int, wanted: int) -> FloatArray:
    """[domains] the least number of nodes that hold `wanted` pods.

    Nodes are counted by domain and by size (the pods they hold). Opening the largest first is optimal.
    """
    sizes = np.minimum(fits, wanted).astype(np.intp)
    values = np.arange(int(sizes.max(initial=0)) + 1)
    if len(values) > _MOST_SIZES:
        values, sizes = np.unique(sizes, return_inverse=True)
    table = np.bincount(shifted * len(values) + sizes, minlength=(count + 1) * len(values))
    left = np.full(count, float(wanted))
    opened = np.zeros(count)
    for column in range(len(values) - 1, -1, -1):
        if values[column] > 0:
            taken = np.minimum(table[len(values) + column :: len(values)], np.ceil(left / values[column]))
            opened += taken
            left = np.maximum(left - taken * values[column], 0.0)
            if not left.any():
                break
    return opened


def _by_affinity(
    session: Session, need: Need, groups: Sequence[TaskGroup], scope: Scope = ANYWHERE, *, later: bool
) -> Iterator[Scope]:
    """Yields, for pods with affinity to pods of their gang, one scope for each domain of the topology key."""
    keys = {
        term.topology_key
        for group in groups
        if group.pod_affinity is not None
        for term in group.pod_affinity.affinity
        if any(other.pod_affinity is not None and other.pod_affinity.match(term) for other in groups)
    }
    for key in sorted(keys):
        codes, values = session.snapshot.nodes.column(key)
        fits = [room_in(session, group, scope, later=later) for group in groups]
        for domain in _candidates(need, groups, fits, (codes + 1).astype(np.intp), len(values), None):
            yield Scope(codes == domain, scope.models)


# --- packing


def pack(nodes: IntArray, fits: FloatArray, score: FloatArray, levels: Sequence[Level], wanted: int) -> dict[int, int]:
    """Returns places for `wanted` pods on few nodes of few domains: node -> pods.

    `fits` and `score` are aligned with `nodes`. A domain that holds all the rest is preferred, else the roomiest.
    """
    if not len(nodes) or wanted <= 0:
        return {}
    if not levels:
        return _pack_nodes(nodes, fits, score, wanted)
    shifted = levels[0].codes[nodes] + 1
    count = len(levels[0].names)
    rooms = np.bincount(shifted, weights=fits, minlength=count + 1)
    opened = np.concatenate([[np.inf], _fewest_nodes(fits, shifted, count, wanted)])
    placed: dict[int, int] = {}
    while wanted > 0 and rooms.max() > 0:
        enough = np.flatnonzero(rooms >= wanted)
        if len(enough):
            best = int(enough[np.lexsort((enough, rooms[enough], opened[enough]))[0]])
        else:
            best = int(np.argmax(rooms))
        inside = shifted == best
        part = pack(nodes[inside], fits[inside], score[inside], levels[1:], int(min(wanted, rooms[best])))
        placed.update(part)
        wanted -= sum(part.values())
        rooms[best] = 0.0
    return placed


def _pack_nodes(nodes: IntArray, fits: FloatArray, score: FloatArray, wanted: int) -> dict[int, int]:
    """Takes the roomiest nodes, and for the last pods the node they fill best; among equals the best score."""
    order = np.lexsort((nodes, -score, -fits))
    placed: dict[int, int] = {}
    rank = 0
    while wanted > 0 and rank < len(order):
        position = order[rank]
        if fits[position] >= wanted:
            rest = order[rank:]
            last = rest[fits[rest] >= wanted]
            tight = last[fits[last] == fits[last].min()]
            placed[int(nodes[tight[0]])] = wanted
            break
        taken = int(fits[position])
        if taken <= 0:
            break
        placed[int(nodes[position])] = taken
        wanted -= taken
        rank += 1
    return placed
