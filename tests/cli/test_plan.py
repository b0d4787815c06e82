"""`maniple plan`: its input, its options, its output and its exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from cli.run_maniple import COMMAND, EXAMPLES, ROOT, example, plan, refused, run_here, untimed
from tools.cluster import wait_until

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: '1', memory: 4Gi, pods: 110}}\n"
POD = """apiVersion: v1
kind: Pod
metadata: {name: p1}
spec: {schedulerName: maniple, containers: [{name: main, resources: {requests: {cpu: '1'}}}]}
"""
FIRST = next(EXAMPLES.glob("01*.yaml"))
KUBE_BATCH = EXAMPLES / "policies/kube-batch.yaml"


def bound(outcome: dict[str, Any], round_: int = 0) -> list[str]:
    return [bind["pod"] for bind in outcome["rounds"][round_]["binds"]]


# -- input


def test_standard_input_is_a_file_like_any_other() -> None:
    assert untimed(plan("-f", "-", stdin=FIRST.read_bytes())) == untimed(example("01"))
    assert refused("-f", "-", stdin="kind: Pod\n") == [
        "error: <stdin>, document 1: apiVersion is missing for kind Pod; expected v1"
    ]


def test_several_files_folders_and_standard_input_are_one_cluster(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/a.yml").write_text(POD)
    (tmp_path / "pods/b.json").write_text(json.dumps(yaml.safe_load(POD.replace("p1", "p2"))))
    (tmp_path / "pods/README.md").write_text("not an object")
    (tmp_path / "n1.yaml").write_text(NODE)
    more = NODE.replace("n1", "n2") + "---\n" + NODE.replace("n1", "n3") + "---\n" + POD.replace("p1", "p3")
    outcome = plan("-f", tmp_path / "n1.yaml", "-f", tmp_path / "pods", "-f", "-", stdin=more)
    assert bound(outcome) == ["default/p1", "default/p2", "default/p3"]


@pytest.mark.parametrize("text", ["", "---\n# nothing\n", '{"apiVersion": "v1", "kind": "List", "items": []}'])
def test_input_without_objects_is_refused_rather_than_taken_for_an_idle_cluster(text: str) -> None:
    assert refused("-f", "-", stdin=text) == [
        "error: the input has no objects that scheduling reads; expected nodes, pods and the like"
    ]


def test_all_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").write_text("x")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/folder.yaml").mkdir()
    long = "x" * 5000
    lines = refused("-f", "nosuch.yaml", "-f", tmp_path / "empty", "-f", tmp_path / "odd", "-f", "", "-f", long)
    assert lines[:4] == [
        "error: nosuch.yaml: cannot be read: No such file or directory",
        f"error: {tmp_path}/empty: the directory has no file that ends in .yaml, .yml, .json",
        f"error: {tmp_path}/odd/folder.yaml: cannot be read: Is a directory",
        "error: : cannot be read: the name is empty",
    ]
    assert lines[4].startswith("error: xxx")
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"kind: \xff\xfe\n", "error: <stdin>: not valid YAML: "),
        (
            b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\xff"}}',
            "error: <stdin>: Pod (no name): not valid UTF-8",
        ),
        (bytes(range(256)), "error: <stdin>: is not text; expected YAML or JSON"),
        (b"[" * 300_000, "error: <stdin>: "),
        (b'{"a":' * 300_000, "error: <stdin>: nested too deeply"),
        (
            b'{"apiVersion": "v1", "kind": "List", "items": [{"api',
            "error: <stdin>: line 1, column 53: not valid YAML: ",
        ),
    ],
    ids=["yaml not in utf-8", "json not in utf-8", "every byte", "deep yaml", "deep json", "half a file"],
)
def test_binary_truncated_or_non_object_input_is_refused(data: bytes, message: str) -> None:
    (line,) = refused("-f", "-", stdin=data)
    assert line.startswith(message)


def test_a_gang_that_asks_for_more_than_any_quantity_is_explained() -> None:
    """Each of its pods asks for a quantity; their sum is larger than 2^63-1."""
    gang = "apiVersion: maniple.dev/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 4}\n"
    huge = POD.replace("name: p1", "name: p1, labels: {maniple.dev/pod-group: g}")
    huge = huge.replace("{requests: {cpu: '1'}}", "{limits: {nvidia.com/gpu: 4611686018427387904}}")
    pods = [huge.replace("name: p1", f"name: p{number}") for number in range(4)]
    assert "4611686018427387904" in pods[0]
    (waiting,) = plan("-f", "-", stdin="---\n".join([NODE, gang, *pods]))["rounds"][0]["waiting"]
    assert waiting["needs"]["nvidia.com/gpu"] == "18446744073709551616"


def test_all_problems_are_reported_at_once_and_nothing_is_planned() -> None:
    text = "---\n".join([NODE, POD.replace("spec:", "sepc:"), "kind: [\n"])
    lines = refused("-f", "-", "-f", FIRST, "-f", FIRST, stdin=text)
    assert lines == [
        "error: <stdin>, document 2: Pod p1: unknown field 'sepc'; did you mean 'spec'?",
        "error: <stdin>: line 12, column 1: not valid YAML: did not find expected node content",
    ]


def test_contradictions_between_objects_are_refused_too() -> None:
    group = "apiVersion: maniple.dev/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {queue: reserch}\n"
    queue = "apiVersion: maniple.dev/v1alpha1\nkind: Queue\nmetadata: {name: research}\n"
    assert refused("-f", "-", stdin=f"{queue}---\n{group}") == [
        "error: <stdin>, document 2: PodGroup default/g: spec.queue: unknown queue 'reserch'; did you mean 'research'?"
    ]
    assert refused("-f", "-", stdin=f"{NODE}---\n{NODE}") == [
        "error: <stdin>, document 2: Node n1: given twice; an object may stand in the input once"
    ]


def test_notes_go_to_standard_error_and_leave_the_output_whole() -> None:
    other = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    volcano = """apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g}
