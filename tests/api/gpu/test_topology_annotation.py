"""The annotation `maniple.dev/gpu-topology` and the text of `nvidia-smi topo -m`: parsed or refused, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.api.gpu.nvidia_smi import read_smi, read_topology
from maniple.api.gpu.topology_annotation import (
    MAX_DEVICES,
    GpuDevice,
    GpuTopology,
    TopologyError,
    nvlinks,
    parse_topology,
    problems,
    to_json,
)

SMI = Path(__file__).resolve().parents[3] / "examples/topology"
FULL = {
    "version": 1,
    "resource": "nvidia.com/gpu",
    "devices": [
        {"id": "0", "uuid": "GPU-a", "model": "NVIDIA-A100-SXM4-40GB", "memory": "40Gi", "numa": 0, "healthy": True},
        {"id": 1, "memory": 42949672960, "numa": 1, "healthy": False},
    ],
    "links": [["X", "NV12"], [64.5, "X"]],
}


def changed(**changes: Any) -> str:
    return json.dumps({**FULL, **changes})


def device(**fields: Any) -> str:
    return changed(devices=[fields, {"id": "1"}])


# -- the annotation


def test_every_field_is_read() -> None:
    assert parse_topology(json.dumps(FULL)) == GpuTopology(
        version=1,
        resource="nvidia.com/gpu",
        devices=(
            GpuDevice("0", "GPU-a", "NVIDIA-A100-SXM4-40GB", 40 * 2**30, 0, True),
            GpuDevice("1", "", "", 40 * 2**30, 1, False),
        ),
        links=(("X", "NV12"), (64.5, "X")),
    )


@pytest.mark.parametrize("extra", [{}, {"resource": None, "links": None}, {"links": []}])
def test_only_version_and_ids_are_needed(extra: dict[str, Any]) -> None:
    text = json.dumps({"version": 1, "devices": [{"id": "a"}, {"id": 7, "model": None, "numa": -1}], **extra})
    assert parse_topology(text) == GpuTopology(1, "nvidia.com/gpu", (GpuDevice("a"), GpuDevice("7")))
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["not valid JSON: Input data was truncated"]),
        ("[]", ["expected an object with version and devices, found a list"]),
        ("7", ["expected an object with version and devices, found a number"]),
        ("{}", ["version: is missing; supported: 1", "devices: is missing"]),
        (changed(version=2), ["version: 2 is not supported; supported: 1"]),
        (changed(version="1"), ["version: '1' is not supported; supported: 1"]),
        (changed(version=True), ["version: true is not supported; supported: 1"]),
        (changed(devics=[]), ["unknown field 'devics'; did you mean 'devices'?"]),
        (changed(resource=""), []),
        (
            changed(resource="nvida.com/gpu"),
            ["resource: unknown GPU resource 'nvida.com/gpu'; did you mean 'nvidia.com/gpu'?"],
        ),
        (changed(resource=5), ["resource: expected a text of at most 253 letters, found 5"]),
        (changed(devices={}), ["devices: expected a list, found an object"]),
        (changed(devices=[], links=[]), ["devices: expected at least one GPU, found an empty list"]),
        (changed(devices=[7, {"id": 1}]), ["devices[0]: expected an object with an id, found a number"]),
        (device(), ["devices[0].id: is missing; expected a number, or a text without spaces and commas"]),
        (device(id="0,1"), ["devices[0].id: found '0,1'; expected a number, or a text without spaces and commas"]),
        (device(id=-1), ["devices[0].id: found -1; expected a number, or a text without spaces and commas"]),
        (device(id=True), ["devices[0].id: found true; expected a number, or a text without spaces and commas"]),
        (device(id=1), ["devices[1].id: '1' is also the id of devices[0]"]),
        (device(id=0, modle="x"), ["devices[0]: unknown field 'modle'; did you mean 'model'?"]),
        (device(id=0, model=[]), ["devices[0].model: expected a text of at most 253 letters, found a list"]),
        (
            device(id=0, memory="40GB"),
            ["devices[0].memory: '40GB' is not a quantity; expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3"],
        ),
        (device(id=0, memory="0"), ["devices[0].memory: expected more than 0, found '0'"]),
        (
            device(id=0, memory=1.5),
            ["devices[0].memory: expected a quantity such as 40Gi, or a number of bytes, found 1.5"],
        ),
        (
            device(id=0, numa="0"),
            ["devices[0].numa: expected the number of a NUMA node, or -1 for unknown, found '0'"],
        ),
        (device(id=0, healthy="no"), ["devices[0].healthy: expected true or false, found 'no'"]),
        (changed(links={}), ["links: expected a list of rows, found an object"]),
        (changed(links=[["X", "SYS"]]), ["links: expected 2 rows, one for each device, got 1"]),
        (changed(links=[["X", "SYS"], ["X"]]), ["links[1]: expected 2 entries, got 1"]),
        (changed(links=[["X", "SYS"], "X"]), ["links[1]: expected a list of 2 links, found a text"]),
        (changed(links=[["X", "NOD"], ["SYS", "X"]]), ["links[0][1]: unknown link 'NOD'; did you mean 'NODE'?"]),
        (changed(links=[["X", "nv12"], ["SYS", "X"]]), ["links[0][1]: unknown link 'nv12'; did you mean 'NV12'?"]),
        (
            changed(links=[["X", "X"], ["SYS", "X"]]),
            ["links[0][1]: X is the link of a GPU to itself; expected the link of two GPUs"],
        ),
        (
            changed(links=[["X", 0], ["SYS", 0]]),
            ["links[0][1]: expected more than 0 and at most 1000000 GB/s, found 0"],
        ),
        (
            changed(links=[["X", None], ["SYS", "X"]]),
            ["links[0][1]: expected a word such as NV12 or PIX, or a number of GB/s, found null"],
        ),
    ],
)
def test_every_problem_names_its_place_and_says_what_is_expected(text: str, expected: list[str]) -> None:
    assert problems(text) == expected
    if expected:
        with pytest.raises(TopologyError) as error:
            parse_topology(text)
        assert str(error.value) == "; ".join(expected)


def test_all_problems_are_reported_at_once_up_to_a_limit() -> None:
    text = changed(devices=[{"id": 0, "memory": "x", "numa": 0.5}] * 30)
    messages = problems(text)
    assert len(messages) == 21
    assert {messages[0].split(":")[0], messages[1].split(":")[0]} == {"devices[0].memory", "devices[0].numa"}
    assert messages[-1].startswith("… and ")


def test_the_number_of_devices_is_limited() -> None:
    def many(count: int) -> str:
        return json.dumps({"version": 1, "devices": [{"id": number} for number in range(count)]})

    assert len(parse_topology(many(MAX_DEVICES)).devices) == MAX_DEVICES
    assert problems(many(MAX_DEVICES + 1)) == ["devices: expected at most 1024 GPUs, found 1025"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ud800",
        '"\\ud800"',
        '{"version": ' + "9" * 5000 + "}",
        '{"version": 1e999}',
        '{"version": NaN}',
        "\x00",
    ],
)
def test_text_that_is_not_json_is_refused(text: str) -> None:
    assert problems(text)


def test_the_diagonal_may_hold_any_link() -> None:
    for value in ("X", 0, 5, "NV4"):
        assert problems(changed(links=[[value, "SYS"], ["SYS", value]])) == []


def test_a_topology_is_the_same_after_it_was_written_and_read() -> None:
    topology = parse_topology(json.dumps(FULL))
    text = to_json(topology)
    assert parse_topology(text) == topology
    assert "\n" not in text
    assert json.loads(text)["devices"][1] == {"id": "1", "memory": "40Gi", "numa": 1, "healthy": False}


@pytest.mark.parametrize(("word", "count"), [("NV1", 1), ("NV18", 18), ("NV0", 0), ("NV", 0), ("NV1x", 0), ("SYS", 0)])
def test_nvlinks_of_a_word(word: str, count: int) -> None:
    assert nvlinks(word) == count


# -- nothing crashes

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["X", "NV12", "SYS", "40Gi", "0", "id", "nvidia.com/gpu"]),
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)
links_like = st.lists(st.lists(st.one_of(scalars, st.just("PIX")), max_size=3), max_size=3)
devices_like = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 3) | scalars},
        optional=dict.fromkeys(("uuid", "model", "memory", "numa", "healthy", "x"), scalars),
    ),
    max_size=3,
)
topology_like = st.fixed_dictionaries(
    {"version": st.just(1) | scalars, "devices": devices_like | anything},
    optional={"resource": scalars, "links": links_like | anything, "x": scalars},
)
quick = settings(max_examples=300, database=None, deadline=None)


@quick
@given(anything | topology_like)
def test_any_json_is_a_topology_or_a_list_of_one_line_problems(value: Any) -> None:
    text = json.dumps(value)
    messages = problems(text)
    assert all(problem and problem.isprintable() for problem in messages)
    if not messages:
        topology = parse_topology(text)
        assert parse_topology(to_json(topology)) == topology


def check_reading(text: str) -> None:
    told: list[str] = []
    try:
        topology = read_topology(text)
    except TopologyError as error:
        told = error.problems
    else:
        assert parse_topology(to_json(topology)) == topology
        return
    assert told
    assert all(problem.isprintable() for problem in told)


@quick
@given(st.text())
def test_any_text_is_a_topology_or_refused(text: str) -> None:
    check_reading(text)


@settings(max_examples=100, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_mangled_output_of_nvidia_smi_is_a_topology_or_refused(seed: int) -> None:
    random = Random(seed)
    text = random.choice(sorted(SMI.glob("*.txt"))).read_text(encoding="utf-8")
    for _ in range(random.choice((1, 1, 3, 9))):
        start = random.randrange(len(text) + 1)
        end = start + random.choice((0, 1, 1, 5, 50))
        token = random.choice(
            ("", "\t", "\n", " ", "X", "GPU1", "GPU", "NV", "N/A", "0", "\x1b[4m", "CPU Affinity", "é")
        )
        text = text[:start] + token + text[end:]
    check_reading(text)


# -- nvidia-smi


def smi(name: str) -> str:
    return (SMI / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "first_row", "numa"),
    [
        ("dgx-1v", "X NV1 NV1 NV2 NV2 SYS SYS SYS", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("dgx-a100", "X NV12 NV12 NV12 NV12 NV12 NV12 NV12", [3, 3, 1, 1, 7, 7, 5, 5]),
        ("dgx-h100", "X NV18 NV18 NV18 NV18 NV18 NV18 NV18", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("nvlink-pairs", "X NV4 NODE NODE SYS SYS SYS SYS", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("pcie-switches", "X PIX NODE NODE SYS SYS SYS SYS", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("two-boards-16", "X" + " NV6" * 7 + " SYS" * 8, [0] * 8 + [1] * 8),
    ],
)
def test_known_machines(name: str, first_row: str, numa: list[int]) -> None:
    notes: list[str] = []
    topology = read_smi(smi(name), notes)
    assert topology.links[0] == tuple(first_row.split())
    assert [device.numa for device in topology.devices] == numa
    assert [device.id for device in topology.devices] == [str(number) for number in range(len(numa))]
    assert all(device.healthy for device in topology.devices)
    assert notes == []
    assert parse_topology(to_json(topology)) == topology


@pytest.mark.parametrize("name", ["dgx-1v", "dgx-h100", "two-boards-16", "lost-gpu"])
def test_tabs_spaces_and_escape_codes_do_not_change_the_result(name: str) -> None:
    text = smi(name)
    lines = text.splitlines()
    underlined = "\n".join(["\t\x1b[4m" + lines[0].lstrip("\t") + "\x1b[0m", *lines[1:]])
    ways = {
        "spaces": text.expandtabs(),
        "single spaces": "\n".join(" ".join(line.split()) for line in lines),
        "wide": text.expandtabs(16),
        "windows": text.replace("\n", "\r\n"),
        "underlined": underlined,
        "escape lost": underlined.replace("\x1b", ""),
        "a prompt before, another after": f"user@n1:~$ nvidia-smi topo -m\n{text}\nuser@n1:~$ \n",
        "byte order mark": "\ufeff" + text,
        "legend": f"{text}\nLegend:\n\n  X    = Self\n  NV#  = some\n\nNIC Legend:\n\n  NIC0: mlx5_0\n",
    }
    expected = read_smi(text)
    for way, changed_text in ways.items():
        assert read_topology(changed_text) == expected, way


def test_nics_may_be_in_any_column() -> None:
    text = """\
        mlx5_0 GPU0 mlx5_1 GPU1 CPU Affinity
