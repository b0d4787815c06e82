"""Turns scenarios, written as README.md describes, into Kubernetes objects and a policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from properties.cluster_facts import quantity

from scenarios.strict_maps import Fields, Table, amounts, unrolled

OURS = "maniple.dev/v1alpha1"
ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 1, tzinfo=UTC)
PRIORITIES = {"low": -100, "high": 100, "higher": 200}
TOPOLOGY = {
    "zone": "topology.kubernetes.io/zone",
    "block": "topology.kubernetes.io/block",
    "rack": "topology.kubernetes.io/rack",
    "host": "kubernetes.io/hostname",
}
# Keys of a pod about its GPUs, and their annotations.
OF_GPUS = {
    "fraction": "maniple.dev/gpu-fraction",
    "gpuMemory": "maniple.dev/gpu-memory",
    "models": "maniple.dev/gpu-models",
    "gpus": "maniple.dev/gpus",
}
# Keys of a gang about failed binds.
INCOMPLETE_SINCE = "maniple.dev/incomplete-since"
OF_FAILURES = {"bindFailures": "maniple.dev/bind-failures", "lastBindFailure": "maniple.dev/last-bind-failure"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPEC_FIELDS = (
    *("activeDeadlineSeconds", "affinity", "containers", "hostNetwork", "initContainers", "nodeName", "nodeSelector"),
    *("overhead", "preemptionPolicy", "resources", "schedulingGates", "tolerations", "topologySpreadConstraints"),
    *("volumes", "resourceClaims"),
)


def moment(seconds: float) -> str:
    """Seconds after the start of the story, as a Kubernetes timestamp."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def objects_of(scenario: Mapping[str, Any]) -> list[Table]:
    """All objects of the scenario, as a user would write them."""
    made: list[Table] = []
    for name, given in unrolled(scenario.get("nodes")):
        made.append(_node(name, given))
    for name, given in unrolled(scenario.get("queues")):
        made.append(_queue(name, given))
    for name, given in unrolled(scenario.get("gangs")):
        made.extend(_gang(name, given))
    for name, given in unrolled(scenario.get("jobs")):
        made.extend(_job(name, given))
    for name, given in unrolled(scenario.get("pods")):
        made.append(_lone_pod(name, given))
    for name, given in unrolled(scenario.get("claims")):
        made.extend(_claim(name, given))
    for name, given in unrolled(scenario.get("classes")):
        made.append(_class(name, given))
    made.extend(_csi_nodes(unrolled(scenario.get("nodes"))))
    for name, given in unrolled(scenario.get("budgets")):
        made.append(_budget(name, given))
    if scenario.get("levels"):
        made.append(_topology(scenario["levels"]))
    made.extend(scenario.get("objects") or [])
    made.extend(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in PRIORITIES.items()
    )
    return made


def policy_of(scenario: Mapping[str, Any]) -> str | None:
    """The text of the policy file; None is the built-in one."""
    given = scenario.get("policy", "default")
    if given == "default":
        return None
    shipped = {
        "default": ROOT / "maniple" / "scheduler" / "default_policy.yaml",
        "kube-batch": ROOT / "examples" / "policies" / "kube-batch.yaml",
    }
    if given == "kube-batch":
        return shipped["kube-batch"].read_text()
    if not isinstance(given, dict):
        raise ValueError(f"policy: {given!r} is none of default, kube-batch, or a map")
    if "tiers" in given:
        return yaml.safe_dump(given)
    fields = Fields("policy", given)
    policy = yaml.safe_load(shipped[fields.take("base", "kube-batch")].read_text())
    policy["actions"] = fields.take("actions", policy["actions"])
    for tier in policy["tiers"]:
        for plugin in tier["plugins"]:
            arguments = fields.take(plugin["name"])
            if arguments:
                written = {key: str(value) for key, value in arguments.items()}
                plugin["arguments"] = {**plugin.get("arguments", {}), **written}
    consolidation = fields.take("consolidation")  # a plugin that no shipped policy has
    if consolidation:
        written = {key: str(value) for key, value in consolidation.items()}
        policy["tiers"][-1]["plugins"].append({"name": "consolidation", "arguments": written})
    fields.finish()
    return yaml.safe_dump(policy)


