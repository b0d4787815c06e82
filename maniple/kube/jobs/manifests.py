"""Manifests of an elastic job's objects: its pods, their Service, the Secret of their agents, Horovod's hosts."""

import base64
import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maniple.api import types
from maniple.api.keys import join_key
from maniple.api.labels import GENERATION_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.validate.kubernetes import is_service_name
from maniple.elastic.job_spec import JobSpec, ReplicaKey

AGENT_DIR, POD_DIR, HOSTS_DIR = (f"{types.RESERVED_MOUNT_PATH}/{name}" for name in ("agent", "pod", "hosts"))
RENDEZVOUS_PORT = 29400
AGENT_GRACE_S = 5  # for the agent itself, after its workers
_HOST_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# A starting replica finds no hosts, or those from before a restart of the job: it waits until it is a member itself.
# Horovod holds a lock during discovery and cannot stop, so the script must always answer later.
_DISCOVER_HOSTS = """#!/bin/sh
here="$(dirname "$0")"
until grep -q "$MANIPLE_POD_UID" "$here/members"; do sleep 1; done
cat "$here/hosts"
"""
Manifest = dict[str, Any]


@dataclass(frozen=True)
class PodSettings:
    """What the pods of all jobs share."""

    scheduler_name: str
    agents_url: str = ""  # of the agents' endpoint; empty: there is none


def has_names(job: JobSpec) -> bool:
    """Whether its replicas have DNS names: not every object's name is a valid Service name."""
    return is_service_name(job.name)


def secret_name(job: JobSpec, *, has_token: bool) -> str:
    """With the job's uid, so that an earlier job of this name has another Secret.

    It is immutable: once there is an endpoint, pods get another one.
    """
    return f"{job.name[:200]}-{'agent' if has_token else 'archive'}-{job.uid[:8]}"


def hosts_name(job: JobSpec) -> str:
    return f"{job.name[:200]}-hosts-{job.uid[:8]}"


