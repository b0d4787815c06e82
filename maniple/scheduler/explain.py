"""Why a gang waits: the reason, the nodes counted by what is wrong with each, and the one thing that would change it.

Runs after the actions, over what is then free. Everything about nodes is computed once a shape, so that ten thousand
waiting gangs of a few shapes are explained in the time of a few.
"""

from dataclasses import dataclass

import numpy as np

from maniple.api.gpuwish import WHOLE
from maniple.api.quantity import format_quantity
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.shape import Shape
from maniple.scheduler.explain_close import never_close, no_such_model, not_close
from maniple.scheduler.hooks import Need, Reason
from maniple.scheduler.plan import NodeCount, Waiting
from maniple.scheduler.room import capacity
from maniple.scheduler.session import Session


@dataclass(frozen=True, slots=True)
class _View:
    """How the nodes look to one shape at the end of the cycle."""

    asks: str  # what one pod asks for
    counts: tuple[NodeCount, ...]
    fits: int  # pods of it that would fit now, as far as each can tell without the others
    fits_empty: int  # … if nothing at all were running
    would: str  # what would let one more fit: the node that lacks least, else what the nodes object to; or nothing


class Explainer:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._views: dict[object, _View] = {}
        self._promised: dict[tuple[str, str], FloatArray] = {}
        for done in session.placed:
            if done.later:
                before = self._promised.get(done.job.key, 0.0)
                self._promised[done.job.key] = before + done.group.shape.requests * done.spot.total

    def explain(self, job: Job) -> Waiting | None:
        """None if nothing of the job waits."""
        session = self._session
        state = session.state(job)
        left = sum(state.left(group) for group in job.groups)
        if not left and not job.gated and not state.promised_count:
            return None
        need = session.job_need(job) if job.exists and not job.is_suspended else Need({}, 0)
        reason, counts = self._reason(job, need, left)
        return Waiting(
            group=job.name,
            queue=session.queue_of(job).name,
            reason=reason.code,
            message=reason.message,
            needs=self._needs(job, need),
            nodes=counts,
            would_start_if=reason.would_start_if,
        )

    def _reason(self, job: Job, need: Need, left: int) -> tuple[Reason, tuple[NodeCount, ...]]:
        session = self._session
        state = session.state(job)
        if not job.exists:
            name = job.name.split("/", 1)[1]
            return Reason(
                "GroupNotFound",
                f"its pods name the group {name!r}, and there is no such PodGroup in their namespace",
                f"PodGroup {job.name} is created",
            ), ()
        if job.is_suspended:
            return Reason("Suspended", "spec.suspend is true", "spec.suspend is set to false"), ()
        if state.promised_count:
            return Reason(
                "Promised",
                f"room for {_pods(state.promised_count)} is promised and still held by pods that are leaving",
                "the pods that are leaving have left",
            ), ()
        # Whether a gang is complete does not depend on an action having asked.
        blocked = session.blocked.get(job.key) or session.job_valid(job)
        if not need.total:
            return self._surplus(job, left, blocked)
        if blocked is not None:
            return blocked, ()
        return self._no_room(job, need) if job.groups else (_gated(job), ())

    def _surplus(self, job: Job, left: int, blocked: Reason | None) -> tuple[Reason, tuple[NodeCount, ...]]:
        """The gang runs; pods above its minimum wait."""
        if not left:
            return _gated(job), ()
        counts: tuple[NodeCount, ...] = ()
        if blocked is not None:
            why, would = blocked.message, blocked.would_start_if
        else:
            group = next(group for group in self._session.groups(job) if self._session.state(job).left(group))
            view = self._view(group)
            counts = view.counts
            why, would = "no node has room for one", view.would
            apart = not_close(self._session, job, Need({}, 1), {group: f"1 pod of {view.asks}"}) if view.fits else None
            if apart is not None:
                why, would = apart.message, apart.would_start_if
            elif view.fits:
                why, would = "no action of the policy places such pods", _action_for(group)
        wait = "waits" if left == 1 else "wait"
        return Reason("SurplusWaiting", f"the gang runs; {_pods(left)} above its minimum {wait}: {why}", would), counts

    def _no_room(self, job: Job, need: Need) -> tuple[Reason, tuple[NodeCount, ...]]:
        """The group that is hardest to place speaks for the gang."""
        session = self._session
        groups = session.groups(job)
        wanted = {group: min(need.by_role.get(group.role, need.total), len(group.pods)) for group in groups}
        views = {group: self._view(group) for group in groups}
        group = min(groups, key=lambda group: views[group].fits - wanted[group])
        view, count = views[group], wanted[group]
        if len(groups) == 1:
            count = need.total
        what = f"{_pods(count)} of {view.asks}"
        wanted[group] = count
        phrases = {group: f"{_pods(wanted[group])} of {views[group].asks}" for group in groups}
        never = never_close(session, job, wanted, phrases)
        if never is not None and all(views[group].fits_empty >= wanted[group] for group in groups):
            return never, view.counts
        unknown = no_such_model(session, group)
        if unknown is not None:
            return Reason("NoNodeFits", f"needs {what}, and {unknown[0]}", unknown[1]), view.counts
        if view.fits_empty < count:
            code = "InsufficientResources" if view.fits_empty else "NoNodeFits"
            message = f"needs {what}; even an empty cluster has room for {view.fits_empty}"
            if view.fits_empty:
                would = f"the cluster had room for {count - view.fits_empty} more"
            else:
                would = view.would if count == 1 else f"the cluster had room for {count}; one would fit if {view.would}"
            return Reason(code, message, would), view.counts
        if view.fits < count:
            message = f"needs {what} at once; there is room for {view.fits} now"
            return Reason("InsufficientResources", message, _more_room(view, count - view.fits)), view.counts
        apart = not_close(session, job, need, phrases)
        if apart is not None:
            return apart, view.counts
        rules = _rules(group)
        if rules:
            message = f"needs {what}; each finds a node, but not all together: {rules} stands between them"
            would = f"there were more nodes where their {rules} lets them go"
            return Reason("InsufficientResources", message, would), view.counts
        if len(groups) > 1:
            message = f"needs {what} together with its other pods; each part fits alone, but not all at once"
            return Reason("InsufficientResources", message, "more room came free"), view.counts
        message = f"needs {what} and there is room, but no action of the policy places such pods"
        return Reason("NotTried", message, _action_for(group)), view.counts

    def _view(self, group: TaskGroup) -> _View:
        key = (group.shape.number, group.peers)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._look(group)
        return view

    def _look(self, group: TaskGroup) -> _View:
        session, requests = self._session, group.shape.requests
        nodes = session.snapshot.nodes
        open_ = np.ones(len(nodes), dtype=bool)
        counts: dict[str, int] = {}

        def refuse(reason: str, passes: BoolArray) -> None:
            nonlocal open_
            number = int((open_ & ~passes).sum())
            if number:
                counts[reason] = counts.get(reason, 0) + number
            open_ = open_ & passes

        for check in session.rooms.checks(group):
            refuse(check.reason, check.passes)
        statically = open_.copy()
        if group.peers is not None or group.shape.exclusives:
            for check in session.pod_checks(group):
                refuse(check.reason, check.passes)
        usable = np.minimum(session.free, session.future)
        fits = np.where(open_, capacity(requests, usable), 0.0)
        empty = np.where(statically, capacity(requests, nodes.allocatable), 0.0)
        on_devices = session.gpus.fits(group.shape, None, usable) if session.gpus.is_counted(group.shape) else None
        if on_devices is not None:
            fits = np.minimum(fits, on_devices)
            empty = np.minimum(empty, session.gpus.fits(group.shape, None, nodes.allocatable, empty=True))
        if group.shape.is_one_per_node:
            fits, empty = np.minimum(fits, 1.0), np.minimum(empty, 1.0)
        nearest = self._nearest_miss(group, np.flatnonzero(open_ & (fits == 0)), usable)
        would = "a node that meets the pod's demands were added"
        if counts:
            # The check that refused last: those nodes passed all others.
            would = f"some node were not refused because {list(counts)[-1]}"
        for row in self._rows_by_interest(requests):
            name, enough = session.snapshot.axis.names[row], usable[row] >= requests[row]
            if row in session.gpus.tables:
                refuse(f"insufficient {name} beside unhealthy ones", enough | ~session.gpus.has_unhealthy(row))
            refuse(f"insufficient {name}", enough)
        if on_devices is not None:
            refuse("no GPU has so much of it free", on_devices > 0)
        left = int(open_.sum())
        if left:
            counts["has room, but not for all pods"] = left
        return _View(
            asks=self._describe(group.shape),
            counts=tuple(NodeCount(r, n) for r, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
            fits=int(min(fits.sum(), 1e9)),
            fits_empty=int(min(empty.sum(), 1e9)),
            would=nearest or ("" if left else would),
        )

    def _rows_by_interest(self, requests: FloatArray) -> list[int]:
        """Requested resources, extended ones first: of a node without GPUs one wants to hear that it has no GPUs."""
        return sorted(np.flatnonzero(requests).tolist(), key=lambda row: (row < 3, row))

    def _nearest_miss(self, group: TaskGroup, nodes: IntArray, usable: FloatArray) -> str | None:
        """Of nodes that only lack resources, the one that lacks the smallest part of what a pod asks for."""
        if not len(nodes):
            return None
        axis, requests = self._session.snapshot.axis, group.shape.requests
        rows = np.flatnonzero(requests)
        lacking = np.maximum(requests[rows, None] - usable[np.ix_(rows, nodes)], 0.0)
        best = int(np.argmin((lacking / requests[rows, None]).sum(axis=0)))
        parts = [
            f"{axis.text(int(row), amount)} {axis.names[row]}"
            for row, amount in zip(rows, lacking[:, best], strict=True)
            if amount > 0
        ]
        name = self._session.snapshot.nodes.names[nodes[best]]
        if not parts:
            # What is free of its GPUs adds up, but not on single ones.
            ask = group.shape.gpus[0]
            share = "all of it" if ask.is_whole else f"{ask.milli / WHOLE:g} of it"
            return f"node {name} had {ask.count} {'GPU' if ask.count == 1 else 'GPUs, each'} with {share} free"
        return f"node {name} had {' and '.join(parts)} more"

    def _needs(self, job: Job, need: Need) -> dict[str, str]:
        """The pods still needed to start, and what they ask for together."""
        if not need.total:
            return {}
        total = self._promised.get(job.key)
        if total is None:
            total = self._session.needed_resources(job)
        return {"pods": str(need.total), **self._session.snapshot.axis.describe(total)}

    def _describe(self, shape: Shape) -> str:
        """What one pod asks for, in words."""
        axis = self._session.snapshot.axis
        named = axis.describe(shape.requests)
        for ask in shape.gpus:
            name = axis.names[ask.row]
            if ask.memory:
                named[name] = f"{format_quantity(ask.memory, per_unit=1, binary=True)} of {ask.count}"
            elif not ask.is_whole:
                named[name] = f"{ask.milli / WHOLE:g} of {'each of ' if ask.count > 1 else ''}{ask.count}"
        return ", ".join(f"{value} {name}" for name, value in named.items()) or "no requests"


def _gated(job: Job) -> Reason:
    held = f"{_pods(job.gated)} {'is' if job.gated == 1 else 'are'} held by scheduling gates"
    return Reason("SchedulingGated", held, "the gates are removed")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _more_room(view: _View, missing: int) -> str:
    if missing == 1 and view.would:
        return view.would
    return f"room for {missing} more came free" + (f"; one would fit if {view.would}" if view.would else "")


def _rules(group: TaskGroup) -> str:
    """What the pods of the group demand of each other."""
    peers = group.peers
    if peers is None:
        return ""
    rules = (
        ("pod affinity", any(peers.match(term) for term in peers.affinity)),
        ("pod anti-affinity", any(peers.match(term) for term in peers.anti_affinity)),
        ("topology spread", any(spread.is_required for spread in peers.spread)),
    )
    return " and ".join(name for name, is_there in rules if is_there)


def _action_for(group: TaskGroup) -> str:
    return f"the policy's actions included {'backfill' if group.shape.is_best_effort else 'allocate'}"
