"""The commands about jobs, as far as they need no cluster: options in, objects or errors out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.run_maniple import run, run_here
from maniple.api import types
from maniple.api.errors import InputError
from maniple.cli.commands import logs
from maniple.cli.support.job_options import check_queues

NO_CLUSTER = {"KUBECONFIG": "/nosuch/kubeconfig"}
JOB = ("--name", "bert", "--image", "training:1")
COMMAND = ("--", "python", "train.py")

RIGHT = """\
apiVersion: maniple.dev/v1alpha1
kind: ElasticJob
metadata: {name: right}
spec:
  roles:
  - name: worker
    min: 1
    max: 2
    template: {spec: {containers: [{name: main, image: training:1}]}}
"""


def dry_run(*options: str, words: tuple[str, ...] = COMMAND) -> dict[str, Any]:
    done = run_here("submit", *JOB, *options, "--dry-run", *words, env=NO_CLUSTER)
    assert (done.returncode, done.stderr) == (0, "")
    (job,) = yaml.safe_load_all(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("maniple.dev/v1alpha1", "ElasticJob")
    return dict(job)


def container(job: dict[str, Any]) -> dict[str, Any]:
    (role,) = job["spec"]["roles"]
    (container,) = role["template"]["spec"]["containers"]
    return dict(container)


def refused(*arguments: str | Path, stdin: str = "") -> str:
    """Standard error of a run that must exit with 2 before it calls a cluster."""
    done = run_here(*arguments, stdin=stdin, env=NO_CLUSTER)
    assert (done.returncode, done.stdout) == (2, "")
    assert "kubeconfig" not in done.stderr
    return done.stderr


# -- submit: a job from options


@pytest.mark.parametrize(
    ("options", "replicas", "gpus"),
    [
        (["--gpus", "4:8"], (4, 8), "1"),
        (["--gpus", "8"], (8, 8), "1"),
        (["--gpus", "16:64", "--gpus-per-replica", "8"], (2, 8), "8"),
        (["--replicas", "2:4", "--gpus-per-replica", "4"], (2, 4), "4"),
        (["--replicas", "2:4", "--gpus-per-replica", "0"], (2, 4), None),
        ([], (1, 1), "1"),
    ],
)
def test_gpus_become_replicas(options: list[str], replicas: tuple[int, int], gpus: str | None) -> None:
    job = dry_run(*options)
    (role,) = job["spec"]["roles"]
    assert (role["name"], role["min"], role["max"]) == ("worker", *replicas)
    assert container(job)["resources"]["limits"].get("nvidia.com/gpu") == gpus


def test_the_agent_starts_the_command_with_framework_torch_only() -> None:
    agent = ["python3", "/var/run/maniple/agent/agent.pyz", "--"]
    words = ("--", "python", "train.py", "--name", "--", "x")
    assert container(dry_run(words=words))["command"] == [*agent, *words[1:]]
    for framework in ("torchrun", "horovod", "none"):
        assert container(dry_run("--framework", framework, words=words))["command"] == list(words[1:])


def test_every_option_is_in_the_job() -> None:
    job = dry_run(
        *("--queue", "research", "--priority", "high", "--cpu", "8", "--memory", "32Gi", "-n", "team"),
        *("--env", "A=b=c", "-e", "EMPTY=", "--gpu-resource", "amd.com/gpu"),
        *("--mount", "pvc/data:/data:ro", "--mount", "pvc/data:/out", "--mount", "memory:/dev/shm"),
        *("--mount", "configmap/script:/script", "--mount", "secret/key:/key", "--mount", "/scratch:/tmp"),
    )
    assert job["metadata"] == {"name": "bert", "namespace": "team"}
    assert (job["spec"]["queue"], job["spec"]["priorityClassName"]) == ("research", "high")
    main = container(job)
    assert main["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "amd.com/gpu": "1"}
    assert main["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY", "value": ""}]
    volumes = {entry.pop("name"): entry for entry in job["spec"]["roles"][0]["template"]["spec"]["volumes"]}
    mounted = {
        entry["mountPath"]: (volumes[entry["name"]], entry.get("readOnly", False)) for entry in main["volumeMounts"]
    }
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    assert mounted == {
        "/data": (claim, True),
        "/out": (claim, False),
        "/dev/shm": ({"emptyDir": {"medium": "Memory"}}, False),
        "/script": ({"configMap": {"name": "script"}}, False),
        "/key": ({"secret": {"secretName": "key"}}, False),
        "/tmp": ({"hostPath": {"path": "/scratch"}}, False),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--gpus", "many"],
            "--gpus: expected a number of GPUs such as 8, or minimum and maximum as 4:8, found 'many'",
        ),
        (["--gpus", "0:4"], "--gpus: expected at least 1, found '0:4'"),
        (["--gpus", "8:4"], "--gpus: expected the minimum first, such as 4:8, found '8:4'"),
        (["--replicas", "-1"], "--replicas: expected a number of replicas"),
        (["--gpus", "4:8", "--gpus-per-replica", "0"], "write --replicas MIN:MAX instead"),
        (
            ["--gpus", "10", "--gpus-per-replica", "4"],
            "10 GPUs are not a whole number of replicas with 4 each; expected 8 or 12",
        ),
        (
            ["--gpus", "1:8", "--gpus-per-replica", "4"],
            "1 GPUs are not a whole number of replicas with 4 each; expected 4\n",
        ),
        (["--env", "EPOCHS"], "--env: expected NAME=VALUE, such as EPOCHS=90, found 'EPOCHS'"),
        (["--env", "=3"], "--env: expected NAME=VALUE"),
        (["--mount", "data:/data"], "--mount: expected SOURCE:PATH"),
        (["--mount", "pvc/:/data"], "--mount: expected SOURCE:PATH"),
        (["--mount", "pvc/data:data"], "--mount: expected SOURCE:PATH"),
        (["--mount", "pvc/data:/data:no"], "--mount: expected SOURCE:PATH"),
        (["--mount", "pvc/data"], "--mount: expected SOURCE:PATH"),
        (
            ["--env", "MANIPLE_URL=x"],
            "--env: names that begin with MANIPLE_ are reserved for Maniple's agent; "
            "expected another, such as MY_MANIPLE_URL, found 'MANIPLE_URL=x'",
        ),
        (
            ["--mount", "pvc/data:/var/run/maniple"],
            "--mount: /var/run/maniple is reserved for Maniple's agent; "
            "expected another PATH, such as /data, found 'pvc/data:/var/run/maniple'",
        ),
        (
            ["--mount", "memory:/var/run//maniple/agent/:ro"],
            "--mount: /var/run/maniple is reserved for Maniple's agent",
        ),
        (["--mount", "memory:/run/maniple/pod"], "--mount: /var/run/maniple is reserved for Maniple's agent"),
        (
            ["--mount", "pvc/one:/data", "--mount", "pvc/two:/data/"],
            "--mount: expected one mount at /data, found 'pvc/one:/data' and 'pvc/two:/data/'",
        ),
        (["--memory", "32 Gigs"], "options: ElasticJob bert: spec.roles[0].template.spec.containers[0]"),
        (["--gpus", "1", "--replicas", "1"], "--gpus and --replicas are the same limit"),
    ],
)
def test_a_wrong_option_says_what_to_write_instead(options: list[str], message: str) -> None:
    assert message in refused("submit", *JOB, *options, *COMMAND)


def test_names_similar_to_reserved_ones_are_allowed() -> None:
    main = container(
        dry_run("-e", "MY_MANIPLE_X=1", "--mount", "memory:/var/run/maniples", "--mount", "memory:/var/run")
    )
    assert [entry["name"] for entry in main["env"]] == ["MY_MANIPLE_X"]
    assert [entry["mountPath"] for entry in main["volumeMounts"]] == ["/var/run/maniples", "/var/run"]


def test_an_invalid_name_is_refused_locally() -> None:
    stderr = refused("submit", "--name", "Bert!", "--image", "training:1", *COMMAND)
    assert "metadata.name: expected" in stderr
    assert "'Bert!'" in stderr


def test_all_wrong_options_are_reported_at_once() -> None:
    stderr = refused("submit", *JOB, "--gpus", "x", "--env", "A", "--mount", "b", *COMMAND)
    assert [line.split(":")[1] for line in stderr.splitlines()] == [" --gpus", " --env", " --mount"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a FILE, or create a job with --name"),
        (["--name", "bert", *COMMAND], "missing option '--image'"),
        ([*JOB], "missing command: write it at the end, after --"),
        ([*JOB, "python", "train.py"], "such as -- python train.py"),
        (["job.yaml", "--gpus", "4"], "missing option '--name': --gpus is for a job from options"),
        (["job.yaml", "--replicas", "4"], "missing option '--name': --replicas is for a job from options"),
        (["job.yaml", "--gpu-resource", "amd.com/gpu"], "missing option '--name': --gpu-resource is for a job"),
        (["job.yaml", "--dry-run", "--wait"], "--dry-run creates nothing to wait for"),
        (["job.yaml", "--timeout", "5"], "--timeout needs --wait or --follow"),
        (["job.yaml", *COMMAND], "missing option '--name': a command is for a job from options"),
        (["--gpus", "4:8", "--image", "training:1", *COMMAND], "missing option '--name'"),
    ],
)
def test_incomplete_options_say_what_is_missing(arguments: list[str], message: str) -> None:
    assert message in " ".join(refused("submit", *arguments).split())


# -- submit: files


def test_all_errors_in_files_are_reported_before_a_cluster_is_called(tmp_path: Path) -> None:
    wrong = RIGHT.replace("right", "wrong").replace("max: 2", "max: 0").replace("spec:\n", "spec:\n  quue: x\n", 1)
    file = tmp_path / "jobs.yaml"
    file.write_text(f"{RIGHT}---\n{wrong}---\nkind: ConfigMap\nmetadata: {{name: x}}\n")
    lines = refused("submit", file).splitlines()
    assert any(
        "document 2: ElasticJob wrong: spec: unknown field 'quue'; did you mean 'queue'?" in line for line in lines
    )
    assert any("document 3: apiVersion is missing for kind ConfigMap" in line for line in lines)


def test_an_empty_file_is_an_error() -> None:
    assert "no objects; expected an ElasticJob" in refused("submit", "-", stdin="# nothing\n")


def test_an_object_without_a_name_is_an_error() -> None:
    stderr = refused("submit", "-", stdin="{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-}}")
    assert "metadata.name: expected a name, found none" in stderr


def test_an_object_of_another_namespace_than_the_option_is_an_error() -> None:
    there = RIGHT.replace("{name: right}", "{name: right, namespace: one}")
    stderr = refused("submit", "-", "-n", "two", stdin=there)
    assert "metadata.namespace: expected 'two', as --namespace says, found 'one'" in stderr


def test_reserved_fields_in_a_template_are_errors() -> None:
    job = yaml.safe_load(RIGHT)
    pod = job["spec"]["roles"][0]["template"]["spec"]
    env = [{"name": "EPOCHS", "value": "3"}, {"name": "MANIPLE_URL", "value": "x"}]
    mounts = [{"name": "x", "mountPath": "/data"}, {"name": "x", "mountPath": "/run/maniple/agent"}]
    pod["containers"][0] |= {"env": env, "volumeMounts": mounts}
    pod["restartPolicy"] = "OnFailure"
    lines = [line for line in refused("submit", "-", stdin=yaml.safe_dump(job)).splitlines() if "spec.roles" in line]
    path = "spec.roles[0].template.spec"
    wanted = [
        f"{path}.restartPolicy: expected Never or none, found 'OnFailure'",
        f"{path}.containers[0].env[1].name: names that begin with MANIPLE_ are reserved for Maniple's agent",
        f"{path}.containers[0].volumeMounts[1].mountPath: /var/run/maniple is reserved for Maniple's agent",
    ]
    assert [part for part, line in zip(wanted, lines, strict=True) if part in line] == wanted


def test_dry_run_prints_every_object_of_a_file() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n"
    done = run_here("submit", "-", "--dry-run", stdin=f"{text}---\n{RIGHT}", env=NO_CLUSTER)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(yaml.safe_load_all(done.stdout)) == [yaml.safe_load(text), yaml.safe_load(RIGHT)]


# -- the others


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resize", "bert"], "say what to change: --pin N, --unpin, --min N or --max N"),
        (["resize", "bert", "--pin", "4", "--unpin"], "--pin and --unpin contradict each other"),
        (["resize", "bert", "--pin", "-1"], "invalid value for '--pin'"),
        (["resize", "bert", "--pin", "abc"], "'--pin': expected a number of replicas, such as 6, found 'abc'"),
        (["resize", "bert", "--max", "1.5"], "'--max': expected a number of replicas, such as 6, found '1.5'"),
        (["logs", "bert", "--all", "--index", "1"], "--all and --role or --index contradict each other"),
        (["logs", "bert", "--since", "yesterday"], "expected a time such as 30s, 10m, 2h or 1d, found 'yesterday'"),
        (["logs", "bert", "--since", "0s"], "expected a time"),
        (["jobs", "--phase", "Sleeping"], "'Sleeping' is not one of"),
        (["suspend"], "missing argument 'JOB...'"),
        (["resume"], "missing argument 'JOB...'"),
        (["delete"], "missing argument 'JOB...'"),
        (["describe"], "missing argument 'JOB'"),
        (["jobs", "-n", "a/b"], "--namespace: expected"),
    ],
)
def test_wrong_usage_is_reported_before_a_cluster_is_called(arguments: list[str], message: str) -> None:
    assert message in " ".join(refused(*arguments).split())


@pytest.mark.parametrize(
    "command", ["jobs", "describe", "logs", "resize", "suspend", "resume", "delete", "watch", "submit"]
)
def test_without_a_cluster_every_command_says_so(command: str) -> None:
    more = {"jobs": [], "watch": ["--once"], "resize": ["bert", "--pin", "4"], "submit": [*JOB, *COMMAND]}
    done = run_here(command, *more.get(command, ["bert"]), env=NO_CLUSTER)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: /nosuch/kubeconfig: no such file; expected a kubeconfig\n"


@pytest.mark.parametrize(
    ("known", "used", "message"),
    [
        (["research"], [], "--queue: there is no queue 'reserch'; did you mean 'research'?"),
        ([], [], "--queue: there is no queue 'reserch'; known: default"),
        (None, [], ""),
        (["research"], ["reserch"], ""),  # a job names it
    ],
)
def test_an_unknown_queue_is_an_error_if_queues_can_be_listed(
    known: list[str] | None, used: list[str], message: str
) -> None:
    check_queues(["default", *(known or ())], known, used)
    with pytest.raises(InputError) if message else nullcontext() as refusal:
        check_queues(["default", "reserch"], known, used)
    assert message == (str(refusal.value) if refusal is not None else "")


def test_completing_job_names_without_a_cluster_is_silent() -> None:
    asked = {"COMP_WORDS": "maniple logs b", "COMP_CWORD": "2", "_MANIPLE_COMPLETE": "bash_complete"}
    done = run(env={**asked, **NO_CLUSTER})
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_without_options_the_log_is_of_the_lead_role() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    roles = [
        {"name": name, "min": least, "max": 2, "template": template} for name, least in (("eval", 0), ("worker", 1))
    ]
    job = msgspec.convert({"metadata": {"name": "bert"}, "spec": {"roles": roles}}, types.ElasticJob)
    assert (logs._chosen_role(job, None), logs._chosen_role(job, "eval")) == ("worker", "eval")
