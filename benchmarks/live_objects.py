"""The objects that benchmarks create on a real API server, each with the path to post it to."""

from benchmarks.bare_client import NAMESPACE, Object, node_name
from tools.cluster.kwok import node

_API = "/apis/maniple.dev/v1alpha1"
GROUPS = f"{_API}/namespaces/{NAMESPACE}/podgroups"
QUEUES = f"{_API}/queues"

Request = tuple[str, Object]


def plain_node(number: int) -> Object:
    made = node(node_name(number))
    made["metadata"].pop("annotations")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def pod(name: str, scheduler: str, group: str = "", on: str = "", gpus: int = 1, queue: str = "") -> Object:
    amounts = {"cpu": "4", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "work", "image": "work:1", "resources": {"requests": amounts, "limits": amounts}}
    labels = {
        "app": "bench",
        **({"maniple.dev/pod-group": group} if group else {}),
        **({"maniple.dev/queue": queue} if queue else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            **({"nodeName": on} if on else {}),
        },
    }


def pod_group(name: str, min_member: int, queue: str = "") -> Object:
    spec = {"minMember": min_member, **({"queue": queue} if queue else {})}
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def queue_object(number: int) -> Request:
    meta = {"name": f"queue-{number}"}
    return QUEUES, {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": meta, "spec": {"weight": 1}}
