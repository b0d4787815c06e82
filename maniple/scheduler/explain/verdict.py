"""Why a gang waits: the reason, the nodes counted by what is wrong with each, the place that comes nearest, what was
tried, and the smallest change that would start it.

Runs after the actions, over what is then free, and changes nothing. Gangs that ask for the same in the same queue wait
for the same reasons: everything is found out once for each kind of demand, so that ten thousand waiting gangs of a few
kinds are explained in the time of a few.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from maniple.api.keys import split_name
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.explain.fit_view import FitView
from maniple.scheduler.explain.nearest_miss import Miss, find_miss, nearest_of
from maniple.scheduler.explain.no_room import NoRoom
from maniple.scheduler.explain.possible_moves import PossibleMoves
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.explain.stuck_in_the_way import stuck_in_the_way
from maniple.scheduler.explain.tried import Case
from maniple.scheduler.explain.words import change, held_by, listed, pods
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.plan import STALE, Nearest, NodeCount, Tried, Waiting, format_rounded_up
from maniple.scheduler.framework.session import Session

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
    """`thorough`: the name of a job whose explanation may cost whatever it takes."""

    def __init__(self, session: Session, thorough: str = "") -> None:
        self._session = session
        self._thorough = thorough
        self._verdicts: dict[object, _Verdict] = {}
        self._views: dict[object, FitView] = {}
        self._misses: dict[object, Miss] = {}
        self._holders = Holders(session)
        self._promised: dict[JobKey, FloatArray] = {}  # what the pods of a gang ask for that is promised room
        for placed in session.placed:
            if placed.later:
                before = self._promised.get(placed.job.key, 0.0)
                self._promised[placed.job.key] = before + placed.group.shape.requests * placed.spot.total

    def explain_all(self) -> Iterator[Waiting]:
        """Every gang that waits."""
        session = self._session
        verdicts = [(job, self._explain(job)) for job in session.snapshot.waiting]
        in_line = [(job, verdict) for job, verdict in verdicts if verdict is not None and verdict.reason.is_in_line]
        length: dict[int, int] = {}  # of each queue's line
        positions: dict[JobKey, int] = {}
        for job in sorted((job for job, _ in in_line), key=session.job_key):
            length[job.queue] = positions[job.key] = length.get(job.queue, 0) + 1
        in_line.sort(key=lambda entry: (positions[entry[0].key], entry[0].key))
        moves = self._moves(in_line)
        yield from self._not_released({job.key for job, verdict in verdicts if verdict is not None})
        for job, verdict in verdicts:
            if verdict is not None:
                yield Waiting(
                    group=job.name,
                    kind=job.key[1],
                    queue=session.queue_of(job).name,
                    reason=verdict.reason.code,
                    message=verdict.reason.message + self._gives_back(job),
                    needs=verdict.needs,
                    nodes=verdict.nodes,
                    would_start_if=verdict.reason.would_start_if + moves.get(id(verdict), ""),
                    position=positions.get(job.key),
                    tried=verdict.tried,
                    nearest=verdict.nearest,
                )

    def _moves(self, in_line: Sequence[tuple[Job, _Verdict]]) -> dict[int, str]:
        """The moves of running pods that would start gangs, by the verdict on them. Each kind is asked about once."""
        possible = PossibleMoves(self._session)
        moves: dict[int, str] = {}
        for job, verdict in in_line:
            is_thorough = job.name == self._thorough
            if verdict.lacks_room and (is_thorough or id(verdict) not in moves):
                with self._session.reserved.seen_by(job):
                    moves[id(verdict)] = possible.words(job, is_thorough=is_thorough)
        return moves

    # -- gangs below their minimum

    def _gives_back(self, job: Job) -> str:
        """When a gang below its minimum gives back what it holds, or why it has not; empty for others."""
        session = self._session
        if job.stale_at == inf or not job.placed or not session.has_action(Ability.RELEASE):
            return ""
        due = format_rounded_up(job.stale_at)
        if any(done.job.key == job.key and done.reason == STALE for done in session.evicted):
            return f"; it was not whole by {due}, and gives back what it holds"
        if job.key in session.not_released:
            return f"; it was not whole by {due}, and keeps what it holds: {session.not_released[job.key]}"
        is_short = session.job_need(job).total and session.snapshot.now <= job.stale_at
        return f"; it gives back what it holds at {due}, unless it is whole by then" if is_short else ""

    def _not_released(self, explained: Set[JobKey]) -> Iterator[Waiting]:
        """Gangs of which no pod waits, and that should have given back what they hold."""
        session = self._session
        for job in session.snapshot.jobs if session.not_released else ():
            if job.key in session.not_released and job.key not in explained:
                message = f"the gang lacks {pods(session.job_need(job).total)} to its minimum{self._gives_back(job)}"
                queue = session.queue_of(job).name
                reason = Reason("Stale", message, "it were whole again")
                yield Waiting(job.name, job.key[1], queue, reason.code, reason.message, {}, (), reason.cure)

    def _explain(self, job: Job) -> _Verdict | None:
        """None if nothing of the job waits."""
        session = self._session
        state = session.state(job)
        left = sum(state.left(group) for group in job.groups)
        if not left and not job.gated and not state.promised_count and job.groups:
            return None  # a waiting job without groups is a gang that has no pods
        # Whether a gang is complete does not depend on an action having asked.
        blocked = session.why_blocked(job)
        if blocked is None and job.exists and not session.was_checked(job):
            blocked = session.job_valid(job)
        kind: tuple[object, ...] = job.key
        if job.exists and not state.promised_count and job.name != self._thorough:
            kind = (session.demands.of(job), self._own(job), left, job.gated, job.strangers, job.is_suspended, blocked)
            if session.reservations:
                # Whether it may run in reserved room.
                ends = tuple((group.lasts_s, group.stays) for group in job.groups)
                kind += (job.key in session.reservations, job.preemptable, job.min_runtime_s, ends)
        verdict = self._verdicts.get(kind)
        if verdict is None:
            with session.reserved.seen_by(job):
                verdict = self._verdicts[kind] = self._judge(job, left, blocked)
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
        if blocked is None and not job.groups and not job.gated:
            message = f"none of its pods exists; it needs {pods(job.min_member)} to start"
            blocked = Reason("NotEnoughPods", message, "they were created", is_in_line=False)
        if not need.total and (job.groups or job.gated):
            return self._judge_surplus(job, left, blocked)
        if blocked is None:
            # What others have started with since its turn may have left it no guarantee.
            blocked = session.startable(job, session.needed_resources(job)) if job.groups else _gated(job)
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
            reason, nodes = no_room.reason(), views[no_room.hardest].node_counts
            reason = replace(reason, message=reason.message + stuck_in_the_way(session, no_room.hardest))
            limits = self._limits(job, miss)
            if limits:
                reason = replace(reason, would_start_if=f"{reason.would_start_if} and {limits}")
        case = Case(self._holders, job, reason, blocked, nearest, is_thorough=job.name == self._thorough)
        return _Verdict(reason, needs, nodes, case.tried(), nearest, lacks_room=blocked is None and not limits)

    def _judge_surplus(self, job: Job, left: int, blocked: Reason | None) -> _Verdict:
        """The gang runs; pods above its minimum wait."""
        session = self._session
        if not left:
            return _Verdict(_gated(job), {})
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
            why, nodes = "no node has room for one", view.node_counts
            apart = no_room.fits_only_apart() if view.fits or no_room.is_torn else None
            if apart is not None:
                why, would = apart.message, apart.would_start_if
            elif view.fits:
                why, would = no_room.why_not_placed()
            why += stuck_in_the_way(session, group)
        message = f"the gang runs; {pods(left)} above its minimum {'waits' if left == 1 else 'wait'}: {why}"
        reason = Reason("SurplusWaiting", message, would, is_in_line=False)
        case = Case(self._holders, job, replace(reason, message=why), None, nearest, is_surplus=True)
        return _Verdict(reason, {}, nodes, case.tried(), nearest)

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
            self._own(job),
        )
        miss = self._misses.get(key)
        if miss is None:
            miss = self._misses[key] = find_miss(self._session, job, wanted)
        return miss

    def _own(self, job: Job) -> JobKey | None:
        """The gang, if it has pods on nodes: what these hold cannot come free for it."""
        return job.key if job.placed or any(self._session.state(job).cursor.values()) else None

    def _key(self, job: Job, group: TaskGroup) -> tuple[object, ...]:
        """All that decides how nodes look to the group, with the queue whose reservation does not bind the job."""
        reserved = self._session.reserved
        exempt = job.queue if reserved.by_job and reserved.exempts(job) else None
        return self._session.demands.of_group(group), group.pod_affinity, exempt


def _gated(job: Job) -> Reason:
    message = f"{pods(job.gated)} {'is' if job.gated == 1 else 'are'} held by scheduling gates"
    return Reason("SchedulingGated", message, "its scheduling gates were removed", is_in_line=False)
