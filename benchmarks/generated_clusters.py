"""Clusters for benchmarks, generated from a seed: as JSON bytes, the way an API server would dump them."""

import random
from collections.abc import Iterator, Sequence

import msgspec

Object = dict[str, object]

# (share of gangs, GPUs a pod, CPU, memory): a mix of training jobs as clusters see them.
SHAPES = (
    (40, 1, "8", "32Gi"),
    (20, 2, "16", "64Gi"),
    (15, 4, "32", "128Gi"),
    (15, 8, "64", "256Gi"),
    (5, 0, "16", "64Gi"),
    (5, 1, "4", "16Gi"),
)


def nodes(count: int, gpus: int = 8, product: str = "") -> Iterator[Object]:
    """Nodes in racks of 16, 25 racks a block; `product` says which GPUs they have, and so how those are linked."""
    for number in range(count):
        name = f"node-{number:05d}"
        allocatable = {"cpu": "128", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"n{number}",
                "labels": {
                    "kubernetes.io/hostname": name,
                    "block": f"b{number // 400:03d}",
                    "rack": f"r{number // 16:04d}",
                    "gpu": "h100",
                    **({"nvidia.com/gpu.product": product} if product else {}),
                },
            },
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }


def queues(count: int) -> Iterator[Object]:
    for number in range(count):
        spec = {"weight": 1 + number % 5}
        yield {
            "apiVersion": "maniple.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": f"q{number:03d}"},
            "spec": spec,
        }


def topology() -> Object:
    labels = {"block": "block", "rack": "rack", "host": "kubernetes.io/hostname"}
    levels = [{"name": name, "nodeLabel": label} for name, label in labels.items()]
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "cluster"},
        "spec": {"levels": levels},
    }


def gang(
    name: str,
    pods: int,
    shape: tuple[int, str, str],
    queue: str,
    created: int,
    close: dict[str, str] | None = None,
    *,
    nodes: Sequence[str] = (),
    priority: str = "",
) -> Iterator[Object]:
    """`nodes`: where its pods run, if they do."""
    moment = f"2026-01-01T{created // 3600 % 24:02d}:{created // 60 % 60:02d}:{created % 60:02d}Z"
    meta: Object = {"name": name, "namespace": "train", "uid": name, "creationTimestamp": moment}
    yield {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {
            "minMember": pods,
            "queue": queue,
            **({"topology": close} if close else {}),
            **({"priorityClassName": priority} if priority else {}),
        },
    }
    for index in range(pods):
        node = nodes[index] if nodes else None
        yield pod(f"{name}-{index}", shape, {"maniple.dev/pod-group": name}, created=moment, node=node)


def pod(
    name: str, shape: tuple[int, str, str], labels: dict[str, str], *, created: str, node: str | None = None
) -> Object:
    """About as long as a pod in an API server's dump: scheduling does not read most of it."""
    gpus, cpu, memory = shape
    resources: dict[str, str] = {"cpu": cpu, "memory": memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    env = [{"name": f"VARIABLE_{number}", "value": f"value-{number}"} for number in range(8)]
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": created}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"pod-{name}",
            "resourceVersion": "123456",
            "labels": labels,
            "creationTimestamp": created,
        },
        "spec": {
            "schedulerName": "maniple",
            **({"nodeName": node} if node else {}),
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/training:v1.2.3",
                    "command": ["python", "train.py"],
                    "env": env,
                    "resources": {"requests": resources, "limits": resources},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "restartPolicy": "Never",
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": conditions if node else []},
    }


def big(
    node_count: int, gang_count: int, seed: int = 1, queue_count: int = 100, *, is_close: bool = False
) -> list[Object]:
    """`gang_count` gangs of 1 to 64 pods of mixed shapes waiting for an empty cluster.

    `is_close`: GPUs have links (NVLink's hybrid cube mesh), nodes have a Topology, and all gangs prefer one
    rack, and every fourth requires it.
    """
    draw = random.Random(seed)
    product = "Tesla-V100-SXM2-32GB" if is_close else ""
    made = [*nodes(node_count, product=product), *queues(queue_count), *([topology()] if is_close else [])]
    weights = [share for share, *_ in SHAPES]
    for number in range(gang_count):
        _, gpus, cpu, memory = draw.choices(SHAPES, weights)[0]
        size = draw.choice((1, 2, 4, 8, 16, 32, 64)) if draw.random() < 0.5 else draw.randint(1, 64)
        queue = f"q{draw.randrange(queue_count):03d}"
        # What a rack cannot hold nobody must have in one.
        must = number % 4 == 0 and size * gpus <= 128
        close = {"required" if must else "preferred": "rack"} if is_close else None
        made += gang(f"gang-{number:05d}", size, (gpus, cpu, memory), queue, number, close)
    return made


def running(node_count: int, per_node: int) -> list[Object]:
    """Nodes full of small pods, one job each."""
    made = list(nodes(node_count, gpus=per_node))
    for number in range(node_count * per_node):
        node = f"node-{number // per_node:05d}"
        made.append(
            pod(f"run-{number:06d}", (1, "8", "32Gi"), {"app": "train"}, created="2026-01-01T00:00:00Z", node=node)
        )
    return made


def dump(objects: list[Object]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})


def elastic(node_count: int, job_count: int, size: int, gang_count: int = 0) -> list[Object]:
    """ElasticJobs of 4 to 40 replicas that run with `size`, one GPU each, and gangs of 64 pods that wait."""
    moment, shape = "2026-01-01T00:00:00Z", (1, "4", "16Gi")
    made: list[Object] = list(nodes(node_count))
    at = 0
    for number in range(job_count):
        name = f"job-{number:04d}"
        template = {"spec": pod(name, shape, {}, created=moment)["spec"]}
        made.append(
            {
                "apiVersion": "maniple.dev/v1alpha1",
                "kind": "ElasticJob",
                "metadata": {"name": name, "namespace": "train", "uid": name, "creationTimestamp": moment},
                "spec": {"roles": [{"name": "worker", "min": 4, "max": 40, "template": template}]},
                "status": {"target": [{"role": "worker", "replicas": size}]},
            }
        )
        for index in range(size):
            labels = {"maniple.dev/job": name, "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
            node = f"node-{at // 8:05d}"
            made.append(pod(f"{name}-worker-{index}", shape, labels, created=moment, node=node))
            at += 1
    for number in range(gang_count):
        made += gang(f"gang-{number:03d}", 64, shape, "default", 60 + number)
    return made
