"""elastic: when a job should grow, and what a step to a second node is worth.

A resize stops the whole job for its `restartSeconds`, and must gain more than that within the `horizon`. A job that
spreads from one node to a second gains only `crossing` of what its curve says; 0 keeps it on its node.
"""

from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import DEFAULT, Sizing


class ElasticPlugin:
    def __init__(self, arguments: Arguments) -> None:
        self._sizing = Sizing(
            horizon_s=arguments.number("horizon", default=DEFAULT.horizon_s),
            crossing=arguments.number("crossing", default=DEFAULT.crossing),
        )

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(sizing=self._sizing)
