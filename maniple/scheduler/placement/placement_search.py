"""The search for places: nodes for some pods of one group, and for a whole gang.

Pods of a group are equal, so kube-batch's "best node for this pod, then for the next" needs no loop over pods and
nodes: each node's scores for its first, second, … pod are computed at once, and the greedy choice is a merge of these
lists. The result must be the same as the loop's; ties go to the node whose name comes first. W pods on N nodes that
hold up to K pods each cost O(N + W K + W log W) instead of O(W N).

Few pods of a plain group do not even look at all nodes: the best ones are known (framework/node_rankings.py).
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from maniple.model.job import Job, TaskGroup
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.arrival_order import Pod, arrival_order, needs_pods
from maniple.scheduler.framework.best_nodes import BestNodes
from maniple.scheduler.framework.hooks import Need
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Spot, Statement
from maniple.scheduler.placement.domains_and_models import Scope, pack, room_in, scopes, total_room

_FEW = 64  # pods whose places are taken one by one; for more a look at all nodes is faster


def find_spot(
    session: Session, group: TaskGroup, wanted: int, scope: Scope, *, later: bool, following: int = 0
) -> Spot | None:
    """Returns places for as many of `wanted` pods as fit; None if none fits. `following` more pods come after them."""
    if scope.nodes is None and (wanted == 1 or (scope.levels is None and wanted <= _FEW)):
        ranked = session.rankings.best(group, later=later, model=scope.model_of(group))
        if ranked is not None:
            return _best_spot(session, group, wanted, ranked)
    fits = room_in(session, group, scope, later=later, is_next=True)
    if following and group.pod_affinity is not None and group.pod_affinity.affinity:
        fits = _where_all_fit(session, group.pod_affinity, fits, wanted + following)
    candidates = np.flatnonzero(fits)
    if not len(candidates):
        return None
    fits = fits[candidates]
    if len(candidates) == 1:
        return Spot(candidates, np.minimum(fits, wanted))  # no choice, so no scores
    batch = _batch_score(session, group, candidates)
    score = session.capacity.scores(group)[candidates]
    if batch is not None:
        score = score + batch
    if scope.levels is not None and wanted > 1:
        packed = pack(candidates, fits, score, scope.levels, wanted)
        return Spot(np.array(list(packed), dtype=np.intp), np.array(list(packed.values()), dtype=np.float64))
    best = _top(score, min(wanted, len(candidates)))
    if wanted == 1 or fits[best].max() <= 1:
        return Spot(candidates[best], np.ones(len(best)))
    nodes, more = candidates[best].tolist(), (np.minimum(fits[best], wanted) - 1).astype(np.intp).tolist()
    deeper = session.capacity.following_scores(group, nodes, more)
    if batch is not None:
        deeper = [
            [value + extra for value in values] for values, extra in zip(deeper, batch[best].tolist(), strict=True)
        ]
    return _spot(_merge(nodes, more, score[best].tolist(), deeper, wanted))


def _best_spot(session: Session, group: TaskGroup, wanted: int, ranked: BestNodes) -> Spot | None:
    """The same for few pods, if the best nodes are known."""
    if wanted == 1:
        node = ranked.first()
        return None if node is None else _spot({node: 1})
    nodes = list(islice(ranked.in_order(), wanted))
    more = [int(min(fits, wanted)) - 1 for fits in ranked.fits_on(nodes)]
    if len(nodes) < 2:
        return _spot({node: 1 + count for node, count in zip(nodes, more, strict=True)}) if nodes else None
    if not any(more):
        return _spot(dict.fromkeys(nodes, 1))
    deeper = session.rankings.following_scores(group, nodes, more)
    return _spot(_merge(nodes, more, ranked.scores_of(nodes), deeper, wanted))


def _spot(pods: dict[int, int]) -> Spot:
    count = len(pods)
    return Spot(
        np.fromiter(pods, dtype=np.intp, count=count), np.fromiter(pods.values(), dtype=np.float64, count=count)
    )


def place_some(
    session: Session, statement: Statement, job: Job, group: TaskGroup, wanted: int, scope: Scope, *, later: bool
) -> int:
    """Places up to `wanted` pods of the group in the scope; returns how many."""
    wanted = min(wanted, session.state(job).left(group))
    placed = 0
    for choice in _in_order_of_models(session, group, scope):
        # Pods with affinity to each other are placed one by one, so that each sees those before it.
        singly = session.is_placed_singly(group)
        while placed < wanted:
            step = 1 if singly else wanted - placed
            spot = find_spot(session, group, step, choice, later=later, following=wanted - placed - step)
            if spot is None:
                break
            statement.place(job, group, spot, later=later, model=choice.model_of(group))
            placed += spot.total
            if not singly:
                break
    return placed


def _in_order_of_models(session: Session, group: TaskGroup, scope: Scope) -> Sequence[Scope]:
    """Returns the scope; if the pods may use several models of their list, one scope for each model."""
    models = group.shape.constraint.gpu_models
    if not models or not group.shape.gpus or models in scope.models or not session.gpus.is_mixed:
        return [scope]
    return [replace(scope, models={**scope.models, models: code}) for code in session.gpus.allowed(models) or ()]


def place_gang(session: Session, statement: Statement, job: Job, *, later: bool) -> bool:
    """Places what the job still needs to start; False if it does not fit.

    A failed attempt rolls the statement back, so it must hold nothing else.
    """
    need = session.job_need(job)
    groups = session.groups(job)
    with session.reserved.seen_by(job):
        if len(groups) == 1 and not (job.required or job.preferred or need.by_role or session.gpus.is_mixed):
            is_placed = _place_plain(session, statement, job, groups[0], need.total, later=later)
            if is_placed is not None:
                return is_placed
        for scope in scopes(session, job, need, groups, later=later):
            for ordered in _orders(session, need, groups, scope, later=later):
                if _fill(session, statement, job, ordered, need, scope, later=later):
                    return True
                statement.rollback()
        return session.reserved.is_by_group and _follow_nominations(session, statement, job, need, later=later)


def _place_plain(
    session: Session, statement: Statement, job: Job, group: TaskGroup, wanted: int, *, later: bool
) -> bool | None:
    """Places all that a gang needs, if it is a few pods whose best nodes are known; None: it is not."""
    if not 0 < wanted <= min(_FEW, session.state(job).left(group)):
        return None
    known = session.rankings.known(group, later=later)
    if known is None:
        return None
    ranked = session.rankings.ranked(group, known) if known.total >= wanted else None
    spot = None if ranked is None else _best_spot(session, group, wanted, ranked)
    if spot is None:
        return False
    statement.place(job, group, spot, later=later)
    return True


def _follow_nominations(session: Session, statement: Statement, job: Job, need: Need, *, later: bool) -> bool:
    """Places the nominated pods, each on its node, in an order that their rules about other pods allow.

    The search that promised them their nodes had its reasons for its order, and these may be gone with the victims.
    """
    pods = Counter({(group, node): count for group in job.groups for node, count in group.nominated.items()})
    by_role = Counter(group.role for group, _ in pods.elements())
    is_enough = all(by_role[role] >= count for role, count in need.by_role.items())
    if not is_enough or pods.total() != need.total or not any(map(needs_pods, job.groups)):
        return False
    order = arrival_order(session, pods, later=later)
    if order is None:
        return False
    for scope in scopes(session, job, need, session.groups(job), later=later):
        if all(_place_there(session, statement, job, pod, scope, later=later) for pod in order):
            return True
        statement.rollback()
    return False


def _place_there(session: Session, statement: Statement, job: Job, pod: Pod, scope: Scope, *, later: bool) -> bool:
    group, node = pod
    there = np.zeros(len(session.snapshot.nodes), dtype=bool)
    there[node] = scope.nodes is None or scope.nodes[node]
    return place_some(session, statement, job, group, 1, replace(scope, nodes=there), later=later) == 1


def place_more(session: Session, statement: Statement, job: Job, group: TaskGroup) -> bool:
    """Places one more pod of a gang that has started, within the gang's constraints."""
    return any(
        place_some(session, statement, job, group, 1, scope, later=False)
        for scope in scopes(session, job, Need({}, 1), [group], later=False)
    )


