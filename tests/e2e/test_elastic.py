"""Elastic jobs on a real API server. Nodes are simulated: pods are ready at once and have no agent, so shrinking
takes the job's grace period."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from e2e.serve_process import GPU, OURS, Bench, Json
from tools.cluster import ApiError
from tools.cluster.client import TRANSIENT


class Jobs:
    """The ElasticJobs of one test."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = f"{OURS}/namespaces/{bench.namespace}/elasticjobs"

    def make(self, name: str, least: int, most: int, **spec: Any) -> None:
        pod = self.bench.pod("any")["spec"]
        pod["containers"][0]["resources"] = {"limits": {GPU: "1"}}
        role = {"name": "worker", "min": least, "max": most, "template": {"spec": pod}}
        elastic = {"graceSeconds": 1, "cooldownSeconds": 0, "restartSeconds": 0}
        body = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
        self.bench.client.post(self.folder, body | {"spec": {"roles": [role], "elastic": elastic, **spec}})

    def get(self, name: str) -> Json:
        found: Json = self.bench.client.get(f"{self.folder}/{name}")
        return found

    def change(self, name: str, **role: Any) -> None:
        """Changes the job's only role."""
        spec = self.get(name)["spec"]
        self.patch(name, roles=[spec["roles"][0] | role])

    def patch(self, name: str, **spec: Any) -> None:
        self.bench.client.patch(f"{self.folder}/{name}", {"spec": spec})

    def pods(self, name: str) -> dict[int, Json]:
        """Pods by index, without those being deleted."""
        found = {}
        for pod in self.bench.all_pods():
            labels = pod["metadata"]["labels"]
            if labels.get("maniple.dev/job") == name and "deletionTimestamp" not in pod["metadata"]:
                found[int(labels["maniple.dev/index"])] = pod
        return found

    def wait_size(self, name: str, size: int, phase: str = "Running") -> None:
        def holds() -> bool:
            status = self.get(name)["status"]
            members = len(status["generation"]["members"])
            return status["phase"] == phase and members == size == len(self.pods(name))

        self.bench.wait(f"{name} to run with {size}", holds)

    def wait_phase(self, name: str, phase: str) -> None:
        self.bench.wait(f"{name} to be {phase}", lambda: self.get(name)["status"]["phase"] == phase)

    def end(self, name: str, index: int, code: int) -> None:
        """Reports that the pod has ended, as the kubelet does."""
        ended = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        state = {"state": {"terminated": {"exitCode": code}}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended | state]}
        pod = f"/api/v1/namespaces/{self.bench.namespace}/pods/{name}-worker-{index}"
        self.bench.client.patch(f"{pod}/status", {"status": status})


@pytest.fixture
def jobs(bench: Bench) -> Iterator[Jobs]:
    made = Jobs(bench)
    yield made
    with bench.cluster.client() as client:
        for job in client.get(made.folder)["items"]:
            with suppress(ApiError):
                client.delete(f"{made.folder}/{job['metadata']['name']}")


@contextmanager
def watching(jobs: Jobs, name: str) -> Iterator[list[Json]]:
    """Every status of the job since then, none left out, as a watch of the API server reports them."""
    job = jobs.get(name)
    seen: list[Json] = [job.get("status", {})]
    over = threading.Event()

    def look() -> None:
        version, is_last = job["metadata"]["resourceVersion"], False
        asked = f"{jobs.folder}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name={name}&resourceVersion="
        with jobs.bench.cluster.client() as client:
            while not is_last:
                is_last = over.is_set()
                with suppress(*TRANSIENT):
                    code, lines = client.raw("GET", asked + version)
                    for event in map(json.loads, lines.splitlines()):
                        assert (code, event["type"]) in ((200, "MODIFIED"), (200, "DELETED")), event
                        version = event["object"]["metadata"]["resourceVersion"]
                        status = event["object"].get("status", {})
                        if seen[-1] != status:
                            seen.append(status)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def uids(pods: dict[int, Json]) -> dict[int, str]:
    return {index: pod["metadata"]["uid"] for index, pod in pods.items()}


