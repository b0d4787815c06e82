"""The kinds of workloads that are read, and fields of theirs that exist and do not matter here."""

import difflib
import typing
from collections.abc import Iterator

import msgspec

from maniple.api.errors import Problem
from maniple.api.workloads import kubeflow, kubernetes, training
from maniple.api.workloads.common import Lenient, Workload

WORKLOADS: dict[tuple[str, str], type[Workload]] = {
    ("batch/v1", "Job"): kubernetes.Job,
    ("apps/v1", "Deployment"): kubernetes.Deployment,
    ("apps/v1", "ReplicaSet"): kubernetes.ReplicaSet,
    ("apps/v1", "StatefulSet"): kubernetes.StatefulSet,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): kubernetes.JobSet,
    ("batch.volcano.sh/v1alpha1", "Job"): training.VolcanoJob,
    ("kubeflow.org/v1", "PyTorchJob"): kubeflow.PyTorchJob,
    ("kubeflow.org/v1", "TFJob"): kubeflow.TFJob,
    ("kubeflow.org/v1", "MPIJob"): kubeflow.MPIJob,
    ("kubeflow.org/v2beta1", "MPIJob"): kubeflow.MPIJob,
    ("kubeflow.org/v1", "XGBoostJob"): kubeflow.XGBoostJob,
    ("kubeflow.org/v1", "PaddleJob"): kubeflow.PaddleJob,
    ("kubeflow.org/v1", "JAXJob"): kubeflow.JAXJob,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): kubeflow.TrainJob,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): kubeflow.TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): kubeflow.ClusterTrainingRuntime,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): kubernetes.LeaderWorkerSet,
    ("ray.io/v1", "RayCluster"): training.RayCluster,
    ("ray.io/v1alpha1", "RayCluster"): training.RayCluster,
    ("ray.io/v1", "RayJob"): training.RayJob,
    ("ray.io/v1alpha1", "RayJob"): training.RayJob,
    ("ray.io/v1", "RayService"): training.RayService,
}
KIND_OF: dict[type[Workload], str] = {struct: kind for (_, kind), struct in WORKLOADS.items()}

# Fields whose names are close to one that counts, and that are no typing errors.
_OTHER_FIELDS = frozenset(
    {
        *("completionMode", "completedIndexes", "completionTime", "replicatedJobsStatus", "successPolicy"),
        *("minReadySeconds", "updatedReplicas", "readyReplicas", "maxSkew", "minResources", "maxRetry"),
        *("headService", "clusterSpec", "numProcPerNode", "runtimePatches", "suspendPolicy", "podTemplateOverrides"),
    }
)
_CLOSE = 0.8


def misspelt_fields(value: object, kind: typing.Any, path: str = "") -> Iterator[Problem]:
    """Fields outside of pod templates that are not known, but look like one that counts."""
    struct = _lenient_in(kind)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misspelt_fields(item, kind, f"{path}[{index}]")
        return
    if typing.get_origin(kind) is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from misspelt_fields(item, typing.get_args(kind)[1], f"{path}.{key}")
        return
    if struct is None or not isinstance(value, dict):
        return
    known = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for key, item in value.items():
        if key in known:
            yield from misspelt_fields(item, known[key], f"{path}.{key}" if path else key)
        elif key not in _OTHER_FIELDS and key not in ("apiVersion", "kind"):
            close = [name for name in known if name.lower() == key.lower()]
            close = close or difflib.get_close_matches(key[:80], known, n=1, cutoff=_CLOSE)
            if close:
                yield Problem(path, f"unknown field {key!r}; did you mean {close[0]!r}?")


def near_kind(api_version: str, kind: str) -> str | None:
    """The workload of this version that is meant by a kind that is close to its name."""
    kinds = [name for version, name in WORKLOADS if version == api_version]
    close = [name for name in kinds if name.lower() == kind.lower()]
    return next(iter(close or difflib.get_close_matches(kind[:80], kinds, n=1, cutoff=_CLOSE)), None)


def _lenient_in(kind: typing.Any) -> type[Lenient] | None:
    """The struct of a field's type, if it is a part of a workload."""
    if isinstance(kind, type):
        return kind if issubclass(kind, Lenient) else None
    return next((struct for arg in typing.get_args(kind) if (struct := _lenient_in(arg)) is not None), None)