def _orders(
    session: Session, need: Need, groups: list[TaskGroup], scope: Scope, *, later: bool
) -> Iterator[list[TaskGroup]]:
    """Yields groups in task order; then the hardest to place first, so that a small pod does not take the last place of
    a large one.
    """
    if len(groups) == 1:
        if total_room(session, groups[0], scope, later=later) >= need.total:  # decided without choosing nodes
            yield groups
        return
    yield groups
    # Hardness is how rarely a group fits, or how much of the cluster one of its pods takes.
    fits = {group: total_room(session, group, scope, later=later) / len(group.pods) for group in groups}
    for hardest in (
        sorted(groups, key=lambda group: (_has_affinity(group), fits[group])),
        sorted(groups, key=lambda group: (_has_affinity(group), -_hardness(session, group))),
    ):
        if hardest != groups:
            yield hardest


def _has_affinity(group: TaskGroup) -> bool:
    """Whether its pods want to be near others, which may be in the same gang and so must be placed first."""
    return group.pod_affinity is not None and bool(group.pod_affinity.affinity)


def _fill(
    session: Session, statement: Statement, job: Job, groups: list[TaskGroup], need: Need, scope: Scope, *, later: bool
) -> bool:
    """Places the minimum of each role, then any groups up to the gang's minimum."""
    by_role = dict(need.by_role)
    missing = need.total
    for group in groups:
        count = by_role.get(group.role, 0)
        if count:
            placed = place_some(session, statement, job, group, count, scope, later=later)
            by_role[group.role] -= placed
            missing -= placed
    if any(by_role.values()):
        return False
    for group in groups:
        if missing > 0:
            missing -= place_some(session, statement, job, group, missing, scope, later=later)
    return missing <= 0