def test_a_job_follows_free_room_from_4_to_8_to_4_to_8(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 4, 8)
    with watching(jobs, "bert") as seen:
        jobs.wait_size("bert", 8)
        first = uids(jobs.pods("bert"))
        gang = bench.gang("urgent", 4)
        bench.wait_bound(gang)
        jobs.wait_size("bert", 4)
        assert uids(jobs.pods("bert")) == {index: first[index] for index in range(4)}
        bench.delete_pods(gang)
        jobs.wait_size("bert", 8)
    after = jobs.pods("bert")
    assert {index: uid for index, uid in uids(after).items() if index < 4} == {
        index: first[index] for index in range(4)
    }
    status = jobs.get("bert")["status"]
    numbers = [one["generation"]["number"] for one in seen if one.get("generation")]
    assert numbers == sorted(numbers)
    number = f'"generation":{status["generation"]["number"]},'

    def is_told() -> bool:  # after it was written to the status
        return number in jobs.pods("bert")[0]["metadata"]["annotations"]["maniple.dev/generation"]

    bench.wait("the first replica to be told", is_told)
    assert status["generation"]["members"][0]["pod"] == "bert-worker-0"
    said = {one["type"]: one["status"] for one in status["conditions"]}
    assert (said["Created"], said["Running"]) == ("True", "True")
    owner = after[7]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ElasticJob", "bert", True)
    service = bench.get("/api/v1/namespaces/{}/services/bert")
    assert (service["spec"]["clusterIP"], after[7]["spec"]["subdomain"]) == ("None", "bert")

    def shown() -> list[str]:  # counts may be written a little later
        return bench.cluster.kubectl("get", "ej", "bert", "-n", bench.namespace, "--no-headers").split()[:8]

    row = ["bert", "default", "Running", "4", "8", "8", "8", "0"]  # it names no queue
    bench.wait(f"kubectl to show {row}", lambda: shown() == row)


@pytest.mark.parametrize("pins", [(2, 6), (6, 2)], ids=["growth", "shrink"])
def test_a_killed_controller_continues_where_it_was(bench: Bench, jobs: Jobs, pins: tuple[int, int]) -> None:
    bench.nodes(1)
    server = bench.serve()
    jobs.make("bert", 1, 6)
    jobs.change("bert", pin=pins[0])
    jobs.wait_size("bert", pins[0])
    first = uids(jobs.pods("bert"))
    with watching(jobs, "bert") as seen:
        for size in (pins[1], pins[0]):
            before = jobs.get("bert")["status"]["phase"], len(jobs.pods("bert"))
            jobs.change("bert", pin=size)
            bench.wait(
                "it to begin",
                lambda before=before: (jobs.get("bert")["status"]["phase"], len(jobs.pods("bert"))) != before,  # type: ignore[misc]
            )
            server.kill()
            bench.forget(server)
            server = bench.serve()
            jobs.wait_size("bert", size)
    assert uids(jobs.pods("bert"))[0] == first[0]
    by_number = {one["generation"]["number"]: one["generation"] for one in seen if one.get("generation")}
    assert sorted(by_number) == list(range(min(by_number), max(by_number) + 1))
    for one in seen:
        generation = one.get("generation")
        assert not generation or by_number[generation["number"]]["members"] == generation["members"]
    assert jobs.get("bert")["status"].get("restarts", 0) == 0


def test_a_suspended_job_has_no_pods_and_resumes(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 2)
    jobs.wait_size("bert", 2)
    jobs.patch("bert", suspend=True)
    jobs.wait_size("bert", 0, "Suspended")
    jobs.patch("bert", suspend=False)
    jobs.wait_size("bert", 2)
    assert jobs.get("bert")["status"]["generation"]["number"] == 3


def members(jobs: Jobs, name: str) -> Json:
    """The pods of its generation, by name; no duplicates, and none of another job."""
    generation = jobs.get(name)["status"]["generation"]
    found = {one["pod"]: one["uid"] for one in generation["members"]}
    assert len(found) == len(set(found.values())) == len(generation["members"]), generation
    real = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in jobs.bench.all_pods()}
    assert {pod: real.get(pod) for pod in found} == found
    return {"number": generation["number"], **found}


def owned(jobs: Jobs, name: str) -> set[str]:
    pods = [pod["metadata"] for pod in jobs.bench.all_pods() if "ownerReferences" in pod["metadata"]]
    return {pod["name"] for pod in pods if pod["ownerReferences"][0]["name"] == name}


