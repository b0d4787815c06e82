"""Nothing in the input controls the terminal: every command prints through one module, which makes it visible."""

from __future__ import annotations

import ast
import json
import logging
import re
import unicodedata
from pathlib import Path

import pytest
import yaml

from cli.run_maniple import ROOT, run, run_here
from maniple.api.terminal_text import printable, printable_json, printable_lines, printable_log
from maniple.kube.serve.logging_setup import _Json, _Text

# A colour, a title, C1's own escape, a bell, a carriage return, marks of direction and width, fillers, a line end.
HOSTILE = "\x1b[31mA\x1b]0;t\x07B\x9b2JC\rD\u202eE\u200bF\u2066G\u3164H\ufe0fI\u2028J\x85K\x00L\n\nStarts\nM"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff]")


def hostile_cluster(word: str) -> str:
    """Objects that an API server might accept from somebody else, with the word wherever text is free."""
    limits = {"nvidia.com/gpu": 1, f"example.com/{word}": 1}
    pod = {"schedulerName": "maniple", "containers": [{"name": "c", "image": word, "resources": {"limits": limits}}]}
    selective = {**pod, "nodeSelector": {word: word}, "tolerations": [{"key": word, "operator": "Exists"}]}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": word, word: word}},
            "spec": {"taints": [{"key": word, "value": word, "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": 4, "nvidia.com/gpu": 4, f"example.com/{word}": 3}},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "q", "labels": {"maniple.dev/pod-group": word}},
            "spec": selective,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "r", "annotations": {"maniple.dev/gpu-models": word}},
            "spec": {**pod, "priorityClassName": word},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s"}, "spec": {**selective, "nodeName": word}},
        {"apiVersion": "example.com/v1", "kind": word, "metadata": {"name": word}},
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def check(text: str) -> None:
    found = FORBIDDEN.search(text)
    assert found is None, (found, text)
    assert "\n\nStarts\nM" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--all"],
        ["plan", "-o", "json"],
        ["plan", "-o", "yaml"],
        ["plan", "--strict"],
        ["explain", "p"],
        ["explain", "q"],
        ["explain", "r"],
        ["explain", "p", "-o", "json"],
        ["explain", HOSTILE],
    ],
    ids=" ".join,
)
def test_hostile_names_in_a_cluster_are_shown_and_not_obeyed(arguments: list[str]) -> None:
    done = run_here(*arguments, "-f", "-", stdin=hostile_cluster(HOSTILE))
    check(done.stdout)
    check(done.stderr)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_is_escaped_in_json_and_yaml_is_still_the_same_text(output: str) -> None:
    limits = {"example.com/a\u202eb": 1}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {"schedulerName": "maniple", "containers": [container]}
    done = run_here("plan", "-f", "-", "-o", output, stdin=json.dumps(pod))
    check(done.stdout)
    assert "a\u202eb" in str(yaml.safe_load(done.stdout)) or "a\\u202eb" in str(yaml.safe_load(done.stdout))


@pytest.mark.parametrize("arguments", [[], ["-o", "json"], ["-o", "annotate", "--node", "n1"]], ids=str)
def test_hostile_names_of_gpus_are_shown_and_not_obeyed(arguments: list[str], tmp_path: Path) -> None:
    devices = [{"id": f"0{HOSTILE}", "model": HOSTILE}, {"id": "1", "model": "b"}]
    file = tmp_path / "t.json"
    for links in ([["X", "NV4"], ["NV4", "X"]], [["X", HOSTILE], [HOSTILE, "X"]]):
        for resource in ("nvidia.com/gpu", HOSTILE):
            file.write_text(json.dumps({"version": 1, "devices": devices, "links": links, "resource": resource}))
            done = run_here("topology", str(file), *arguments)
            check(done.stdout)
            check(done.stderr)


def test_a_job_written_for_submission_is_valid_yaml_without_control_characters() -> None:
    done = run_here("submit", "--name", "a", "--image", HOSTILE, "--gpus", "1", "--dry-run", "--", "run", HOSTILE)
    check(done.stdout)
    check(done.stderr)


CONTEXT = {"cluster": "c", "user": "u"}


