"""Real PyTorch in real containers grows from 2 to 4 workers and shrinks back without losing a step."""

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from e2e.clusters_of_this_run import alone_on
from e2e.serve_process import GPU, OURS, ROOT, Bench, Json, install_crds
from e2e.test_serve_real_kubelet import running
from tools.cluster import Cluster, build, pytorch

SLOTS = 4
WAIT_S = 180.0


@pytest.fixture
def corner(real_node: Cluster, real_namespace: str) -> Iterator[Bench]:
    """The real node reports four GPUs; its pods share a folder with the scripts."""
    if pytorch.missing():
        reason = "no PyTorch here: `python -m tools.cluster build` fetches it, or says why it cannot"
        (pytest.fail if os.environ.get(build.REQUIRE_VARIABLE) == "1" else pytest.skip)(reason)
    install_crds(real_node)
    with alone_on(real_node):
        real_node.import_torch()
        made = Bench(real_node, real_namespace)
        node = f"/api/v1/nodes/{real_node.spec.real_node_name}"
        made.client.patch(f"{node}/status", {"status": {"capacity": {GPU: str(SLOTS)}}})
        made.wait("the node to have GPUs", lambda: made.get(node)["status"]["allocatable"].get(GPU) == str(SLOTS))
        shared = shared_folder(made)
        shared.mkdir()
        for script in (ROOT / "examples" / "torch").glob("*.py"):
            shutil.copy(script, shared)
        yield made
        made._remove(f"{OURS}/namespaces/{real_namespace}/elasticjobs/bert")
        made.close()


def shared_folder(corner: Bench) -> Path:
    return corner.cluster.layout.folder / "data" / corner.namespace


def job(corner: Bench, script: str) -> Json:
    """As a user would write it: an image with PyTorch, the agent from the Secret, and a folder for checkpoints."""
    container = {
        "name": "main",
        "image": pytorch.IMAGE,
        "imagePullPolicy": "Never",
        "workingDir": "/shared",
        "command": ["python3", "/var/run/maniple/agent/agent.pyz", "--", "python3", script],
        "args": ["--steps=100000", "--checkpoint=model.pt", "--log=steps.log"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"limits": {GPU: "1"}},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    volume = {"name": "shared", "hostPath": {"path": str(shared_folder(corner))}}
    template = {"spec": {"schedulerName": corner.scheduler, "containers": [container], "volumes": [volume]}}
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "bert"},
        "spec": {
            "framework": "torch",
            "elastic": {"cooldownSeconds": 1, "graceSeconds": 30, "restartSeconds": 1},
            "roles": [{"name": "worker", "min": 2, "max": 4, "template": template}],
        },
    }


def steps(corner: Bench) -> list[Json]:
    path = shared_folder(corner) / "steps.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def await_size(corner: Bench, size: int) -> None:
    """Waits until the last ten steps were done at this size."""

    def is_so() -> bool:
        return [line["size"] for line in steps(corner)[-10:]] == [size] * 10

    try:
        corner.wait(f"ten steps at size {size}", is_so, WAIT_S)
    except AssertionError as error:
        found = corner.get(f"{OURS}/namespaces/{{}}/elasticjobs/bert")["status"]
        raise AssertionError("\n".join([str(error), logs(corner), json.dumps(found, indent=1)])) from None


def logs(corner: Bench) -> str:
    """The latest output of the job's replicas."""
    names = [pod["metadata"]["name"] for pod in corner.all_pods()]
    return "\n".join(
        corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", "--tail=20", name)
        for name in names
        if name.startswith("bert-")
    )


