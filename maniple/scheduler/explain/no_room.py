"""Why there is no room for a gang: too little is free, or it would fit only if spread over domains or GPU models."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.types import GpuModel
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_affinity import AffinityInfo
from maniple.scheduler.explain.fit_view import FitView
from maniple.scheduler.explain.nearest_miss import Miss, member_models
from maniple.scheduler.explain.words import change, joined, listed, pods
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Need, Reason
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import by_domain, choices_of_models, home_of, members_of

_MOST_KINDS = 3  # of pods that are named


class NoRoom:
    """`views`: its groups, in task order, and how the nodes look to each."""

    def __init__(
        self, session: Session, job: Job, need: Need, views: Mapping[TaskGroup, FitView], miss: Miss, held: str
    ) -> None:
        """`held`: who holds what is lacking, in words."""
        self._session, self._job, self._need, self._views, self._miss = session, job, need, views, miss
        self._change = change(miss, held)
        self._level = session.snapshot.domains.levels[job.required] if job.required else None
        # None: none of its pods runs, or it may be anywhere; -1: those that run are not in one domain.
        self._home = None if self._level is None else home_of(self._level, members_of(session, job))
        asked = {
            group: min(need.by_role.get(group.role, need.total), len(group.pods)) if len(views) > 1 else need.total
            for group in views
        }
        # Pods that ask for the same count together, whatever their role.
        kinds = {group: (session.demands.number_of(group), group.pod_affinity) for group in views}
        totals: Counter[object] = Counter()
        of_kind: dict[object, TaskGroup] = {}
        for group, kind in kinds.items():
            totals[kind] += asked[group]
            of_kind.setdefault(kind, group)
        self._wanted = {group: min(need.total, totals[kinds[group]]) for group in views}
        self._kinds = list(of_kind.values())  # a group of each
        # The group that is hardest to place speaks for the gang.
        self.hardest = min(views, key=lambda group: views[group].fits - self._wanted[group])

    def _needs(self, group: TaskGroup) -> str:
        return f"needs {self._pods(group)}"

    def _pods(self, group: TaskGroup) -> str:
        asks = self._views[group].asks
        return f"{pods(self._wanted[group])} {f'of {asks}' if asks else 'without requests'}"

    def reason(self) -> Reason:
        group, view = self.hardest, self._views[self.hardest]
        needs, count = self._needs(group), self._wanted[group]
        if self._shares_claim():
            message = f"{needs}; its pods share a ReadWriteOncePod claim, which one pod at a time may use"
            return Reason("InsufficientResources", message, "each of its pods had a claim of its own")
        if all(view.fits_empty >= self._wanted[group] for group, view in self._views.items()):
            never = self._fits_no_empty_domain()
            if never is not None:
                return never
        if group.shape.gpus and self._session.gpus.allowed(group.shape.constraint.gpu_models) == ():
            models = ", ".join(entry.model for entry in group.shape.constraint.gpu_models)
            there = ", ".join(sorted(filter(None, self._session.gpus.models))) or "none with a known model"
            message = f"{needs}, and allows the GPU models {models} only; the cluster has: {there}"
            models = " or ".join(entry.model for entry in group.shape.constraint.gpu_models)
            would = f"a node with a GPU of {models} and room for {'it' if count == 1 else f'{count} pods'} were added"
            return Reason("NoNodeFits", message, would)
        would = self._change
        rules = " and ".join(dict.fromkeys(filter(None, map(self._rules, self._views))))
        if would and rules:
            would += f", as far as {f'its {rules} lets it' if self._need.total == 1 else f'their {rules} lets them'}"
        if view.fits_empty < count:
            code = "InsufficientResources" if view.fits_empty else "NoNodeFits"
            message = f"{needs}; even an empty cluster has room for {view.fits_empty}"
            if not len(view.now):
                message = f"{needs}; there are no nodes"
            elif not view.fits_empty:
                message = f"{needs}; no node could take {'it' if count == 1 else 'one of them'}, even an empty one"
                message += ": no GPU is known to have so much memory" * self._lacks_memory(group)
            return Reason(code, message, would or "a node that meets the pod's demands were added")
        would = would or "more room came free"
        if view.fits < count:
            now = "; no node can take it now" if count == 1 else f" at once; there is room for {view.fits} now"
            return Reason("InsufficientResources", f"{needs}{now}", would)
        apart = self.fits_only_apart()
        if apart is not None:
            return apart
        if self._rules(group):
            message = f"{needs}; each finds a node, but not all together: {rules} stands between them"
            would = f"there were more nodes where their {rules} lets them go"
            return Reason("InsufficientResources", message, would)
        if len(self._kinds) > 1:
            kinds = [self._pods(kind) for kind in self._kinds]
            needs = joined([*kinds[:_MOST_KINDS], *["others"] * (len(kinds) > _MOST_KINDS)])
            message = f"needs {needs}; each part fits alone, but not all at once"
            return Reason("InsufficientResources", message, would)
        why, would = self.why_not_placed()
        return Reason("NotTried", f"{needs}; {why}", would)

    def _shares_claim(self) -> bool:
        """Whether several of its pods need a claim that one pod of the cluster may use: no room would help."""
        users: Counter[object] = Counter()
        for group in self._kinds:
            for exclusive in group.shape.exclusives:
                users[exclusive] += self._wanted[group] * (exclusive.kind == "claim")
        return any(count > 1 for count in users.values())

    def _lacks_memory(self, group: TaskGroup) -> bool:
        """Whether the pods ask for more memory of a GPU than any is known to have."""
        tables = self._session.gpus.tables
        asks = [ask for ask in group.shape.gpus if ask.memory and ask.row in tables]
        return any(int(tables[ask.row].milli_for(ask.memory).min(initial=WHOLE + 1)) > WHOLE for ask in asks)

    def why_not_placed(self) -> tuple[str, str]:
        """Why pods wait for which there is room by now, and what would start them."""
        session = self._session
        if session.was_checked(self._job) and session.reservations and not (session.placed or session.evicted):
            names = listed(sorted(reservation.job.name for reservation in session.reservations.values()))
            return f"there is room only where some is reserved for {names}", f"{names} had started"
        if session.was_checked(self._job):
            why = "there is room by the end of this cycle, and there was none when its turn came"
            return why, "the next cycle came"
        action = Ability.BACKFILL if self._job.is_best_effort else Ability.ALLOCATE
        return "there is room, but no action of the policy places such pods", f"the policy's actions included {action}"

    def _rules(self, group: TaskGroup) -> str:
        """The rules that can keep the pods of the group apart."""
        pod_affinity = group.pod_affinity
        if pod_affinity is None or not pod_affinity.has_terms:
            is_of_plugin = self._session.is_coupled(group) and not group.is_coupled
            return "plugin rule (pod_predicate)" if is_of_plugin else ""
        rules = {
            "pod affinity": any(map(pod_affinity.match, pod_affinity.affinity)) or self._frees_company(pod_affinity),
            "pod anti-affinity": any(map(pod_affinity.match, pod_affinity.anti_affinity)),
            "topology spread": any(spread.is_required for spread in pod_affinity.spread),
        }
        return " and ".join(rule for rule, applies in rules.items() if applies)

    def _frees_company(self, pod_affinity: AffinityInfo) -> bool:
        """Whether all pods that the affinity needs in a domain are on nodes where room would have to come free."""
        lacking = [lack.node for lack in self._miss.lacks if lack.gpus or lack.amounts.any()]
        counts = self._session.neighbours.now.counts
        for term in pod_affinity.company if lacking else ():
            elsewhere = counts.matching(term).copy()
            elsewhere[lacking] = 0.0
            is_there = counts.by_domain(term)[lacking] > 0
            if (is_there & (counts.spread_out(elsewhere, term.topology_key)[lacking] == 0)).any():
                return True
        return False

    # -- one domain or one model

    @property
    def is_torn(self) -> bool:
        """Whether the job must be in one domain, and its running pods are not."""
        return self._home is not None and self._home < 0

    def fits_only_apart(self) -> Reason | None:
        """The reason, if there is room for every group, but not in one domain or on one GPU model."""
        session, job = self._session, self._job
        by_models: dict[tuple[GpuModel, ...], list[TaskGroup]] = {}
        if session.gpus.is_mixed and not job.mixed_models:
            for group in self._views:
                if group.shape.gpus:
                    by_models.setdefault(group.shape.constraint.gpu_models, []).append(group)
        for models, groups in by_models.items():
            need = self._need if len(groups) == len(self._views) else Need({}, 1)
            if not choices_of_models(session, job, need, groups, later=False):
                return self._fits_no_model(models, groups)
        return self._fits_no_domain()

    def _fits_no_model(self, models: tuple[GpuModel, ...], groups: Sequence[TaskGroup]) -> Reason:
        session, gpus = self._session, self._session.gpus
        group = max(groups, key=lambda group: self._wanted[group])
        needs, or_mixed = self._needs(group), "or spec.mixedGpuModels were true"
        members = member_models(session, self._job, models)
        if len(members) > 1:
            message = f"{needs} on the GPU model of its running pods, which are on several"
            return Reason("NoModelFits", message, f"its pods ran on one model, {or_mixed}")
        names = [name or "the GPUs without a known model" for name in gpus.models]
        codes = gpus.allowed(models)
        rooms = {
            code: int(min(1e9, session.room_for(group, later=False, model=code).sum()))
            for code in (range(len(names)) if codes is None else codes)
        }
        best = members[0] if members else self._miss.models.get(models, -1)
        name, room = names[best] if best >= 0 else "one model", rooms.get(best, 0)
        if members:
            message = f"{needs} on {name}, where its other pods run; there is room for {room} now"
        else:
            roomiest = sorted(
                (code for code in rooms if rooms[code]), key=lambda code: (-rooms[code], gpus.models[code])
            )
            there = ", ".join(f"{names[code]} has room for {rooms[code]}" for code in roomiest[:5])
            message = f"{needs} on one GPU model; {there or 'none has room'} now"
        more = max(1, self._wanted[group] - room)
        would = self._change or f"room for {more} more pod{'s' * (more > 1)} came free on {name}"
        return Reason("NoModelFits", message, f"{would}, {or_mixed}")

    def _fits_no_domain(self) -> Reason | None:
        level, home, groups = self._level, self._home, list(self._views)
        if level is None:
            return None
        if not level.names:
            message = f"must be in one {level.name}, and no node has the labels that say in which it is"
            return Reason("NoDomainFits", message, f"nodes had the node label of level {level.name}")
        if self.is_torn:
            message = f"must be in one {level.name}, and its running pods are not"
            return Reason("NoDomainFits", message, f"its running pods were in one {level.name}")
        rooms = np.array([by_domain(level, self._session.room_for(group, later=False)) for group in groups])
        counts = np.array([max(1, self._wanted[group]) for group in groups])
        # The roomiest domain, and in it the group that is shortest.
        best = int(np.argmax((rooms / counts[:, None]).min(axis=0))) if home is None else home
        short = int(np.argmin(rooms[:, best] / counts))
        which = (
            f"the roomiest, {level.names[best]}" if home is None else f"{level.names[best]}, where its other pods run"
        )
        room = f"{which}, has room for {int(min(1e9, rooms[short, best]))} now"
        if rooms[short, best] >= counts[short]:
            room = "each part of it fits into one, but not all together"
        message = f"{self._needs(groups[short])} in one {level.name}; {room}"
        return Reason("NoDomainFits", message, self._change or f"more room came free in one {level.name}")

    def _fits_no_empty_domain(self) -> Reason | None:
        """The reason, if no domain could hold the gang even if nothing were running."""
        level, wanted = self._level, self._wanted
        if level is None or not level.names:
            return None
        rooms = {group: by_domain(level, view.empty) for group, view in self._views.items()}
        if np.all([rooms[group] >= count for group, count in wanted.items()], axis=0).any():
            return None
        largest = {group: int(room.max(initial=0.0)) for group, room in rooms.items()}
        short = min(wanted, key=lambda group: largest[group] - wanted[group])
        message = f"{self._needs(short)} in one {level.name}; even an empty one has room for {largest[short]}"
        if largest[short] >= wanted[short]:
            message = f"no {level.name} could hold all its pods together, even if it were empty"
        would = f"{self._change or f'a {level.name} were large enough'}, or spec.topology named a wider level"
        return Reason("NoDomainFits", message, would)
