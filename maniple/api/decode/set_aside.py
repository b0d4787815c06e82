"""What still counts of an object of a real cluster that cannot be read: what others rely on. The rest is not guessed.

A pod on a node holds what can be read of its requests. A budget that cannot be read lets no pod be evicted. Every other
object is left out, and what depends on it waits.
"""

from typing import Any

import msgspec

from maniple.api import kubernetes
from maniple.api.meta import LabelSelector, ObjectMeta
from maniple.api.phases import FINISHED
from maniple.api.quantity import parse_quantity
from maniple.api.validate.ours import problems

HOLDS = ", but holds its node's resources"
PROTECTS = ", and no pod that it may cover is evicted"


def salvage(raw: bytes, kind: str) -> tuple[kubernetes.Pod | kubernetes.PodDisruptionBudget | None, str]:
    """What counts of the object, and how to say so."""
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None, ""
    meta = _metadata(_map(value, "metadata"))
    if meta is None:
        return None, ""
    if kind == "Pod":
        pod = _pod(meta, _map(value, "spec"), _map(value, "status"))
        return pod, HOLDS if pod is not None else ""
    if kind == "PodDisruptionBudget":
        return _budget(meta, _map(value, "spec")), PROTECTS
    return None, ""


def _metadata(value: dict[str, Any]) -> ObjectMeta | None:
    name, namespace, uid = (value.get(key) for key in ("name", "namespace", "uid"))
    if not isinstance(name, str) or not name:
        return None
    labels = {key: text for key, text in _map(value, "labels").items() if isinstance(text, str)}
    namespace = namespace if isinstance(namespace, str) and namespace else "default"
    return ObjectMeta(name=name, namespace=namespace, uid=uid if isinstance(uid, str) else "", labels=labels)


def _pod(meta: ObjectMeta, spec: dict[str, Any], status: dict[str, Any]) -> kubernetes.Pod | None:
    """Without labels of a gang, without a scheduler: it only holds resources, and other pods' rules see its labels."""
    node, phase = spec.get("nodeName"), status.get("phase", "Running")
    if not isinstance(node, str) or not node or phase in FINISHED:
        return None
    labels = {key: value for key, value in meta.labels.items() if "maniple.dev/" not in key}
    pod_spec = kubernetes.PodSpec(
        containers=_containers(spec.get("containers")) or (kubernetes.Container(),),
        init_containers=_containers(spec.get("initContainers")),
        overhead=_amounts(spec.get("overhead")),
        node_name=node,
    )
    metadata = msgspec.structs.replace(meta, labels=labels)
    pod = kubernetes.Pod(metadata, pod_spec, kubernetes.PodStatus(phase="Running"))
    return None if problems(pod) else pod


def _containers(value: object) -> tuple[kubernetes.Container, ...]:
    found = []
    for item in value if isinstance(value, list) else ():
        resources = _map(item, "resources")
        amounts = {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}
        requirements = kubernetes.ResourceRequirements(limits=amounts)  # without a request, a limit counts as one
        policy = "Always" if isinstance(item, dict) and item.get("restartPolicy") == "Always" else ""
        found.append(kubernetes.Container(resources=requirements, restart_policy=policy))
    return tuple(found)


def _amounts(value: object) -> dict[str, str | int | float]:
    """Those that are amounts."""
    if not isinstance(value, dict):
        return {}
    return {name: amount for name, amount in value.items() if isinstance(name, str) and _is_amount(name, amount)}


def _is_amount(name: str, amount: object) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return False
    try:
        quantity = parse_quantity(str(amount))
    except ValueError:
        return False
    return quantity >= 0 and ("/" not in name or quantity.denominator == 1)


def _budget(meta: ObjectMeta, spec: dict[str, Any]) -> kubernetes.PodDisruptionBudget | None:
    """Nothing may be evicted of what it selects; of the whole namespace if that cannot be read."""
    try:
        selector = msgspec.convert(spec["selector"], LabelSelector)
    except (KeyError, ValueError):
        selector = LabelSelector()
    allowed = kubernetes.PodDisruptionBudgetStatus(disruptions_allowed=0)
    for chosen in (selector, LabelSelector()):
        budget = kubernetes.PodDisruptionBudget(meta, kubernetes.PodDisruptionBudgetSpec(chosen), allowed)
        if not problems(budget):
            return budget
    return None


def _map(value: object, key: str) -> dict[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
