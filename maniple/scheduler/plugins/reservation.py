"""reservation: how long the first gang of a queue waits for room before room is kept for it.

| argument | default | |
| patience | 300 | seconds since the gang was created |

Without this plugin nothing is reserved, and small jobs may pass a large gang for ever. Where its room is, who may use
it meanwhile and when the gang starts at the latest is the same with every policy: see scheduler/reservations.py.
"""

from maniple.scheduler.framework.arguments import Arguments
from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.session import Session


class ReservationPlugin:
    def __init__(self, arguments: Arguments) -> None:
        self._patience_s = arguments.number("patience", 300.0)

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(patience_s=self._patience_s)
