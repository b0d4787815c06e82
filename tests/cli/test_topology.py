"""`maniple topology`: what it reads, draws and writes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cli.run_maniple import EXAMPLES, run_here
from maniple.api.gpu.nvidia_smi import read_smi
from maniple.api.gpu.topology_annotation import parse_topology, to_json

MACHINES = sorted((EXAMPLES / "topology").glob("*.txt"))
PAIRS = EXAMPLES / "topology/nvlink-pairs.txt"


def drawn(*arguments: str | Path, stdin: str | bytes = b"") -> str:
    done = run_here("topology", *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: str | Path, stdin: str | bytes = b"") -> list[str]:
    done = run_here("topology", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()


# -- for people


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_every_example_is_drawn_with_its_links_groups_and_rings(path: Path) -> None:
    done = run_here("topology", path)
    assert done.returncode == 0
    for heading in ("Links\n  GPU  0 ", "Groups\n  node: ", "Best ring\n  SIZE  GB/s  GPUS\n  2 "):
        assert f"\n\n{heading}" in done.stdout


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "nvlink-pairs",
            ["  ├─ NUMA node 0: NODE between", "  │  ├─ 0 1  (NV4)", "     └─ 6 7  (NV4)", "  2     100   0 1"],
        ),
        ("dgx-1v", ["  ├─ NUMA node 0: 0 1 2 3  (NV1, NV2)", "  4     25    0 1 2 3", "  8     50    0 1 2 3 4 5 6 7"]),
        ("dgx-h100", ["  node: NV18 between", "  8     450   0 1 2 3 4 5 6 7"]),
        ("two-boards-16", ["  node: SYS between", "  8     150   0 1 2 3 4 5 6 7"]),
    ],
)
def test_groups_and_rings_of_known_machines(name: str, lines: list[str]) -> None:
    printed = drawn(EXAMPLES / f"topology/{name}.txt").splitlines()
    for line in lines:
        assert line in printed


def test_a_lost_gpu_is_listed_and_in_no_group_or_ring() -> None:
    done = run_here("topology", EXAMPLES / "topology/lost-gpu.txt")
    assert done.stderr == "note: GPU5 has no link that can be read: taken for lost, and marked unhealthy\n"
    assert done.stdout.startswith("8 × nvidia.com/gpu, lost: 5\n")
    groups = done.stdout.split("Groups\n")[1]
    assert "  └─ NUMA node 7: 4\n" in groups
    assert "5" not in groups.split("Best ring\n")[1]


def test_the_model_and_the_memory_are_shown_and_the_model_decides_the_speed() -> None:
    printed = drawn(EXAMPLES / "topology/dgx-1v.txt", "--model", "Tesla-P100-SXM2-16GB", "--memory", "16Gi")
    assert printed.startswith("8 × nvidia.com/gpu, Tesla-P100-SXM2-16GB 16Gi\n")
    assert "\n  2     40    0 3\n" in printed


def test_missing_links_are_assumed_from_the_model_or_unknown() -> None:
    text = json.dumps({"version": 1, "devices": [{"id": number} for number in range(4)]})
    assert drawn("-", stdin=text).splitlines() == [
        "4 × nvidia.com/gpu",
        "Their links are not given, and not known for this model: all sets are equally good.",
    ]
    printed = drawn("-", "--model", "Tesla-T4", stdin=text)
    assert "The links are not given; these are assumed from the model, in GB/s." in printed
    assert "\n  0    X    9.5  9    9\n" in printed
    assert "  ├─ 0 1  (9.5 GB/s)\n" in printed


def test_numbers_of_gb_are_shown_as_they_are() -> None:
    text = json.dumps({"version": 1, "devices": [{"id": "a"}, {"id": "b"}], "links": [["X", 64.5], [50, "X"]]})
    printed = drawn("-", stdin=text)
    assert "  a    X   64.5\n  b    50  X\n" in printed
    assert "  2     50    a b\n" in printed


def test_a_single_gpu_can_be_drawn() -> None:
    printed = drawn("-", stdin="\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    assert "Groups\n  node: 0\n" in printed
    assert "Best ring" not in printed


# -- for Kubernetes


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_json_is_the_annotation_on_one_line_and_can_be_read_again(path: Path) -> None:
    first = run_here("topology", path, "-o", "json").stdout
    assert first == to_json(read_smi(path.read_text(encoding="utf-8"))) + "\n"
    assert drawn("-", "-o", "json", stdin=first) == first


def test_options_fill_in_what_nvidia_smi_does_not_say() -> None:
    options = ["--model", "NVIDIA-A40", "--memory", "46068Mi", "--resource", "amd.com/gpu"]
    topology = parse_topology(drawn(PAIRS, *options, "-o", "json").strip())
    assert topology.resource == "amd.com/gpu"
    assert {(device.model, device.memory_bytes) for device in topology.devices} == {("NVIDIA-A40", 46068 * 2**20)}


def test_annotate_prints_the_command_that_sets_it() -> None:
    program, *words = shlex.split(drawn(PAIRS, "-o", "annotate", "--node", "node 7; rm"))
    assert [program, *words[:4]] == ["kubectl", "annotate", "node", "node 7; rm", "--overwrite"]
    name, _, value = words[4].partition("=")
    assert (name, len(words)) == ("maniple.dev/gpu-topology", 5)
    assert parse_topology(value) == read_smi(PAIRS.read_text(encoding="utf-8"))


# -- wrong input


NO_TABLE = "no line with GPU0, GPU1, … found; expected what `nvidia-smi topo -m` prints, or the annotation's JSON"


@pytest.mark.parametrize(
    ("stdin", "messages"),
    [
        (b"", [f"<stdin>: {NO_TABLE}"]),
        (b"\xff\xfe", ["<stdin>: not valid UTF-8"]),
        (b'{"version": 3}', ["<stdin>: version: 3 is not supported; supported: 1", "<stdin>: devices: is missing"]),
        (b"\tGPU0\tGPU1\nGPU0\t X \tNV4\n", ["<stdin>: line 2: the text ends without a row for GPU1"]),
    ],
)
def test_wrong_input_is_refused_with_its_place(stdin: bytes, messages: list[str]) -> None:
    assert refused("-", stdin=stdin) == [f"error: {message}" for message in messages]


def test_wrong_options_are_refused() -> None:
    assert refused("nosuch.txt") == ["error: nosuch.txt: cannot be read: No such file or directory"]
    assert refused(PAIRS, "--memory", "40GB")[0].startswith("error: --memory: '40GB' is not a quantity")
    assert refused(PAIRS, "--resource", "gpu") == [
        "error: resource: unknown GPU resource 'gpu'; did you mean 'nvidia.com/gpu'?"
    ]
    assert "known: amd.com/gpu, gpu.intel.com/i915" in refused(PAIRS, "--resource", "cards")[0]
    assert "missing option '--node'" in refused(PAIRS, "-o", "annotate")[0]
    assert "missing argument 'FILE'" in refused()[0]


def test_output_formats_are_completed() -> None:
    env = {"COMP_WORDS": "maniple topology -o ", "COMP_CWORD": "3", "_MANIPLE_COMPLETE": "bash_complete"}
    done = run_here(env=env)
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == {"table", "json", "annotate"}
