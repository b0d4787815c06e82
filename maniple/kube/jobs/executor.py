"""Executes the state machine's instructions on the API server. All are idempotent: existing objects count as done."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from maniple.api import types
from maniple.api.decode.server_objects import read_live
from maniple.api.keys import Key, join_key
from maniple.api.labels import GENERATION_ANNOTATION
from maniple.api.replica_pods import ReplicaFacts
from maniple.elastic.conditions import OURS
from maniple.elastic.generations import notice
from maniple.elastic.instructions import CreateReplica, DeleteReplica
from maniple.elastic.job_spec import JobSpec, ReplicaKey
from maniple.kube.jobs import manifests
from maniple.kube.jobs.agent_server import AgentServer
from maniple.kube.jobs.manifests import PodSettings
from maniple.kube.jobs.pod_view import place_of
from maniple.kube.transport.client import MERGE_PATCH, ApiError, Client
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import JOBS, PODS
from maniple.worker.pack_agent import agent_pyz

log = logging.getLogger("maniple.jobs")

_SCHEDULERS = ("conditions", "queue")  # what the scheduler writes of it too
_STATUS = tuple(name for name in types.ElasticJobStatus.__struct_fields__ if name not in _SCHEDULERS)
_COUNTS = ("replicas", "restarts", "resizes")
_WIRE = {field.name: field.encode_name for field in msgspec.structs.fields(types.ElasticJobStatus)}
_GONE = (404, 409)
_NO_POD = "cannot be handled as a Pod"  # a number instead of a string, and the like
# Every pod has the notice, and the notice names every pod: the annotations grow with the square of a job's size.
_MAX_NOTICE = 200_000  # bytes; the server takes 262,144 for all annotations of an object
_MAX_NOTICE_WITH_ENDPOINT = 32_000  # if agents also get it from the endpoint


class RefusedError(Exception):
    """The API server will never accept such a pod."""


class NameTakenError(Exception):
    """Another object has the name of one of the job's objects."""


