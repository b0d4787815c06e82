"""The client behind the CLI: reads, changes, deletes and follows jobs and what belongs to them.

It keeps no state and has only the rights of the user. A refusal of the server becomes an InputError that names the
object.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from maniple.api import types
from maniple.api.decode.server_objects import Head, Version, read_live
from maniple.api.errors import InputError, nearest
from maniple.api.keys import Key, job_label
from maniple.api.labels import JOB_LABEL
from maniple.api.validate.kubernetes import A_LABEL, is_label
from maniple.kube.transport.client import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    ApiError,
    Client,
    Patience,
    UnansweredError,
)
from maniple.kube.transport.list_watch import ListWatch, list_all
from maniple.kube.transport.login import log_in
from maniple.kube.transport.resource_kinds import INSTALL, JOBS, PODS, Resource
from maniple.kube.user.replica_pod import ReplicaPod, read_replica_pod

SILENCE_S = 90.0  # the server sends a bookmark about every minute
_LONGEST_PAUSE_S = 5.0

T = TypeVar("T")


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """An event of the events.k8s.io API, as far as it is shown."""

    class Series(msgspec.Struct, frozen=True, rename="camel"):
        count: int = 1
        last_observed_time: str | None = None

    class Regarding(msgspec.Struct, frozen=True):
        kind: str = ""
        name: str = ""
        uid: str = ""

    reason: str = ""
    note: str = ""
    type: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: Series | None = None
    regarding: Regarding = Regarding()

    @property
    def time(self) -> str:
        """When it was last seen."""
        last = self.series.last_observed_time if self.series is not None else None
        return last or self.event_time or self.deprecated_last_timestamp or ""

    @property
    def count(self) -> int:
        return 1 if self.series is None else self.series.count


class Watched(ListWatch[tuple[Version, T | None]], Generic[T]):
    """Objects as they are now, by namespace and name."""

    def __init__(
        self,
        client: Client,
        path: str,
        query: Mapping[str, str],
        read: Callable[[msgspec.Raw], T | None],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(client, path, query, SILENCE_S, _LONGEST_PAUSE_S)
        self._read = read
        self._note = note  # takes why nothing is heard of the server; empty: all is well
        self._patience = Patience()
        self._has_begun = False
        self._has_failed = False
        self.objects: dict[Key, T] = {}

    def read(self, raw: msgspec.Raw) -> tuple[Version, T | None]:
        return msgspec.json.decode(raw, type=Head).metadata, self._read(raw)

    async def replace(self, items: list[tuple[Version, T | None]], version: str) -> None:  # noqa: ARG002
        self.objects.clear()
        for item in items:
            self.put(item)
        self._has_begun = True

    def put(self, item: tuple[Version, T | None]) -> str:
        head, read = item
        if read is not None:
            self.objects[head.namespace, head.name] = read
        return head.resource_version

    def remove(self, head: Version) -> None:
        self.objects.pop((head.namespace, head.name), None)

    def connected(self) -> None:
        self._patience.reset()
        self._has_failed = False
        self._note("")

    def handle_failure(self, error: ApiError | UnansweredError) -> bool:
        if not self._has_begun:
            return False
        may_pass = isinstance(error, UnansweredError) or error.status == 410 or self._client.may_pass(error)
        if isinstance(error, ApiError) and not may_pass and not self._patience.has(error):
            return False
        if self._has_failed:  # most watches that break once are there again at once
            self._note(str(error))
        self._has_failed = True
        return True


class UserClient:
    """Made by `connect`. `namespace` is the one of names that are given without."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._broken: dict[str, str] = {}  # path of a watch that fails -> why
        self.on_trouble: Callable[[], None] = lambda: None  # called whenever `trouble` comes or goes

    @property
    def trouble(self) -> str:
        """Why watches are out of date: the API server does not answer. Empty: they are up to date."""
        return next(iter(self._broken.values()), "")

    # -- jobs

    async def jobs(self, namespace: str | None) -> list[types.ElasticJob]:
        """The jobs of a namespace; None: of all namespaces."""
        try:
            jobs = await self._list(folder(JOBS, namespace), read_job)
        except ApiError as error:
            raise jobs_refused(error) from None
        return [job for job in jobs if job is not None]

    async def jobs_and_replicas(self, namespace: str | None) -> tuple[list[types.ElasticJob], list[ReplicaPod]]:
        """Both at once. A user who may read neither gets the error of jobs."""
        replicas = asyncio.create_task(self.replicas(namespace))
        try:
            jobs = await self.jobs(namespace)
        except BaseException:
            replicas.cancel()
            await asyncio.gather(replicas, return_exceptions=True)
            raise
        return jobs, await replicas

    async def job(self, key: Key) -> types.ElasticJob:
        async with self._naming(key):
            raw = await self.client.get(JOBS.path(*key))
        live = read_live(raw, types.ElasticJob)
        if not isinstance(live.item, types.ElasticJob):
            raise InputError(f"{job_label(key)}: {problem}" for problem in live.wrong)
        return live.item

    async def change(self, key: Key, operations: list[dict[str, Any]]) -> types.ElasticJob:
        """Applies a JSON patch. Its `test` operations keep it from undoing changes of others."""
        async with self._naming(key):
            raw = await self._write("PATCH", JOBS.path(*key), msgspec.json.encode(operations), JSON_PATCH)
        job = read_job(raw)
        assert job is not None  # the server has just accepted it
        return job

    async def merge(self, key: Key, body: dict[str, Any]) -> None:
        async with self._naming(key):
            await self._write("PATCH", JOBS.path(*key), msgspec.json.encode(body), MERGE_PATCH)

    async def delete(self, key: Key, *, foreground: bool) -> None:
        """In the foreground the job remains until the deletion of everything that it owns has begun.

        Its pods may outlive it: they do not block its deletion, because that would need more rights of the controller.
        """
        policy = {"propagationPolicy": "Foreground" if foreground else "Background"}
        async with self._naming(key):
            await self._write("DELETE", JOBS.path(*key), msgspec.json.encode(policy))

    @asynccontextmanager
    async def _naming(self, key: Key) -> AsyncIterator[None]:
        """A refusal becomes an InputError that names the job, or similar jobs if there is none of this name."""
        try:
            yield
        except ApiError as error:
            if error.status != 404:
                raise refused(error, job_label(key)) from None
            names = {job.metadata.name for job in await self.jobs(key[0])}
            near = nearest(key[1], names) or f"; namespace {key[0]} has no jobs"
            raise InputError([f"{job_label(key)}: there is no such job{near}"]) from None

    # -- what belongs to them

    async def replicas(self, namespace: str | None, job: str = "") -> list[ReplicaPod]:
        """The pods of one job, or of all jobs."""
        try:
            replicas = await self._list(folder(PODS, namespace), read_replica_pod, replica_query(job))
        except ApiError as error:
            raise refused(error, "Pods") from None
        return [replica for replica in replicas if replica is not None]

    async def names(self, path: str) -> set[str] | None:
        """The names of all objects at the path; None if the user may not list them."""
        try:
            heads = await self._list(path, msgspec.json.Decoder(Head).decode)
        except ApiError:
            return None
        return {head.metadata.name for head in heads}

    async def events(self, job: types.ElasticJob, replicas: Iterable[ReplicaPod]) -> list[Event]:
        """Of the job and of these pods, oldest first; none if the user may not read them."""
        path = f"/apis/events.k8s.io/v1/namespaces/{job.metadata.namespace}/events"
        uids = {replica.pod.metadata.uid for replica in replicas}
        try:
            read = msgspec.json.Decoder(Event).decode
            of_job = await self._list(path, read, {"fieldSelector": f"regarding.uid={job.metadata.uid}"})
            of_pods = await self._list(path, read, {"fieldSelector": "regarding.kind=Pod"})
        except ApiError as error:
            if error.status == 403:
                return []
            raise
        events = [*of_job, *(event for event in of_pods if event.regarding.uid in uids)]
        return sorted(events, key=lambda event: event.time)

    # -- any objects

    async def _list(
        self, path: str, read: Callable[[msgspec.Raw], T], query: Mapping[str, str] | None = None
    ) -> list[T]:
        objects, _ = await list_all(self.client, path, read, query)
        return objects

    async def create(self, path: str, body: bytes, *, dry_run: bool = False) -> bytes:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return await self._write("POST", path + query, body)

    async def remove(self, path: str, uid: str) -> None:
        """Deletes the object with this uid, and no later one of the same name."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        await self._write("DELETE", path, msgspec.json.encode(body))

    async def _write(self, method: str, path: str, body: bytes, content_type: str = JSON) -> bytes:
        return await self.client.write(self.client.statuses, method, path, body, content_type)

    async def follow(
        self,
        resource: Resource,
        namespace: str | None,
        read: Callable[[msgspec.Raw], T | None],
        query: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[Key, T], None]:
        """Yields all objects, and again after each change; always the same dict. Broken connections are made again.

        Errors of the first request are raised. Later requests are retried, and `trouble` says why meanwhile.
        """
        path = folder(resource, namespace)
        watched = Watched(self.client, path, query or {}, read, lambda why: self._note(path, why))
        try:
            async with aclosing(watched.changes()) as changes:
                async for _ in changes:
                    yield watched.objects
        finally:
            self._note(path, "")

    async def follow_job(self, key: Key) -> AsyncGenerator[types.ElasticJob | None, None]:
        """The job after each change; None while there is none of this name."""
        jobs = self.follow(JOBS, key[0], read_job, {"fieldSelector": f"metadata.name={key[1]}"})
        async with aclosing(jobs) as changes:
            async for objects in changes:
                yield objects.get(key)

    def _note(self, path: str, why: str) -> None:
        before = bool(self._broken)
        if why:
            self._broken[path] = why
        else:
            self._broken.pop(path, None)
        if bool(self._broken) != before:
            self.on_trouble()


@asynccontextmanager
async def connect(kubeconfig: str | None, context: str | None, namespace: str | None) -> AsyncIterator[UserClient]:
    if namespace is not None and not is_label(namespace):
        raise InputError([f"--namespace: expected {A_LABEL}, found {namespace!r}"])
    login = await log_in(kubeconfig, context)
    async with Client(login) as client:
        yield UserClient(client, namespace or login.namespace)


def folder(resource: Resource, namespace: str | None) -> str:
    """The path of the objects of a kind in a namespace; None: in all."""
    return resource.list_path if namespace is None else f"{resource.prefix}/namespaces/{namespace}/{resource.plural}"


def replica_query(job: str = "") -> dict[str, str]:
    return {"labelSelector": f"{JOB_LABEL}={job}" if job else JOB_LABEL}


def read_job(raw: bytes | msgspec.Raw) -> types.ElasticJob | None:
    job = read_live(raw, types.ElasticJob).item
    return job if isinstance(job, types.ElasticJob) else None


def jobs_refused(error: ApiError) -> InputError:
    """A refused list of jobs."""
    if error.status == 404:
        return InputError([f"the cluster has no ElasticJobs: {INSTALL}"])
    return refused(error, "ElasticJobs")


def refused(error: ApiError, what: str) -> InputError:
    """The server's refusal as our errors are: the object, the field, what is wrong with it."""
    if error.status == 422 and error.causes:
        return InputError(f"{what}: {_cause(cause.field, cause.message)}" for cause in error.causes)
    if error.status == 401:
        return InputError([f"{what}: the API server does not know who you are: log in again, or name a --context"])
    if error.status == 403:
        return InputError([f"{what}: you may not do this: {error.message}"])
    if error.is_transient:
        return InputError([f"{what}: the API server could not do it now, try again: {error.message or error.reason}"])
    return InputError([f"{what}: {error.message or error}"])


def _cause(field: str, message: str) -> str:
    """`spec.roles[0].max: max must be at least min`, without the prefixes of Go's validation."""
    for prefix in ("Invalid value: ", "Required value: ", "Unsupported value: ", "Forbidden: "):
        if message.startswith(prefix):
            rest = message.removeprefix(prefix)
            value, separator, detail = rest.partition(": ")
            is_short = len(value) <= 60 and "\n" not in value and not value.startswith(("map[", "{", "[", "object"))
            shows_value = separator and is_short and prefix.startswith("Invalid")
            message = f"{detail}, found {value}" if shows_value else detail or rest
            break
    return message if field in ("", "<nil>") else f"{field}: {message}"
