"""Live resize: surviving workers keep their processes. The only file of this package that imports torch.

Between two steps all ranks vote, in one small all-reduce, on the newest generation that each is ready for. When all
agree they leave the old process group and join the new one. Newcomers get the state by broadcast. Survivors go on
training while newcomers start: the new rank 0 opens the store of a generation as soon as it hears of it, and votes for
it only when all newcomers have connected.
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
from maniple.worker.script_api import script_api

JOIN_S = 300.0
_ARRIVED = "arrived"


class Elastic:
    """Membership in the job's process group. Made by `maniple.worker.elastic()`."""

    def __init__(self, parts: Sequence[Any], step: int, backend: str | None) -> None:
        self.step = step  # the step that comes next
        self.is_new = True  # in the first step, and in the first after each resize: wrap the model again
        self.is_leaving = False  # after the loop: told to stop before the work was done
        self.extra: dict[str, Any] = {}  # other state for newcomers; picklable
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self._parts = parts
        self._backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
        self._api = script_api()
        self._notice = self._own_notice()
        self._next_store: tuple[int, Any] | None = None  # the newest generation and its store, if we opened it
        self._must_stop = False
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        self._join(_store(address or "127.0.0.1", int(port or free_port()), self.rank == 0), is_newcomer=True)
        self._api.send(live=True)

    def steps(self, until: int) -> Iterator[int]:
        """The steps up to `until`, or until this worker leaves. Resizes happen between steps.

        A step counts as done when the loop asks for the next one.
        """
        while self.step < until and self._vote():
            yield self.step
            self.step += 1
            self.is_new = False

    # -- between two steps

    def _vote(self) -> bool:
        """Moves on to a new generation if all ranks are ready for it. Returns False if this worker leaves."""
        newest = self._api.notice()
        ready = newest.generation if newest is not None and self._is_ready(newest) else self._generation
        # The minimum of each: is any rank behind, is any ahead, must any stop?
        vote = torch.tensor([ready, -ready, 0 if self._must_stop else 1], dtype=torch.int64)
        distributed.all_reduce(vote, op=distributed.ReduceOp.MIN, group=self._control)
        least, most, may_go_on = int(vote[0]), -int(vote[1]), bool(vote[2])
        if not may_go_on:
            self.is_leaving = True
        elif newest is not None and least == most == newest.generation:
            self._move_on(newest)
            return not self.is_leaving and self._vote()  # newcomers begin with a vote, so all must
        return not self.is_leaving

    @property
    def _generation(self) -> int:
        return self._api.generation or 0

    def _is_ready(self, notice: Notice) -> bool:
        """The new rank 0 opens the store, and is ready when all newcomers have connected. Others are always ready."""
        position = self._position(notice)
        if notice.stop or position is None or notice.first_rank(position) + self._api.local_rank != 0:
            return True
        if self._next_store is None or self._next_store[0] != notice.generation:
            self._next_store = (notice.generation, _store(notice.address, notice.port, is_master=True))
        before = {(member.pod, member.uid) for member in self._notice.members} if self._notice else set()
        newcomers = sum(member.slots for member in notice.members if (member.pod, member.uid) not in before)
        return int(self._next_store[1].add(_ARRIVED, 0)) >= newcomers

    def _move_on(self, notice: Notice) -> None:
        distributed.destroy_process_group()
        position = self._position(notice)
        if notice.stop or position is None:
            self.is_leaving = True
            return
        variables = environment(notice, position, self._api.local_rank)
        os.environ.update(variables)
        self.rank, self.size = int(variables["RANK"]), notice.size
        store = (
            self._next_store[1] if self.rank == 0 and self._next_store else _store(notice.address, notice.port, False)
        )
        self._next_store = None
        self._join(store, is_newcomer=False)
        self._notice = notice
        self._api.rank = self.rank
        self._api.ack()
        self.is_new = True

    # -- joining

    def _join(self, store: Any, is_newcomer: bool) -> None:
        if is_newcomer:
            store.add(_ARRIVED, 1)
        self._store = store  # all ranks use rank 0's: it must live as long as the group
        group = distributed.PrefixStore("group", store)
        span = timedelta(seconds=JOIN_S)
        distributed.init_process_group(self._backend, store=group, rank=self.rank, world_size=self.size, timeout=span)
        self._control = None if self._backend == "gloo" else distributed.new_group(backend="gloo")
        self._share(is_newcomer)

    def _share(self, is_newcomer: bool) -> None:
        """Newcomers get the state from the first survivor; if there is none, from rank 0."""
        mine = torch.tensor([int(is_newcomer)])
        all_flags = [torch.zeros_like(mine) for _ in range(self.size)]
        distributed.all_gather(all_flags, mine, group=self._control)
        newcomers = [rank for rank, flag in enumerate(all_flags) if int(flag)]
        source = next((rank for rank in range(self.size) if rank not in newcomers), 0)
        ranks = sorted({source, *newcomers})
        if len(ranks) == 1:
            return
        group = distributed.new_group(ranks, backend="gloo")
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
            for part, part_state in zip(self._parts, state["parts"]):
                part.load_state_dict(part_state)
            self.step, self.extra = state["step"], state["extra"]

    def _own_notice(self) -> Notice | None:
        newest = self._api.newest()
        return newest if newest is not None and newest.generation == self._generation else None

    def _position(self, notice: Notice) -> int | None:
        return notice.position(self._api.settings.pod, self._api.settings.uid)

    def _stop(self, _number: int, _frame: Any) -> None:
        self._must_stop = True


def _store(address: str, port: int, is_master: bool) -> Any:
    return distributed.TCPStore(
        address, port, None, is_master, timeout=timedelta(seconds=JOIN_S), wait_for_workers=False
    )


class _Placeholder:
    """Stands for a tensor that was taken out of a state."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.kind = tuple(tensor.shape), tensor.dtype


def _without_tensors(state: Any, tensors: list[Any]) -> Any:
    """The state with placeholders. Its tensors are appended to `tensors`, in order: they are sent without pickling."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.detach().cpu().contiguous())
        return _Placeholder(state)
    if isinstance(state, dict):
        return {key: _without_tensors(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_without_tensors(value, tensors) for value in state])
    return state


def _with_tensors(state: Any, receive: Any) -> Any:
    if isinstance(state, _Placeholder):
        tensor = torch.empty(state.shape, dtype=state.kind)
        receive(tensor)
        return tensor
    if isinstance(state, dict):
        return {key: _with_tensors(value, receive) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_with_tensors(value, receive) for value in state])
    return state
