"""consolidation: what moving pods may cost. The action `consolidate` asks for it.

A move is made if the gang that starts gains more GPU-seconds within the `horizon` than the moved jobs lose. An
ElasticJob loses its `restartSeconds`, a PodGroup `restart` seconds. With `consolidate.idle` running jobs are also
gathered while nothing waits, one node or one gang in each `idle.interval` at most.
"""

from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.moving.move_value import DEFAULT, Moving


class Consolidation:
    def __init__(self, arguments: Arguments) -> None:
        self._moving = Moving(
            moves_per_hour=arguments.whole_number("movesPerHour", default=DEFAULT.moves_per_hour),
            cooldown_s=arguments.number("cooldown", default=DEFAULT.cooldown_s),
            horizon_s=arguments.number("horizon", default=DEFAULT.horizon_s),
            restart_s=arguments.number("restart", default=DEFAULT.restart_s),
            is_idle=arguments.boolean("consolidate.idle", default=DEFAULT.is_idle),
            idle_interval_s=arguments.number("idle.interval", default=DEFAULT.idle_interval_s),
            idle_worth=arguments.number("idle.worth", default=DEFAULT.idle_worth),
        )
        # The others count without the action, too: explanations say what a move would gain and lose.
        arguments.only_for(Ability.CONSOLIDATE, "consolidate.idle", "idle.interval", "idle.worth")
        arguments.only_with("consolidate.idle", '"true"', "idle.interval", "idle.worth")

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(moving=self._moving)
