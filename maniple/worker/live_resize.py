"""Live resize: survivors keep their processes. The one file of this package that imports torch.

At every step boundary all ranks vote, in one small all-reduce, on the newest generation that each has heard of and is
ready for. When all agree they leave the old process group and join the new one; whoever is new gets the state by
broadcast. Survivors go on training while newcomers start: rank 0 opens the place where the new generation meets as soon
as it hears of it, and votes for it only when all newcomers are there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from maniple.worker.controller_connection import free_port
from maniple.worker.notices import Notice, environment
from maniple.worker.script_api import inside

JOIN_S = 300.0
_ARRIVED = "arrived"


class Elastic:
    """A place in the job's process group. Made by `maniple.worker.elastic()`."""

    def __init__(self, parts: Sequence[Any], step: int, backend: str | None) -> None:
        self.step = step  # the step that comes next
        self.is_new = True  # in the first step here, and in the first after each change of size: wrap the model anew
        self.is_leaving = False  # after the loop: told to stop, and not done
        self.extra: dict[str, Any] = {}  # anything else that newcomers must know; picklable
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self._parts = parts
        self._backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
        self._inside = inside()
        self._notice = self._own_notice()
        self._meeting: tuple[int, Any] | None = None  # the newest generation, and its store if we opened it
        self._must_stop = False
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        self._join(_store(address or "127.0.0.1", int(port or free_port()), self.rank == 0), is_newcomer=True)
        self._inside.tell(live=True)

    def steps(self, until: int) -> Iterator[int]:
        """The steps up to `until`, or until we must leave; sizes change between them.

        A step counts as done when the loop asks for the next one.
        """
        while self.step < until and self._boundary():
            yield self.step
            self.step += 1
            self.is_new = False

    # -- between two steps

    def _boundary(self) -> bool:
        """Moves on to a new generation if all are ready for it; False when we are to leave."""
        newest = self._inside.notice()
        ready = newest.generation if newest is not None and self._is_ready(newest) else self._generation
        # The least of each: is one behind, is one ahead, must one stop?
        vote = torch.tensor([ready, -ready, 0 if self._must_stop else 1], dtype=torch.int64)
        distributed.all_reduce(vote, op=distributed.ReduceOp.MIN, group=self._control)
        least, most, may_go_on = int(vote[0]), -int(vote[1]), bool(vote[2])
        if not may_go_on:
            self.is_leaving = True
        elif newest is not None and least == most == newest.generation:
            self._move_on(newest)
            return not self.is_leaving and self._boundary()  # newcomers begin with a vote: so do we
        return not self.is_leaving

    @property
    def _generation(self) -> int:
        return self._inside.generation or 0

    def _is_ready(self, notice: Notice) -> bool:
        """Rank 0 to be opens the meeting place, and is ready when all newcomers wait there. The others just are."""
        place = self._place(notice)
        if notice.stop or place is None or notice.first_rank(place) + self._inside.local_rank != 0:
            return True
        if self._meeting is None or self._meeting[0] != notice.generation:
            self._meeting = (notice.generation, _store(notice.address, notice.port, is_master=True))
        before = {(member.pod, member.uid) for member in self._notice.members} if self._notice else set()
        newcomers = sum(member.slots for member in notice.members if (member.pod, member.uid) not in before)
        return int(self._meeting[1].add(_ARRIVED, 0)) >= newcomers

    def _move_on(self, notice: Notice) -> None:
        distributed.destroy_process_group()
        place = self._place(notice)
        if notice.stop or place is None:
            self.is_leaving = True
            return
        numbers = environment(notice, place, self._inside.local_rank)
        os.environ.update(numbers)
        self.rank, self.size = int(numbers["RANK"]), notice.size
        store = self._meeting[1] if self.rank == 0 and self._meeting else _store(notice.address, notice.port, False)
        self._meeting = None
        self._join(store, is_newcomer=False)
        self._notice = notice
        self._inside.rank = self.rank
        self._inside.ack()
        self.is_new = True

    # -- joining

    def _join(self, store: Any, is_newcomer: bool) -> None:
        if is_newcomer:
            store.add(_ARRIVED, 1)
        self._store = store  # rank 0's is where all others meet: it must live as long as the group
        group = distributed.PrefixStore("group", store)
        span = timedelta(seconds=JOIN_S)
        distributed.init_process_group(self._backend, store=group, rank=self.rank, world_size=self.size, timeout=span)
        self._control = None if self._backend == "gloo" else distributed.new_group(backend="gloo")
        self._share(is_newcomer)

    def _share(self, is_newcomer: bool) -> None:
        """Who knows nothing gets the state from the first who does; if nobody does, from rank 0."""
        mine = torch.tensor([int(is_newcomer)])
        all_flags = [torch.zeros_like(mine) for _ in range(self.size)]
        distributed.all_gather(all_flags, mine, group=self._control)
        newcomers = [rank for rank, flag in enumerate(all_flags) if int(flag)]
        source = next((rank for rank in range(self.size) if rank not in newcomers), 0)
        among = sorted({source, *newcomers})
        if len(among) == 1:
            return
        group = distributed.new_group(among, backend="gloo")
        if self.rank == source:
            tensors: list[Any] = []
            state = {"parts": [part.state_dict() for part in self._parts], "step": self.step, "extra": self.extra}
            distributed.broadcast_object_list([_without_tensors(state, tensors)], source, group=group)
            for tensor in tensors:
                distributed.broadcast(tensor, source, group=group)
        elif self.rank in newcomers:
            box: list[Any] = [None]
            distributed.broadcast_object_list(box, source, group=group)
            state = _with_tensors(box[0], lambda tensor: distributed.broadcast(tensor, source, group=group))
            for part, its_state in zip(self._parts, state["parts"]):
                part.load_state_dict(its_state)
            self.step, self.extra = state["step"], state["extra"]

    def _own_notice(self) -> Notice | None:
        newest = self._inside.newest()
        return newest if newest is not None and newest.generation == self._generation else None

    def _place(self, notice: Notice) -> int | None:
        return notice.place_of(self._inside.settings.pod, self._inside.settings.uid)

    def _stop(self, _number: int, _frame: Any) -> None:
        self._must_stop = True


def _store(address: str, port: int, is_master: bool) -> Any:
    return distributed.TCPStore(
        address, port, None, is_master, timeout=timedelta(seconds=JOIN_S), wait_for_workers=False
    )


class _Hole:
    """Where a tensor was taken out of a state."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.kind = tuple(tensor.shape), tensor.dtype


def _without_tensors(state: Any, tensors: list[Any]) -> Any:
    """The same with holes in it; what was taken out, in order, goes to `tensors`: sent as they are, not pickled."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.detach().cpu().contiguous())
        return _Hole(state)
    if isinstance(state, dict):
        return {key: _without_tensors(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_without_tensors(value, tensors) for value in state])
    return state


def _with_tensors(state: Any, receive: Any) -> Any:
    if isinstance(state, _Hole):
        tensor = torch.empty(state.shape, dtype=state.kind)
        receive(tensor)
        return tensor
    if isinstance(state, dict):
        return {key: _with_tensors(value, receive) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_with_tensors(value, receive) for value in state])
    return state
