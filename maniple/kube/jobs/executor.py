"""The machine's instructions, done on the API server. Each may be done again: what is there already counts as done."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from maniple.api import types
from maniple.api.decode.server_objects import read_live
from maniple.api.labels import GENERATION_ANNOTATION
from maniple.api.replica_pods import ReplicaFacts
from maniple.elastic.conditions import OURS, Conditions
from maniple.elastic.generations import notice
from maniple.elastic.instructions import CreateReplica, DeleteReplica
from maniple.elastic.job import JobSpec
from maniple.kube.jobs import manifests
from maniple.kube.jobs.agent_server import Agents
from maniple.kube.jobs.manifests import Setting
from maniple.kube.jobs.pod_view import place_of
from maniple.kube.transport.client import MERGE_PATCH, ApiError, Client
from maniple.kube.transport.mirror import Key, Mirror, Seen
from maniple.kube.transport.resource_kinds import PODS, Resource
from maniple.worker.pack import agent_pyz

log = logging.getLogger("maniple.jobs")

_STATUS = tuple(name for name in types.ElasticJobStatus.__struct_fields__ if name != "conditions")
_COUNTS = ("replicas", "restarts", "resizes")
_WIRE = {field.name: field.encode_name for field in msgspec.structs.fields(types.ElasticJobStatus)}
_GONE = (404, 409)
_NO_POD = "cannot be handled as a Pod"  # a number where a text must be, and the like
# Every pod has the notice, and the notice names every pod: what is written grows with the square of a job's size.
_LONGEST = 200_000  # bytes; the server takes 262,144 for all annotations of an object
_LONGEST_BESIDE = 32_000  # where the endpoint tells it too


class RefusedError(Exception):
    """The API server will never take such a pod."""


class NameTakenError(Exception):
    """Another object has the name that one of the job's must have."""


