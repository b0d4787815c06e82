"""Small clusters that together use every field we read: what the fuzz tests mutate."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def meta(name: str, namespace: str = "", **more: Any) -> Object:
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def node(name: str, zone: str, **allocatable: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, labels={"zone": zone, "kubernetes.io/hostname": name, "rank": "3"}),
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"}], "unschedulable": False},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", GPU: 4, "pods": "110"},
            "allocatable": {"cpu": "7500m", "memory": "30Gi", GPU: "4", "pods": 100, **allocatable},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
            "declaredFeatures": ["InPlacePodVerticalScaling"],
            "images": [{"names": ["training:1", "training:latest"], "sizeBytes": 900_000_000}],
        },
    }


def pod(name: str, spec: Object | None = None, namespace: str = "ml", **metadata: Any) -> Object:
    container = {"name": "main", "image": "training:1", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, namespace, **metadata),
        "spec": {"schedulerName": "maniple", "containers": [container], **(spec or {})},
    }


def running(pod: Object, host: str) -> Object:
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": host},
        "status": {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"},
    }


PLAIN: list[Object] = [
    node("n1", "a"),
    node("n2", "b"),
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": meta("high"),
        "value": 1000,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Queue",
        "metadata": meta("company"),
        "spec": {"weight": 2, "limit": {GPU: "7", "cpu": "12"}, "priority": 1},
        "status": {"deserved": {"cpu": "1"}, "allocated": {}, "pendingJobs": 1, "runningJobs": 2},
    },
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Queue",
        "metadata": meta("research"),
        "spec": {
            "parent": "company",
            "guaranteed": {GPU: 1},
            "limit": {GPU: 3},
            "reclaimable": True,
            "weights": {GPU: 2},
        },
    },
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": meta("gang", "ml", creationTimestamp="2026-01-01T00:00:00Z"),
        "spec": {
            "minMember": 2,
            "queue": "research",
            "priorityClassName": "high",
            "preemptable": True,
            "staleSeconds": 600,
            "minRuntimeSeconds": 5,
            "movable": True,
            "topology": {"required": "", "preferred": "zone"},
            "roles": [{"name": "worker", "minMember": 1, "gpuModels": [{"model": "A100", "speed": 2.5}]}],
            "mixedGpuModels": False,
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "Scheduled",
                    "status": "False",
                    "reason": "X",
                    "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "observedGeneration": 1,
                }
            ],
            "pending": 2,
            "running": 0,
            "succeeded": 0,
            "failed": 0,
        },
    },
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Topology",
        "metadata": meta("default"),
        "spec": {"levels": [{"name": "zone", "nodeLabel": "zone"}, {"name": "host", "nodeLabel": "host"}]},
    },
    pod("gang-0", labels={"maniple.dev/pod-group": "gang", "maniple.dev/role": "worker", "maniple.dev/index": "0"}),
    pod("gang-1", labels={"maniple.dev/pod-group": "gang"}) | {"status": {"nominatedNodeName": "n1"}},
    running(
        pod(
            "old",
            namespace="default",
            annotations={"maniple.dev/gpus": "0"},
            creationTimestamp="2026-01-01T09:00:00Z",
            deletionTimestamp="2026-01-01T11:00:00Z",
        ),
        "n1",
    ),
    running(pod("busy", {"priority": 0}, labels={"app": "web"}), "n2"),
]

PICKY: list[Object] = [
    node("n1", "a", **{"example.com/fpga": "2"}),
    node("n2", "b"),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ml", labels={"team": "ml"})},
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta("disk", labels={"topology.kubernetes.io/zone": "a__b"}),
        "spec": {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
                        }
                    ]
                }
            },
            "csi": {"driver": "disks.example.com", "volumeHandle": "disk-1"},
            "claimRef": {"namespace": "ml", "name": "data", "uid": "u"},
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "volumeMode": "Filesystem",
            "volumeAttributesClassName": "",
        },
        "status": {"phase": "Bound"},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta("data", "ml"),
        "spec": {
            "volumeName": "disk",
            "accessModes": ["ReadWriteOncePod"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "5Gi"}},
            "selector": {"matchLabels": {"team": "ml"}},
            "volumeMode": "Filesystem",
            "volumeAttributesClassName": "",
        },
        "status": {"phase": "Bound"},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta("late"),
        "provisioner": "disks.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": meta("n1"),
        "spec": {"drivers": [{"name": "disks.example.com", "nodeID": "n1", "allocatable": {"count": 2}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta("scratch", "ml"),
        "spec": {
            "schedulerName": "maniple",
            "nodeName": "n1",
            "resources": {"requests": {"cpu": "1"}},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [
                {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "late"}}}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
        "status": {
            "phase": "Running",
            "resize": "InProgress",
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
            "allocatedResources": {"cpu": "2"},
            "resources": {"requests": {"cpu": "2"}},
            "containerStatuses": [
                {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}
            ],
            "initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "2"}}],
        },
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta("keep", "ml"),
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"},
        "status": {"disruptionsAllowed": 1},
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta("most", "ml"),
        "spec": {
            "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "maxUnavailable": 1,
        },
    },
    pod(
        "picky",
        {
            "nodeSelector": {"zone": "a"},
            "priority": 10,
            "priorityClassName": "",
            "preemptionPolicy": "Never",
            "hostNetwork": True,
            "hostUsers": True,
            "activeDeadlineSeconds": 60,
            "terminationGracePeriodSeconds": 45,
            "overhead": {"cpu": "10m"},
            "resources": {"requests": {"cpu": 2}, "limits": {"cpu": "2500m"}},
            "tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
            "containers": [
                {
                    "name": "main",
                    "image": "training:1",
                    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
                    "resources": {"requests": {"cpu": 0.5, "memory": "1e9"}, "limits": {"example.com/fpga": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"}],
                }
            ],
            "initContainers": [{"name": "init", "image": "a", "restartPolicy": "Always", "resources": {}}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "gce", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
                {"name": "aws", "awsElasticBlockStore": {"volumeID": "v", "readOnly": False}},
                {"name": "rbd", "rbd": {"monitors": ["m"], "pool": "p", "image": "i", "readOnly": True}},
                {"name": "iscsi", "iscsi": {"iqn": "q", "readOnly": True}},
                {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "u"}},
                {"name": "cinder", "cinder": {"volumeID": "c"}},
                {"name": "portworx", "portworxVolume": {"volumeID": "p"}},
            ],
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["1"]}]},
                        ]
                    },
                    PREFERRED: [
                        {
                            "weight": 5,
                            "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                        }
                    ],
                },
                "podAffinity": {
                    PREFERRED: [
                        {
                            "weight": 3,
                            "podAffinityTerm": {
                                "topologyKey": "zone",
                                "labelSelector": {"matchLabels": {"app": "web"}},
                                "namespaceSelector": {"matchLabels": {"team": "ml"}},
                            },
                        }
                    ]
                },
                "podAntiAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]},
                            "namespaces": ["ml", "other"],
                            "matchLabelKeys": ["app"],
                            "mismatchLabelKeys": ["tier"],
                        }
                    ]
                },
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "minDomains": 2,
                    "nodeAffinityPolicy": "Honor",
                    "nodeTaintsPolicy": "Honor",
                    "matchLabelKeys": ["app"],
                }
            ],
        },
        labels={"app": "db", "tier": "1"},
        ownerReferences=[{"kind": "Job", "name": "j", "uid": "u-1", "controller": True}],
    ),
    pod("gated", {"schedulingGates": [{"name": "wait"}]}),
    running(pod("web", labels={"app": "web"}), "n1"),
]

ELASTIC: list[Object] = [
    node("n1", "a"),
    node("n2", "b"),
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Topology",
        "metadata": meta("default"),
        "spec": {"levels": [{"name": "zone", "nodeLabel": "zone"}]},
    },
    {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": meta("train", "ml", creationTimestamp="2026-01-01T00:00:00Z"),
        "spec": {
            "queue": "default",
            "priorityClassName": "",
            "roles": [
                {
                    "name": "worker",
                    "min": 2,
                    "max": 4,
                    "step": 2,
                    "pin": None,
                    "template": {
                        "metadata": {
                            "name": "x",
                            "labels": {"app": "t"},
                            "annotations": {"maniple.dev/gpu-fraction": "0.5", "maniple.dev/gpu-models": "A100=2, *"},
                        },
                        "spec": {
                            "containers": [{"name": "main", "resources": {"limits": {GPU: 1, "memory": "1Gi"}}}],
                            "tolerations": [{"operator": "Exists"}],
                        },
                    },
                }
            ],
            "framework": "torchrun",
            "elastic": {
                "speedup": [{"replicas": 2, "speedup": 1.9}, {"replicas": 4, "speedup": 3}],
                "cooldownSeconds": 60,
                "graceSeconds": 30,
                "restartSeconds": 30,
            },
            "preemptable": False,
            "minRuntimeSeconds": 0,
            "movable": False,
            "topology": {"required": "zone", "preferred": ""},
            "suspend": False,
            "restartPolicy": "OnFailure",
            "backoffLimit": 3,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 60,
            "startSeconds": 300,
            "cleanPodPolicy": "All",
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "Created", "status": "True"}],
            "target": [{"role": "worker", "replicas": 2}],
            "lastResizeTime": "2026-01-01T00:00:00Z",
            "growAfter": "2026-01-01T00:00:00Z",
            "replicas": {"pending": 2, "starting": 0, "running": 0, "succeeded": 0, "failed": 0},
            "restarts": 0,
            "resizes": 1,
            "generation": {
                "number": 1,
                "members": [
                    {"pod": "j-worker-0", "uid": "u", "role": "worker", "index": 0, "address": "10.0.0.1", "slots": 1}
                ],
                "coordinator": "10.0.0.1",
                "port": 20007,
                "stop": False,
                "time": "2026-01-01T00:00:00Z",
            },
            "failures": {"count": 1, "generation": 1, "pods": ["u"], "retryTime": "2026-01-01T00:00:00Z"},
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": None,
            "speeds": [{"replicas": 2, "throughput": 1.5}],
            "progress": {"step": 7, "total": 9, "throughput": 1.5, "time": "2026-01-01T00:00:00Z"},
        },
    },
    running(pod("lone", {"containers": [{"name": "main", "resources": {}}]}), "n1"),
    pod("best-effort", {"containers": [{"name": "main"}]}),
]

FOREIGN: list[Object] = [
    node("n1", "a"),
    {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": meta("kb"),
        "spec": {"weight": 3, "capability": {"cpu": "8"}},
        "status": {"pending": 1},
    },
    {
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "PodGroup",
        "metadata": meta("kb", "ml"),
        "spec": {"minMember": 2, "queue": "kb", "priorityClassName": "", "minResources": {"cpu": "2"}},
        "status": {"phase": "Pending"},
    },
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": meta("vc"),
        "spec": {
            "weight": 1,
            "capability": {"cpu": 4},
            "deserved": {"cpu": "2"},
            "guarantee": {"resource": {"cpu": "1"}},
            "reclaimable": True,
            "parent": "root",
            "priority": 5,
            "type": "x",
            "dequeueStrategy": "fifo",
            "affinity": {"a": []},
            "extendClusters": [{"name": "c"}],
        },
        "status": {"state": "Open"},
    },
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": meta("vc", "ml", uid="0e0a6c7a"),
        "spec": {
            "minMember": 1,
            "minTaskMember": {"ps": 1},
            "queue": "vc",
            "priorityClassName": "",
            "minResources": {"cpu": "1"},
            "networkTopology": {"mode": "hard"},
            "subGroupPolicy": [{"name": "s"}],
        },
        "status": {},
    },
    {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": meta("sp", "ml"),
        "spec": {"minMember": 1, "minResources": {"cpu": 1}, "scheduleTimeoutSeconds": 10},
        "status": {},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": meta("up", "ml"),
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "up"},
            "podGroupTemplates": [
                {
                    "name": "workers",
                    "schedulingPolicy": {"gang": {"minCount": 1}},
                    "schedulingConstraints": {"topology": [{"key": "zone"}]},
                    "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
                    "disruptionMode": {"single": {}},
                    "priorityClassName": "high",
                    "priority": 1000,
                    "preemptionPolicy": "Never",
                }
            ],
            "compositePodGroupTemplates": [{"name": "all"}],
        },
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": meta("up", "ml"),
        "spec": {
            "workloadRef": {"workloadName": "up", "templateName": "workers"},
            "parentCompositePodGroupName": "all",
            "schedulingPolicy": {"gang": {"minCount": 1}},
            "resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}],
            "disruptionMode": {"all": {}},
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"conditions": [], "resourceClaimStatuses": [{"name": "gpus"}]},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": meta("loose", "ml"),
        "spec": {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "zone"}]}},
    },
    pod("up-0", {"schedulingGroup": {"podGroupName": "up"}}),
    pod("loose-0", {"schedulingGroup": {"podGroupName": "loose"}}),
    pod("kb-0", annotations={"scheduling.k8s.io/group-name": "kb"}),
    pod("kb-1", annotations={"scheduling.k8s.io/group-name": "kb"}),
    pod("vc-0", annotations={"scheduling.volcano.sh/group-name": "vc", "volcano.sh/task-spec": "ps"}),
    pod("sp-0", labels={"scheduling.x-k8s.io/pod-group": "sp"}),
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("skipped", "ml"), "data": {"a": "b"}},
]

OWN_WORLDS = (PLAIN, PICKY, ELASTIC, FOREIGN)


def worlds() -> list[list[Object]]:
    """Fresh copies of our own worlds, and the beginning of every example."""
    written = [
        [value for value in yaml.safe_load_all(path.read_bytes()) if value][:8]
        for path in sorted(EXAMPLES.glob("*.yaml"))
    ]
    return copy.deepcopy([*OWN_WORLDS, *written])