# -- cluster-wide objects


def _node(name: str, given: Mapping[str, Any] | None) -> Table:
    fields = Fields(f"nodes.{name}", given)
    labels = {TOPOLOGY["host"]: name}
    labels |= _node_labels({**fields.take("labels", {}), **fields.take_some(("zone", "block", "rack"))})
    for without in fields.take("unlabelled", []):
        del labels[TOPOLOGY.get(without, without)]
    product, memory = fields.take("product"), fields.take("gpuMemory")
    if product:
        labels["nvidia.com/gpu.product"] = product
    if memory:
        labels["nvidia.com/gpu.memory"] = str(int(quantity(memory) / 2**20))
    annotations = _gpu_topology(fields)
    fields.take("attaches")  # a CSINode says it
    spec: Table = {}
    taints = [_taint(text) for text in fields.take("taints", [])]
    if taints:
        spec["taints"] = taints
    if fields.take("cordoned", False):
        spec["unschedulable"] = True
    conditions = {"Ready": "True", **fields.take("conditions", {})}
    images = [{"names": [image], "sizeBytes": size} for image, size in fields.take("images", {}).items()]
    pods, uid = fields.take("pods", 110), fields.take("uid")
    has = {"cpu": "64", "memory": "256Gi", **({} if pods is None else {"pods": str(pods)}), **fields.amounts()}
    fields.finish()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations, **({"uid": uid} if uid else {})},
        "spec": spec,
        "status": {
            "allocatable": has,
            "capacity": has,
            "conditions": [{"type": kind, "status": str(status)} for kind, status in conditions.items()],
            "images": images,
        },
    }


def _gpu_topology(fields: Fields) -> dict[str, str]:
    """The annotation, if the node describes its GPUs beyond their number."""
    written, unhealthy, links = fields.take("devices"), fields.take("unhealthy", []), fields.take("links")
    if written is None and not unhealthy and links is None:
        return {}
    if written is None:
        written = int(fields.given["gpu"])
    if isinstance(written, int):
        written = [{}] * written
    devices = []
    for number, given in enumerate(written):
        device = {"id": str(number), **(given if isinstance(given, dict) else {"id": given})}
        devices.append({**device, "healthy": False} if number in unhealthy else device)
    made: Table = {"version": 1, "devices": devices}
    if links is not None:
        made["links"] = _links(links, len(devices))
    return {"maniple.dev/gpu-topology": json.dumps(made)}


def _links(given: list[str] | Mapping[Any, Any], count: int) -> list[list[str | float]]:
    """Rows as nvidia-smi prints them, or groups of GPUs by the link that joins all in a group; a later one wins."""
    if isinstance(given, list):
        rows: list[list[Any]] = [row.split() for row in given]
        return [[float(word) if word.replace(".", "").isdigit() else word for word in row] for row in rows]
    made: list[list[str | float]] = [
        ["X" if one == other else given["else"] for other in range(count)] for one in range(count)
    ]
    for link, groups in given.items():
        for group in groups if link != "else" else []:
            for one in group:
                for other in group:
                    if one != other:
                        made[one][other] = link
    return made


def _topology(levels: list[str]) -> Table:
    spec = {"levels": [{"name": level, "nodeLabel": TOPOLOGY[level]} for level in levels]}
    return {"apiVersion": OURS, "kind": "Topology", "metadata": {"name": "cluster"}, "spec": spec}