class Hands:
    def __init__(self, client: Client, mirror: Mirror, resource: Resource, setting: Setting) -> None:
        self._client = client
        self._mirror = mirror
        self._resource = resource
        self.setting = setting
        # What a job's conditions are to be by now, those of the scheduler among them.
        self.conditions_of: Callable[[Key, types.ElasticJob], Conditions] = lambda _, job: job.status.conditions
        self.agents: Agents | None = None
        self.authority = b""
        self.archive = agent_pyz()

    # -- the job

    async def write_status(self, key: Key, uid: str, status: types.ElasticJobStatus) -> None:
        """What differs from what the server has, and only if nobody has written since we looked."""

        def body() -> bytes:
            seen, job = self._seen(key, uid)
            changed = _changed(job.status, status, self.conditions_of(key, job))
            return msgspec.json.encode(
                {"metadata": {"resourceVersion": str(seen.version), "uid": uid}, "status": changed}
            )

        before = self._seen(key, uid)[1].status
        if _changed(before, status, before.conditions):
            path = self._resource.path(*key, "status")
            answer = await self._client.write(self._client.jobs, "PATCH", path, body, MERGE_PATCH)
            self._mirror.put(self._resource, read_live(answer, self._resource.struct))

    def _seen(self, key: Key, uid: str) -> tuple[Seen, types.ElasticJob]:
        seen = self._mirror.seen(self._resource).get(key)
        if seen is None or seen.uid != uid or not isinstance(seen.item, types.ElasticJob):
            raise ApiError(404, "NotFound", "the job is gone")
        return seen, seen.item

    def spec(self, key: Key, uid: str) -> dict[str, Any]:
        """As it was written, with all that scheduling does not read."""
        spec: dict[str, Any] = msgspec.json.decode(self._seen(key, uid)[0].spec)
        return spec

    async def delete_job(self, key: Key, uid: str) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        body["propagationPolicy"] = "Background"
        await self._delete(self._resource.path(*key), body)

    # -- what goes with it

    async def make_surroundings(self, job: JobSpec) -> None:
        """Service, Secret and ConfigMap; before the first pod, which would not start without them."""
        folder = f"/api/v1/namespaces/{job.namespace}"
        token = "" if self.agents is None else self.agents.token(f"{job.namespace}/{job.name}", job.uid)
        made = [self._make(f"{folder}/secrets", manifests.secret(job, self.archive, token, self.authority))]
        if manifests.has_names(job):
            made.append(self._make_service(f"{folder}/services", job))
        if job.framework == "horovod":
            made.append(self._make(f"{folder}/configmaps", manifests.hosts(job, types.JobGeneration())))
        await asyncio.gather(*made)

    async def _make(self, folder: str, body: dict[str, Any]) -> None:
        """Of a name that has the job's uid in it: what is there already is the job's."""
        try:
            await self._create(folder, body)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _make_service(self, folder: str, job: JobSpec) -> None:
        """Of the job's own name, which others may have taken."""
        try:
            await self._create(folder, manifests.service(job))
        except ApiError as error:
            if error.status != 409:
                raise
            found = msgspec.json.decode(await self._client.get(f"{folder}/{job.name}"))
            owners = found["metadata"].get("ownerReferences") or []
            if job.uid not in [owner["uid"] for owner in owners]:
                raise NameTakenError(f"there is a Service {job.name} that is not the job's") from None

    # -- replicas

    async def create(self, job: JobSpec, one: CreateReplica, spec: dict[str, Any], sizes: dict[str, int]) -> None:
        role = next(role for role in spec["roles"] if role["name"] == one.role)
        priority = spec.get("priorityClassName", "")
        body = manifests.pod(job, role["template"], (one.role, one.index), sizes, priority, self.setting)
        try:
            answer = await self._create(f"/api/v1/namespaces/{job.namespace}/pods", body)
        except ApiError as error:
            if error.status == 422 or (error.status == 400 and _NO_POD in error.message):
                raise RefusedError(error.message) from None
            if error.status != 409:
                raise
            await self._look(job, (one.role, one.index))
        else:
            self._mirror.put(PODS, read_live(answer, PODS.struct))

    async def _look(self, job: JobSpec, place: tuple[str, int]) -> None:
        """A pod of this name is there: ours, of which we have not heard, or another's."""
        path = PODS.path(job.namespace, job.pod(place))
        try:
            live = read_live(await self._client.get(path), PODS.struct)
        except ApiError as error:
            if error.status == 404:
                raise ApiError(409, "AlreadyExists", f"{job.pod(place)} was there, and has gone") from None
            raise
        self._mirror.put(PODS, live)
        found = live.replica
        if found is None or not found.owner or found.job != job.name or place_of(found) != place:
            raise NameTakenError(f"there is a Pod {job.pod(place)} that is not the job's")

    async def delete(self, job: JobSpec, one: DeleteReplica) -> None:
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": one.uid}}
        if one.grace_s is not None:
            body["gracePeriodSeconds"] = int(one.grace_s)
        await self._delete(PODS.path(job.namespace, job.pod((one.role, one.index))), body)

    # -- generations

    async def publish(self, job: JobSpec, generation: types.JobGeneration, pods: dict[Key, ReplicaFacts]) -> None:
        """To the endpoint, where agents wait; to the pods' annotations, which become files; to Horovod's script."""
        text = notice(job, generation)
        told = {member.uid for member in generation.members}
        untold = [
            (key, facts)
            for key, facts in pods.items()
            if facts.notified_generation < generation.number
            and not facts.is_leaving
            and (facts.uid in told or facts.notified_generation)
        ]
        name = f"{job.namespace}/{job.name}"
        most = _LONGEST
        if self.agents is not None:
            self.agents.publish(name, job.uid, text, generation.number)
            most = _LONGEST_BESIDE if job.has_agents else _LONGEST
        if len(text) > most:
            log.info("not written to pods: too long", extra={"job": name, "bytes": len(text), "most": most})
            untold = []
        if job.framework == "horovod" and not generation.stop:  # without hosts horovodrun does not end when told to
            await self._write_hosts(job, generation)
        await asyncio.gather(*(self._annotate(key, facts.uid, text.decode()) for key, facts in untold))

    async def _write_hosts(self, job: JobSpec, generation: types.JobGeneration) -> None:
        whole = manifests.hosts(job, generation)
        folder = f"/api/v1/namespaces/{job.namespace}/configmaps"
        path, body = f"{folder}/{manifests.hosts_name(job)}", msgspec.json.encode({"data": whole["data"]})
        try:
            await self._client.write(self._client.jobs, "PATCH", path, body, MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._create(folder, whole)  # somebody has deleted it

    async def _annotate(self, key: Key, uid: str, text: str) -> None:
        body = {"metadata": {"uid": uid, "annotations": {GENERATION_ANNOTATION: text}}}
        try:
            answer = await self._client.write(
                self._client.jobs, "PATCH", PODS.path(*key), msgspec.json.encode(body), MERGE_PATCH
            )
        except ApiError as error:
            if error.status not in _GONE:  # a pod that is gone need not be told
                raise
        else:
            self._mirror.put(PODS, read_live(answer, PODS.struct))

    # -- requests

    async def _create(self, path: str, body: dict[str, Any]) -> bytes:
        return await self._client.write(self._client.jobs, "POST", path, manifests.encoded(body))

    async def _delete(self, path: str, body: dict[str, Any]) -> None:
        try:
            await self._client.write(self._client.jobs, "DELETE", path, msgspec.json.encode(body))
        except ApiError as error:
            if error.status not in _GONE:
                raise


def _changed(
    before: types.ElasticJobStatus, after: types.ElasticJobStatus, known: Iterable[types.StatusCondition]
) -> dict[str, Any]:
    """For a merge: what is to be otherwise. Conditions of others are as they are known."""
    names = [name for name in _STATUS if getattr(before, name) != getattr(after, name)]
    if names and not before.phase:
        names += [name for name in _COUNTS if name not in names]  # a zero that is not written is a blank in kubectl
    changed = {_WIRE[name]: msgspec.to_builtins(getattr(after, name)) for name in names}
    mine = [one for one in after.conditions if one.type in OURS]
    conditions = [*(one for one in known if one.type not in OURS), *mine]
    if sorted(conditions, key=lambda one: one.type) != sorted(before.conditions, key=lambda one: one.type):
        changed["conditions"] = msgspec.to_builtins(conditions)
    return changed
