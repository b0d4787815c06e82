"""The logs of a job's replicas: as they are, or as they grow, replicas that come later included.

Lines are asked for with their times, so that a broken connection goes on where it was: no line twice, none left out.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from maniple.api.errors import InputError
from maniple.kube.transport.client import ApiError, Backoff, Patience, UnansweredError
from maniple.kube.user.client import JOBS, PODS, Key, Visit, read_job, refused, replica_query
from maniple.kube.user.replica_view import Replica, read_replica

OVER = ("Succeeded", "Failed")
_SILENT_S = 300.0  # a log in which nothing is written for so long is asked for again: the connection may be dead
_LAST_WORDS_S = 10.0
_LONGEST_PAUSE_S = 5.0
_TRIES = 5  # at a log that could not be read yet
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # an annotation that others have made known
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")

Take = Callable[[Replica, str], None]


@dataclass(frozen=True)
class Choice:
    """Which lines of which replicas."""

    is_chosen: Callable[[Replica], bool]
    tail: int | None = None
    since_s: int | None = None
    container: str = ""


async def read_logs(visit: Visit, key: Key, choice: Choice, take: Take) -> list[Replica]:
    """What there is now; the replicas that were chosen."""
    chosen = [replica for replica in await visit.replicas(*key) if choice.is_chosen(replica)]
    chosen.sort(key=lambda replica: (replica.role, replica.index))
    for replica in chosen:
        if replica.has_started:
            try:
                await _Log(visit, replica, choice, take).read(follow=False)
            except ApiError as error:
                raise _unreadable(error, replica) from None
    return chosen


async def follow_logs(visit: Visit, key: Key, choice: Choice, take: Take) -> None:
    """Until the job is over or gone, or a log cannot be read."""
    listed = asyncio.Event()
    streams: dict[str, asyncio.Task[None]] = {}
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(stream: asyncio.Task[None]) -> None:
        error = None if stream.cancelled() else stream.exception()
        if error is not None and not broken.done():
            broken.set_exception(error)

    async def find() -> None:
        async with aclosing(visit.follow(PODS, key[0], read_replica, replica_query(key[1]))) as changes:
            async for replicas in changes:
                for replica in replicas.values():
                    uid = replica.pod.metadata.uid
                    if uid not in streams and choice.is_chosen(replica) and replica.has_started:
                        streams[uid] = asyncio.create_task(_Log(visit, replica, choice, take).follow())
                        streams[uid].add_done_callback(look)
                listed.set()

    finding = asyncio.create_task(find())
    ending = asyncio.create_task(_until_over(visit, key))
    try:
        await asyncio.wait({finding, ending, broken}, return_when=asyncio.FIRST_COMPLETED)
        for ended in (broken, finding):
            if ended.done():
                ended.result()
        ending.result()
        await listed.wait()
        if streams:
            done, _ = await asyncio.wait(streams.values(), timeout=_LAST_WORDS_S)
            for stream in done:
                stream.result()
    finally:
        for task in (finding, ending, broken, *streams.values()):
            task.cancel()
        await asyncio.gather(finding, ending, broken, *streams.values(), return_exceptions=True)


async def _until_over(visit: Visit, key: Key) -> None:
    query = {"fieldSelector": f"metadata.name={key[1]}"}
    async with aclosing(visit.follow(JOBS, key[0], read_job, query)) as changes:
        async for jobs in changes:
            if key not in jobs or jobs[key].status.phase in OVER:
                return


class _Log:
    """The log of one replica."""

    def __init__(self, visit: Visit, replica: Replica, choice: Choice, take: Take) -> None:
        self._visit = visit
        self._replica = replica
        self._choice = choice
        self._take = take
        self._last = ""  # the time of the last line
        self._rest = b""  # half a line, at which a connection ended
        self._has_begun = False  # it could be read once
        self._patience = Patience()

    async def follow(self) -> None:
        """Until the pod has ended: whatever is on the way there may end an answer as if all were said."""
        backoff = Backoff(longest_s=_LONGEST_PAUSE_S)
        while True:
            before = self._last
            try:
                if self._has_begun and await self._ends():  # while nobody answered
                    return
                await self.read(follow=True)
                if await self._ends():
                    return
                if self._last != before:
                    backoff.reset()
                await backoff.wait()
            except UnansweredError:
                await backoff.wait()
            except ApiError as error:
                if error.status == 404:  # it has gone
                    self._say_rest()
                    return
                # 400: its container is being removed, and so is the pod.
                may_pass = error.status == 400 or self._patience.has(error) if self._has_begun else error.is_transient
                if not may_pass or (not self._has_begun and backoff.failures >= _TRIES):
                    raise _unreadable(error, self._replica) from None
                await backoff.wait(error)

    async def _ends(self) -> bool:
        """Whether the pod has ended, or is gone; all that it said has been taken then."""
        meta = self._replica.pod.metadata
        now = read_replica(msgspec.Raw(await self._visit.client.get(PODS.path(meta.namespace, meta.name))))
        is_there = now is not None and now.pod.metadata.uid == meta.uid  # and no other in its place
        if now is not None and is_there and not now.is_over:
            return False
        if is_there:
            await self._read_end()
        self._say_rest()
        return True

    async def _read_end(self) -> None:
        """What was not sent any more. The container may have been removed by now."""
        try:
            await self.read(follow=False)
        except ApiError as error:
            if error.is_transient or error.status == 403:
                raise

    def _say_rest(self) -> None:
        """Half a line, of which no more will come."""
        if self._rest:
            self._line(self._rest, self._last)

    async def read(self, *, follow: bool) -> None:
        meta = self._replica.pod.metadata
        choice = self._choice
        query = {"timestamps": "true", "container": choice.container or _main_container(self._replica)}
        if follow:
            query["follow"] = "true"
        if self._last:
            query["sinceTime"] = self._last
        else:
            query |= {} if choice.tail is None else {"tailLines": str(choice.tail)}
            query |= {} if choice.since_s is None else {"sinceSeconds": str(choice.since_s)}
        path = PODS.path(meta.namespace, meta.name, "log")
        before, rest = self._last, b""
        async with self._visit.client.stream(path, query, _SILENT_S) as chunks:
            self._has_begun = True
            self._patience.reset()
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._line(line, before)
                if follow and rest:
                    self._rest = rest  # all of it comes again, if there is more to come
        if rest and not follow:
            self._line(rest, before)

    def _line(self, line: bytes, before: str) -> None:
        moment, _, text = line.decode(errors="replace").partition(" ")
        if not _MOMENT.match(moment):
            return  # the kubelet's own words: that it cannot read the log any more
        if moment <= before:
            return  # seen before the connection broke
        self._last = moment
        self._take(self._replica, text.rstrip("\r"))


def _main_container(replica: Replica) -> str:
    """As kubectl has it: the one that the pod names as its main one, or the first."""
    named = replica.pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    names = [one.name for one in replica.pod.spec.containers]
    return named if named in names else names[0]


def _unreadable(error: ApiError, replica: Replica) -> InputError:
    messages = refused(error, f"Pod {replica.pod.metadata.namespace}/{replica.name}").messages
    return InputError(f"{message} (its log could not be read)" for message in messages)