spec: {minMember: 1, minResources: {cpu: '1'}}
"""
    done = run_here("plan", "-f", "-", "-o", "json", stdin="---\n".join([NODE, other, volcano, POD]))
    assert done.returncode == 0
    assert bound(json.loads(done.stdout)) == ["default/p1"]
    assert done.stderr.splitlines() == [
        "note: <stdin>, document 3: PodGroup g: spec.minResources has no counterpart here and is not read",
        "note: skipped, because scheduling does not read them: 1 Secret",
    ]


# -- options


def test_only_pods_of_our_scheduler_are_planned_by_default() -> None:
    nodes = [NODE.replace("n1", f"n{number}") for number in range(3)]
    names = ["maniple", "volcano", "default-scheduler"]
    pods = [
        POD.replace("p1", f"of-{name}").replace("schedulerName: maniple", f"schedulerName: {name}") for name in names
    ]
    text = "---\n".join([*nodes, *pods])
    for name, *option in (["maniple"], ["volcano", "--scheduler-name", "volcano"]):
        done = run_here("plan", "-f", "-", *option, "-o", "json", stdin=text)
        assert bound(json.loads(done.stdout)) == [f"default/of-{name}"]
        assert [line for line in done.stderr.splitlines() if f"scheduler {name}:" in line] == []
        assert done.stderr.count("1 pending pod belongs to scheduler ") == 2
    assert bound(plan("-f", "-", "--all", stdin=text)) == [
        *("default/of-default-scheduler", "default/of-maniple", "default/of-volcano"),
    ]


LEAVING = POD.replace("p1}", "leaving, deletionTimestamp: '2026-01-01T00:00:00Z'}").replace(
    "spec: {", "spec: {nodeName: n1, "
)


def test_rounds_apply_the_plan_and_plan_again() -> None:
    """Nominated in the first round, bound in the second when the evicted pod is gone; then nothing changes."""
    outcome = plan("-f", "-", "--rounds", "3", stdin="---\n".join([NODE, LEAVING, POD]))
    promised, then, last = outcome["rounds"]
    assert promised["nominations"] == [{"pod": "default/p1", "node": "n1"}]
    assert [entry["reason"] for entry in promised["waiting"]] == ["Promised"]
    assert then["binds"] == [{"pod": "default/p1", "node": "n1", "gpus": []}]
    assert last == {
        "binds": [],
        "evictions": [],
        "nominations": [],
        "moves": [],
        "resizes": [],
        "reservations": [],
        "waiting": [],
    }
    assert len(outcome["timings"]["schedule_s"]) == 3


CONTENDED = "---\n".join(
    [
        NODE,
        "apiVersion: maniple.dev/v1alpha1\nkind: PodGroup\nmetadata: {name: low}\nspec: {minRuntimeSeconds: 60}\n",
        """apiVersion: v1
