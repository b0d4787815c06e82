"""Why a gang waits: the reason, the nodes counted by what is wrong with each, the place that comes nearest, what was
tried, and the smallest change that would start it.

Runs when somebody asks, after the actions, over what is then free, and changes nothing. Gangs that ask for the same in
the same queue wait for the same reasons: everything is found out once for each kind of demand, so that ten thousand
waiting gangs of a few kinds are explained in the time of a few.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maniple.api.keys import split_name
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.explain.below_minimum import gives_back, not_released
from maniple.scheduler.explain.fit_view import FitView
from maniple.scheduler.explain.nearest_miss import Miss, find_miss, nearest_of
from maniple.scheduler.explain.no_room import NoRoom
from maniple.scheduler.explain.possible_moves import PossibleMoves
from maniple.scheduler.explain.running_pods import MOST_LOOKED_AT, Holders
from maniple.scheduler.explain.stuck_in_the_way import stuck_in_the_way
from maniple.scheduler.explain.tried import Case
from maniple.scheduler.explain.who_waits import QueueLines, Standings, gated, has_no_pods, own_key
from maniple.scheduler.explain.words import change, held_by, listed, pods
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.plan import Nearest, NodeCount, Tried, Waiting
from maniple.scheduler.framework.session import Session

_MOST_LOOKED_AT_BRIEFLY = 1000  # pods that might have been taken, over all kinds of gangs
_MOST_VIEWS = 256  # that are cached: each has several arrays over the nodes


@dataclass(frozen=True, slots=True)
class _Verdict:
    """All that is said of gangs of one kind."""

    reason: Reason
    needs: dict[str, str]
    nodes: tuple[NodeCount, ...] = ()
    tried: tuple[Tried, ...] = ()
    nearest: Nearest | None = None
    lacks_room: bool = False  # and nothing else


class Explainer:
    """`thorough`: the name of a job whose explanation may cost whatever it takes.

    `is_brief`: only the reason is wanted, not what was tried nor what each node objects to.
    """

    def __init__(self, session: Session, thorough: str = "", *, is_brief: bool = False) -> None:
        self._session = session
        self._thorough = thorough
        self._is_brief = is_brief
        self._verdicts: dict[object, _Verdict] = {}
        self._views: dict[object, FitView] = {}
        self._misses: dict[object, Miss] = {}
        self._holders = Holders(session, _MOST_LOOKED_AT_BRIEFLY if is_brief else MOST_LOOKED_AT)
        self._standings = Standings(session, thorough)
        self._moves: dict[int, str] = {}  # the moves that would start gangs, by the verdict on them
        self._possible_moves = PossibleMoves(session)
        self._promised: dict[JobKey, FloatArray] = {}  # what the pods of a gang ask for that is promised room
        for placed in session.placed:
            if placed.later:
                before = self._promised.get(placed.job.key, 0.0)
                self._promised[placed.job.key] = before + placed.group.shape.requests * placed.spot.total

    def explain_all(self) -> Iterator[Waiting]:
        """Every gang that waits."""
        session = self._session
        verdicts = [(job, self._explain(job)) for job in session.snapshot.waiting]
        judged = [(job, verdict) for job, verdict in verdicts if verdict is not None]
        in_line = [entry for entry in judged if entry[0].key in self._lines.positions]
        in_line.sort(key=lambda entry: (self._lines.positions[entry[0].key], entry[0].key))
        for job, verdict in in_line:  # the first in line are told first which moves would help them
            self._moves_for(job, verdict)
        yield from not_released(session, {job.key for job, _ in judged})
        for job, verdict in judged:
            yield self._waiting(job, verdict, self._lines.positions.get(job.key))

    def explain(self, job: Job) -> Waiting | None:
        """One gang alone; None if it does not wait. Its position in line takes a look at all gangs that wait."""
        verdict = self._explain(job)
        if verdict is None:
            others = not_released(self._session, ())
            return next((entry for entry in others if (entry.group, entry.kind) == job.key), None)
        if verdict.reason.is_in_line:
            self._moves_for(job, verdict)
        return self._waiting(job, verdict, self._lines.positions.get(job.key))

    def reason(self, job: Job) -> Reason | None:
        """The reason alone."""
        verdict = self._explain(job)
        if verdict is None:
            entry = self.explain(job)
            return None if entry is None else Reason(entry.reason, entry.message, entry.would_start_if)
        if verdict.reason.is_in_line:
            self._moves_for(job, verdict)
        return self._reason(job, verdict)

    def line(self, queue: int) -> int:
        """How many gangs are in the queue's line."""
        return self._lines.lengths.get(queue, 0)

    def _reason(self, job: Job, verdict: _Verdict) -> Reason:
        reason = verdict.reason
        moves = self._moves.get(id(verdict), "") if reason.is_in_line else ""
        message, would = reason.message + gives_back(self._session, job), reason.would_start_if + moves
        return replace(reason, message=message, would_start_if=would)

    def _waiting(self, job: Job, verdict: _Verdict, position: int | None) -> Waiting:
        reason = self._reason(job, verdict)
        return Waiting(
            group=job.name,
            kind=job.key[1],
            queue=self._session.queue_of(job).name,
            reason=reason.code,
            message=reason.message,
            needs=verdict.needs,
            nodes=verdict.nodes,
            would_start_if=reason.would_start_if,
            position=position,
            tried=verdict.tried,
            nearest=verdict.nearest,
        )

    def _moves_for(self, job: Job, verdict: _Verdict) -> None:
        """Finds the moves of running pods that would start gangs of the kind. Each kind is asked about once."""
        is_thorough = job.name == self._thorough
        if verdict.lacks_room and (is_thorough or id(verdict) not in self._moves):
            with self._session.reserved.seen_by(job):
                self._moves[id(verdict)] = self._possible_moves.words(job, is_thorough=is_thorough)

    @cached_property
    def _lines(self) -> QueueLines:
        return QueueLines(self._session, filter(self._standings.is_in_line, self._session.snapshot.waiting))

    # -- verdicts

    def _explain(self, job: Job) -> _Verdict | None:
        """None if nothing of the job waits."""
        standing = self._standings.of(job)
        if standing is None:
            return None
        verdict = self._verdicts.get(standing.kind)
        if verdict is None:
            with self._session.reserved.seen_by(job):
                verdict = self._verdicts[standing.kind] = self._judge(job, standing.left, standing.blocked)
        return verdict

    def _judge(self, job: Job, left: int, blocked: Reason | None) -> _Verdict:
        session = self._session
        if not job.exists:
            name, kind = split_name(job.name)[1], job.key[1]
            noun = "job" if kind == "ElasticJob" else "group"
            message = f"its pods name the {noun} {name!r}, and there is no such {kind} in their namespace"
            message += ", or it is not in the input"
            would = f"{kind} {job.name} were created"
            if job.set_aside:
                message, would = f"its {kind} is set aside: {job.set_aside}", "that were corrected"
            return _Verdict(Reason("GroupNotFound", message, would, is_in_line=False), {})
        need = session.job_need(job)
        wanted = self._wanted(job, need)
        if job.is_suspended:
            reason = Reason("Suspended", "spec.suspend is true", "spec.suspend were false", is_in_line=False)
            return _Verdict(self._with_all_conditions(job, wanted, reason), {})
        needs = self._needs(job, need)
        promised = session.state(job).promised_count
        if promised:
            message = f"room for {pods(promised)} is promised and still held by pods that are leaving"
            return _Verdict(Reason("Promised", message, f"{self._leaving(job)} were gone", is_in_line=False), needs)
        if not need.total and not has_no_pods(job):
            return self._judge_surplus(job, left, blocked)
        blocked = self._standings.refusal(job, blocked)
        nodes: tuple[NodeCount, ...] = ()
        limits = ""
        if blocked is not None:
            reason = self._with_all_conditions(job, wanted, blocked)
            if not blocked.is_in_line:
                return _Verdict(reason, needs)
        miss = self._miss(job, wanted)
        nearest = nearest_of(session, self._holders, job, miss)
        if blocked is None:
            views = {group: self._view(job, group) for group in session.groups(job)}
            no_room = NoRoom(session, job, need, views, miss, self._held(nearest, miss))
            reason, nodes = no_room.reason(), self._nodes(views[no_room.hardest])
            reason = replace(reason, message=reason.message + stuck_in_the_way(session, no_room.hardest))
            limits = self._limits(job, miss)
            if limits:
                reason = replace(reason, would_start_if=f"{reason.would_start_if} and {limits}")
        case = Case(self._holders, job, reason, blocked, nearest, is_thorough=job.name == self._thorough)
        return _Verdict(reason, needs, nodes, self._tried(case), nearest, lacks_room=blocked is None and not limits)

    def _judge_surplus(self, job: Job, left: int, blocked: Reason | None) -> _Verdict:
        """The gang runs; pods above its minimum wait."""
        session = self._session
        if not left:
            return _Verdict(gated(job), {})
        group = next(group for group in session.groups(job) if session.state(job).left(group))
        miss = self._miss(job, {group: 1})
        nearest = nearest_of(session, self._holders, job, miss)
        held = self._held(nearest, miss)
        would = change(miss, held)
        nodes: tuple[NodeCount, ...] = ()
        if blocked is not None:
            why, would, nearest = blocked.message, " and ".join(filter(None, (blocked.cure, would))), None
        else:
            view = self._view(job, group)
            no_room = NoRoom(session, job, Need({}, 1), {group: view}, miss, held)
            why, nodes = "no node has room for one", self._nodes(view)
            apart = no_room.fits_only_apart() if view.fits or no_room.is_torn else None
            if apart is not None:
                why, would = apart.message, apart.would_start_if
            elif view.fits:
                why, would = no_room.why_not_placed()
            why += stuck_in_the_way(session, group)
        message = f"the gang runs; {pods(left)} above its minimum {'waits' if left == 1 else 'wait'}: {why}"
        reason = Reason("SurplusWaiting", message, would, is_in_line=False)
        case = Case(self._holders, job, replace(reason, message=why), None, nearest, is_surplus=True)
        return _Verdict(reason, {}, nodes, self._tried(case), nearest)

    def _leaving(self, job: Job) -> str:
        """The pods that hold the room that is promised to the job, as far as they are known."""
        leaving = self._victims.get(job.name)
        if leaving:
            return listed(sorted(leaving))
        nodes = self._promised_nodes.get(job.key, set())
        names = sorted(self._session.snapshot.nodes.names[node] for node in nodes)
        return f"the pods that are leaving node{'s' * (len(names) > 1)} {listed(names)}"

    @cached_property
    def _victims(self) -> dict[str, list[str]]:
        """Gang -> the pods that are evicted for it."""
        victims: dict[str, list[str]] = {}
        for eviction in self._session.evicted:
            victims.setdefault(eviction.beneficiary, []).append(eviction.pod.pod)
        return victims

    @cached_property
    def _promised_nodes(self) -> dict[JobKey, set[int]]:
        """Gang -> the nodes on which it is promised room."""
        nodes: dict[JobKey, set[int]] = {}
        for placed in self._session.placed:
            if placed.later:
                nodes.setdefault(placed.job.key, set()).update(placed.spot.nodes.tolist())
        return nodes

    def _nodes(self, view: FitView) -> tuple[NodeCount, ...]:
        return () if self._is_brief else view.node_counts

    def _tried(self, case: Case) -> tuple[Tried, ...]:
        return () if self._is_brief else case.tried()

    # -- what would have to change

    def _with_all_conditions(self, job: Job, wanted: Mapping[TaskGroup, int], reason: Reason) -> Reason:
        """The reason with everything else that would have to change before the gang starts."""
        conditions = [reason.cure]
        if wanted:
            miss = self._miss(job, wanted)
            if not reason.is_in_line:
                conditions.append(self._limits(job, miss))
            nearest = nearest_of(self._session, self._holders, job, miss)
            case = Case(self._holders, job, reason, reason, nearest, is_thorough=job.name == self._thorough)
            # What others would have to give up for it need not come free by itself.
            if not case.would_get_room(wanted):
                conditions.append(change(miss, self._held(nearest, miss)))
        return replace(reason, would_start_if=" and ".join(dict.fromkeys(filter(None, conditions))))

    def _held(self, nearest: Nearest | None, miss: Miss) -> str:
        return held_by(nearest, self._session.snapshot.now, is_complete=miss.is_complete)

    def _limits(self, job: Job, miss: Miss) -> str:
        """What limits and shares of its queue would have to change; empty if nothing."""
        session, queue = self._session, self._session.queue_of(job)
        reason = session.may_start(queue, job, miss.needs) or session.overused(queue, miss.needs)
        return "" if reason is None else reason.cure

    # -- what the gang needs

    def _needs(self, job: Job, need: Need) -> dict[str, str]:
        """The pods still needed to start, and what they ask for together."""
        if not need.total:
            return {}
        amounts = self._promised.get(job.key)
        if amounts is None:
            amounts = self._session.needed_resources(job)
        return {"pods": str(need.total), **self._session.snapshot.axis.describe(amounts)}

    def _wanted(self, job: Job, need: Need) -> dict[TaskGroup, int]:
        """The pods of each group that the gang needs to start. Pods that do not exist yet count as like others.

        If a role has several kinds of pods, or the gang more than it needs, those that are easiest to place count.
        """
        groups = self._session.groups(job)
        if len(groups) <= 1:
            return dict.fromkeys(groups, need.total)
        state = self._session.state(job)
        total = np.maximum(self._session.snapshot.total, 1.0)
        easiest = sorted(groups, key=lambda group: float((group.shape.requests / total).max()))
        wanted = dict.fromkeys(groups, 0)
        by_role = dict(need.by_role)

        def take(group: TaskGroup, count: int) -> int:
            taken = max(0, min(count, state.left(group) - wanted[group]))
            wanted[group] += taken
            return taken

        for group in easiest:
            by_role[group.role] = by_role.get(group.role, 0) - take(group, by_role.get(group.role, 0))
        for role, count in by_role.items():
            of_role = next((group for group in easiest if group.role == role), easiest[0])
            wanted[of_role] += count
        spare = need.total - sum(wanted.values())
        for group in easiest:
            spare -= take(group, spare)
        wanted[easiest[0]] += max(0, spare)
        return {group: count for group, count in wanted.items() if count}

    # -- shared by gangs that ask for the same

    def _view(self, job: Job, group: TaskGroup) -> FitView:
        key = self._key(job, group)
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            view = self._views[key] = FitView(self._session, group)
        return view

    def _miss(self, job: Job, wanted: Mapping[TaskGroup, int]) -> Miss:
        key = (
            *((self._key(job, group), count) for group, count in wanted.items()),
            job.required,
            job.mixed_models,
            own_key(self._session, job),
        )
        miss = self._misses.get(key)
        if miss is None:
            miss = self._misses[key] = find_miss(self._session, job, wanted)
        return miss

    def _key(self, job: Job, group: TaskGroup) -> tuple[object, ...]:
        """All that decides how nodes look to the group, with the queue whose reservation does not bind the job."""
        reserved = self._session.reserved
        exempt = job.queue if reserved.by_job and reserved.exempts(job) else None
        return self._session.demands.of_group(group), group.pod_affinity, exempt
