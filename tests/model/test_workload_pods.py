"""Jobs, Deployments and other systems' jobs are expanded to the pods that they would make; what exists is not made."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
import yaml
from cli.run_maniple import EXAMPLES, run_here
from cluster.planning import plan_objects
from scheduler.small_clusters import Object, node, pod, queue

from maniple.api.decode.decode import Decoded, decode
from maniple.api.errors import InputError
from maniple.api.kubernetes import Pod
from maniple.model.building.input_objects import Objects, sort_objects

CONTAINER = {"name": "main", "image": "training:1", "resources": {"requests": {"cpu": "1"}}}
TEMPLATE: Object = {"spec": {"containers": [CONTAINER]}}


def item(api_version: str, kind: str, spec: Object, name: str = "w", **more: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


def job(name: str = "w", status: Object | None = None, **spec: Any) -> Object:
    return item("batch/v1", "Job", {"template": TEMPLATE, **spec}, name, status=status or {})


def replicated(kind: str, name: str = "w", **spec: Any) -> Object:
    return item("apps/v1", kind, {"template": TEMPLATE, "selector": {}, **spec}, name)


def jobset(*jobs: Object, **spec: Any) -> Object:
    return item("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": list(jobs), **spec})


def replicated_job(name: str, replicas: int = 1, **spec: Any) -> Object:
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": TEMPLATE, **spec}}}


def volcano(*tasks: Object, **spec: Any) -> Object:
    return item("batch.volcano.sh/v1alpha1", "Job", {"tasks": list(tasks), **spec})


def task(name: str, replicas: int, **more: Any) -> Object:
    return {"name": name, "replicas": replicas, "template": TEMPLATE, **more}


def pytorch(policy: Object | None = None, **replicas: int) -> Object:
    roles = {kind: {"replicas": count, "template": TEMPLATE} for kind, count in replicas.items()}
    run = {} if policy is None else {"schedulingPolicy": policy}
    return item("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": roles, "runPolicy": run})


def kubeflow(kind: str, field: str, policy: Object | None = None, **replicas: int) -> Object:
    roles = {role: {"replicas": count, "template": TEMPLATE} for role, count in replicas.items()}
    run = {} if policy is None else {"schedulingPolicy": policy}
    return item("kubeflow.org/v1", kind, {field: roles, "runPolicy": run})


def leader_worker_set(replicas: int, size: int) -> Object:
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": TEMPLATE}}
    return item("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def train_job(**spec: Any) -> Object:
    return item("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, **spec})


def runtime(kind: str = "ClusterTrainingRuntime", **spec: Any) -> Object:
    container = {"name": "node", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    template = {"spec": {"containers": [container]}}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    whole = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}, **spec}
    return item("trainer.kubeflow.org/v1alpha1", kind, whole, "torch")


def ray(labels: Object | None = None, **group: Any) -> Object:
    workers = {"groupName": "small", "template": TEMPLATE, **group}
    made = item("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [workers]})
    made["metadata"]["labels"] = labels or {}
    return made


def owned(name: str, kind: str, owner: str = "w", phase: str = "Running", **labels: str) -> Object:
    """A pod that a controller has made."""
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    made = pod(name, nodeName="n0", metadata={"ownerReferences": [reference]})
    made["metadata"]["labels"] = {key.replace("_", "-"): value for key, value in labels.items()}
    return {**made, "status": {"phase": phase}}


def read(*objects: Object) -> tuple[Objects, Decoded]:
    decoded = decode([("f", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    return sort_objects(decoded, scheduler_name="maniple"), decoded


def made(*objects: Object) -> list[str]:
    """The names of the pods that do not exist yet."""
    given = {each["metadata"]["name"] for each in objects if each["kind"] == "Pod"}
    return [each.metadata.name for each in read(*objects)[0].pods if each.metadata.name not in given]


def refused(*objects: Object) -> list[str]:
    with pytest.raises(InputError) as error:
        plan_objects(list(objects))
    return error.value.messages


# -- which pods


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (job(), ["w-0"]),
        (job(parallelism=3), ["w-0", "w-1", "w-2"]),
        (job(parallelism=3, completions=2), ["w-0", "w-1"]),
        (job(parallelism=3, completions=None), ["w-0", "w-1", "w-2"]),
        (job(parallelism=2, completions=2, status={"succeeded": 1}), ["w-0"]),
        (job(parallelism=0), []),
        (job(parallelism=2, suspend=True), []),
        (job(parallelism=2, status={"conditions": [{"type": "Complete", "status": "True"}]}), []),
        (job(parallelism=2, status={"conditions": [{"type": "Suspended", "status": "True"}]}), ["w-0", "w-1"]),
        (replicated("Deployment"), ["w-0"]),
        (replicated("Deployment", replicas=2), ["w-0", "w-1"]),
        (replicated("ReplicaSet", replicas=2), ["w-0", "w-1"]),
        (replicated("StatefulSet", replicas=2, ordinals={"start": 5}), ["w-5", "w-6"]),
        (
            jobset(replicated_job("a", 2, parallelism=2), replicated_job("b")),
            ["w-a-0-0", "w-a-0-1", "w-a-1-0", "w-a-1-1", "w-b-0-0"],
        ),
        (jobset(replicated_job("a"), suspend=True), []),
        (volcano(task("m", 1), task("x", 2)), ["w-m-0", "w-x-0", "w-x-1"]),
        (pytorch(Master=1, Worker=2), ["w-master-0", "w-worker-0", "w-worker-1"]),
        (ray(replicas=2), ["w-head-0", "w-small-worker-0", "w-small-worker-1"]),
        (ray(replicas=1, numOfHosts=2), ["w-head-0", "w-small-worker-0", "w-small-worker-1"]),
        (ray(minReplicas=1), ["w-head-0", "w-small-worker-0"]),
        (ray(replicas=9, maxReplicas=1), ["w-head-0", "w-small-worker-0"]),
        (ray(replicas=2, suspend=True), ["w-head-0"]),
        (
            item(
                "trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "t"}, "trainer": {"numNodes": 2}}
            ),
            ["w-node-0-0", "w-node-0-1"],
        ),
        (item("ray.io/v1", "RayJob", {"rayClusterSpec": ray(replicas=1)["spec"]}), ["w-head-0", "w-small-worker-0"]),
        (item("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}), []),
        (
            item("ray.io/v1", "RayService", {"rayClusterConfig": ray(replicas=1)["spec"], "serveConfigV2": "x"}),
            ["w-head-0", "w-small-worker-0"],
        ),
        (
            kubeflow("TFJob", "tfReplicaSpecs", Chief=1, PS=1, Worker=2),
            ["w-chief-0", "w-ps-0", "w-worker-0", "w-worker-1"],
        ),
        (kubeflow("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=1), ["w-launcher-0", "w-worker-0"]),
        (kubeflow("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=1), ["w-master-0", "w-worker-0"]),
        (kubeflow("PaddleJob", "paddleReplicaSpecs", Worker=1), ["w-worker-0"]),
        (kubeflow("JAXJob", "jaxReplicaSpecs", Worker=1), ["w-worker-0"]),
        (leader_worker_set(2, 3), ["w-0", "w-1", "w-0-1", "w-0-2", "w-1-1", "w-1-2"]),
        (leader_worker_set(2, 1), ["w-0", "w-1"]),
    ],
)
def test_a_workload_makes_the_pods_that_its_controller_would(workload: Object, names: list[str]) -> None:
    assert made(workload) == names


def test_an_elastic_pytorch_job_has_a_size_between_its_bounds_and_begins_with_the_least() -> None:
    elastic = pytorch({}, Master=1, Worker=9)
    elastic["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
    objects, _ = read(elastic)
    assert len(objects.pods) == 5
    assert [group.spec.min_member for group in objects.pod_groups] == [3]
    elastic["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    assert len(read(elastic)[0].pods) == 3


def test_a_train_job_is_completed_by_its_runtime() -> None:
    objects, decoded = read(runtime(podGroupPolicy={"coscheduling": {}}), train_job())
    assert [each.metadata.name for each in objects.pods] == ["w-node-0-0", "w-node-0-1"]
    assert [each.spec.containers[0].resources.limits for each in objects.pods] == [{"nvidia.com/gpu": 2}] * 2
    assert [group.spec.min_member for group in objects.pod_groups] == [2]
    assert not any("runtime" in note.lower() for note in decoded.notes)
    own = {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    objects, _ = read(runtime(), train_job(trainer=own))
    assert [each.spec.containers[0].resources.limits for each in objects.pods] == [{"nvidia.com/gpu": 8}] * 3
    assert not objects.pod_groups


def test_a_runtime_of_another_kind_or_namespace_does_not_count_and_its_absence_is_noted() -> None:
    for objects in ([], [runtime("TrainingRuntime")]):
        found, decoded = read(*objects, train_job(trainer={"numNodes": 2}))
        assert len(found.pods) == 2
        assert any(
            "ClusterTrainingRuntime torch is not in the input: only what spec.trainer says" in n for n in decoded.notes
        )
    same = train_job()
    same["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"
    assert len(read(runtime("TrainingRuntime"), same)[0].pods) == 2


def test_what_is_wrong_with_a_template_of_a_runtime_is_an_error() -> None:
    wrong = runtime()
    container = wrong["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "half"
    with pytest.raises(InputError, match="replicatedJobs"):
        read(wrong, train_job())


def test_a_workload_without_a_name_is_called_as_its_generate_name_says() -> None:
    unnamed = job(parallelism=2)
    unnamed["metadata"] = {"generateName": "train-"}
    assert made(unnamed) == ["train-0", "train-1"]


def test_the_pods_of_a_leader_worker_set_are_found_through_its_stateful_sets() -> None:
    mine = {"leaderworkerset.sigs.k8s.io/name": "w", "leaderworkerset.sigs.k8s.io/template-revision-hash": "h"}
    leader, worker = owned("w-0", "StatefulSet"), owned("w-0-1", "StatefulSet", "w-0")
    for each in (leader, worker):
        each["metadata"]["labels"] = mine
    middle = replicated("StatefulSet", "w-0", replicas=2, ordinals={"start": 1})
    middle["metadata"]["labels"] = mine
    middle["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "w-0", "uid": "p", "controller": True}]
    assert made(node("n0"), leader_worker_set(1, 3), leader, worker, middle) == ["w-0-2"]


def test_a_job_that_kueue_holds_back_says_so() -> None:
    held = job(suspend=True)
    held["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    why = "makes no pods: spec.suspend is true; Kueue holds it back, in its queue team-a"
    assert any(why in note for note in read(held)[1].notes)


def test_a_pod_has_what_its_template_says_and_names_its_owner() -> None:
    template = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, **TEMPLATE}
    (found,) = read(item("batch/v1", "Job", {"template": template}))[0].pods
    assert isinstance(found, Pod)
    assert found.metadata.labels["app"] == "x"
    assert found.metadata.labels["job-name"] == "w"
    assert found.metadata.annotations == {"a": "b"}
    assert [(ref.kind, ref.name, ref.controller) for ref in found.metadata.owner_references] == [("Job", "w", True)]


def test_a_template_without_a_scheduler_is_planned_and_one_with_another_is_not() -> None:
    other = {"spec": {**TEMPLATE["spec"], "schedulerName": "volcano"}}
    names = [each.spec.scheduler_name for each in read(job("a"), job("b", template=other))[0].pods]
    assert names == ["maniple", "volcano"]


# -- what exists


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        ([job(parallelism=2), owned("w-abc", "Job")], ["w-0"]),
        ([job(parallelism=2), owned("w-abc", "Job", phase="Failed")], ["w-0", "w-1"]),
        ([job(parallelism=1), owned("w-abc", "Job", owner="other")], ["w-0"]),
        ([replicated("StatefulSet", replicas=2), owned("w-0", "StatefulSet")], ["w-1"]),
        ([replicated("Deployment", replicas=2), owned("w-h-x", "ReplicaSet", "w-h", pod_template_hash="h")], ["w-0"]),
        ([volcano(task("m", 1), task("x", 2)), owned("w-x-1", "Job")], ["w-m-0", "w-x-0"]),
        ([volcano(task("m", 1), task("x", 1)), owned("w-x-0", "Job", phase="Succeeded")], ["w-m-0"]),
        ([pytorch(Master=1, Worker=1), owned("w-master-0", "PyTorchJob")], ["w-worker-0"]),
    ],
)
def test_what_exists_is_not_made_again(objects: list[Object], names: list[str]) -> None:
    assert made(node("n0"), *objects) == names


def test_pods_are_found_through_owners_of_the_input() -> None:
    middle = replicated("ReplicaSet", "w-h", replicas=2)
    middle["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "w", "uid": "d", "controller": True}]
    assert made(node("n0"), replicated("Deployment", replicas=2), middle, owned("p", "ReplicaSet", "w-h")) == ["w-0"]
    assert made(middle) == ["w-h-0", "w-h-1"]  # its Deployment is not in the input


def test_workloads_that_own_each_other_or_themselves_do_no_harm() -> None:
    first, second = job("a"), job("b")
    first["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "b", "uid": "", "controller": True}]
    second["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a", "uid": "", "controller": True}]
    assert sorted(made(first, second)) == ["a-0", "b-0"]
    second["metadata"]["ownerReferences"][0]["name"] = "b"
    assert made(node("n0"), second, owned("p", "Job", "b")) == []


# -- gangs


def waiting(*objects: Object) -> dict[str, tuple[str, str]]:
    """Gang -> its queue and how many pods it needs. There is no node."""
    entries = plan_objects([queue("research"), *objects])["rounds"][0]["waiting"]
    return {entry["group"]: (entry["queue"], entry["needs"].get("pods", "")) for entry in entries}


def test_gangs_have_the_minimum_and_the_queue_that_the_workload_says() -> None:
    assert waiting(volcano(task("m", 1), task("x", 4), minAvailable=3, queue="research")) == {
        "default/w": ("research", "3")
    }
    assert waiting(volcano(task("x", 4))) == {"default/w": ("default", "4")}
    assert waiting(pytorch({"minAvailable": 2, "queue": "research"}, Worker=3)) == {"default/w": ("research", "2")}
    assert waiting(pytorch({}, Worker=3)) == {"default/w": ("default", "3")}
    gang = {"ray.io/gang-scheduling-enabled": "true", "volcano.sh/queue-name": "research"}
    assert waiting(ray(gang, replicas=2)) == {"default/ray-w-pg": ("research", "3")}


def test_without_a_gang_each_pod_is_on_its_own() -> None:
    assert set(waiting(pytorch(Worker=2))) == {"default/w-worker-0", "default/w-worker-1"}
    assert set(waiting(ray(replicas=1))) == {"default/w-head-0", "default/w-small-worker-0"}


def test_a_template_that_names_a_group_joins_it() -> None:
    template = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}, **TEMPLATE}
    group = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2},
    }
    assert waiting(group, job(parallelism=2, template=template)) == {"default/g": ("default", "2")}
    assert set(waiting(volcano({"name": "x", "replicas": 2, "template": template}))) == {"default/g"}


def test_a_volcano_role_with_a_minimum_of_its_own_must_be_there() -> None:
    tasks = (task("m", 1, minAvailable=1), task("x", 4))
    big = {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "64"}}}]}}
    planned = plan_objects([node("n0"), volcano({**tasks[0], "template": big}, tasks[1], minAvailable=2)])
    assert planned["rounds"][0]["binds"] == []  # the master fits nowhere
    planned = plan_objects([node("n0"), volcano({"name": "m", "template": big}, tasks[1], minAvailable=2)])
    assert len(planned["rounds"][0]["binds"]) == 4


def test_the_missing_pods_of_a_gang_that_runs_join_it() -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "w-17"},
        "spec": {"minMember": 2},
    }
    there = owned("w-x-0", "Job")
    there["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "w-17"}
    objects = read(node("n0"), group, volcano(task("x", 2)), there)[0]
    assert [each.metadata.labels["maniple.dev/pod-group"] for each in objects.pods[1:]] == ["w-17"]
    assert len(objects.pod_groups) == 1


def test_two_gangs_of_one_name_stay_apart() -> None:
    assert set(waiting(volcano(task("x", 2)), pytorch({}, Worker=2))) == {"default/w", "default/w-pytorchjob"}


# -- errors and notes


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (job(template={"spec": {"containers": []}}), "Job w: spec.template.spec.containers: expected at least one"),
        (
            job(template={"spec": {"containers": [CONTAINER], "nodeSelctor": {}}}),
            "unknown field 'nodeSelctor'; did you mean",
        ),
        (job(paralelism=2), "Job w: spec: unknown field 'paralelism'; did you mean 'parallelism'?"),
        (job(parallelism="2"), "Job w: spec.parallelism: expected a whole number"),
        (job(parallelism=200_000), "Job w: spec.parallelism: "),
        (item("batch/v1", "Job", {}), "Job w: spec.template: is required"),
        (item("apps/v1", "Deploymnet", {}), "unknown kind 'Deploymnet' of apps/v1; did you mean 'Deployment'?"),
        (jobset(), "JobSet w: spec.replicatedJobs: expected at least one entry"),
        (jobset(replicated_job("a"), replicated_job("a")), "JobSet w: spec.replicatedJobs: expected a name of its own"),
        (jobset(replicated_job("a", 1000, parallelism=1000)), "expected at most 100000 pods, found 1000000"),
        (volcano(task("x", 2), minAvailable=3), "Job w: spec.minAvailable: expected at most 2"),
        (volcano(task("x", 2, minAvailable=3)), "Job w: spec.tasks[0].minAvailable: expected at most 2"),
        (
            volcano(task("x", 2), queue="reserch"),
            "Job default/w: PodGroup default/w: spec.queue: unknown queue 'reserch'",
        ),
        (pytorch(Wroker=1), "spec.pytorchReplicaSpecs: unknown field 'Wroker'; did you mean 'Worker'?"),
        (pytorch({"minAvailable": 9}, Worker=1), "spec.runPolicy.schedulingPolicy.minAvailable: expected at most 1"),
        (
            pytorch(Worker=1)
            | {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containrs": []}}}}}},
            "spec.pytorchReplicaSpecs.Worker.template.spec: unknown field 'containrs'",
        ),
        (
            job(template={"metadata": {"labels": {"maniple.dev/queu": "x"}}, **TEMPLATE}),
            "Job w: spec.template.metadata.labels[maniple.dev/queu]: unknown label; did you mean 'maniple.dev/queue'?",
        ),
        (
            job(template={"metadata": {"labels": {"maniple.dev/queue": "x"}}, **TEMPLATE}),
            "Job default/w: Pod default/w-0: metadata.labels[maniple.dev/queue]: unknown queue 'x'",
        ),
    ],
)
def test_an_error_names_the_object_and_the_field(workload: Object, says: str) -> None:
    messages = refused(workload, queue("research"))
    assert any(says in message for message in messages), messages


def test_fields_that_decide_nothing_here_are_skipped() -> None:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "backoffLimit": 3,
        "podFailurePolicy": {},
        "anythingElse": {"x": [1]},
    }
    assert made(job(**spec)) == ["w-0"]


def test_an_object_given_twice_is_refused() -> None:
    assert refused(job(), job()) == [
        "objects, items[1]: Job default/w: given twice; an object may stand in the input once"
    ]


def test_all_workloads_together_have_a_limit() -> None:
    largest = pytorch({}, Worker=100_000)
    others = [item("batch.volcano.sh/v1alpha1", "Job", {"tasks": [task("t", 60_000)]}, f"v{index}") for index in (1, 2)]
    assert refused(largest, *others) == [
        "the workloads of the input would make 220000 pods; expected at most 200000, with fewer workloads or replicas: "
        "objects, items[0]: PyTorchJob default/w makes 100000"
    ]


@pytest.mark.parametrize(
    "workload",
    [
        job(parallelism=20_001),
        job(parallelism=100_000, completions=20_001),
        replicated("Deployment", replicas=20_001),
        replicated("StatefulSet", replicas=20_001),
        pytorch(Master=1, Worker=20_000),
        ray(replicas=20_000, maxReplicas=20_000),
        ray(replicas=200, maxReplicas=200, numOfHosts=100),
        jobset(replicated_job("a", 3, parallelism=6667)),
        jobset(replicated_job("a", 20_000), replicated_job("b")),
    ],
    ids=lambda workload: workload["kind"],
)
def test_pods_without_a_gang_have_a_lower_limit(workload: Object) -> None:
    """A decision is made about each of them: a hundred thousand took half a minute and a gigabyte."""
    (message,) = refused(workload)
    assert "would make 20001 pods that form no gang; expected at most 20000, with fewer workloads or" in message


def test_a_workload_of_a_cluster_that_is_too_large_is_set_aside() -> None:
    huge = replicated("Deployment", "huge", replicas=30_000)
    huge["metadata"]["uid"] = "u"
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [huge, job()]})
    decoded = decode([("f", data)], strict=False)
    objects = sort_objects(decoded, scheduler_name="maniple", strict=False)
    assert [pod.metadata.name for pod in objects.pods] == ["w-0"]
    assert decoded.notes[0] == (
        "f, items[0]: Deployment default/huge: set aside: would make 30000 pods that form no gang; "
        "expected at most 20000 of all workloads"
    )


def test_a_gang_of_a_hundred_thousand_pods_may_be_planned() -> None:
    in_group = {"metadata": {"labels": {"maniple.dev/pod-group": "g"}}, **TEMPLATE}
    assert len(made(pytorch({}, Worker=20_001))) == 20_001
    assert len(made(job(parallelism=20_001, template=in_group))) == 20_001
    assert made(job(parallelism=100_000, suspend=True)) == []


def test_replicated_jobs_without_pods_take_no_time() -> None:
    """A JobSet of 23 kB stood for ten million sets of pods, none of which has one, and took gigabytes."""
    empty = [replicated_job(f"r{index}", 100_000, parallelism=0) for index in range(100)]
    start = time.process_time()
    assert made(jobset(*empty, replicated_job("w", 2))) == ["w-w-0-0", "w-w-1-0"]
    assert time.process_time() - start < 5
    assert "expected at most 100000 pods" in refused(jobset(*(replicated_job(f"r{i}", 100_000) for i in range(100))))[0]


def test_many_pods_that_exist_do_not_slow_down_those_to_be_made() -> None:
    """Their group was looked for once for each pod to be made."""
    pods = [owned(f"x-{index}", "Job") for index in range(2000)]
    start = time.process_time()
    assert len(made(job(parallelism=22_000), *pods)) == 20_000
    assert time.process_time() - start < 10


def test_notes_say_what_was_made_and_what_was_not() -> None:
    labelled = job("l")
    labelled["metadata"]["labels"] = {"maniple.dev/queue": "research"}
    notes = read(job("a", parallelism=2), job("s", suspend=True), labelled, replicated("Deployment"))[1].notes
    assert notes == [
        "f, items[2]: Job l: metadata.labels[maniple.dev/queue] is not passed on to its pods and is not read; "
        "write it into the pod template",
        "f, items[1]: Job default/s: makes no pods: spec.suspend is true",
        "pods that do not exist yet are made from templates: 1 of 1 Deployment, 3 of 2 Job",
    ]
    notes = read(job("a", suspend=True), job("b", suspend=True))[1].notes
    assert notes == ["f, items[0]: Job default/a: makes no pods: spec.suspend is true (1 more like it)"]


def test_an_object_of_an_api_server_may_have_fields_that_are_newer() -> None:
    newer = job(paralelism=2)
    newer["metadata"]["uid"] = "1"
    assert made(newer) == ["w-0"]


@pytest.mark.parametrize("path", sorted((EXAMPLES / "workloads").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_make_pods_that_are_planned(path: Any) -> None:
    done = run_here("plan", "-f", path, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "note: pods that do not exist yet" in done.stderr
    round_ = next(iter(yaml.safe_load(done.stdout)["rounds"]))
    assert round_["binds"] or round_["waiting"]
