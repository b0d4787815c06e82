"""Objects sent to the API server all or none: all are checked there first, and what was made is undone if one fails.

A job's pods come into being long after it: their templates are checked now, as pods that are not made.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from maniple.api import types
from maniple.api.decode.server_objects import read_live
from maniple.api.errors import InputError, nearest
from maniple.elastic.job import read_job_spec
from maniple.kube.jobs.manifests import Setting
from maniple.kube.jobs.manifests import pod as pod_of
from maniple.kube.transport.client import ApiError, UnansweredError
from maniple.kube.user.client import INSTALL, QUEUES, Visit, refused

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_AS_SERVED = Setting("maniple", "https://maniple-agents")  # as some `serve` will make them: with all that it adds
_WHO_PAYS = {(types.API_VERSION, "ElasticJob"), (types.API_VERSION, "PodGroup")}


@dataclass(frozen=True)
class Parcel:
    """An object to be made, and where it stands in the input."""

    where: str
    body: dict[str, Any]

    @property
    def kind(self) -> tuple[str, str]:
        return str(self.body.get("apiVersion", "")), str(self.body.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.body.get("metadata", {}).get("name", ""))

    @property
    def is_job(self) -> bool:
        return self.kind == (types.API_VERSION, "ElasticJob")

    def namespace(self, otherwise: str) -> str:
        return str(self.body.get("metadata", {}).get("namespace") or otherwise)

    def label(self, otherwise: str) -> str:
        """What it is called in messages."""
        return f"{self.where}: {self.kind[1]} {self.namespace(otherwise)}/{self.name}"


class _Resources(msgspec.Struct):
    class Resource(msgspec.Struct):
        name: str
        kind: str
        namespaced: bool = False

    resources: list[Resource] = []


class _Named(msgspec.Struct):
    class Metadata(msgspec.Struct):
        name: str = ""
        uid: str = ""

    metadata: Metadata


async def submit(visit: Visit, parcels: list[Parcel]) -> None:
    """InputError with everything that is wrong, and then nothing has been made."""
    paths = await _paths(visit, parcels)
    wrong = await _missing(visit, parcels)
    made_here = {parcel.name for parcel in parcels if parcel.kind == ("v1", "Namespace")}
    for parcel, path in zip(parcels, paths, strict=True):
        if parcel.namespace(visit.namespace) in made_here:
            continue  # the server cannot look into a namespace that is not there yet
        try:
            await visit.create(path, msgspec.json.encode(parcel.body), dry_run=True)
        except ApiError as error:
            wrong += _told(error, parcel, visit.namespace)
            continue
        if parcel.is_job:
            wrong += await _template_problems(visit, parcel)
    if wrong:
        raise InputError(wrong)
    await _make(visit, parcels, paths)


async def _make(visit: Visit, parcels: list[Parcel], paths: list[str]) -> None:
    done: list[tuple[str, str]] = []
    for parcel, path in zip(parcels, paths, strict=True):
        try:
            raw = await visit.create(path, msgspec.json.encode(parcel.body))
        except (ApiError, UnansweredError) as error:
            left = await _undo(visit, done)
            what = _told(error, parcel, visit.namespace) if isinstance(error, ApiError) else [str(error)]
            raise InputError([*what, *(f"{path}: was made and could not be deleted again" for path in left)]) from None
        done.append((f"{path}/{parcel.name}", msgspec.json.decode(raw, type=_Named).metadata.uid))


async def _undo(visit: Visit, done: list[tuple[str, str]]) -> list[str]:
    """Deletes what was made; what could not be deleted."""
    left = []
    for path, uid in reversed(done):
        try:
            await visit.remove(path, uid)
        except (ApiError, UnansweredError):
            left.append(path)
    return left


async def _paths(visit: Visit, parcels: list[Parcel]) -> list[str]:
    """Where each object is made: the server is asked what kinds it has."""
    known: dict[str, list[_Resources.Resource]] = {}
    paths, wrong = [], []
    for parcel in parcels:
        version, kind = parcel.kind
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in known:
            known[version] = await _resources(visit, prefix)
        found = next((one for one in known[version] if one.kind == kind and "/" not in one.name), None)
        if found is None:
            hint = f": {INSTALL}" if version == types.API_VERSION else ""
            wrong.append(f"{parcel.where}: the cluster does not know kind {kind} of {version}{hint}")
            continue
        within = f"/namespaces/{parcel.namespace(visit.namespace)}" if found.namespaced else ""
        paths.append(f"{prefix}{within}/{found.name}")
    if wrong:
        raise InputError(wrong)
    return paths


async def _resources(visit: Visit, prefix: str) -> list[_Resources.Resource]:
    try:
        return msgspec.json.decode(await visit.client.get(prefix), type=_Resources).resources
    except ApiError as error:
        if error.status == 404:
            return []
        raise refused(error, prefix) from None


async def _missing(visit: Visit, parcels: list[Parcel]) -> list[str]:
    """Queues and PriorityClasses that are named and nowhere: the server does not look, and the job would wait."""
    wrong: list[str] = []
    for kind, path, field, always in (
        ("Queue", QUEUES.list_path, "queue", {types.DEFAULT_QUEUE, ""}),
        ("PriorityClass", PRIORITY_CLASSES, "priorityClassName", {""}),
    ):
        ours = [one for one in parcels if one.kind in _WHO_PAYS]
        named = {one.where: str(one.body.get("spec", {}).get(field, "")) for one in ours}
        if not set(named.values()) - always:
            continue
        there = await visit.names(path)
        if there is None:
            continue  # who may not list them may still use them
        there |= {one.name for one in parcels if one.kind[1] == kind} | always
        wrong += [
            f"{one.label(visit.namespace)}: spec.{field}: unknown {kind} {named[one.where]!r}"
            f"{nearest(named[one.where], there - {''})}"
            for one in ours
            if named[one.where] not in there
        ]
    return wrong


async def _template_problems(visit: Visit, parcel: Parcel) -> list[str]:
    """What the server would refuse of the job's pods. Who may not make pods is not told: the controller may."""
    wrong: list[str] = []
    item = read_live(msgspec.json.encode(parcel.body), types.ElasticJob).item
    if not isinstance(item, types.ElasticJob):
        return wrong  # which is told elsewhere
    job = read_job_spec(item)
    for number, role in enumerate(parcel.body["spec"]["roles"]):
        sizes = {one.name: one.least for one in job.roles}
        pod = pod_of(job, role["template"], (role["name"], 0), sizes, item.spec.priority_class_name, _AS_SERVED)
        meta = pod["metadata"]
        del meta["ownerReferences"], meta["namespace"]  # the job is not there yet
        path = f"/api/v1/namespaces/{parcel.namespace(visit.namespace)}/pods"
        try:
            await visit.create(path, msgspec.json.encode(pod), dry_run=True)
        except ApiError as error:
            if error.status not in (400, 422):
                continue
            at = f"spec.roles[{number}].template"
            said = refused(error, "").messages
            wrong += [f"{parcel.label(visit.namespace)}: {at}.{message.removeprefix(': ')}" for message in said]
    return wrong


def _told(error: ApiError, parcel: Parcel, namespace: str) -> list[str]:
    what = parcel.label(namespace)
    if error.status == 409 and error.reason == "AlreadyExists":
        instead = (
            f"give it another name, delete it with `maniple delete {parcel.name}`, or change its size with "
            f"`maniple resize {parcel.name}`"
            if parcel.is_job
            else "give it another name, take it out of the file, or change it with `kubectl apply`"
        )
        return [f"{what}: is there already: {instead}"]
    if error.status == 404:
        return [f"{what}: {error.message}: make the namespace first, or name another with --namespace"]
    return refused(error, what).messages
