"""A person's visit to the API server: jobs and what belongs to them, read, changed, deleted and followed.

Unlike the scheduler it keeps nothing, leads nothing, and has only the rights of whoever asks. What the server refuses
becomes an InputError that names the object.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import Head, Version, read_live
from maniple.api.errors import InputError, nearest
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
from maniple.kube.transport.resource_kinds import RESOURCES, Resource
from maniple.kube.user.replica_view import Replica, read_replica

SILENCE_S = 90.0  # the server sends a bookmark about every minute
_LONGEST_PAUSE_S = 5.0
INSTALL = "install what they are with `maniple crds | kubectl apply --server-side -f -`, or the Helm chart"

T = TypeVar("T")
Key = tuple[str, str]


def _resource(struct: type) -> Resource:
    return next(resource for resource in RESOURCES if resource.struct is struct)


JOBS = _resource(types.ElasticJob)
QUEUES = _resource(types.Queue)
PODS = _resource(kubernetes.Pod)
NODES = _resource(kubernetes.Node)


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """What happened to an object, as the events API tells it."""

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
    def at(self) -> str:
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
        if isinstance(error, ApiError) and error.status != 410 and not self._patience.has(error):
            return False
        if self._has_failed:  # most watches that break once are there again at once
            self._note(str(error))
        self._has_failed = True
        return True


class Visit:
    """Use `visit(…)`. `namespace` is where names without one are looked for."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._broken: dict[str, str] = {}  # what is followed in vain -> why
        self.line_changed: Callable[[], None] = lambda: None  # called whenever `trouble` comes or goes

    @property
    def trouble(self) -> str:
        """Why what is followed is not up to date: the API server does not answer. Empty: it is."""
        return next(iter(self._broken.values()), "")

    # -- jobs

    async def jobs(self, namespace: str | None) -> list[types.ElasticJob]:
        """All of a namespace; None: of all namespaces."""
        try:
            items, _ = await self.list_raw(JOBS, namespace)
        except ApiError as error:
            raise jobs_refused(error) from None
        return [job for raw in items if (job := read_job(raw)) is not None]

    async def job(self, key: Key) -> types.ElasticJob:
        try:
            raw = await self.client.get(JOBS.path(*key))
        except ApiError as error:
            raise await self._refused(error, key) from None
        live = read_live(raw, types.ElasticJob)
        if not isinstance(live.item, types.ElasticJob):
            raise InputError(f"ElasticJob {'/'.join(key)}: {problem}" for problem in live.wrong)
        return live.item

    async def change(self, key: Key, operations: list[dict[str, Any]]) -> types.ElasticJob:
        """A JSON patch: it says what must be as it was read, and so never undoes what others did meanwhile."""
        try:
            raw = await self._write("PATCH", JOBS.path(*key), msgspec.json.encode(operations), JSON_PATCH)
        except ApiError as error:
            raise await self._refused(error, key) from None
        live = read_live(raw, types.ElasticJob)
        assert isinstance(live.item, types.ElasticJob)  # the server has just accepted it
        return live.item

    async def merge(self, key: Key, body: dict[str, Any]) -> None:
        try:
            await self._write("PATCH", JOBS.path(*key), msgspec.json.encode(body), MERGE_PATCH)
        except ApiError as error:
            raise await self._refused(error, key) from None

    async def delete(self, key: Key, *, foreground: bool) -> None:
        """In the foreground the job is there until the deletion of all that it owns has begun, and not longer.

        Its pods may outlive it: they do not block it, because that would need more rights of the controller.
        """
        policy = {"propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            await self._write("DELETE", JOBS.path(*key), msgspec.json.encode(policy))
        except ApiError as error:
            raise await self._refused(error, key) from None

    async def _refused(self, error: ApiError, key: Key) -> InputError:
        if error.status != 404:
            return refused(error, f"ElasticJob {'/'.join(key)}")
        names = {job.metadata.name for job in await self.jobs(key[0])}
        near = nearest(key[1], names) or f"; namespace {key[0]} has no jobs"
        return InputError([f"ElasticJob {'/'.join(key)}: there is no such job{near}"])

    # -- what belongs to them

    async def replicas(self, namespace: str | None, job: str = "") -> list[Replica]:
        """The pods of one job, or of all."""
        try:
            items, _ = await self.list_raw(PODS, namespace, replica_query(job))
        except ApiError as error:
            raise refused(error, "Pods") from None
        return [replica for raw in items if (replica := read_replica(raw)) is not None]

    async def names(self, path: str) -> set[str] | None:
        """Of all that is listed there; None where one may not list it."""

        class Page(msgspec.Struct):
            items: list[Head] = []

        try:
            return {item.metadata.name for item in msgspec.json.decode(await self.client.get(path), type=Page).items}
        except ApiError:
            return None

    async def events(self, job: types.ElasticJob, replicas: Iterable[Replica]) -> list[Event]:
        """Of the job and of these pods, oldest first; none where one may not read them."""
        path = f"/apis/events.k8s.io/v1/namespaces/{job.metadata.namespace}/events"
        uids = {replica.pod.metadata.uid for replica in replicas}
        try:
            own = await self._list(path, {"fieldSelector": f"regarding.uid={job.metadata.uid}"})
            pods = await self._list(path, {"fieldSelector": "regarding.kind=Pod"})
        except ApiError as error:
            if error.status == 403:
                return []
            raise
        found = [msgspec.json.decode(raw, type=Event) for raw in own[0]]
        for raw in pods[0]:
            event = msgspec.json.decode(raw, type=Event)
            if event.regarding.uid in uids:
                found.append(event)
        return sorted(found, key=lambda event: event.at)

    # -- any objects

    async def list_raw(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str] | None = None
    ) -> tuple[list[msgspec.Raw], str]:
        return await self._list(folder(resource, namespace), query or {})

    async def _list(self, path: str, query: Mapping[str, str]) -> tuple[list[msgspec.Raw], str]:
        """Every object, and the version of the list."""
        return await list_all(self.client, path, lambda raw: raw, query)

    async def create(self, path: str, body: bytes, *, dry_run: bool = False) -> bytes:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return await self._write("POST", path + query, body)

    async def remove(self, path: str, uid: str) -> None:
        """The object that has this uid, and no other that came into its place."""
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
        """All objects as they are, again after each change, whatever happens to the connection.

        It is always the same map. What the first request is refused is raised; later ones are made again, and `trouble`
        says so meanwhile.
        """
        path = folder(resource, namespace)
        watched = Watched(self.client, path, query or {}, read, lambda why: self._note(path, why))
        try:
            async with aclosing(watched.changes()) as changes:
                async for _ in changes:
                    yield watched.objects
        finally:
            self._note(path, "")

    def _note(self, path: str, why: str) -> None:
        before = bool(self._broken)
        if why:
            self._broken[path] = why
        else:
            self._broken.pop(path, None)
        if bool(self._broken) != before:
            self.line_changed()


