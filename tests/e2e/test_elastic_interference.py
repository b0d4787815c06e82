"""Elastic jobs under interference: deleted objects, refused pods, orphaned pods."""

from datetime import UTC, datetime
from itertools import pairwise

from e2e.serve_process import Bench, Json
from e2e.test_elastic import Jobs, jobs, uids, watching

__all__ = ["jobs"]

CORE = "/api/v1/namespaces/{}"


def test_a_deleted_horovod_script_is_created_again(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("ring", 1, 3, framework="horovod")
    jobs.wait_size("ring", 3)
    folder = f"{CORE.format(bench.namespace)}/configmaps"

    def hosts() -> list[str]:
        found = bench.client.get(folder)["items"]
        return [one["data"]["hosts"] for one in found if one["metadata"]["name"].startswith("ring-hosts-")]

    bench.client.delete(f"{folder}/ring-hosts-{jobs.get('ring')['metadata']['uid'][:8]}")
    jobs.change("ring", pin=2)
    jobs.wait_size("ring", 2)
    # It is written after the status.
    bench.wait("the script to name two", lambda: [len(each.splitlines()) for each in hosts()] == [2])


def test_a_service_of_the_same_name_is_reported_until_it_is_gone(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    services = f"{CORE.format(bench.namespace)}/services"
    spec = {"clusterIP": "None", "selector": {"app": "other"}}
    bench.client.post(services, {"metadata": {"name": "bert"}, "spec": spec})
    jobs.make("bert", 2, 2)
    with watching(jobs, "bert") as seen:
        bench.wait("the job to say so", lambda: has_condition(jobs.get("bert"), "Hindered"))
        said = bench.condition_of(jobs.get("bert"), "Hindered")
        assert (said["status"], said["reason"]) == ("True", "NameTaken")
        assert said["message"] == "there is a Service bert that is not the job's"
        bench.client.delete(f"{services}/bert")
        jobs.wait_size("bert", 2)
        bench.wait("it to be over", lambda: not has_condition(jobs.get("bert"), "Hindered"))
    told = [any(one["type"] == "Hindered" for one in status.get("conditions", [])) for status in seen]
    assert [before for before, after in pairwise(told) if before != after] == [False, True], (
        "said once, taken back once"
    )


def has_condition(job: Json, kind: str) -> bool:
    return any(one["type"] == kind for one in job["status"]["conditions"])


def test_a_quota_that_refuses_pods_is_reported_and_the_job_starts_when_it_is_raised(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    quota = f"{CORE.format(bench.namespace)}/resourcequotas"
    bench.client.post(quota, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    bench.wait("the quota to be counted", lambda: "hard" in bench.client.get(f"{quota}/few").get("status", {}))
    jobs.make("bert", 4, 4)
    bench.wait("the refusal", lambda: any("quota" in event["note"] for event in bench.events("NotCarriedOut")))
    jobs.wait_phase("bert", "Pending")
    bench.wait("the job to say so", lambda: "quota" in bench.condition_of(jobs.get("bert"), "Hindered")["message"])
    # The quota admits the first pod and one of those created together. A lost pod is replaced at once.
    bench.wait("two pods", lambda: len(jobs.pods("bert")) == 2 and 0 in jobs.pods("bert"))
    other = max(jobs.pods("bert"))
    lost = uids(jobs.pods("bert"))[other]
    bench.delete_pods([f"bert-worker-{other}"])
    bench.wait("another", lambda: len(jobs.pods("bert")) == 2 and lost not in uids(jobs.pods("bert")).values())
    bench.client.delete(f"{quota}/few")
    jobs.wait_size("bert", 4)
    bench.wait("it to be over", lambda: not has_condition(jobs.get("bert"), "Hindered"))


def test_orphaned_pods_of_a_job_are_not_adopted_by_the_next_one(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 2)
    jobs.wait_size("bert", 2)
    left = uids(jobs.pods("bert"))
    orphan = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
    bench.client.delete(f"{jobs.folder}/bert", orphan)
    bench.wait("the job to be gone", lambda: not bench.client.exists(f"{jobs.folder}/bert"))
    bench.client.delete(f"{CORE.format(bench.namespace)}/services/bert")
    jobs.make("bert", 2, 2)
    said = "there is a Pod bert-worker-0 that is not the job's"
    bench.wait("the complaint", lambda: any(said in event["note"] for event in bench.events("NotCarriedOut")))
    assert uids(jobs.pods("bert")) == left
    bench.delete_pods(["bert-worker-0", "bert-worker-1"])
    jobs.wait_size("bert", 2)
    owner = jobs.get("bert")["metadata"]["uid"]
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in jobs.pods("bert").values()} == {owner}


def test_a_role_that_may_be_empty_does_not_decide_the_outcome_of_the_job(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("pattern", 1, 1, suspend=True)
    worker = jobs.get("pattern")["spec"]["roles"][0]
    jobs.make("sweep", 1, 1, framework="none", roles=[worker | {"name": "helper", "min": 0}, worker])
    bench.wait("both", lambda: len(bench.all_pods()) == 2 and jobs.get("sweep")["status"]["phase"] == "Running")
    jobs.end("sweep", 0, 0)
    jobs.wait_phase("sweep", "Succeeded")


def test_a_gang_on_a_dead_node_names_the_pods_it_waits_for_and_then_starts_elsewhere(bench: Bench, jobs: Jobs) -> None:
    """The node has no kubelet that could report the end of its pods: they stay terminating."""
    dead = bench.slow_node()
    bench.serve()
    jobs.make("gang", 2, 2)
    bench.wait_bound(["gang-worker-0", "gang-worker-1"])
    for index in (0, 1):
        get_ready(bench, f"gang-worker-{index}")
    jobs.wait_size("gang", 2)
    lost = uids(jobs.pods("gang"))
    alive = bench.nodes(1)[0]
    bench.client.patch(f"/api/v1/nodes/{dead}", {"spec": {"unschedulable": True}})
    bench.delete_pods(["gang-worker-0", "gang-worker-1"])
    # One of them may be said to linger a second before the other: their times are in whole seconds.
    both = f"gang-worker-0 on {dead}, gang-worker-1 on {dead}"
    bench.wait("the job to say so", lambda: both in bench.condition_of(jobs.get("gang"), "Hindered")["message"])
    job = jobs.get("gang")
    assert (job["status"]["phase"], bench.condition_of(job, "Hindered")["reason"]) == ("Restarting", "ReplicaLingers")
    assert {pod["metadata"]["uid"] for pod in bench.all_pods()} == set(lost.values()), "none was made beside them"
    for index in (0, 1):
        bench.client.delete(f"{CORE.format(bench.namespace)}/pods/gang-worker-{index}", {"gracePeriodSeconds": 0})
    jobs.wait_size("gang", 2)
    assert set(bench.bound().values()) == {alive}
    bench.wait("it to be over", lambda: not has_condition(jobs.get("gang"), "Hindered"))


def get_ready(bench: Bench, name: str) -> None:
    """Reports that the pod is ready, as the kubelet does."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    status = {"phase": "Running", "conditions": [*bench.get_pod(name)["status"].get("conditions", []), ready]}
    bench.client.patch(f"{CORE.format(bench.namespace)}/pods/{name}/status", {"status": status})