@pytest.mark.parametrize("script", ["train.py", "live_resize.py"])
def test_an_elastic_job_grows_into_room_and_gives_it_back_without_losing_a_step(corner: Bench, script: str) -> None:
    address, port = corner.cluster.way_out
    endpoint = (f"--agents=127.0.0.1:{port}", f"--agents-url=https://{address}:{port}")
    server = corner.serve(*endpoint)
    container = {
        "name": "main",
        "image": "maniple.dev/busybox:local",
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {GPU: "1"}},
    }
    plain: Json = {"containers": [container], "nodeSelector": {}, "terminationGracePeriodSeconds": 0}
    others = corner.pods("other", 2, **plain)
    corner.wait_bound(others)

    corner.client.post(f"{OURS}/namespaces/{corner.namespace}/elasticjobs", job(corner, script))
    await_size(corner, 2)
    corner.delete_pods(others)
    await_size(corner, 4)
    # Workers do not notice that the controller is gone, and agents find the next one by themselves.
    server.kill()
    corner.forget(server)
    corner.serve(*endpoint)
    corner.group("gang", 2)
    gang = corner.pods("gang", 2, labels={"maniple.dev/pod-group": "gang"}, **plain)
    await_size(corner, 2)
    corner.wait("the gang to run", lambda: running(corner, gang) == set(gang), WAIT_S)

    status = corner.get(f"{OURS}/namespaces/{{}}/elasticjobs/bert")["status"]  # before the steps: they go on
    lines = steps(corner)
    done = [line["step"] for line in lines]
    assert done == list(range(1, len(done) + 1))  # monotone: none lost, none done twice
    losses = [line["loss"] for line in lines]
    assert sum(losses[-10:]) < sum(losses[:10])
    assert status["generation"]["number"] in (3, 4)  # on a busy machine new replicas may be ready one after the other
    assert 0 < status["progress"]["step"] <= len(done)
    assert status["progress"]["total"] == 100_000
    pauses = [
        round(after["time"] - before["time"], 2) for before, after in pairwise(lines) if before["size"] != after["size"]
    ]
    print(f"{script}: {len(done)} steps, seconds without progress: {pauses}")
    # The pod that stayed was never restarted, only its workers; live, not even those.
    log = corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", "bert-worker-0")
    assert log.count("maniple: generation") >= 3
    starts = log.count(": ranks 0-0 of")
    assert starts == 1 if script == "live_resize.py" else 3 <= starts <= status["generation"]["number"]


def test_a_job_from_the_command_line_is_followed_to_its_end(corner: Bench, tmp_path: Path) -> None:
    address, port = corner.cluster.way_out
    corner.serve(f"--agents=127.0.0.1:{port}", f"--agents-url=https://{address}:{port}")
    code = "from torch.distributed import *; init_process_group('gloo'); print('rank', get_rank(), get_world_size())"
    code += "; import maniple.worker; maniple.worker.report(step=3, total=4)"
    said = ("--name=bert", "--gpus=2", f"--image={pytorch.IMAGE}", f"--namespace={corner.namespace}")
    made = corner.run("submit", *said, "--dry-run", "--", "python3", "-c", code)
    assert made.returncode == 0, made.stderr
    written = yaml.safe_load(made.stdout)
    written["spec"]["roles"][0]["template"]["spec"]["schedulerName"] = corner.scheduler
    file = tmp_path / "bert.yaml"
    file.write_text(yaml.safe_dump(written))
    cluster = f"--kubeconfig={corner.cluster.kubeconfig()}"
    followed = corner.run("submit", str(file), "--follow", "--timeout=150", cluster, f"--namespace={corner.namespace}")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert "rank 0 2" in followed.stdout
    other = corner.run("logs", "bert", "--index=1", cluster, f"--namespace={corner.namespace}")
    assert "rank 1 2" in other.stdout, other.stderr
    described = corner.run("describe", "bert", cluster, f"--namespace={corner.namespace}")
    assert "step 3 of 4 (75%)" in described.stdout, described.stderr


def test_agents_without_an_endpoint_use_the_file(corner: Bench) -> None:
    corner.serve()
    written = job(corner, "train.py")
    written["spec"]["roles"][0]["template"]["spec"]["containers"][0]["args"] = ["--steps=3", "--log=steps.log"]
    corner.client.post(f"{OURS}/namespaces/{corner.namespace}/elasticjobs", written)
    phase = f"{OURS}/namespaces/{{}}/elasticjobs/bert"
    corner.wait("the job to succeed", lambda: corner.get(phase)["status"]["phase"] == "Succeeded", WAIT_S)
    assert len(steps(corner)) == 3