@pytest.mark.parametrize("option", ["--name", "--image", "--queue", "--memory"])
def test_an_option_that_is_not_utf_8_is_an_error(option: str) -> None:
    """Python hands such bytes on as half surrogate pairs, which cannot be written."""
    options = {"--name": "a", "--image": "i", "--gpus": "1", option: "x\udcff"}
    done = run_here("submit", *(word for pair in options.items() for word in pair), "--dry-run", "--", "run")
    assert done.returncode == 2
    assert done.stderr == "error: options: expected text in UTF-8, found 'x\\udcff'\n"


def kubeconfig(**user: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": CONTEXT}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (kubeconfig(token=HOSTILE), "the user's token: expected printable ASCII characters on one line"),
        (kubeconfig(token="abc\n"), "the user's token: expected printable ASCII characters on one line"),
        (
            kubeconfig() | {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:9/{HOSTILE}"}}]},
            "the cluster's server: expected printable ASCII",
        ),
        (
            kubeconfig()
            | {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": HOSTILE}}]},
            "namespace: expected a name of lower-case letters",
        ),
        (kubeconfig() | {"current-context": HOSTILE}, "expected a kubeconfig that can be used"),
    ],
    ids=["token", "token that ends its line", "server", "namespace", "context"],
)
def test_a_hostile_kubeconfig_is_an_error_of_one_line(config: dict[str, object], says: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    done = run_here("jobs", "--kubeconfig", file)
    check(done.stderr)
    assert says in done.stderr
    assert done.returncode == 2


def test_what_a_login_program_prints_is_a_note_of_one_line(tmp_path: Path) -> None:
    """The library logs it, and Python would print that raw."""
    shouts = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never"}
    file = tmp_path / "config"
    arguments = ["-c", "printf '\\033[31mA\\033]0;t\\007\\nB' >&2; exit 3"]
    file.write_text(json.dumps(kubeconfig(exec={**shouts, "args": arguments})))
    done = run("jobs", "--kubeconfig", file)
    check(done.stderr)
    note, error = done.stderr.splitlines()
    assert note == "note: exec: process returned 3. \\x1b[31mA\\x1b]0;t\\x07\\nB"
    assert error.startswith(f"error: {file}: expected a kubeconfig that can be used")


def test_names_of_files_and_notes_on_a_policy_stay_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / HOSTILE.replace("\x00", "")
    file.write_text(
        json.dumps(
            {
                "actions": "enqueue, allocate",
                "tiers": [{"plugins": [{"name": "gang"}]}],
                "configurations": [{"name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}],
            }
        )
    )
    name = str(file)
    for arguments in (["policy", "check", name], ["plan", "-f", name], ["plan", "-f", "-", "--policy", name]):
        done = run_here(*arguments, stdin=hostile_cluster("x"))
        check(done.stdout)
        check(done.stderr)
        assert all(line.startswith(("error: ", "note: ")) for line in done.stderr.splitlines())


def test_every_command_prints_through_one_module() -> None:
    """click.echo and print know nothing of hostile names. `watch` writes its frames itself, line by line."""
    for file in sorted((ROOT / "maniple/cli").rglob("*.py")):
        if file.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("click.echo", "click.secho", "print"), f"{file}:{node.lineno}: use say()"
                assert not called.startswith(("sys.stdout.write", "sys.stderr.write")) or file.name == "watch.py", file


@pytest.mark.parametrize("form", [_Json(), _Text()])
def test_log_lines_of_serve_are_one_line_each_and_visible(form: logging.Formatter) -> None:
    record = logging.makeLogRecord({"msg": "set aside: %s", "args": (HOSTILE,), "pod": HOSTILE, "levelname": "INFO"})
    line = form.format(record)
    check(line)
    assert "\n" not in line


def test_all_control_format_and_invisible_characters_are_escaped() -> None:
    for number in [*range(0x3000), *range(0xE000, 0x11000), *range(0xE0000, 0xE0200)]:
        letter = chr(number)
        is_hidden = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        assert not is_hidden or letter not in printable(f"a{letter}b"), hex(number)
        assert not is_hidden or letter in "\n\t" or letter not in printable_lines(f"a{letter}b"), hex(number)
        assert json.loads(printable_json(json.dumps(letter, ensure_ascii=False))) == letter
    assert printable("×… é ü 中文 עברית 🙂") == "×… é ü 中文 עברית 🙂"


def test_colours_of_a_job_s_own_log_stay_and_end_with_the_line() -> None:
    assert printable_log("\x1b[1;31mred\x1b[0m\tok\r") == "\x1b[1;31mred\x1b[0m\tok\x1b[0m"
    assert printable_log("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert printable_log("plain") == "plain"