kind: Pod
metadata: {name: low, labels: {maniple.dev/pod-group: low}}
spec: {schedulerName: maniple, nodeName: n1, priority: 0, containers: [{name: m, resources: {requests: {cpu: '1'}}}]}
status: {phase: Running, startTime: '2026-01-01T12:00:00Z'}
""",
        POD.replace("spec: {", "spec: {priority: 10, "),
    ]
)


@pytest.mark.parametrize(
    ("now", "evicted"),
    [
        ("2026-01-01T12:00:59Z", []),
        ("2026-01-01T12:01:00Z", ["default/low"]),
        ("2026-01-01T13:00:59+01:00", []),
        ("2026-01-01T12:01:00", ["default/low"]),
        (None, []),
    ],
)
def test_now_sets_the_time_of_the_decision(now: str | None, evicted: list[str]) -> None:
    """A pod that must run for a minute before it may be evicted. Without --now, now is when it started."""
    arguments = ["--now", now] if now else []
    outcome = plan("-f", "-", "--policy", KUBE_BATCH, *arguments, stdin=CONTENDED)
    assert [eviction["pod"] for eviction in outcome["rounds"][0]["evictions"]] == evicted


def test_a_policy_file_decides(tmp_path: Path) -> None:
    evictions = plan("-f", "-", "--policy", KUBE_BATCH, "--now", "2027-01-01", stdin=CONTENDED)["rounds"][0][
        "evictions"
    ]
    assert evictions == [{"pod": "default/low", "reason": "Preempted", "for": "default/p1"}]
    peaceful = tmp_path / "peaceful.yaml"
    peaceful.write_text('actions: "allocate, backfill"\n')
    assert plan("-f", "-", "--policy", peaceful, "--now", "2027-01-01", stdin=CONTENDED)["rounds"][0]["evictions"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "nosuch.yaml"], "error: nosuch.yaml: cannot be read: No such file or directory"),
        (["--policy", str(EXAMPLES)], f"error: {EXAMPLES}: cannot be read: Is a directory"),
        (["--policy", str(FIRST)], f"error: {FIRST}: expected one YAML document, found 9"),
        (["--now", "soon"], "error: --now: 'soon' is not a time; expected one such as 2026-01-31T12:00:00Z"),
        (
            ["--now", "9999-12-31T23:59:59-12:00"],
            "error: --now: expected a time between the years 1971 and 9998, found '9999-12-31T23:59:59-12:00'",
        ),
    ],
)
def test_wrong_values_of_options_are_refused(arguments: list[str], message: str) -> None:
    assert refused("-f", FIRST, *arguments) == [message]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing option '-f' / '--file'"),
        (["-f", str(FIRST), "--rounds", "0"], "invalid value for '--rounds': 0 is not in the range 1<=x<=100000"),
        (["-f", str(FIRST), "--rounds", "x"], "invalid value for '--rounds': 'x' is not a valid integer range"),
        (["-f", str(FIRST), "-o", "xml"], "invalid value for '-o' / '--output': 'xml' is not one of"),
        (["-f", str(FIRST), "--round", "2"], "--round"),
        (["-f", str(FIRST), "--step", "nan"], "invalid value for '--step': 'nan' is not a number of seconds"),
        (
            ["-f", str(FIRST), "--policy", "no.yaml", "--policy", "a.yaml"],
            "option '--policy' is given 2 times; expected",
        ),
        (["-f", str(FIRST), "-o", "json", "--output=yaml"], "option '--output' is given 2 times; expected once"),
    ],
)
def test_wrong_usage_is_refused_with_a_hint(arguments: list[str], message: str) -> None:
    error, hint = refused(*arguments)
    assert error.startswith("error: ")
    assert message in error
    assert hint == "note: 'maniple plan --help' says what can be written"


# -- output


def test_json_has_exactly_the_documented_form() -> None:
    """Two nodes, and one pod each that is bound, evicted, nominated and waiting."""
    text = "---\n".join(
        [
            CONTENDED,
            NODE.replace("n1", "n2").replace("cpu: '1'", "nvidia.com/gpu: 2, cpu: '4'"),
            POD.replace("p1", "starts").replace("requests: {cpu: '1'}", "limits: {nvidia.com/gpu: 2}"),
            POD.replace("p1", "waits").replace("cpu: '1'", "cpu: '9'"),
        ]
    )
    # The pod on n1 is the only one that p1 can displace: it may not go to n2.
    text = text.replace("priority: 10", "priority: 10, nodeSelector: {disk: fast}").replace(
        "{name: n1}", "{name: n1, labels: {disk: fast}}"
    )
    outcome = plan("-f", "-", "--policy", KUBE_BATCH, "--now", "2027-01-01", stdin=text)
    assert list(outcome) == ["rounds", "settledAfter", "queues", "timings"]
    assert list(outcome["rounds"][0]) == [
        "binds",
        "evictions",
        "nominations",
        "moves",
        "resizes",
        "reservations",
        "waiting",
    ]
    assert [list(entry) for entry in outcome["rounds"][0]["waiting"]] == [
        [
            "group",
            "kind",
            "queue",
            "reason",
            "message",
            "needs",
            "nodes",
            "wouldStartIf",
            "position",
            "tried",
            "nearest",
        ]
    ] * 2
    for entry in outcome["rounds"][0]["waiting"]:
        assert entry.pop("message")
        assert entry.pop("wouldStartIf")
    # In the order of the policy's actions; pods that ask for something are not for backfill.
    tried = outcome["rounds"][0]["waiting"][1].pop("tried")
    assert [list(entry) for entry in tried] == [["action", "why"]] * 3
    assert [entry["action"] for entry in tried] == ["reclaim", "allocate", "preempt"]
    assert all(entry["why"] for entry in tried)
    nearest = outcome["rounds"][0]["waiting"][1].pop("nearest")
    assert nearest.pop("place") in ("node n1", "node n2")
    assert list(nearest) == [
        *("pods", "fits", "resource", "needs", "free", "lacks", "isScattered", "refusals", "heldBy", "others")
    ]
    assert outcome["rounds"] == [
        {
            "binds": [{"pod": "default/starts", "node": "n2", "gpus": ["0", "1"]}],
            "evictions": [{"pod": "default/low", "reason": "Preempted", "for": "default/p1"}],
            "nominations": [{"pod": "default/p1", "node": "n1"}],
            "moves": [],
            "resizes": [],
            "reservations": [],
            "waiting": [
                {
                    "group": "default/p1",
                    "kind": "Pod",
                    "queue": "default",
                    "reason": "Promised",
                    "needs": outcome["rounds"][0]["waiting"][0]["needs"],
                    "nodes": [],
                    "position": None,
                    "tried": [],
                    "nearest": None,
                },
                {
                    "group": "default/waits",
                    "kind": "Pod",
                    "queue": "default",
                    "reason": "NoNodeFits",
                    "needs": {"pods": "1", "cpu": "9"},
                    "nodes": [{"reason": "insufficient cpu", "count": 2}],
                    "position": 1,
                },
            ],
        }
    ]
    assert outcome["rounds"][0]["waiting"][0]["needs"]["pods"] == "1"
    (queue,) = outcome["queues"]
    assert list(queue) == ["name", "deserved", "allocated", "share"]
    assert queue["allocated"] == {"cpu": "1", "nvidia.com/gpu": "2"}
    assert isinstance(queue["share"], float)
    assert {key: type(value) for key, value in outcome["timings"].items()} == {"load_s": float, "schedule_s": list}


def test_lists_are_sorted() -> None:
    outcome = example("06")
    (round_,) = outcome["rounds"]
    assert [bind["pod"] for bind in round_["binds"]] == sorted(bind["pod"] for bind in round_["binds"])
    assert [entry["group"] for entry in round_["waiting"]] == sorted(entry["group"] for entry in round_["waiting"])
    assert [queue["name"] for queue in outcome["queues"]] == ["default", "production", "research"]


def test_yaml_output_equals_json_output() -> None:
    done = run_here("plan", "-f", FIRST, "-o", "yaml")
    assert (done.returncode, done.stderr) == (0, "")
    outcome = yaml.safe_load(done.stdout)
    assert untimed(outcome) == untimed(example("01"))
    assert list(outcome) == list(example("01"))


def test_the_table_shows_starts_evictions_waiting_gangs_and_remedies() -> None:
    done = run_here("plan", "-f", "-", "--policy", KUBE_BATCH, "--now", "2027-01-01", "--rounds", "2", stdin=CONTENDED)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == ["Round 1", "Leaves", "Nominates", "Waits", "Round 2", "Starts", "Waits", "Queues"]
    assert any("default/low" in line and "Preempted" in line and "default/p1" in line for line in lines)
    assert any("would start if" in line for line in lines)
    assert not any(line != line.rstrip() for line in lines)


PAIRS = """apiVersion: v1
kind: Node
metadata:
  name: n1
  annotations:
    maniple.dev/gpu-topology: |
      {"version": 1, "devices": [{"id": "0"}, {"id": "1"}, {"id": "2"}, {"id": "3"}, {"id": "a"}, {"id": "07"}],
       "links": [["X", "NV2", "SYS", "SYS", "SYS", "SYS"], ["NV2", "X", "SYS", "SYS", "SYS", "SYS"],
                 ["SYS", "SYS", "X", "NV2", "SYS", "SYS"], ["SYS", "SYS", "NV2", "X", "SYS", "SYS"],
                 ["SYS", "SYS", "SYS", "SYS", "X", "PIX"], ["SYS", "SYS", "SYS", "SYS", "PIX", "X"]]}