def stop(jobs: Jobs, name: str) -> None:
    """A suspended job has no pods, a resumed one runs, a deleted one leaves no pods."""
    jobs.patch(name, suspend=True)
    jobs.wait_phase(name, "Suspended")
    jobs.bench.wait("its pods to be gone", lambda: not owned(jobs, name))
    jobs.patch(name, suspend=False)
    jobs.wait_phase(name, "Running")
    members(jobs, name)
    jobs.bench.client.delete(f"{jobs.folder}/{name}")
    jobs.bench.wait("its pods to be gone", lambda: not owned(jobs, name))


def test_a_replica_whose_label_was_changed_is_not_taken_for_another(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 4)
    jobs.wait_size("bert", 4)
    before = members(jobs, "bert")
    pod = f"/api/v1/namespaces/{bench.namespace}/pods/bert-worker-3"
    bench.client.patch(pod, {"metadata": {"labels": {"maniple.dev/index": "2"}}})
    bench.wait("it to be complained of", lambda: len(bench.events("Invalid")) >= 1)
    assert members(jobs, "bert") == before
    assert jobs.get("bert")["status"].get("restarts", 0) == 0
    stop(jobs, "bert")


def test_a_pod_with_copied_labels_is_not_taken_for_a_replica(bench: Bench, jobs: Jobs) -> None:
    (node,) = bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 2)
    jobs.wait_size("bert", 2)
    before = members(jobs, "bert")
    labels = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": "1"}
    bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", bench.pod("intruder", 0, labels, nodeName=node))
    bench.wait("it to run", lambda: bench.get_pod("intruder")["status"]["phase"] == "Running")
    bench.wait("it to be complained of", lambda: len(bench.events("Invalid")) >= 1)
    assert members(jobs, "bert") == before
    assert jobs.get("bert")["status"]["phase"] == "Running"
    stop(jobs, "bert")
    assert bench.get_pod("intruder")["metadata"].get("deletionTimestamp") is None


def test_a_replica_that_cannot_be_created_does_not_keep_a_job_from_being_suspended(bench: Bench, jobs: Jobs) -> None:
    """Another pod has the name of a replica: creating it is retried after longer and longer pauses."""
    bench.nodes(1)
    server = bench.serve()
    bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", bench.pod("bert-worker-2", 0))
    jobs.make("bert", 1, 3)
    jobs.wait_phase("bert", "Growing")
    # By then the pause is 10 s long, or longer.
    bench.wait("many tries", lambda: server.log.read_text().count("job not carried out") >= 8)
    assert any("bert-worker-2" in event["note"] for event in bench.events("NotCarriedOut"))
    asked = time.monotonic()
    jobs.patch("bert", suspend=True)
    bench.wait("all to be told to stop", lambda: jobs.get("bert")["status"]["generation"]["stop"])
    assert time.monotonic() - asked < 8
    bench.wait("its pods to be gone", lambda: not owned(jobs, "bert"))
    jobs.wait_phase("bert", "Suspended")
    assert bench.get_pod("bert-worker-2")["metadata"].get("deletionTimestamp") is None