def _hardness(session: Session, group: TaskGroup) -> float:
    """Returns the largest share of the cluster that one pod of the group takes of any resource."""
    total = session.snapshot.total
    counted = session.snapshot.axis.shared & (total > 0)
    share = group.shape.requests[counted] / total[counted]
    return float(share.max()) if len(share) else 0.0


def _where_all_fit(session: Session, pod_affinity: AffinityInfo, fits: FloatArray, count: int) -> FloatArray:
    """Returns `fits` restricted to domains that hold `count` pods, if the pods must share one and some domain does."""
    for term in pod_affinity.affinity:
        if pod_affinity.match(term):
            roomy = session.neighbours.now.counts.spread_out(fits, term.topology_key) >= count
            if (roomy & (fits > 0)).any():
                fits = np.where(roomy, fits, 0.0)
    return fits


def _batch_score(session: Session, group: TaskGroup, candidates: IntArray) -> FloatArray | None:
    total: FloatArray | None = None
    for hooks in session.hooks:
        part = hooks.batch_node_order(group, candidates) if hooks.batch_node_order else None
        if part is not None:
            total = part if total is None else total + part
    return total


def _top(score: FloatArray, count: int) -> IntArray:
    """Returns the positions of the `count` highest scores, highest first; among equals the lower position."""
    if count == 1:
        return np.array([np.argmax(score)], dtype=np.intp)
    if count < len(score):
        threshold = np.partition(score, len(score) - count)[len(score) - count]
        above = np.flatnonzero(score > threshold)
        equal = np.flatnonzero(score == threshold)[: count - len(above)]
        chosen = np.concatenate([above, equal])
        chosen.sort()
    else:
        chosen = np.arange(len(score), dtype=np.intp)
    return np.asarray(chosen[np.argsort(-score[chosen], kind="stable")], dtype=np.intp)


def _merge(
    nodes: Sequence[int], more: Sequence[int], scores: Sequence[float], deeper: Sequence[Sequence[float]], wanted: int
) -> dict[int, int]:
    """Returns the greedy choice of `wanted` places: node -> pods, in the order of first choice.

    Each pod goes where its score is highest at that moment. At most `wanted` nodes are opened, always the best one that
    is not open yet, so the `wanted` best nodes are enough. Each takes one pod and as many `more` as it has room for;
    `deeper` has the scores of its second, third, … pod.
    """
    # Ties go to the node with the lower index. `nodes` is sorted by score, so the heap has the index as well.
    heap = [(-score, node, place, 0) for place, (score, node) in enumerate(zip(scores, nodes, strict=True))]
    heapq.heapify(heap)
    chosen: dict[int, int] = {}
    for _ in range(wanted):
        if not heap:
            break
        _, node, place, count = heap[0]
        chosen[node] = count + 1
        if count < more[place]:
            heapq.heapreplace(heap, (-deeper[place][count], node, place, count + 1))
        else:
            heapq.heappop(heap)
    return chosen
