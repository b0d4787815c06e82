"""The shipped RBAC rights allow reading what is read. tests/e2e/test_rbac_rights.py checks every verb on a cluster."""

import pytest

from deploy.rbac_rights import Right, granted, needed_for, rules
from maniple.kube.transport.resource_kinds import RESOURCES


def test_only_what_the_mirror_reads_may_be_listed_and_watched() -> None:
    reads = {
        Right(resource.api_version.rpartition("/")[0], resource.plural, verb)
        for resource in RESOURCES
        for verb in ("list", "watch")
    }
    assert {right for right in granted() if right.verb in ("list", "watch")} == reads


def test_no_right_is_a_wildcard_or_allows_escalation() -> None:
    for right in granted():
        assert "*" not in "".join(right), right
        assert right.resource.partition("/")[0] not in {"serviceaccounts", "roles", "clusterroles"}, right
        assert right.verb not in {"deletecollection", "escalate", "bind", "impersonate"}, right
        assert right.verb != "delete" or right.resource in {"pods", "elasticjobs"}, right
        assert right.resource not in {"pods/exec", "pods/attach", "pods/ephemeralcontainers", "nodes/proxy"}, right


def test_only_its_own_secret_can_be_read() -> None:
    for rule in rules():
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == ["maniple-agents"]


@pytest.mark.parametrize(
    ("method", "path", "is_watch", "right"),
    [
        ("GET", "/api/v1/namespaces", False, Right("", "namespaces", "list")),
        ("GET", "/api/v1/pods", True, Right("", "pods", "watch")),
        ("GET", "/api/v1/namespaces/a/pods/b", False, Right("", "pods", "get")),
        ("POST", "/api/v1/namespaces/a/pods/b/binding", False, Right("", "pods/binding", "create")),
        ("PATCH", "/apis/maniple.dev/v1alpha1/queues/q/status", False, Right("maniple.dev", "queues/status", "patch")),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
            False,
            Right("coordination.k8s.io", "leases", "update"),
        ),
    ],
)
def test_requests_need_the_rights_that_the_api_server_asks_for(
    method: str, path: str, is_watch: bool, right: Right
) -> None:
    assert needed_for(method, path, is_watch) == right