def test_failures_are_retried_up_to_the_limit_and_then_release_their_gpus(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 2, backoffLimit=1)
    jobs.wait_size("bert", 2)
    first = uids(jobs.pods("bert"))
    with watching(jobs, "bert") as seen:
        jobs.end("bert", 1, 1)
        bench.wait("another in its place", lambda: uids(jobs.pods("bert"))[1] != first[1])
        jobs.wait_size("bert", 2)
    assert "Restarting" in [one["phase"] for one in seen]
    assert jobs.get("bert")["status"]["failures"]["count"] == 1
    jobs.end("bert", 1, 1)
    jobs.wait_phase("bert", "Failed")
    failed = bench.condition_of(jobs.get("bert"), "Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "bert-worker-1 ended with exit code 1" in failed["message"]
    bench.wait("the others to go", lambda: list(jobs.pods("bert")) == [1])


def test_a_job_succeeds_with_its_first_replica_and_is_deleted_after_its_ttl(bench: Bench, jobs: Jobs) -> None:
    bench.nodes(1)
    bench.serve()
    jobs.make("bert", 2, 2)
    jobs.wait_size("bert", 2)
    jobs.end("bert", 0, 0)
    bench.cluster.kubectl("wait", "--for=condition=Succeeded", "ej/bert", "-n", bench.namespace, "--timeout=180s")
    jobs.patch("bert", ttlSecondsAfterFinished=0)
    bench.wait("the job to be gone", lambda: not bench.client.exists(f"{jobs.folder}/bert"))
    bench.wait("its pods to be gone", lambda: not jobs.pods("bert"))


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ({"volumeMounts": [{"name": "not-there", "mountPath": "/data"}]}, "not-there"),
        ({"env": [{"name": "RATE", "value": 0.001}]}, "cannot unmarshal number"),  # YAML without quotes
    ],
    ids=["mount", "number"],
)
def test_an_invalid_template_fails_the_job_with_the_servers_message(
    bench: Bench, jobs: Jobs, part: Json, word: str
) -> None:
    bench.serve()
    jobs.make("bert", 1, 1)
    jobs.wait_phase("bert", "Pending")
    pod = {"schedulerName": bench.scheduler, "containers": [{"name": "main", "image": "none", **part}]}
    role = {"name": "worker", "min": 1, "max": 1, "template": {"spec": pod}}
    body = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "wrong"}}
    bench.client.post(jobs.folder, body | {"spec": {"roles": [role]}})
    jobs.wait_phase("wrong", "Failed")
    failed = bench.condition_of(jobs.get("wrong"), "Failed")
    assert (failed["reason"], word in failed["message"]) == ("PodRefused", True)


def test_many_jobs_start_grow_shrink_and_end(bench: Bench, jobs: Jobs) -> None:
    """With too few GPUs for all jobs at their maximum, and a kill of serve, every job ends at its right size."""
    count = int(os.environ.get("MANIPLE_JOBS", "40"))  # `make chaos` has 200
    bench.nodes(count // 5)
    server = bench.serve()
    for number in range(count):
        jobs.make(f"j{number}", 1, 3, framework=("torch", "none", "torchrun", "horovod")[number % 4])
    for number in range(0, count, 4):
        bench.wait("a job to run", lambda n=number: jobs.get(f"j{n}")["status"]["phase"] in RUNS)  # type: ignore[misc]
        jobs.end(f"j{number}", 0, 0)
    for number in range(1, count, 4):
        bench.client.delete(f"{jobs.folder}/j{number}")
    server.kill()
    bench.forget(server)
    bench.serve()
    for number in range(2, count, 4):
        jobs.change(f"j{number}", pin=1)
    left = {f"j{number}" for number in range(count) if number % 4 >= 2}

    def settled() -> bool:
        statuses = {job["metadata"]["name"]: job["status"] for job in bench.client.get(jobs.folder)["items"]}
        are_done = all(statuses[f"j{number}"]["phase"] == "Succeeded" for number in range(0, count, 4))
        sizes = {name: len(statuses[name]["generation"]["members"]) for name in left}
        pins = all(sizes[f"j{number}"] == 1 for number in range(2, count, 4))
        # 8 GPUs for 5 jobs: all that may grow have grown.
        grown = all(sizes[f"j{number}"] == 3 for number in range(3, count, 4))
        return are_done and pins and grown and all(statuses[name]["phase"] == "Running" for name in left)

    bench.wait("all jobs to settle", settled, timeout_s=10.0 * count)

    def running_pods() -> list[Json]:
        return [pod for pod in bench.all_pods() if pod["status"].get("phase") == "Running"]

    def others_are_gone() -> bool:
        """The garbage collector deletes pods of deleted jobs, which takes time."""
        running = running_pods()
        of_these = {pod["metadata"]["labels"]["maniple.dev/job"] for pod in running} == left
        return of_these and len(running) == count // 4 + 3 * count // 4

    bench.wait("the others' pods to be gone", others_are_gone, timeout_s=10.0 * count)
    running = running_pods()
    given = [(pod["spec"]["nodeName"], pod["metadata"]["annotations"]["maniple.dev/gpus"]) for pod in running]
    assert len(given) == len(set(given)), "a GPU was given twice"


RUNS = ("Running", "Growing", "Shrinking")
