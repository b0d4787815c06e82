"""Creates objects on the API server, all or none: dry runs first, and if a creation fails, the others are undone.

The pods of a job are created long after it. Their templates are checked here, as dry runs of pods.
"""

import msgspec

from maniple.api import types
from maniple.api.decode.server_objects import Head, read_live
from maniple.api.errors import InputError, nearest
from maniple.elastic.job_spec import read_job_spec
from maniple.kube.jobs.manifests import PodSettings
from maniple.kube.jobs.manifests import pod as pod_manifest
from maniple.kube.transport.client import ApiError, UnansweredError
from maniple.kube.transport.resource_kinds import INSTALL, QUEUES
from maniple.kube.user.client import UserClient, refused
from maniple.kube.user.submission import Submission

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_SETTINGS = PodSettings("maniple", "https://maniple-agents")  # pods with everything that a controller may add
_QUEUED = {(types.API_VERSION, "ElasticJob"), (types.API_VERSION, "PodGroup")}


class _Resources(msgspec.Struct):
    class Resource(msgspec.Struct):
        name: str
        kind: str
        namespaced: bool = False

    resources: list[Resource] = []


async def submit(client: UserClient, submissions: list[Submission]) -> None:
    """Raises an InputError with everything that is wrong; then nothing has been created."""
    paths = await _paths(client, submissions)
    wrong = await _missing(client, submissions)
    new_namespaces = {submission.name for submission in submissions if submission.kind == ("v1", "Namespace")}
    for submission, path in zip(submissions, paths, strict=True):
        if submission.key(client.namespace)[0] in new_namespaces:
            continue  # the server refuses dry runs in a namespace that does not exist yet
        try:
            await client.create(path, msgspec.json.encode(submission.body), dry_run=True)
        except ApiError as error:
            wrong += _problems(error, submission, client.namespace)
            continue
        if submission.is_job:
            wrong += await _template_problems(client, submission)
    if wrong:
        raise InputError(wrong)
    await _create(client, submissions, paths)


async def _create(client: UserClient, submissions: list[Submission], paths: list[str]) -> None:
    created: list[tuple[str, str]] = []  # path and uid
    for submission, path in zip(submissions, paths, strict=True):
        try:
            raw = await client.create(path, msgspec.json.encode(submission.body))
        except (ApiError, UnansweredError) as error:
            left = await _undo(client, created)
            refusals = _problems(error, submission, client.namespace) if isinstance(error, ApiError) else [str(error)]
            leftovers = [f"{path}: was created and could not be deleted again" for path in left]
            raise InputError([*refusals, *leftovers]) from None
        created.append((f"{path}/{submission.name}", msgspec.json.decode(raw, type=Head).metadata.uid))


async def _undo(client: UserClient, created: list[tuple[str, str]]) -> list[str]:
    """Deletes the objects; returns the paths of those that could not be deleted."""
    left = []
    for path, uid in reversed(created):
        try:
            await client.remove(path, uid)
        except (ApiError, UnansweredError):
            left.append(path)
    return left


async def _paths(client: UserClient, submissions: list[Submission]) -> list[str]:
    """The path of each object's kind, by the server's own list of kinds."""
    known: dict[str, list[_Resources.Resource]] = {}
    paths, wrong = [], []
    for submission in submissions:
        version, kind = submission.kind
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in known:
            known[version] = await _resources(client, prefix)
        resource = next((entry for entry in known[version] if entry.kind == kind and "/" not in entry.name), None)
        if resource is None:
            hint = f": {INSTALL}" if version == types.API_VERSION else ""
            wrong.append(f"{submission.where}: the cluster does not know kind {kind} of {version}{hint}")
            continue
        within = f"/namespaces/{submission.key(client.namespace)[0]}" if resource.namespaced else ""
        paths.append(f"{prefix}{within}/{resource.name}")
    if wrong:
        raise InputError(wrong)
    return paths


async def _resources(client: UserClient, prefix: str) -> list[_Resources.Resource]:
    try:
        return msgspec.json.decode(await client.client.get(prefix), type=_Resources).resources
    except ApiError as error:
        if error.status == 404:
            return []
        raise refused(error, prefix) from None


async def _missing(client: UserClient, submissions: list[Submission]) -> list[str]:
    """Unknown Queues and PriorityClasses: the server does not check them, and the job would wait forever."""
    wrong: list[str] = []
    for kind, path, field, always in (
        ("Queue", QUEUES.list_path, "queue", {types.DEFAULT_QUEUE, ""}),
        ("PriorityClass", PRIORITY_CLASSES, "priorityClassName", {""}),
    ):
        named = [
            (submission, str(submission.body.get("spec", {}).get(field, "")))
            for submission in submissions
            if submission.kind in _QUEUED
        ]
        if all(name in always for _, name in named):
            continue
        names = await client.names(path)
        if names is None:
            continue  # a user who may not list them may still use them
        names |= {submission.name for submission in submissions if submission.kind[1] == kind} | always
        wrong += [
            f"{submission.label(client.namespace)}: spec.{field}: unknown {kind} {name!r}{nearest(name, names - {''})}"
            for submission, name in named
            if name not in names
        ]
    return wrong


async def _template_problems(client: UserClient, submission: Submission) -> list[str]:
    """What the server would refuse of the job's pods. The user may lack the right to create pods: no problem."""
    wrong: list[str] = []
    item = read_live(msgspec.json.encode(submission.body), types.ElasticJob).item
    if not isinstance(item, types.ElasticJob):
        return wrong  # reported elsewhere
    job = read_job_spec(item)
    sizes = {role.name: role.least for role in item.spec.roles}
    for number, role in enumerate(submission.body["spec"]["roles"]):
        place = (role["name"], 0)
        pod = pod_manifest(job, role["template"], place, sizes, item.spec.priority_class_name, _SETTINGS)
        meta = pod["metadata"]
        del meta["ownerReferences"], meta["namespace"]  # the job does not exist yet
        path = f"/api/v1/namespaces/{submission.key(client.namespace)[0]}/pods"
        try:
            await client.create(path, msgspec.json.encode(pod), dry_run=True)
        except ApiError as error:
            if error.status in (400, 422):
                field = f"{submission.label(client.namespace)}: spec.roles[{number}].template"
                wrong += [f"{field}.{message.removeprefix(': ')}" for message in refused(error, "").messages]
    return wrong


def _problems(error: ApiError, submission: Submission, namespace: str) -> list[str]:
    label, name = submission.label(namespace), submission.name
    if error.status == 409 and error.reason == "AlreadyExists":
        remedy = (
            f"give it another name, delete it with `maniple delete {name}`, or change its size with "
            f"`maniple resize {name}`"
            if submission.is_job
            else "give it another name, take it out of the file, or change it with `kubectl apply`"
        )
        return [f"{label}: already exists: {remedy}"]
    if error.status == 404:
        return [f"{label}: {error.message}: create the namespace first, or name another with --namespace"]
    return refused(error, label).messages