status: {allocatable: {nvidia.com/gpu: 6, pods: 110}}
"""


def gang(name: str, pods: list[tuple[int, str]]) -> str:
    """A gang of pods, each with a number of GPUs and a fraction of them."""
    texts = [f"apiVersion: maniple.dev/v1alpha1\nkind: PodGroup\nmetadata: {{name: {name}}}\n"]
    texts[0] += f"spec: {{minMember: {len(pods)}}}\n"
    for index, (count, fraction) in enumerate(pods):
        text = POD.replace("requests: {cpu: '1'}", f"limits: {{nvidia.com/gpu: {count}}}").replace(
            "p1}", f"{name}-{index}, ANNOTATIONS"
        )
        text = text.replace("ANNOTATIONS", f"labels: {{maniple.dev/pod-group: {name}}}, ANNOTATIONS")
        wish = f"{{maniple.dev/gpu-fraction: '{fraction}'}}" if fraction else "{}"
        texts.append(text.replace("ANNOTATIONS", f"annotations: {wish}}}"))
    return "---\n".join(texts)


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        ([(1, "")], "n1 (gpu a)"),
        ([(2, "")], "n1 (gpu 0-1 at 50 GB/s)"),
        ([(2, ""), (2, "")], "n1 ×2 (gpu 0-1 + 2-3 at 50 GB/s)"),
        ([(2, ""), (2, ""), (2, "")], "n1 ×3 (gpu 0-1 + 2-3 at 50 GB/s; gpu 07,a at 10.6 GB/s)"),
        ([(1, "0.25")] * 4, "n1 ×4 (0.25 of gpu a)"),
        ([(2, "0.25")] * 2, "n1 ×2 (0.25 of gpu 0-1 at 50 GB/s)"),
        ([(1, "0.5"), (2, "")], "n1 ×2 (gpu 0-1 at 50 GB/s; 0.5 of gpu a)"),
    ],
)
def test_the_table_shows_gpus_shares_and_ring_speed(pods: list[tuple[int, str]], nodes: str) -> None:
    done = run_here("plan", "-f", "-", stdin=f"{PAIRS}---\n{gang('g', pods)}")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if "default/g " in line]
    assert line.split("  ")[-1].strip() == nodes


def test_control_characters_in_names_are_escaped() -> None:
    text = "---\n".join([NODE, POD.replace("spec: {", 'spec: {nodeSelector: {"a\\nb": "\\e[31mred"}, ')])
    done = run_here("plan", "-f", "-", stdin=text)
    assert done.returncode == 0
    assert r"a\nb=\x1b[31mred" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1251", "latin-1"])
def test_a_letter_that_the_terminal_lacks_becomes_a_question_mark(encoding: str) -> None:
    done = subprocess.run(
        [*COMMAND, "plan", "-f", str(FIRST)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"default/b" in done.stdout


def test_a_closed_pipe_causes_no_traceback() -> None:
    """`maniple plan … | head -1`, with more output than a pipe holds."""
    command = [*COMMAND, "plan", "-f", str(next(EXAMPLES.glob("06*.yaml"))), "-o", "json", "--rounds", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read().strip() == b""
        assert process.wait(timeout=60) in (0, 1)  # which of them is up to click


def test_a_full_disk_is_an_error_without_a_traceback() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "plan", "-f", str(FIRST)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: [Errno 28] No space left on device\n")


def test_closed_streams_are_empty_ones() -> None:
    shell = shutil.which("sh")
    assert shell
    line = f"exec {COMMAND[0]} -m maniple plan -f - <&- >&-"
    done = subprocess.run([shell, "-c", line], cwd=ROOT, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"no objects" in done.stderr
    assert b"Traceback" not in done.stderr


def waits_for(process: subprocess.Popen[bytes], pipe: IO[bytes] | None) -> bool:
    """Whether the process has read the whole pipe, and sleeps."""
    assert pipe
    unread = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    return not unread and Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_ctrl_c_while_reading_input_stops_quietly() -> None:
    with subprocess.Popen(
        [*COMMAND, "plan", "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b'{"apiVersion": "v1", "kind"')
        process.stdin.flush()
        wait_until("it to wait for more", lambda: waits_for(process, process.stdin))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stdout.read() == b""
        assert process.stderr.read().strip() == b""


def test_rounds_that_repeat_are_not_printed() -> None:
    source = str(EXAMPLES / "actions" / "allocate.yaml")
    text = run_here("plan", "-f", source, "--rounds", "5").stdout
    assert "Round 2\n" in text
    assert "Round 3" not in text
    assert "\n\nSettled after round 2: rounds 3 to 5 are the same.\n\nQueues\n" in text
    outcome = plan("-f", source, "--rounds", "5")
    assert (outcome["settledAfter"], len(outcome["rounds"])) == (2, 5)
    assert "Settled" not in run_here("plan", "-f", source, "--rounds", "2").stdout
    assert plan("-f", source)["settledAfter"] is None


def test_a_round_with_news_is_printed_however_late_it_comes() -> None:
    """With a step, objects arrive and end after rounds in which nothing happens."""
    text = run_here(
        "plan",
        "-f",
        str(EXAMPLES / "07-elastic.yaml"),
        "--now",
        "2026-01-01T10:00:00Z",
        "--step",
        "300",
        "--rounds",
        "12",
    ).stdout
    assert "Round 6, " in text
    assert "Settled after round " in text
    assert "Round 12, " not in text
