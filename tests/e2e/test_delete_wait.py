"""`maniple delete --wait` on a real API server: it returns when the pods are gone, not earlier."""

import time

from e2e.serve_process import Bench
from e2e.user_at_shell import People, Person


def test_delete_waits_until_the_pods_are_gone(bench: Bench, person: Person) -> None:
    (node,) = bench.nodes(1)
    person.submit("bert", "--gpus", "2")
    pods = [person.replica("bert", index, node=node) for index in range(2)]
    person.wait_running(pods)
    assert "there is no such job" in person.refused("delete", "bert", "nosuch")
    assert person.exists("elasticjobs", "bert")
    assert person.do("delete", "bert", "--wait") == f"ElasticJob {bench.namespace}/bert deleted\n"
    assert not any(person.exists("pods", pod) for pod in pods)


def test_delete_waits_no_longer_than_its_timeout(bench: Bench, person: Person) -> None:
    person.submit("bert", "--gpus", "1")
    held = person.path("pods", person.replica("bert", 0))
    bench.client.patch(held, {"metadata": {"finalizers": ["test.maniple.dev/held"]}})
    assert "--timeout needs --wait" in person.refused("delete", "bert", "--timeout", "1")
    late = person.run("delete", "bert", "--wait", "--timeout", "0.5")
    assert (late.returncode, late.stdout) == (3, "")
    assert "not gone after 0.5 s" in late.stderr
    bench.wait("the job to be gone", lambda: not person.exists("elasticjobs", "bert"))
    bench.client.patch(held, {"metadata": {"finalizers": None}})


def test_delete_waits_for_pods_that_outlive_their_job(bench: Bench, person: Person) -> None:
    """It does not wait for pods of a later job of the same name."""
    person.submit("bert", "--gpus", "1")
    held = person.path("pods", person.replica("bert", 0))
    bench.client.patch(held, {"metadata": {"finalizers": ["test.maniple.dev/held"]}})
    deleting = person.begin("delete", "bert", "--wait")
    bench.wait("the job to be gone", lambda: not person.exists("elasticjobs", "bert"))
    person.submit("bert", "--gpus", "2")
    person.replica("bert", 1)
    time.sleep(0.5)
    assert deleting.out == []
    bench.client.patch(held, {"metadata": {"finalizers": None}})
    assert deleting.end() == 0
    assert deleting.out == [f"ElasticJob {bench.namespace}/bert deleted"]
    assert person.exists("pods", "bert-worker-1")


def test_delete_without_the_right_to_list_pods_waits_for_the_job(bench: Bench, person: Person, people: People) -> None:
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{bench.namespace}"
    verbs = ["get", "list", "watch", "delete"]
    rule = {"apiGroups": ["maniple.dev"], "resources": ["elasticjobs"], "verbs": verbs}
    bench.client.post(f"{rights}/roles", {"metadata": {"name": "deletes"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deletes"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "deleter"}
    binding = {"metadata": {"name": "deletes"}, "roleRef": role, "subjects": [subject]}
    bench.client.post(f"{rights}/rolebindings", binding)
    deleter = people(bench.cluster, bench.namespace, "deleter")
    person.submit("bert", "--gpus", "1")
    held = person.path("pods", person.replica("bert", 0))
    bench.client.patch(held, {"metadata": {"finalizers": ["test.maniple.dev/held"]}})
    with bench.cluster.client("deleter") as client:
        bench.wait("the right to count", lambda: client.exists(person.path("elasticjobs", "bert")))
    done = deleter.run("delete", "bert", "--wait", "--timeout", "30")
    bench.client.patch(held, {"metadata": {"finalizers": None}})
    assert (done.returncode, done.stdout) == (0, f"ElasticJob {bench.namespace}/bert deleted\n")
    assert "is gone, its pods may still be ending: you may not list and watch the pods" in done.stderr