def _taint(text: str) -> Table:
    what, effect = text.rsplit(":", 1)
    key, _, value = what.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _queue(name: str, given: Mapping[str, Any] | None) -> Table:
    fields = Fields(f"queues.{name}", given)
    spec = fields.take_some(("parent", "weight", "reclaimable", "minRuntimeSeconds", "priority"))
    spec |= {key: amounts(value) for key, value in fields.take_some(("guaranteed", "limit")).items()}
    spec["weights"] = {name: int(weight) for name, weight in amounts(fields.take("weights")).items()}
    fields.finish()
    return {"apiVersion": OURS, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _budget(name: str, given: Mapping[str, Any]) -> Table:
    fields = Fields(f"budgets.{name}", given)
    spec = {"selector": {"matchLabels": fields.take("select", {})}}
    spec |= fields.take_some(("minAvailable", "maxUnavailable"))
    allowed = fields.take("allowed")
    fields.finish()
    status = {} if allowed is None else {"disruptionsAllowed": allowed}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _claim(name: str, given: Mapping[str, Any] | None) -> Iterator[Table]:
    fields = Fields(f"claims.{name}", given)
    labels, terms, volume = fields.take("labels"), fields.take("onNodes"), fields.take("volume")
    driver, modes = fields.take("driver"), fields.take("modes", ["ReadWriteOnce"])
    spec: Table = {"accessModes": modes, "resources": {"requests": {"storage": "10Gi"}}}
    storage_class, is_leaving = fields.take("class"), fields.take("leaving", False)
    if storage_class:
        spec["storageClassName"] = storage_class
    is_bound = labels or terms or driver or fields.take("bound", False)
    fields.finish()
    if is_bound:
        volume = f"volume-of-{name}"
        reach = {"nodeAffinity": {"required": _node_terms(terms)}} if terms else {}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": _node_labels(labels or {})},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": modes,
                **({"csi": {"driver": driver, "volumeHandle": name}} if driver else {}),
                **reach,
            },
        }
    if volume:
        spec["volumeName"] = volume
    metadata = {"name": name, "namespace": "default"}
    if is_leaving:
        metadata["deletionTimestamp"] = moment(0)
    yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _class(name: str, given: Mapping[str, Any] | None) -> Table:
    fields = Fields(f"classes.{name}", given)
    mode = "WaitForFirstConsumer" if fields.take("waits", True) else "Immediate"
    item = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": fields.take("provisioner", "disks.example.com"),
        "volumeBindingMode": mode,
    }
    allowed = [_node_term(term)["matchExpressions"] for term in fields.take("allowed", [])]
    fields.finish()
    terms = [[{"key": one["key"], "values": one["values"]} for one in term] for term in allowed]
    return item | ({"allowedTopologies": [{"matchLabelExpressions": term} for term in terms]} if terms else {})


def _csi_nodes(nodes: Iterator[tuple[str, Mapping[str, Any] | None]]) -> Iterator[Table]:
    for name, given in nodes:
        limits = (given or {}).get("attaches", {})
        if limits:
            drivers = [{"name": d, "nodeID": name, "allocatable": {"count": most}} for d, most in limits.items()]
            metadata = {"name": name}
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": metadata,
                "spec": {"drivers": drivers},
            }


# -- gangs, jobs and pods