mlx5_0   X     PIX  SYS    SYS
GPU0    PIX     X   SYS    PHB  0-7
mlx5_1  SYS    SYS   X     PIX
GPU1    SYS    PHB  PIX     X   0-7
"""
    with pytest.raises(TopologyError, match="no line with GPU0"):
        read_smi(text)
    moved = text.replace("mlx5_0 GPU0 mlx5_1", "GPU0 mlx5_0 mlx5_1").replace("PIX     X   SYS    PHB", "X PIX SYS PHB")
    moved = moved.replace("SYS    PHB  PIX", "PHB SYS PIX")
    assert read_smi(moved).links == (("X", "PHB"), ("PHB", "X"))


def test_the_annotation_is_accepted_as_input_too() -> None:
    assert read_topology("\n " + json.dumps(FULL)) == parse_topology(json.dumps(FULL))
    with pytest.raises(TopologyError, match="devices: is missing"):
        read_topology('{"version": 1}')


def test_words_of_older_versions_are_understood() -> None:
    assert read_smi("GPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n").links[0] == ("X", "SYS")


@pytest.mark.parametrize("cell", ["0-1", "N/A", "", "x"])
def test_a_numa_node_is_one_number_or_unknown(cell: str) -> None:
    text = f"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t{cell}\t\tN/A\n"
    assert read_smi(text).devices == (GpuDevice("0"),)


def test_missing_gpu_numbers_stay_missing() -> None:
    topology = read_smi("\tGPU0\tGPU3\nGPU0\t X \tNV4\nGPU3\tNV4\t X \n")
    assert [device.id for device in topology.devices] == ["0", "3"]


@pytest.mark.parametrize("cell", ["N/A", "ERR", "ERR!", "OK", "", " - "])
def test_a_lost_gpu_is_unhealthy_and_noted(cell: str) -> None:
    notes: list[str] = []
    text = f"\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\t{cell}\nGPU1\tNV4\t X \t{cell}\nGPU2\t{cell}\t{cell}\t X \n"
    topology = read_smi(text, notes)
    assert [device.healthy for device in topology.devices] == [True, True, False]
    assert topology.links[2] == ("SYS", "SYS", "X")
    assert notes == ["GPU2 has no link that can be read: taken for lost, and marked unhealthy"]


def test_a_lost_gpu_is_found_by_column_if_tabs_became_spaces() -> None:
    text = "        GPU0    GPU1    GPU2\nGPU0     X      NV4\nGPU1    NV4      X\nGPU2                     X\n"
    assert [device.healthy for device in read_smi(text).devices] == [True, True, False]


def test_a_single_unreadable_link_counts_as_the_slowest() -> None:
    notes: list[str] = []
    topology = read_smi("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tN/A\nGPU1\tNV4\tX\tNV4\nGPU2\tN/A\tNV4\tX\n", notes)
    assert topology.links == (("X", "NV4", "SYS"), ("NV4", "X", "NV4"), ("SYS", "NV4", "X"))
    assert all(device.healthy for device in topology.devices)
    assert notes == ["GPU0 to GPU2: cannot be read, taken for SYS"]


def test_a_link_readable_from_one_side_counts() -> None:
    assert read_smi("\tGPU0\tGPU1\nGPU0\tX\tN/A\nGPU1\tNV4\tX\n").links == (("X", "NV4"), ("NV4", "X"))


def test_if_no_link_can_be_read_no_gpu_is_lost() -> None:
    notes: list[str] = []
    assert all(device.healthy for device in read_smi("\tGPU0\tGPU1\nGPU0\tX\tN/A\nGPU1\tN/A\tX\n", notes).devices)
    assert notes == ["GPU0 to GPU1: cannot be read, taken for SYS"]


HEADER = "\tGPU0\tGPU1\tCPU Affinity\n"
FIRST = "GPU0\t X \tNV4\t0-7\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line with GPU0, GPU1, … found; expected what `nvidia-smi topo -m` prints, or the annotation's JSON"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the driver", "no line with GPU0"),
        ("Legend:\n\n  X    = Self\n", "no line with GPU0"),
        (HEADER, "line 1: the text ends without a row for GPU0, GPU1"),
        (HEADER + FIRST, "line 2: the text ends without a row for GPU1"),
        (HEADER + FIRST + "GPU1\tNV4", "line 3: GPU1 has 1 links, expected 2"),
        (HEADER + FIRST + "GPU1\tNVZ\t X \t0-7\n", "line 3: GPU1 to GPU0: unknown link 'NVZ'; did you mean 'NV"),
        (
            HEADER + FIRST + "GPU1\t X \tNV4\t0-7\n",
            "line 3: GPU1 to GPU0: found 'X'; X stands where a GPU meets itself",
        ),
        (HEADER + FIRST + FIRST, "line 3: a second row for GPU0; expected the output of one node"),
        (HEADER + FIRST + "GPU7\t X \tNV4\t0-7\n", "line 3: GPU7 has a row, but no column in line 1"),
        ("\tGPU0\tGPU0\nGPU0\t X \tNV4\n", "line 1: two columns for GPU0"),
        ("GPU0 " + " ".join(f"GPU{number}" for number in range(1, 1500)), "line 1: expected at most 1024 GPUs"),
    ],
)
def test_wrong_or_truncated_text_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(TopologyError) as error:
        read_smi(text)
    assert error.value.problems[0].startswith(message)
