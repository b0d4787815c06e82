"""reservation: how long the first gang of a queue waits before it gets a reservation.

| argument | default | |
| patience | 300 | seconds since the gang was created |

Without this plugin nothing is reserved, and small jobs may pass a large gang for ever. scheduler/reservation decides
where a reservation is and which jobs may use it meanwhile, with every policy.
"""

from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session


class ReservationPlugin:
    def __init__(self, arguments: Arguments) -> None:
        self._patience_s = arguments.number("patience", 300.0)

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(patience_s=self._patience_s)
