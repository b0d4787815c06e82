"""The job commands on a real API server. The tests write status and pods instead of the controller."""

import json
from pathlib import Path

import pytest
import yaml
from docs.pages import blocks, commands

from e2e.clusters_of_this_run import NewCluster
from e2e.serve_process import ROOT, Bench, install_crds
from e2e.user_at_shell import People, Person
from tools.cluster import Cluster, wait_until

EXAMPLES = sorted((ROOT / "examples" / "elastic").glob("*.yaml"))


def test_submit_creates_the_job_that_its_options_describe(person: Person) -> None:
    said = person.do("submit", "--name", "bert", "--gpus", "4:8", "--image", "training:1", "--", "python", "train.py")
    assert said == f"ElasticJob {person.namespace}/bert submitted\n"
    (role,) = person.get("elasticjobs", "bert")["spec"]["roles"]
    assert (role["min"], role["max"]) == (4, 8)
    job = person.jobs()["bert"]
    assert (job["queue"], job["framework"], job["reason"]) == ("default", "torch", "NotSeen")
    assert person.jobs("--phase", "Running") == {}


def test_submit_leaves_an_existing_job_alone(person: Person) -> None:
    person.submit("bert", "--gpus", "4:8")
    said = person.refused("submit", "--name", "bert", "--gpus", "2", "--image", "other:1", "--", "true")
    assert f"ElasticJob {person.namespace}/bert: already exists" in said
    assert "maniple resize bert" in said
    assert person.get("elasticjobs", "bert")["spec"]["roles"][0]["min"] == 4


CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: script}\ndata: {a: b}\n"


