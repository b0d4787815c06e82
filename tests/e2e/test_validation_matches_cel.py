"""Rules that are written twice, in api/validate/ and in the CRDs' CEL, agree on the same objects."""

from typing import Any

import msgspec
import pytest

from e2e.serve_process import OURS, Json
from maniple.api import types
from maniple.api.validate.ours import problems
from tools.cluster import ApiError, Cluster


def job(name: str, *roles: Json, **spec: Any) -> Json:
    body = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
    return body | {"spec": {"roles": roles or (role(),), **spec}}


def role(name: str = "worker", least: int = 1, most: int = 2, **more: Any) -> Json:
    container = {"name": "main", "image": "training:1"}
    return {"name": name, "min": least, "max": most, "template": {"spec": {"containers": [container]}}, **more}


# The wrong field in our notation; none: the job is valid.
JOBS = [
    (job("1bert", framework="torchrun"), "metadata.name"),
    (job("a.b", framework="torchrun"), "metadata.name"),
    (job("b-1", framework="torchrun"), ""),
    (job("b", framework="torchrun"), ""),
    (job("1bert"), ""),
    (job("a.b", framework="none"), ""),
    (job("1a.b", framework="horovod"), ""),
    (job("a" * 63), ""),
    (job("a" * 64), "metadata.name"),
    (job("a" * 54, role(most=10), framework="torchrun"), ""),
    (job("a" * 54, role(most=11), framework="torchrun"), "spec.roles[0].name"),
    (job("a" * 54, role(), role("ps", 0, 0), framework="torchrun"), ""),
    (job("a" * 52, role(), role("preparers", 0, 0), framework="torchrun"), "spec.roles[1].name"),
    (job("pinned", role(pin=2)), ""),
    (job("pinned", role(pin=None)), ""),
    (job("pinned", role(pin=3)), "spec.roles[0].pin"),
    (job("small", role(least=0)), "spec.roles"),
    (job("odd", role(least=3)), "spec.roles[0].max"),
]


@pytest.mark.parametrize(("body", "field"), JOBS)
def test_files_and_the_api_server_agree_on_jobs(with_crds: Cluster, namespace: str, body: Json, field: str) -> None:
    said = problems(msgspec.convert(body, types.ElasticJob))
    assert {problem.field for problem in said} == ({field} if field else set())
    path = f"{OURS}/namespaces/{namespace}/elasticjobs?dryRun=All&fieldValidation=Strict"
    with with_crds.client() as client:
        if not field:
            client.post(path, body)
            return
        with pytest.raises(ApiError) as refused:
            client.post(path, body)
        assert refused.value.code == 422


def test_a_job_of_torchrun_cannot_outgrow_the_names_of_its_pods(with_crds: Cluster, namespace: str) -> None:
    folder = f"{OURS}/namespaces/{namespace}/elasticjobs"
    body = job("a" * 54, role(most=10), framework="torchrun")
    with with_crds.client() as client:
        client.post(folder, body)
        with pytest.raises(ApiError, match="must have at most 63 characters: shorten the name of the job"):
            client.patch(f"{folder}/{body['metadata']['name']}", {"spec": {"roles": [role(most=11)]}})
