"""The cluster tool before any cluster runs: the cache, the folders, and errors in one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.cluster import ClusterError, Spec, build
from tools.cluster import cluster_layout as folders
from tools.cluster.__main__ import cli
from tools.cluster.kwok import nodes
from tools.cluster.program_versions import (
    CACHE_VARIABLE,
    CONTROL_PLANE,
    PROGRAMS,
    cache_folder,
    missing_programs,
    program_path,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _private_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(folders.RUN_VARIABLE, str(tmp_path / "run"))
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.delenv("MANIPLE_REQUIRE_CLUSTER", raising=False)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | variables
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_only_missing_programs_are_built_in_the_order_in_which_tests_need_them() -> None:
    names = tuple(program.name for program in PROGRAMS)
    assert [program.name for program in missing_programs(names)][:4] == list(CONTROL_PLANE)
    program_path("etcd").parent.mkdir(parents=True)
    program_path("etcd").touch()
    assert [program.name for program in missing_programs(CONTROL_PLANE)] == list(CONTROL_PLANE[1:])
    assert "1.37.1" in program_path("etcd").parent.name


def test_missing_programs_are_listed_with_their_build_time() -> None:
    done = run("tools.cluster", "build", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cluster: to be built first, once on this machine: etcd, kube-apiserver, ")
    assert re.search(r", helm, .+, python3-torch: about \d\d min on two idle cores$", line)
    for path in (
        *map(program_path, build.ALL),
        cache_folder() / "debian" / "x",
        cache_folder() / "python3-torch-1" / "x",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert run("tools.cluster", "build", "--dry-run").stderr == ""


def test_an_impossible_build_is_reported_in_one_line() -> None:
    done = run("tools.cluster", "build", "--only", "etcd", "--if-possible")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].startswith(
        "cluster: cannot build everything, tests that need what is missing are skipped: "
    )
    assert "Traceback" not in done.stderr


def test_an_impossible_build_fails_where_a_cluster_is_required() -> None:
    done = run("tools.cluster", "build", "--only", "etcd", "--if-possible", MANIPLE_REQUIRE_CLUSTER="1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("required", "outcome"), [("", "skipped"), ("1", "error")])
def test_tests_that_need_a_cluster_are_skipped_without_one_unless_it_is_required(required: str, outcome: str) -> None:
    tests = ["tests/e2e/test_shared_cluster.py", "-k", "kubectl or real_node", "-rsE"]
    done = run("pytest", "-p", "no:cacheprovider", *tests, MANIPLE_REQUIRE_CLUSTER=required)
    assert f"2 {outcome}" in done.stdout.splitlines()[-1]
    assert "no cluster here: " in done.stdout


def test_unlocked_folders_are_removed_and_locked_ones_stay() -> None:
    held, left = folders.layout_of("held"), folders.layout_of("left")
    with folders.only_one_at_a_time():
        lock = folders.create(held, Spec(name="held"))
        os.close(folders.create(left, Spec(name="left")))
        assert folders.remove_leftovers() == ["left"]
    assert [layout.name for layout in folders.all_layouts()] == ["held"]
    os.close(lock)
    with folders.only_one_at_a_time():
        assert folders.remove_leftovers() == ["held"]
    assert not folders.run_folder().exists()


@pytest.mark.parametrize("command", [["status"], ["down", "--name", "some-other"]])
def test_the_next_command_removes_leftovers_and_says_so(command: list[str]) -> None:
    with folders.only_one_at_a_time():
        os.close(folders.create(folders.layout_of("left"), Spec(name="left")))
    done = run("tools.cluster", *command)
    assert (done.returncode, done.stderr) == (0, "cluster: removed what was left of cluster left\n")
    assert not folders.run_folder().exists()


def test_a_cluster_that_ends_during_listing_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = -1
    with folders.only_one_at_a_time():
        lock = folders.create(folders.layout_of("there"), Spec(name="there"))
    ended = folders.layout_of("ended")
    monkeypatch.setattr("tools.cluster.__main__.all_layouts", lambda: [ended, *folders.all_layouts()])
    done = CliRunner().invoke(cli, ["status"])
    os.close(lock)
    assert (done.exit_code, done.stdout) == (0, "there: starting or ending\n")


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "a" * 41, "-a"])
def test_names_that_could_not_be_folders_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="use up to 40 small letters, digits and hyphens"):
        folders.layout_of(name)


def test_a_node_template_is_copied_with_its_number() -> None:
    template = "{kind: Node, metadata: {name: 'gpu-{index}', labels: {rack: 'r{index}'}}}"
    made = nodes(2, 8, template)
    assert [each["metadata"]["labels"]["rack"] for each in made] == ["r0", "r1"]
    assert all(each["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"} for each in made)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{kind: Node, metadata: {name: same}}", "write {index} into it"),
        ("{kind: Pod, metadata: {name: 'a{index}'}}", "one object of kind Node"),
    ],
)
def test_a_node_template_that_cannot_work_is_refused(template: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        nodes(2, 8, template)