class Executor:
    def __init__(self, client: Client, mirror: Mirror, settings: PodSettings) -> None:
        self._client = client
        self._mirror = mirror
        self.settings = settings
        # The status that a job has, with the scheduler's conditions and queue as they should be by now.
        self.known_status: Callable[[Key, types.ElasticJob], types.ElasticJobStatus] = lambda _, job: job.status
        self.agents: AgentServer | None = None
        self.authority = b""
        self.archive = agent_pyz()

    # -- the job

    async def write_status(self, key: Key, uid: str, status: types.ElasticJobStatus) -> None:
        """Writes what differs from the server's status, unless the object has changed since it was read."""

        def body() -> bytes:
            seen, job = self._seen(key, uid)
            changed = _changed(job.status, status, self.known_status(key, job))
            return msgspec.json.encode(
                {"metadata": {"resourceVersion": str(seen.version), "uid": uid}, "status": changed}
            )

        before = self._seen(key, uid)[1].status
        if _changed(before, status, before):
            path = JOBS.path(*key, "status")
            self._mirror.put_answer(JOBS, await self._client.write(self._client.jobs, "PATCH", path, body, MERGE_PATCH))

    def _seen(self, key: Key, uid: str) -> tuple[Seen, types.ElasticJob]:
        seen = self._mirror.seen(JOBS).get(key)
        if seen is None or seen.uid != uid or not isinstance(seen.item, types.ElasticJob):
            raise ApiError(404, "NotFound", "the job is gone")
        return seen, seen.item

    def spec(self, key: Key, uid: str) -> dict[str, Any]:
        """As written, with the fields that scheduling does not read."""
        spec: dict[str, Any] = msgspec.json.decode(self._seen(key, uid)[0].spec)
        return spec

    async def delete_job(self, key: Key, uid: str) -> None:
        await self._delete(JOBS.path(*key), uid, {"propagationPolicy": "Background"})

    # -- its Service, Secret and ConfigMap

    async def create_dependents(self, job: JobSpec) -> None:
        """Before the first pod, which would not start without them."""
        folder = f"/api/v1/namespaces/{job.namespace}"
        token = "" if self.agents is None else self.agents.token(join_key((job.namespace, job.name)), job.uid)
        creations = [self._ensure(f"{folder}/secrets", manifests.secret(job, self.archive, token, self.authority))]
        if manifests.has_names(job):
            creations.append(self._ensure_service(f"{folder}/services", job))
        if job.spec.framework == "horovod":
            creations.append(self._ensure(f"{folder}/configmaps", manifests.hosts(job, types.JobGeneration())))
        await asyncio.gather(*creations)

    async def _ensure(self, folder: str, body: dict[str, Any]) -> None:
        """The job's uid is part of the name: an existing object is the job's."""
        try:
            await self._create(folder, body)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _ensure_service(self, folder: str, job: JobSpec) -> None:
        """It has the job's own name, which another Service may have."""
        try:
            await self._create(folder, manifests.service(job))
        except ApiError as error:
            if error.status != 409:
                raise
            service = msgspec.json.decode(await self._client.get(f"{folder}/{job.name}"))
            owners = service["metadata"].get("ownerReferences") or []
            if job.uid not in [owner["uid"] for owner in owners]:
                raise NameTakenError(f"there is a Service {job.name} that is not the job's") from None

    # -- replicas

    async def create(
        self, job: JobSpec, instruction: CreateReplica, spec: dict[str, Any], sizes: dict[str, int]
    ) -> None:
        place = (instruction.role, instruction.index)
        role = next(role for role in spec["roles"] if role["name"] == instruction.role)
        priority = spec.get("priorityClassName", "")
        body = manifests.pod(job, role["template"], place, sizes, priority, self.settings)
        try:
            answer = await self._create(f"/api/v1/namespaces/{job.namespace}/pods", body)
        except ApiError as error:
            if error.status == 422 or (error.status == 400 and _NO_POD in error.message):
                raise RefusedError(error.message) from None
            if error.status != 409:
                raise
            await self._adopt(job, place)
        else:
            self._mirror.put_answer(PODS, answer)

    async def _adopt(self, job: JobSpec, place: ReplicaKey) -> None:
        """A pod of this name exists: the job's, not yet in the mirror, or another's."""
        path = PODS.path(job.namespace, job.pod(place))
        try:
            live = read_live(await self._client.get(path), PODS.struct)
        except ApiError as error:
            if error.status == 404:
                raise ApiError(409, "AlreadyExists", f"{job.pod(place)} existed, and is gone") from None
            raise
        self._mirror.put(PODS, live)
        facts = live.replica
        if facts is None or not facts.owner or facts.job != job.name or place_of(facts) != place:
            raise NameTakenError(f"there is a Pod {job.pod(place)} that is not the job's")

    async def delete(self, job: JobSpec, instruction: DeleteReplica) -> None:
        grace = {} if instruction.grace_s is None else {"gracePeriodSeconds": int(instruction.grace_s)}
        path = PODS.path(job.namespace, job.pod((instruction.role, instruction.index)))
        await self._delete(path, instruction.uid, grace)

    # -- generations

    async def publish(self, job: JobSpec, generation: types.JobGeneration, pods: dict[Key, ReplicaFacts]) -> None:
        """To agents at the endpoint, to annotations, which become files in the pods, and to Horovod's script."""
        text = notice(job, generation)
        members = {member.uid for member in generation.members}
        outdated = [
            (key, facts)
            for key, facts in pods.items()
            if facts.notified_generation < generation.number
            and not facts.is_leaving
            and (facts.uid in members or facts.notified_generation)
        ]
        name = join_key((job.namespace, job.name))
        limit = _MAX_NOTICE
        if self.agents is not None:
            self.agents.publish(name, job.uid, text, generation.number)
            limit = _MAX_NOTICE_WITH_ENDPOINT if job.has_agents else _MAX_NOTICE
        if len(text) > limit:
            log.info("not written to pods: too long", extra={"job": name, "bytes": len(text), "most": limit})
            outdated = []
        if (
            job.spec.framework == "horovod" and not generation.stop
        ):  # without hosts horovodrun does not stop when asked to
            await self._write_hosts(job, generation)
        await asyncio.gather(*(self._annotate(key, facts.uid, text.decode()) for key, facts in outdated))

    async def _write_hosts(self, job: JobSpec, generation: types.JobGeneration) -> None:
        config_map = manifests.hosts(job, generation)
        folder = f"/api/v1/namespaces/{job.namespace}/configmaps"
        path, body = f"{folder}/{manifests.hosts_name(job)}", msgspec.json.encode({"data": config_map["data"]})
        try:
            await self._client.write(self._client.jobs, "PATCH", path, body, MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._create(folder, config_map)  # a user has deleted it

    async def _annotate(self, key: Key, uid: str, text: str) -> None:
        body = {"metadata": {"uid": uid, "annotations": {GENERATION_ANNOTATION: text}}}
        try:
            answer = await self._client.write(
                self._client.jobs, "PATCH", PODS.path(*key), msgspec.json.encode(body), MERGE_PATCH
            )
        except ApiError as error:
            if error.status not in _GONE:  # a pod that is gone needs no annotation
                raise
        else:
            self._mirror.put_answer(PODS, answer)

    # -- requests

    async def _create(self, path: str, body: dict[str, Any]) -> bytes:
        return await self._client.write(self._client.jobs, "POST", path, manifests.encoded(body))

    async def _delete(self, path: str, uid: str, options: Mapping[str, object]) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}, **options}
        try:
            await self._client.write(self._client.jobs, "DELETE", path, msgspec.json.encode(body))
        except ApiError as error:
            if error.status not in _GONE:
                raise


def _changed(
    before: types.ElasticJobStatus, after: types.ElasticJobStatus, known: types.ElasticJobStatus
) -> dict[str, Any]:
    """The fields of a merge patch. The queue and conditions of others are taken from `known`."""
    names = [name for name in _STATUS if getattr(before, name) != getattr(after, name)]
    if names and not before.phase:
        names += [name for name in _COUNTS if name not in names]  # kubectl shows a zero only if it is written
    changed = {_WIRE[name]: msgspec.to_builtins(getattr(after, name)) for name in names}
    ours = [condition for condition in after.conditions if condition.type in OURS]
    conditions = [*(condition for condition in known.conditions if condition.type not in OURS), *ours]
    if sorted(conditions, key=_type) != sorted(before.conditions, key=_type):
        changed["conditions"] = msgspec.to_builtins(conditions)
    if known.queue != before.queue:
        changed["queue"] = known.queue
    return changed


def _type(condition: types.StatusCondition) -> str:
    return condition.type
