"""How queues stand with what their next gang needs, kept until what the queue, or one above it, holds changes.

All actions of a cycle ask, for each gang in line and each turn. Equal needs are one array (next_needs.py), so an answer
is kept by its id.
"""

from typing import TYPE_CHECKING, Any

from maniple.model.job import Queue
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.due_rules import borrows

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class QueueTurns:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._held: dict[int, bytes] = {}  # queue -> what it and those above it held when it was asked about
        self._borrows: dict[int, dict[int, bool]] = {}
        self._keys: dict[int, dict[int, tuple[Any, ...]]] = {}

    def borrows(self, queue: Queue, need: FloatArray) -> bool:
        """Whether the queue, or one above it, would hold more than its due with `need`."""
        self._forget_if_changed(queue)
        answers = self._borrows[queue.index]
        answer = answers.get(id(need))
        if answer is None:
            answer = answers[id(need)] = borrows(self._session, queue, need)
        return answer

    def key(self, queue: Queue, need: FloatArray | None = None) -> tuple[Any, ...]:
        """The place of the queue among others (Session.queue_key)."""
        self._forget_if_changed(queue)
        keys = self._keys[queue.index]
        key = keys.get(id(need))
        if key is None:
            key = keys[id(need)] = self._session.queue_key(queue, need)
        return key

    def _forget_if_changed(self, queue: Queue) -> None:
        session = self._session
        path = session.queue_paths[queue.index]
        accounts = session.queue_allocated if session.due is None else session.due.accounting.queue_held
        held = accounts[path].tobytes() if len(path) > 1 else accounts[queue.index].tobytes()
        if held != self._held.get(queue.index):
            self._held[queue.index] = held
            self._borrows[queue.index] = {}
            self._keys[queue.index] = {}
