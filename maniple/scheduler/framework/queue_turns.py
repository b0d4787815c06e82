"""How queues stand with what their next gang needs, kept until what the queue, or one above it, holds changes.

All actions of a cycle ask, for each gang in line and each turn. Equal needs are one array (next_needs.py), so an answer
is kept by its id.
"""

from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Any

from maniple.model.job import Queue
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.due_rules import Stand, Standing

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class QueueTurns:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._held: dict[int, bytes] = {}  # queue -> what it and those above it held when it was asked about
        self._borrows: dict[int, dict[int, bool]] = {}
        self._keys: dict[int, dict[int, tuple[Any, ...]]] = {}
        self._versions: dict[int, int] = {}
        # By queue and need: the need, in the units of the due, and what the queue may hold.
        self._stands: dict[tuple[int, int], tuple[FloatArray, list[float], Stand]] = {}

    def borrows(self, queue: Queue, need: FloatArray) -> bool:
        """Whether the queue, or one above it, would hold more than its due with `need`, and none below is guaranteed
        it.
        """
        self._forget_if_changed(queue)
        answers = self._borrows[queue.index]
        answer = answers.get(id(need))
        if answer is None:
            answer = answers[id(need)] = self._is_borrowing(queue, need)
        return answer

    def _is_borrowing(self, queue: Queue, need: FloatArray) -> bool:
        if not self._is_any_scarce:
            return False
        stands = (self.standing(index, need) for index in self._session.queue_paths[queue.index])
        return next((stand == Standing.BORROWING for stand in stands if stand != Standing.DESERVED), False)

    def standing(self, queue: int, need: FloatArray) -> Standing:
        """How the queue alone would stand with `need`, which no pod holds yet. There must be a due."""
        due = self._session.due
        assert due is not None
        known = self._stands.get((queue, id(need)))
        if known is None:
            asked = due.accounting.asked(need)
            known = self._stands[queue, id(need)] = need, asked.tolist(), Stand.of(due, queue, asked)
        _, amounts, stand = known
        return stand.standing(list(map(add, due.accounting.queue_held[queue].tolist(), amounts)))

    @cached_property
    def _is_any_scarce(self) -> bool:
        due = self._session.due
        return due is not None and bool(due.scarce.any())

    def version(self, queue: Queue) -> int:
        """Another number whenever the queue, or one above it, holds something else."""
        self._forget_if_changed(queue)
        return self._versions[queue.index]

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
            self._versions[queue.index] = self._versions.get(queue.index, 0) + 1
            self._borrows[queue.index] = {}
            self._keys[queue.index] = {}