def pod(
    job: JobSpec, template: Manifest, place: ReplicaKey, sizes: Mapping[str, int], priority: str, settings: PodSettings
) -> Manifest:
    role = next(role for role in job.roles if role.name == place[0])
    meta, spec = template.get("metadata") or {}, copy.deepcopy(template.get("spec") or {})
    name = job.pod(place)
    labels = {JOB_LABEL: job.name, ROLE_LABEL: place[0], INDEX_LABEL: str(place[1])}
    spec |= {"schedulerName": settings.scheduler_name, "restartPolicy": "Never"}
    spec.setdefault("terminationGracePeriodSeconds", job.spec.elastic.grace_seconds + AGENT_GRACE_S)
    if priority:
        spec.setdefault("priorityClassName", priority)
    _leave_to_scheduler(spec)
    if has_names(job) and _HOST_NAME.fullmatch(name):
        spec |= {"hostname": name, "subdomain": job.name}
    variables = {
        "MANIPLE_JOB": join_key((job.namespace, job.name)),
        "MANIPLE_POD": name,
        "MANIPLE_ROLE": role.name,
        "MANIPLE_REPLICA_INDEX": str(place[1]),
        "MANIPLE_REPLICA_COUNT": str(sizes[role.name]),
        "MANIPLE_REPLICA_MIN": str(role.min),
        "MANIPLE_REPLICA_MAX": str(role.max),
        **({"MANIPLE_URL": settings.agents_url} if settings.agents_url else {}),
        **_framework_variables(job, place, role.slots),
    }
    env: list[Manifest] = [{"name": variable, "value": value} for variable, value in variables.items()]
    env.append({"name": "MANIPLE_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    volumes, mounts = _volumes(job, settings)
    spec["volumes"] = [*(spec.get("volumes") or []), *volumes]
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        theirs = [variable for variable in container.get("env") or [] if not _is_reserved(variable)]
        named = {variable.get("name") for variable in theirs}
        container["env"] = [*(variable for variable in env if variable["name"] not in named), *theirs]
        mounted = container.get("volumeMounts") or []
        paths = {mount.get("mountPath") for mount in mounted}
        container["volumeMounts"] = [*mounted, *(mount for mount in mounts if mount["mountPath"] not in paths)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": _without(meta.get("annotations") or {}, GENERATION_ANNOTATION),  # ours to write
            "ownerReferences": [_owner(job)],
        },
        "spec": spec,
    }


def _is_reserved(variable: Manifest) -> bool:
    return str(variable.get("name")).startswith(types.RESERVED_ENV_PREFIX)


def _framework_variables(job: JobSpec, place: ReplicaKey, slots: int) -> dict[str, str]:
    if job.spec.framework == "horovod":
        return {"MANIPLE_HOSTS": f"{HOSTS_DIR}/discover_hosts.sh"}
    if job.spec.framework != "torchrun":
        return {}
    # Not the pin: replicas from before an unpin must be able to join those that come after.
    low, high = sum(role.min for role in job.roles), sum(role.max for role in job.roles)
    first = job.pod(job.first)
    return {
        "PET_NNODES": f"{low}:{high}",
        "PET_NPROC_PER_NODE": str(slots),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{first}.{job.name}:{RENDEZVOUS_PORT}",
        # Without it torchrun 1.13 compares the endpoint with its full host name, and no replica hosts the store.
        "PET_RDZV_CONF": f"is_host={place == job.first:d}",
        "PET_RDZV_ID": job.uid,
        "PET_MAX_RESTARTS": "1000",  # each departure of a replica restarts the others once, which is no failure
    }


def _volumes(job: JobSpec, settings: PodSettings) -> tuple[list[Manifest], list[Manifest]]:
    field = {"path": "generation", "fieldRef": {"fieldPath": f"metadata.annotations['{GENERATION_ANNOTATION}']"}}
    secret = {"secretName": secret_name(job, has_token=bool(settings.agents_url))}
    volumes: list[Manifest] = [
        {"name": "maniple-pod", "downwardAPI": {"items": [field]}},
        {"name": "maniple-agent", "secret": secret},
    ]
    mounts: list[Manifest] = [
        {"name": "maniple-pod", "mountPath": POD_DIR, "readOnly": True},
        {"name": "maniple-agent", "mountPath": AGENT_DIR, "readOnly": True},
    ]
    if job.spec.framework == "horovod":
        volumes.append({"name": "maniple-hosts", "configMap": {"name": hosts_name(job), "defaultMode": 0o755}})
        mounts.append({"name": "maniple-hosts", "mountPath": HOSTS_DIR, "readOnly": True})
    return volumes, mounts


def service(job: JobSpec) -> Manifest:
    """Headless, for DNS names of replicas; also before they are ready: they need each other to become ready."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_LABEL: job.name}}
    return {**_head(job, "Service", job.name), "spec": spec}


def secret(job: JobSpec, archive: bytes, token: str = "", authority: bytes = b"") -> Manifest:
    """The agent's archive, and for the endpoint its token and the authority's certificate."""
    data = {"agent.pyz": archive, **({"token": token.encode(), "ca.crt": authority} if token else {})}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    head = _head(job, "Secret", secret_name(job, has_token=bool(token)))
    return {**head, "type": "maniple.dev/agent", "immutable": True, "data": encoded}


def hosts(job: JobSpec, generation: types.JobGeneration) -> Manifest:
    """Horovod runs the script to discover hosts. A role that only launches is no host."""
    roles = {role.name for role in job.roles if role.has_work}
    lines = [f"{member.address}:{member.slots}\n" for member in generation.members if member.role in roles]
    members = "".join(f"{member.uid}\n" for member in generation.members)
    data = {"discover_hosts.sh": _DISCOVER_HOSTS, "hosts": "".join(lines), "members": members}
    return {**_head(job, "ConfigMap", hosts_name(job)), "data": data}


def _leave_to_scheduler(spec: Manifest) -> None:
    """Turns a template's nodeName into node affinity: in a pod it would be a bind without the scheduler."""
    node = spec.pop("nodeName", "")
    if not node:
        return
    expression = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):  # terms are alternatives
        term.setdefault("matchFields", []).append(expression)


def _without(entries: Manifest, name: str) -> Manifest:
    return {key: value for key, value in entries.items() if key != name}


def _head(job: JobSpec, kind: str, name: str) -> Manifest:
    labels, owners = {JOB_LABEL: job.name}, [_owner(job)]
    meta = {"name": name, "namespace": job.namespace, "labels": labels, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}


def _owner(job: JobSpec) -> Manifest:
    kind = {"apiVersion": types.API_VERSION, "kind": "ElasticJob"}
    return {**kind, "name": job.name, "uid": job.uid, "controller": True}


def encoded(manifest: Manifest) -> bytes:
    return json.dumps(manifest).encode()