def _gang(name: str, given: Mapping[str, Any]) -> Iterator[Table]:
    fields = Fields(f"gangs.{name}", given)
    shapes = fields.take("shapes")
    roles: Table = fields.take("roles") or {}
    own, least, at = fields.take("pods"), fields.take("min"), fields.take("at", 0)
    own_fields = ("queue", "preemptable", "minRuntimeSeconds", "staleSeconds", "movable", "topology", "mixedGpuModels")
    spec = fields.take_some(own_fields)
    has_group, priority = fields.take("podGroup", True), fields.take("priority")
    if priority:
        spec["priorityClassName"] = priority
    started = fields.take("started", at)
    placed = [("Running", node, count) for node, count in fields.take("running", {}).items()]
    placed += [("Leaving", node, count) for node, count in fields.take("leaving", {}).items()]
    placed += [(phase, "n1", fields.take(phase.lower(), 0)) for phase in ("Succeeded", "Failed")]
    placed += [("Gated", "", fields.take("gated", 0))]
    placed += [("Pending", node, count) for node, count in fields.take("nominated", {}).items()]
    annotations = _of_failures(fields)
    since = fields.take("incompleteSince")
    if since is not None:
        annotations[INCOMPLETE_SINCE] = moment(since)
    shared = fields.given
    if roles:
        parts = [{"role": role, **part} for role, part in roles.items()]
        spec["roles"] = [
            {"name": role, "minMember": part.get("min", part.get("pods", 1)), **_models_of_role(part)}
            for role, part in roles.items()
        ]
    else:
        parts = shapes or [{"pods": own or least or 1}]
    templates: list[Table] = []
    for part in parts:
        rest = {key: value for key, value in part.items() if key not in ("pods", "min", "gpuModels")}
        templates += [{**shared, **rest}] * part.get("pods", part.get("min", 1))
    spec["minMember"] = (
        least or len(templates) if not roles else max(least or 0, sum(role["minMember"] for role in spec["roles"]), 1)
    )
    namespace = shared.get("namespace", "default")
    if has_group:
        metadata = {"name": name, "namespace": namespace, "creationTimestamp": moment(at), "annotations": annotations}
        yield {"apiVersion": OURS, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    states = [(phase, node) for phase, node, count in placed for _ in range(count)]
    if len(states) > len(templates):
        raise ValueError(f"gangs.{name}: {len(states)} pods are placed, and it has {len(templates)}")
    states += [("Pending", "")] * (len(templates) - len(states))
    for index, (template, (phase, node)) in enumerate(zip(templates, states, strict=True)):
        pod = Fields(f"gangs.{name}", template)
        labels = {"maniple.dev/pod-group": name}
        role = pod.take("role")
        if role:
            labels["maniple.dev/role"] = role
        pod.given.setdefault("priority", spec.get("priorityClassName"))
        yield _pod(f"{name}-{index}", pod, phase=phase, node=node, labels=labels, at=at, started=started)


def _lone_pod(name: str, given: Mapping[str, Any]) -> Table:
    fields = Fields(f"pods.{name}", given)
    node, at = fields.take("node", ""), fields.take("at", 0)
    phase = fields.take("phase") or ("Running" if node else "Pending")
    if fields.take("leaving", False):
        phase = "Leaving"
    fields.given["annotations"] = {**_of_failures(fields), **fields.take("annotations", {})}
    return _pod(name, fields, phase=phase, node=node, labels={}, at=at, started=fields.take("started", at))


def _pod(name: str, fields: Fields, *, phase: str, node: str, labels: Table, at: float, started: float) -> Table:
    metadata: Table = {
        "name": name,
        "namespace": fields.take("namespace", "default"),
        "labels": {**labels, **{key: str(value) for key, value in fields.take("labels", {}).items()}},
        "annotations": {**_of_gpus(fields), **fields.take("annotations", {})},
        "creationTimestamp": moment(at),
    }
    owner, grace_ends = fields.take("owner"), fields.take("graceEnds")
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    if phase == "Leaving":
        metadata["deletionTimestamp"] = moment(at + 1 if grace_ends is None else grace_ends)
    if phase in ("Pending", "Gated"):
        metadata["annotations"].pop(OF_GPUS["gpus"], None)  # the pods of a gang that do not run hold none yet
    spec, more = _pod_spec(fields), fields.take("status", {})
    fields.finish()
    status: Table = {"phase": {"Leaving": "Running", "Gated": "Pending"}.get(phase, phase), **more}
    if phase == "Gated":
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    elif phase == "Pending":
        if node:
            status["nominatedNodeName"] = node
    else:
        spec["nodeName"] = node
        status["startTime"] = moment(started)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _of_gpus(fields: Fields) -> dict[str, str]:
    return {OF_GPUS[key]: str(value) for key, value in fields.take_some(OF_GPUS).items()}


def _models_of_role(given: Mapping[str, Any]) -> Table:
    """`[H100=3, A100]` as the list of a role's spec."""
    made: list[Table] = []
    for text in given.get("gpuModels", []):
        model, _, speed = text.partition("=")
        made.append({"model": model, **({"speed": float(speed)} if speed else {})})
    return {"gpuModels": made} if made else {}


def _pod_spec(fields: Fields) -> Table:
    container: Table = {"name": "main", "image": fields.take("image", "registry.example/work:1")}
    requests, limits = fields.amounts(), amounts(fields.take("limits"))
    limits |= {name: value for name, value in requests.items() if "/" in name or name.startswith("hugepages-")}
    resources = {"requests": requests, "limits": limits}
    container["resources"] = {key: value for key, value in resources.items() if value}
    container |= fields.take_some(("ports",))
    spec = {"schedulerName": fields.take("scheduler", "maniple"), "containers": [container]}
    priority = fields.take("priority")
    if priority:
        spec["priorityClassName"] = priority
    claims = fields.take("claims", [])
    spec["volumes"] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    affinity = _affinity(fields)
    if affinity:
        spec["affinity"] = affinity
    spread = [_spread(given) for given in fields.take("spread", [])]
    if spread:
        spec["topologySpreadConstraints"] = spread
    return spec | fields.take_some(SPEC_FIELDS)


def _of_failures(fields: Fields) -> dict[str, str]:
    count, last = fields.take("bindFailures"), fields.take("lastBindFailure")
    if count is None:
        return {}
    return {OF_FAILURES["bindFailures"]: str(count), OF_FAILURES["lastBindFailure"]: moment(last)}


def _job(name: str, given: Mapping[str, Any]) -> Iterator[Table]:
    """The ElasticJob, and those of its pods that exist."""
    fields = Fields(f"jobs.{name}", given)
    at = fields.take("at", 0)
    started, resized = fields.take("started", at), fields.take("resized")
    namespace = fields.take("namespace", "default")
    metadata: Table = {"name": name, "namespace": namespace, "creationTimestamp": moment(at)}
    metadata["annotations"] = _of_failures(fields)
    spec = fields.take_some(
        (
            *("queue", "preemptable", "minRuntimeSeconds", "movable", "suspend", "framework"),
            *("topology", "mixedGpuModels", "activeDeadlineSeconds"),
        )
    )
    elastic = _elastic(fields)
    if elastic:
        spec["elastic"] = elastic
    priority, status = fields.take("priority"), fields.take("status", {})
    if priority:
        spec["priorityClassName"] = priority
    roles = [_JobRole(name, role, part) for role, part in fields.take("roles").items()]
    fields.finish()
    spec["roles"] = [role.written for role in roles]
    target = [{"role": role.name, "replicas": role.target} for role in roles if role.target is not None]
    if target:
        status = {**status, "target": target}
    if resized is not None:
        status = {**status, "lastResizeTime": moment(resized)}
    yield {"apiVersion": OURS, "kind": "ElasticJob", "metadata": metadata, "spec": spec, "status": status}
    for role in roles:
        there = (index for index in count() if index not in role.lost)
        for index, (phase, node) in zip(there, role.states, strict=False):
            yield role.pod(namespace, index, phase=phase, node=node, at=at, started=started, priority=priority)


def _elastic(fields: Fields) -> Table:
    """What resizing gains and costs; `speedup` is written {replicas: speed}."""
    made = {f"{key}Seconds": value for key, value in fields.take_some(("cooldown", "grace", "restart")).items()}
    points = fields.take("speedup")
    if points:
        made["speedup"] = [{"replicas": replicas, "speedup": float(speed)} for replicas, speed in points.items()]
    return made


class _JobRole:
    def __init__(self, job: str, role: str, given: Mapping[str, Any]) -> None:
        fields = Fields(f"jobs.{job}.{role}", given)
        self.job, self.name = job, role
        least = fields.take("min", 1)
        made = {"name": role, "min": least, "max": fields.take("max", least), **fields.take_some(("step", "pin"))}
        made |= _models_of_role(fields.take_some(("gpuModels",)))
        self.target: int | None = fields.take("target")
        self.lost: list[int] = fields.take("lost", [])
        placed = [("Running", node, count) for node, count in fields.take("running", {}).items()]
        placed += [("Leaving", node, count) for node, count in fields.take("leaving", {}).items()]
        placed += [("Pending", node, count) for node, count in fields.take("nominated", {}).items()]
        self.states = [(phase, node) for phase, node, count in placed for _ in range(count)]
        self.states += [("Pending", "")] * fields.take("pending", 0)
        annotations = _of_gpus(fields)
        labels = {key: str(value) for key, value in fields.take("labels", {}).items()}
        self._pod = dict(fields.given)
        spec = _pod_spec(fields)
        fields.finish()
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        self._labels, self._annotations = labels, annotations
        self.written: Table = {**made, "template": template}

    def pod(
        self, namespace: str, index: int, *, phase: str, node: str, at: float, started: float, priority: str | None
    ) -> Table:
        fields = Fields(f"jobs.{self.job}.{self.name}", self._pod)
        own = {"maniple.dev/job": self.job, "maniple.dev/role": self.name, "maniple.dev/index": str(index)}
        fields.given |= {"namespace": namespace, "annotations": self._annotations}
        fields.given.setdefault("priority", priority)
        return _pod(
            f"{self.job}-{self.name}-{index}",
            fields,
            phase=phase,
            node=node,
            labels={**self._labels, **own},
            at=at,
            started=started,
        )


# -- affinity


def _affinity(fields: Fields) -> Table:
    node: Table = {}
    terms, preferred = fields.take("onNodes"), fields.take("preferNodes")
    if terms:
        node[REQUIRED] = _node_terms(terms)
    if preferred:
        node[PREFERRED] = [{"weight": one["weight"], "preference": _node_term(one["onNodes"])} for one in preferred]
    made: Table = {"nodeAffinity": node} if node else {}
    for kind, required, wished in (
        ("podAffinity", "near", "preferNear"),
        ("podAntiAffinity", "apart", "preferApart"),
    ):
        part: Table = {}
        must, should = fields.take(required), fields.take(wished)
        if must:
            part[REQUIRED] = [_pod_term(one) for one in must]
        if should:
            part[PREFERRED] = [
                {
                    "weight": one["weight"],
                    "podAffinityTerm": _pod_term({key: value for key, value in one.items() if key != "weight"}),
                }
                for one in should
            ]
        if part:
            made[kind] = part
    return made


def _node_terms(terms: list[list[str]]) -> Table:
    return {"nodeSelectorTerms": [_node_term(term) for term in terms]}


def _node_term(written: list[str]) -> Table:
    expressions: list[Table] = []
    fields: list[Table] = []
    for text in written:
        key, operator, *values = text.split()
        made: Table = {"key": "metadata.name" if key == "name" else TOPOLOGY.get(key, key), "operator": operator}
        if values:
            made["values"] = values[0].split("|")
        (fields if key == "name" else expressions).append(made)
    term = {"matchExpressions": expressions, "matchFields": fields}
    return {key: value for key, value in term.items() if value}


def _pod_term(given: Mapping[str, Any]) -> Table:
    fields = dict(given)
    key = fields.pop("by")
    term: Table = {"topologyKey": TOPOLOGY.get(key, key)}
    if "select" in fields:
        term["labelSelector"] = {"matchLabels": fields.pop("select")}
    return term | fields


def _spread(given: Mapping[str, Any]) -> Table:
    return {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_pod_term(given)}


def _node_labels(given: Mapping[str, Any]) -> dict[str, str]:
    return {TOPOLOGY.get(key, key): str(value) for key, value in given.items()}