@asynccontextmanager
async def visit(kubeconfig: str | None, context: str | None, namespace: str | None) -> AsyncIterator[Visit]:
    if namespace is not None and not is_label(namespace):
        raise InputError([f"--namespace: expected {A_LABEL}, found {namespace!r}"])
    login = await log_in(kubeconfig, context)
    async with Client(login) as client:
        yield Visit(client, namespace or login.namespace)


def folder(resource: Resource, namespace: str | None) -> str:
    """The path of a namespace's objects of a kind, or of all there are."""
    return resource.list_path if namespace is None else f"{resource.prefix}/namespaces/{namespace}/{resource.plural}"


def replica_query(job: str = "") -> dict[str, str]:
    return {"labelSelector": f"{JOB_LABEL}={job}" if job else JOB_LABEL}


def read_job(raw: msgspec.Raw) -> types.ElasticJob | None:
    item = read_live(raw, types.ElasticJob).item
    return item if isinstance(item, types.ElasticJob) else None


def jobs_refused(error: ApiError) -> InputError:
    """A list of jobs that was refused."""
    if error.status == 404:
        return InputError([f"the cluster has no ElasticJobs: {INSTALL}"])
    return refused(error, "ElasticJobs")


def refused(error: ApiError, what: str) -> InputError:
    """The server's refusal in our form: the object, the field, what is wrong with it."""
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
    """`spec.roles[0].max: max must be at least min` — without the words of Go around it."""
    for start in ("Invalid value: ", "Required value: ", "Unsupported value: ", "Forbidden: "):
        if message.startswith(start):
            rest = message.removeprefix(start)
            found, separator, said = rest.partition(": ")
            short = len(found) <= 60 and "\n" not in found and not found.startswith(("map[", "{", "[", "object"))
            shown = f"{said}, found {found}" if separator and short and start.startswith("Invalid") else said or rest
            message = shown
            break
    place = field if field not in ("", "<nil>") else ""
    return f"{place}: {message}" if place else message
