"""What others do to an elastic job: take away what it needs, refuse its pods, leave pods behind."""

from .serving import Bench
from .test_elastic import Jobs, jobs, uids

__all__ = ["jobs"]

CORE = "/api/v1/namespaces/{}"


def test_horovods_script_is_made_again_when_somebody_has_deleted_it(bench: Bench, jobs: Jobs) -> None:
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
    assert [len(each.splitlines()) for each in hosts()] == [2]


def test_a_quota_that_refuses_pods_is_told_and_the_job_starts_when_it_is_raised(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    quota = f"{CORE.format(bench.namespace)}/resourcequotas"
    bench.client.post(quota, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    bench.wait("the quota to be counted", lambda: "hard" in bench.client.get(f"{quota}/few").get("status", {}))
    jobs.make("bert", 4, 4)
    bench.wait("the refusal", lambda: any("quota" in event["note"] for event in bench.events("NotCarriedOut")))
    jobs.wait_phase("bert", "Pending")
    # What the quota has left goes to the first, then to one of those asked for together; who is lost is missed at once.
    bench.wait("two pods", lambda: len(jobs.pods("bert")) == 2 and 0 in jobs.pods("bert"))
    other = max(jobs.pods("bert"))
    lost = uids(jobs.pods("bert"))[other]
    bench.delete_pods([f"bert-worker-{other}"])
    bench.wait("another", lambda: len(jobs.pods("bert")) == 2 and lost not in uids(jobs.pods("bert")).values())
    bench.client.delete(f"{quota}/few")
    jobs.wait_size("bert", 4)


def test_pods_that_a_job_has_left_behind_are_not_the_next_ones(bench: Bench, jobs: Jobs) -> None:
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


def test_a_role_that_may_be_empty_does_not_speak_for_the_job(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("pattern", 1, 1, suspend=True)
    worker = jobs.get("pattern")["spec"]["roles"][0]
    jobs.make("sweep", 1, 1, framework="none", roles=[worker | {"name": "helper", "min": 0}, worker])
    bench.wait("both", lambda: len(bench.all_pods()) == 2 and jobs.get("sweep")["status"]["phase"] == "Running")
    jobs.end("sweep", 0, 0)
    jobs.wait_phase("sweep", "Succeeded")
