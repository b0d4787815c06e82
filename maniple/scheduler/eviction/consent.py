"""Who of some units may go for a claimant: what the rules on victims say, unit by unit and all counted together."""

from collections.abc import Hashable, Sequence

from maniple.model.job import Job
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.framework.hooks import Victim, VictimRule
from maniple.scheduler.framework.session import Session

_MOST_ASKED = 16  # times that rules are asked about the same units; then those that are in doubt stay


def agreed(session: Session, claimant: Job, units: Sequence[Unit], rules: Sequence[VictimRule]) -> list[Unit]:
    """The units that every rule lets go, all of each, counting those before it.

    Rules count: a queue can spare so much, whoever goes. So a unit that does not go must not use up what a rule would
    have given to one behind it: the first such unit is taken out, with those behind it that are like it, and the rules
    are asked again.
    """

    def kind_of(unit: Unit) -> Hashable:
        return session.demands.of_victims(unit.job, unit.pods)

    asked = [lambda _, candidates: _within_budgets(session, candidates), *rules]
    pool = list(units)
    kept: list[Unit] = []
    for _ in range(_MOST_ASKED):
        kept, spoiler = _ask(claimant, pool, asked)
        if spoiler is None:
            break
        kind = kind_of(pool[spoiler])
        pool = [unit for at, unit in enumerate(pool) if at < spoiler or kind_of(unit) != kind]
    return kept


def _ask(claimant: Job, pool: Sequence[Unit], rules: Sequence[VictimRule]) -> tuple[list[Unit], int | None]:
    """(those that all rules let go, the place of the first other one because of which somebody may have to stay)."""
    place = {Victim(unit.job, pod): at for at, unit in enumerate(pool) for pod in unit.pods}
    left: Sequence[Victim] = list(place)
    refused_at: set[int] = set()
    suspects: set[int] = set()
    for rule in rules:
        kept = rule(claimant, left)
        if len(kept) < len(left):
            refused = {place[victim] for victim in set(left).difference(kept)}
            refused_at |= refused
            # Whoever this rule let go, and another does not, has used up what it refused to somebody behind.
            suspects.update(at for at in map(place.__getitem__, kept) if at < max(refused))
        left = kept
    spoilers = suspects & refused_at
    return [unit for at, unit in enumerate(pool) if at not in refused_at], min(spoilers, default=None)


def _within_budgets(session: Session, candidates: Sequence[Victim]) -> Sequence[Victim]:
    """`candidates` without those that would break a PodDisruptionBudget, counting the ones before them."""
    budgets = session.snapshot.budgets
    if not budgets:
        return candidates
    gone = [sum(budget.covers(done.pod.pod, done.pod.labels) for done in session.evicted) for budget in budgets]
    left = [budget.allowed - number for budget, number in zip(budgets, gone, strict=True)]
    kept = []
    for victim in candidates:
        bound = [at for at, budget in enumerate(budgets) if budget.covers(victim.pod.pod, victim.pod.labels)]
        if all(left[at] > 0 for at in bound):
            for at in bound:
                left[at] -= 1
            kept.append(victim)
    return kept