def test_submit_creates_nothing_of_a_file_with_a_wrong_object(person: Person) -> None:
    """Only the server notices this mistake: a mount of a volume that the pod does not have."""
    container = {"name": "main", "image": "training:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    role = {"name": "worker", "min": 1, "max": 2, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "bert"}}
    text = f"{CONFIG}---\n{yaml.safe_dump({**job, 'spec': {'roles': [role]}})}"
    said = person.refused("submit", "-", stdin=text)
    at = "spec.roles[0].template.spec.containers[0].volumeMounts[0].name"
    assert f"<stdin>, document 2: ElasticJob {person.namespace}/bert: {at}: " in said
    assert not person.exists("configmaps", "script")
    assert not person.exists("elasticjobs", "bert")


def test_submit_checks_the_pods_that_will_be_created(person: Person) -> None:
    text = person.do("submit", "--name", "bert", "--gpus", "2", "--image", "i", "--dry-run", "--", "true")
    job = yaml.safe_load(text)
    job["spec"]["roles"][0]["template"]["spec"]["volumes"] = [{"name": "maniple-pod", "emptyDir": {}}]
    said = person.refused("submit", "-", stdin=yaml.safe_dump(job))
    assert "spec.roles[0].template.spec.volumes[1].name: Duplicate value" in said
    assert not person.exists("elasticjobs", "bert")


def test_submit_deletes_what_it_created_if_the_server_refuses_the_rest(person: Person) -> None:
    """Either of two ConfigMaps may be created, but not both: only the real second request shows it."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    there = len(person.client.get(person.path("configmaps"))["items"])
    hard = {"configmaps": str(there + 1)}
    person.client.post(person.path("resourcequotas"), {**quota, "spec": {"hard": hard}})
    counted = {"status": {"hard": hard, "used": {"configmaps": str(there)}}}  # as its controller would
    person.client.patch(f"{person.path('resourcequotas', 'few')}/status", counted)
    said = person.refused("submit", "-", stdin=f"{CONFIG}---\n{CONFIG.replace('script', 'second')}")
    assert "document 2: ConfigMap" in said
    assert "exceeded quota" in said
    wait_until("the first to be gone", lambda: not person.exists("configmaps", "script"))


def test_an_unknown_queue_or_class_is_an_error_that_suggests_the_nearest(person: Person) -> None:
    queue = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": f"research-{person.namespace}"},
    }
    queues = "/apis/maniple.dev/v1alpha1/queues"
    person.client.post(queues, queue)
    try:
        wish = ("--name", "bert", "--image", "training:1")
        said = person.refused("submit", *wish, "-q", f"reserch-{person.namespace}", "--", "true")
        assert f"spec.queue: unknown Queue 'reserch-{person.namespace}'; did you mean 'research-" in said
        said = person.refused("submit", *wish, "--priority", "system-cluster-critcal", "--", "true")
        assert "spec.priorityClassName: unknown PriorityClass 'system-cluster-critcal'; did you mean" in said
        asked = ("-q", f"reserch-{person.namespace}")
        for command in (("jobs", *asked), ("watch", "--once", *asked), ("watch", *asked)):
            said = person.refused(*command)
            assert f"--queue: there is no queue 'reserch-{person.namespace}'; did you mean 'research-" in said
        assert person.jobs("-q", f"research-{person.namespace}") == person.jobs("-q", "default") == {}
        assert "no jobs" in person.do("watch", "--once", "-q", f"research-{person.namespace}")
        person.submit("bert", "-q", f"research-{person.namespace}", "--priority", "system-cluster-critical")
    finally:
        person.client.delete(f"{queues}/research-{person.namespace}")


def test_a_file_may_contain_the_queue_of_its_job(person: Person) -> None:
    name = f"own-{person.namespace}"
    text = f"apiVersion: maniple.dev/v1alpha1\nkind: Queue\nmetadata: {{name: {name}}}\n---\n"
    text += person.do("submit", "--name", "bert", "--image", "i", "-q", name, "--dry-run", "--", "true")
    person.do("submit", "-", stdin=text)
    person.client.delete(f"/apis/maniple.dev/v1alpha1/queues/{name}")
    assert person.exists("elasticjobs", "bert")


def test_a_user_without_rights_gets_an_error(with_crds: Cluster, namespace: str, people: People) -> None:
    nobody = people(with_crds, namespace, "nobody")
    for arguments in (["jobs"], ["describe", "bert"], ["delete", "bert"], ["suspend", "bert"], ["watch", "--once"]):
        said = nobody.refused(*arguments)
        assert "you may not do this" in said
        assert "elasticjobs" in said
    said = nobody.refused("submit", "--name", "bert", "--image", "training:1", "--", "true")
    assert f"ElasticJob {namespace}/bert: you may not do this" in said


def test_resize_changes_sizes_within_bounds(person: Person) -> None:
    person.submit("bert", "--gpus", "4:8")
    at = f"ElasticJob {person.namespace}/bert worker"
    assert person.do("resize", "bert", "--min", "2", "--max", "6") == f"{at} 4:8 → worker 2:6\n"
    for options, words in (
        (["--min", "7"], "minimum 7 and maximum 6 contradict each other; add --max 7"),
        (["--max", "1"], "minimum 2 and maximum 1 contradict each other; add --min 1"),
        (["--pin", "9"], "--pin: 9 is above its maximum, 6; add --max 9"),
        (["--pin", "1"], "--pin: 1 is below its minimum, 2; add --min 1"),
        (["--role", "wrker", "--max", "3"], "unknown role 'wrker'; did you mean 'worker'?"),
        (["--min", "0", "--max", "0"], "--max: expected at least 1, because it has no other role with a min of 1"),
        (["--pin", "0"], "found 0; `maniple suspend bert` stops the job"),
    ):
        assert words in person.refused("resize", "bert", *options)
    (role,) = person.get("elasticjobs", "bert")["spec"]["roles"]
    assert (role["min"], role["max"], role.get("pin")) == (2, 6, None)
    assert person.do("resize", "bert", "--pin", "4") == f"{at} 2:6 → worker 2:6 pinned at 4\n"
    assert person.jobs()["bert"]["roles"][0]["pin"] == 4
    assert "2:6=4" in person.do("jobs")
    assert "is pinned at 4, above its new maximum, 3; add --unpin" in person.refused("resize", "bert", "--max", "3")
    person.do("resize", "bert", "--max", "3", "--unpin")
    assert "pin" not in person.get("elasticjobs", "bert")["spec"]["roles"][0]
    person.do("submit", ROOT / "examples" / "elastic" / "horovod.yaml")
    assert "has several roles; expected --role with one of launcher, worker" in person.refused(
        "resize", "horovod", "--max", "4"
    )
    person.do("resize", "horovod", "--role", "worker", "--max", "4")
    assert [role["max"] for role in person.get("elasticjobs", "horovod")["spec"]["roles"]] == [1, 4]


def test_suspend_and_resume_change_all_or_none(person: Person) -> None:
    for name in ("a", "b", "over"):
        person.submit(name)
    person.say("over", phase="Succeeded")
    assert "has finished (Succeeded) and cannot be suspended" in person.refused("suspend", "a", "over")
    assert "did you mean 'over'?" in person.refused("suspend", "a", "ovr")
    assert not person.get("elasticjobs", "a")["spec"]["suspend"]
    person.do("suspend", "a", "b", "a")
    assert all(person.get("elasticjobs", name)["spec"]["suspend"] for name in ("a", "b"))
    assert person.jobs()["a"]["reason"] == "Suspended"
    assert "is already suspended" in person.do("suspend", "a")
    person.do("resume", f"{person.namespace}/a")
    assert not person.get("elasticjobs", "a")["spec"]["suspend"]


def test_jobs_and_describe_show_sizes_gpus_and_reasons(bench: Bench, person: Person) -> None:
    (node,) = bench.nodes(1)
    person.submit("bert", "--gpus", "2:4")
    person.wait_running([person.replica("bert", index, node=node) for index in range(2)])
    person.replica("bert", 2)
    person.say(
        "bert",
        phase="Growing",
        target=[{"role": "worker", "replicas": 3}],
        resizes=1,
        restarts=2,
        failures={"count": 1},
        lastResizeTime="2026-01-01T10:00:00Z",
        speeds=[{"replicas": 2, "throughput": 190.5}],
        progress={"step": 1200, "total": 5000, "throughput": 187.25, "time": "2026-01-01T10:00:00Z"},
        generation={
            "number": 3,
            "members": [
                {
                    "pod": f"bert-worker-{index}",
                    "uid": "u",
                    "role": "worker",
                    "index": index,
                    "address": f"10.0.0.{index}",
                }
                for index in range(2)
            ],
            "coordinator": "10.0.0.0",
            "port": 23117,
        },
    )
    person.submit("waits")
    message = "needs 1 pod of 1 nvidia.com/gpu; no node has it"
    held = {"type": "Scheduled", "status": "False", "reason": "NoNodeFits", "message": message}
    person.say("waits", phase="Pending", conditions=[held | {"lastTransitionTime": "2026-01-01T10:00:00Z"}])
    table = [line.split() for line in person.do("jobs").splitlines()]
    assert table[1][:9] == ["bert", "default", "Growing", "2", "3", "2:4", "2", "24%", "2"]
    assert table[2][:7] == ["waits", "default", "Pending", "0", "1", "1:1", "0"]
    assert table[2][-1] == "NoNodeFits"
    assert message in person.do("jobs", "-o", "wide")
    text = person.do("describe", "bert")
    for words in (
        *("2 running of 3, from 2 to 4", "Restarts:  2\n  Failures:  1 of 6 allowed", node, "bert-worker-2", "Pending"),
        *("Generation 3: 2 members, coordinator 10.0.0.0:23117", "1      bert-worker-1  10.0.0.1", "190.5"),
        "Progress:  step 1200 of 5000 (24%), throughput 187.25, ",
    ):
        assert words in text
    told = json.loads(person.do("describe", "bert", "-o", "json"))
    assert [(one["node"], one["gpus"]) for one in told["replicas"]] == [(node, ["0"]), (node, ["1"]), ("", ["2"])]
    assert f"Waits (NoNodeFits)\n  Why:       {message}" in person.do("describe", "waits")


# -- completion, examples, the page


def test_shell_completion_lists_job_names(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bert", "bart", "gpt"):
        person.submit(name)
    config = person.cluster.kubeconfig()
    words = f"maniple describe --kubeconfig {config} -n {person.namespace} b"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "6")
    monkeypatch.setenv("_MANIPLE_COMPLETE", "bash_complete")

    def has_names() -> bool:
        """Completion has a short timeout: a slow server gives no names, and the test asks again."""
        asked = person.begin("")
        assert asked.end() == 0
        return {line.split(",")[1] for line in asked.out} == {"bert", "bart"}

    wait_until("the names", has_names)


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_applies_unchanged_and_can_be_submitted(person: Person, example: Path) -> None:
    person.cluster.kubectl(f"--namespace={person.namespace}", "apply", "--dry-run=server", "--filename", str(example))
    items = [item for item in yaml.safe_load_all(example.read_text()) if item]
    said = person.do("submit", example).splitlines()
    assert said == [f"{item['kind']} {person.namespace}/{item['metadata']['name']} submitted" for item in items]


def test_the_commands_on_the_jobs_page_work(person: Person) -> None:
    """In the page's order. Logs need a real node and are tested there."""
    page = ROOT / "docs" / "jobs.md"
    lines = [one.line for block in blocks(page) if block.language == "console" for one in commands(block)]
    run = [line for line in lines if "--dry-run" not in line and not line.startswith("maniple logs")]
    assert len(run) >= 10
    for line in run:
        words = line.split()
        assert words[0] == "maniple"
        person.do(words[1], *(str(ROOT / word) if word.startswith("examples/") else word for word in words[2:]))
    assert not person.exists("elasticjobs", "bert")


# -- with the controller


def test_the_controller_follows_the_commands(new_cluster: NewCluster, people: People) -> None:
    """It has its own cluster, because a scheduler sees all jobs."""
    cluster = new_cluster(nodes=1, gpus=8)
    install_crds(cluster)
    cluster.create_namespace("people")
    bench, person = Bench(cluster, "people"), people(cluster, "people")
    bench.serve("--scheduler-name=maniple")
    try:
        person.submit("bert", "--gpus", "4:8", "--framework", "none")

        def wait_for(size: int) -> None:
            def is_so() -> bool:
                job = person.jobs()["bert"]
                return bool(job["roles"][0]["running"] == size and job["gpus"] == size)

            bench.wait(f"{size} replicas to run", is_so)

        wait_for(8)  # no other job is there
        told = json.loads(person.do("explain", "--live", "bert", "-o", "json"))
        assert (told["job"], told["state"], told["running"]) == ("people/bert", "Runs", 8)
        person.submit("large", "--gpus", "9", "--framework", "none")
        bench.wait("its pods to be made", lambda: len(bench.all_pods()) == 17)
        assert "even an empty cluster has room for 8" in person.do("explain", "--live", "large")
        assert "did you mean 'people/large'?" in person.refused("explain", "--live", "lrge")
        person.do("delete", "large", "--wait")
        person.do("resize", "bert", "--pin", "6")
        wait_for(6)
        person.do("suspend", "bert")
        wait_for(0)
        # The controller says so when it has seen that its pods are gone.
        bench.wait("the job to say so", lambda: person.jobs()["bert"]["phase"] == "Suspended")
        assert "State:     Suspended" in person.do("explain", "--live", "bert")
        person.do("resume", "bert")
        wait_for(6)
        assert person.do("delete", "bert", "--wait") == "ElasticJob people/bert deleted\n"
        assert bench.all_pods() == []
    finally:
        bench.close()
