"""The logs of a job's replicas: what there is, or followed, including replicas that start later.

Lines are requested with their timestamps. After a broken connection, reading resumes at the last one: no line is
repeated, none is left out.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from maniple.api.errors import InputError
from maniple.api.keys import Key, name_of
from maniple.api.phases import FINISHED
from maniple.kube.transport.client import ApiError, Backoff, Patience, UnansweredError
from maniple.kube.transport.resource_kinds import NODES, PODS
from maniple.kube.user.client import UserClient, refused, replica_query
from maniple.kube.user.replica_pod import ReplicaPod, read_replica_pod

_SILENT_S = 300.0  # a log without a new line for so long is requested again: the connection may be dead
_FLUSH_S = 10.0  # after the job's end, for what its logs still hold
_LONGEST_PAUSE_S = 5.0
_TRIES = 5  # of a log that could not be read yet
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # kubectl's annotation
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT")

_SIMULATED = "kwok.x-k8s.io/node"  # KWOK's annotation of its nodes


class _Node(msgspec.Struct):
    class Metadata(msgspec.Struct):
        annotations: dict[str, str] = {}

    metadata: Metadata


OnLine = Callable[[ReplicaPod, str], None]


@dataclass(frozen=True)
class Choice:
    """Which lines of which replicas."""

    is_chosen: Callable[[ReplicaPod], bool]
    tail: int | None = None
    since_s: int | None = None
    container: str = ""


async def read_logs(client: UserClient, key: Key, choice: Choice, on_line: OnLine) -> list[ReplicaPod]:
    """Reads what there is now, and returns the chosen replicas."""
    chosen = [replica for replica in await client.replicas(*key) if choice.is_chosen(replica)]
    chosen.sort(key=lambda replica: (replica.role, replica.index))
    for replica in chosen:
        if replica.has_started:
            try:
                await _Log(client, replica, choice, on_line).read(follow=False)
            except ApiError as error:
                raise await _unreadable(client, error, replica) from None
    return chosen


async def follow_logs(client: UserClient, key: Key, choice: Choice, on_line: OnLine) -> None:
    """Until the job has finished or is gone, or a log cannot be read."""
    listed = asyncio.Event()
    streams: dict[str, asyncio.Task[None]] = {}
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_end(stream: asyncio.Task[None]) -> None:
        error = None if stream.cancelled() else stream.exception()
        if error is not None and not broken.done():
            broken.set_exception(error)

    async def find() -> None:
        async with aclosing(client.follow(PODS, key[0], read_replica_pod, replica_query(key[1]))) as changes:
            async for replicas in changes:
                for replica in replicas.values():
                    uid = replica.pod.metadata.uid
                    if uid not in streams and choice.is_chosen(replica) and replica.has_started:
                        streams[uid] = asyncio.create_task(_Log(client, replica, choice, on_line).follow())
                        streams[uid].add_done_callback(on_end)
                listed.set()

    finding = asyncio.create_task(find())
    ending = asyncio.create_task(_until_finished(client, key))
    try:
        await asyncio.wait({finding, ending, broken}, return_when=asyncio.FIRST_COMPLETED)
        for ended in (broken, finding):
            if ended.done():
                ended.result()
        ending.result()
        await listed.wait()
        if streams:
            done, _ = await asyncio.wait(streams.values(), timeout=_FLUSH_S)
            for stream in done:
                stream.result()
    finally:
        for task in (finding, ending, broken, *streams.values()):
            task.cancel()
        await asyncio.gather(finding, ending, broken, *streams.values(), return_exceptions=True)


async def _until_finished(client: UserClient, key: Key) -> None:
    async with aclosing(client.follow_job(key)) as changes:
        async for job in changes:
            if job is None or job.status.phase in FINISHED:
                return


class _Log:
    """The log of one replica."""

    def __init__(self, client: UserClient, replica: ReplicaPod, choice: Choice, on_line: OnLine) -> None:
        self._client = client
        self._replica = replica
        self._choice = choice
        self._on_line = on_line
        self._last = ""  # the timestamp of the last line
        self._rest = b""  # the part of a line at which a connection ended
        self._has_begun = False  # it could be read once
        self._patience = Patience()

    async def follow(self) -> None:
        """Until the pod has finished: a proxy may end a response as if it were complete."""
        backoff = Backoff(longest_s=_LONGEST_PAUSE_S)
        while True:
            before = self._last
            try:
                if self._has_begun and await self._read_if_finished():  # while nobody answered
                    return
                await self.read(follow=True)
                if await self._read_if_finished():
                    return
                if self._last != before:
                    backoff.reset()
                await backoff.wait()
            except UnansweredError:
                await backoff.wait()
            except ApiError as error:
                if error.status == 404:  # the pod is gone
                    self._flush()
                    return
                # 400: its container is being removed, and so is the pod.
                may_pass = error.status == 400 or self._patience.has(error) if self._has_begun else error.is_transient
                is_last = not may_pass or (not self._has_begun and backoff.failures >= _TRIES)
                if is_last or await _is_simulated(self._client, error, self._replica):
                    raise await _unreadable(self._client, error, self._replica) from None
                await backoff.wait(error)

    async def _read_if_finished(self) -> bool:
        """Whether the pod has finished or is gone; then all of its log has been read."""
        meta = self._replica.pod.metadata
        now = read_replica_pod(msgspec.Raw(await self._client.client.get(PODS.path(meta.namespace, meta.name))))
        exists = now is not None and now.pod.metadata.uid == meta.uid  # not another of the same name
        if now is not None and exists and not now.is_finished:
            return False
        if exists:
            await self._read_end()
        self._flush()
        return True

    async def _read_end(self) -> None:
        """Reads what was not sent before. The container may have been removed by now."""
        try:
            await self.read(follow=False)
        except ApiError as error:
            if error.is_transient or error.status == 403:
                raise

    def _flush(self) -> None:
        """The last line, if it has no end."""
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
        async with self._client.client.stream(path, query, _SILENT_S) as chunks:
            self._has_begun = True
            self._patience.reset()
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._line(line, before)
                if follow and rest:
                    self._rest = rest  # if there is more, all of it is sent again
        if rest and not follow:
            self._line(rest, before)

    def _line(self, line: bytes, before: str) -> None:
        timestamp, _, text = line.decode(errors="replace").partition(" ")
        if not _TIMESTAMP.match(timestamp):
            return  # a message of the kubelet: it cannot read the log any more
        if timestamp <= before:
            return  # read before the connection broke
        self._last = timestamp
        self._on_line(self._replica, text.rstrip("\r"))


def _main_container(replica: ReplicaPod) -> str:
    """As in kubectl: the container that the annotation names, or the first."""
    default = replica.pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    names = [container.name for container in replica.pod.spec.containers]
    return default if default in names else names[0]


async def _unreadable(client: UserClient, error: ApiError, replica: ReplicaPod) -> InputError:
    name = f"Pod {name_of(replica.pod.metadata)}"
    if await _is_simulated(client, error, replica):
        return InputError([f"{name}: has no log: its node {replica.pod.spec.node_name} is simulated, and runs nothing"])
    messages = refused(error, name).messages
    return InputError(f"{message} (its log could not be read)" for message in messages)


async def _is_simulated(client: UserClient, error: ApiError, replica: ReplicaPod) -> bool:
    """Whether the log cannot be read because the pod's node is one of KWOK's, which has no kubelet to ask."""
    if error.status < 500:
        return False
    try:
        answer = await client.client.get(NODES.path("", replica.pod.spec.node_name))
    except (ApiError, UnansweredError):  # also because not everybody may read nodes
        return False
    return _SIMULATED in msgspec.json.decode(answer, type=_Node).metadata.annotations