def test_a_failed_job_releases_its_gpus_and_keeps_its_logs(corner: Bench) -> None:
    address, port = corner.cluster.way_out
    corner.serve(f"--agents=127.0.0.1:{port}", f"--agents-url=https://{address}:{port}")
    written = job(corner, "train.py")
    container = written["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    # One fails, and the other would wait for it forever.
    script = "echo rank $RANK; [ $RANK = 0 ] && exec sleep 1000; sleep 2; exit 5"
    container |= {"command": [*container["command"][:3], "sh", "-c", script], "args": []}
    written["spec"] |= {"restartPolicy": "Never"}
    written["spec"]["roles"][0] |= {"max": 2}
    corner.client.post(f"{OURS}/namespaces/{corner.namespace}/elasticjobs", written)
    names = ["bert-worker-0", "bert-worker-1"]

    def exits() -> list[int]:
        found = [corner.get_pod(name)["status"]["containerStatuses"][0]["state"] for name in names]
        return [state["terminated"]["exitCode"] for state in found]

    corner.wait("both to have ended", lambda: exits() == [143, 5], WAIT_S)
    job_path = f"{OURS}/namespaces/{{}}/elasticjobs/bert"
    corner.wait("the job to say so", lambda: corner.get(job_path)["status"]["phase"] == "Failed")
    for rank, name in enumerate(names):
        assert f"rank {rank}" in corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", name)


TRAIN = """
from torch.distributed import all_reduce, get_rank, get_world_size, init_process_group
import torch
init_process_group("gloo")
one = torch.ones(1)
all_reduce(one)
print("rank", get_rank(), "of", get_world_size(), "sum", int(one), flush=True)
import time
import maniple.worker
from maniple.worker.script_api import script_api
while get_rank() == 0 and not script_api().newest():
    time.sleep(0.1)
maniple.worker.report(step=7, total=9, throughput=2.5)
"""


def test_torchrun_finds_its_peers_by_the_names_of_the_service(corner: Bench) -> None:
    """The names come from the Service's EndpointSlice, which the cluster's own controllers write."""
    address, port = corner.cluster.way_out
    corner.serve(f"--agents=127.0.0.1:{port}", f"--agents-url=https://{address}:{port}")
    hosts = shared_folder(corner) / "hosts"
    shutil.copy(ROOT / "tests" / "e2e" / "name_server.py", shared_folder(corner))
    (shared_folder(corner) / "train.py").write_text(TRAIN)
    written = job(corner, "train.py")
    worker = written["spec"]["roles"][0]["template"]["spec"]
    container, volumes = worker["containers"][0], worker["volumes"]
    namer = {"command": ["python3", "name_server.py", "hosts"], "resources": {}}
    plain: Json = {"containers": [container | namer], "volumes": volumes, "nodeSelector": {}}
    corner.pods("names", 1, **plain, terminationGracePeriodSeconds=0)
    corner.wait("the name server to run", lambda: running(corner, ["names-0"]) == {"names-0"}, WAIT_S)
    server = corner.get_pod("names-0")["status"]["podIP"]

    zone = f"{corner.namespace}.svc.cluster.local"
    worker["dnsPolicy"] = "None"
    worker["dnsConfig"] = {"nameservers": [server], "searches": [zone], "options": [{"name": "ndots", "value": "5"}]}
    # Debian's torch 1.13 cannot read its own defaults for these with Python 3.11; these values apply to no worker.
    container |= {"command": ["torchrun", "--tee=9:1", "--redirects=9:1", "train.py"], "args": []}
    container["env"].append({"name": "PYTHONPATH", "value": "/var/run/maniple/agent/agent.pyz"})
    written["spec"] |= {"framework": "torchrun", "cleanPodPolicy": "None"}
    written["spec"]["roles"][0]["min"] = 4  # all have joined, so torchrun waits for no latecomers
    corner.client.post(f"{OURS}/namespaces/{corner.namespace}/elasticjobs", written)

    def is_over() -> bool:
        slices = corner.get("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices")["items"]
        known = {
            f"{end['hostname']}.bert.{zone}": end["addresses"][0]
            for each in slices
            if each["metadata"]["labels"].get("kubernetes.io/service-name") == "bert"
            for end in each["endpoints"] or []
        }
        hosts.with_suffix(".new").write_text(json.dumps(known))
        hosts.with_suffix(".new").rename(hosts)
        phase = corner.get(f"{OURS}/namespaces/{{}}/elasticjobs/bert")["status"]["phase"]
        assert phase != "Failed", logs(corner)
        return str(phase) == "Succeeded"

    try:
        corner.wait("the job to end", is_over, WAIT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs(corner)}") from None
    said = logs(corner)
    for rank in range(4):
        assert f"rank {rank} of 4 sum 4" in said
    reached = corner.get(f"{OURS}/namespaces/{{}}/elasticjobs/bert")["status"]["progress"]
    assert (reached["step"], reached["total"], reached["throughput"]) == (7, 9, 2.5)
