"""elastic: when a job that can grow should, and what a step to a second node is worth.

A resize stops the whole job for its `restartSeconds`: it must pay for that within the `horizon`. A job that is on one
node and would spread to a second gains only `crossing` of what its curve says; 0 keeps it where it is.
"""

from maniple.scheduler.framework.arguments import Arguments
from maniple.scheduler.framework.hooks import Hooks
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
