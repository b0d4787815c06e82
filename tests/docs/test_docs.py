"""The documentation is true: commands print what is shown, YAML loads, tables agree with the code, links resolve."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from cluster.planning import plan_objects

from docs.pages import NOT_RUN, ROOT, Block, blocks, commands, is_as_shown, pages, run, run_on_a_cluster
from maniple.api import types
from maniple.api.decode.decode import decode
from maniple.api.decode.documents import load_one
from maniple.api.labels import POD_GROUP_LABEL
from maniple.api.quantity import parse_quantity
from maniple.cli.main import COMMANDS, group
from maniple.scheduler.actions import ACTIONS
from maniple.scheduler.framework import volcano_policy
from maniple.scheduler.framework.kube_policy import PREDICATES, PRIORITIES
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.policy import SWITCHES, load_policy
from maniple.scheduler.plugins import PLUGINS
from maniple.scheduler.plugins.predicates import CHECKS

DOCS = ROOT / "docs"
PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
ALL_BLOCKS = [block for page in pages() for block in blocks(page)]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def each(language: str) -> pytest.MarkDecorator:
    chosen = [block for block in ALL_BLOCKS if block.language == language]
    return pytest.mark.parametrize("block", [pytest.param(block, id=block.where) for block in chosen])


def table_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" |")]


def words(cell: str) -> list[str]:
    """The parts of a cell that are set as code."""
    return re.findall(r"`([^`]+)`", cell)


# Commands.


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    """A shell command in a block of another kind would not be run."""
    assert {block.language for block in ALL_BLOCKS} <= {"console", "yaml", "json", "python", "mermaid", ""}
    assert not [block.where for block in ALL_BLOCKS if not block.language and re.search(r"^\$ ", block.body, re.M)]


@each("python")
def test_python_compiles(block: Block) -> None:
    compile(block.body, block.where, "exec")


@each("console")
def test_commands_print_what_is_shown(block: Block) -> None:
    block_commands = list(commands(block))
    assert block_commands, f"{block.where}: no command"
    for command in block_commands:
        if command.line in NOT_RUN or command.line in run_on_a_cluster():
            assert not command.shown, f"{block.where}: shows the output of a command that no test runs"
            continue
        code, printed = run(command.line)
        is_refused = any(line.lower().startswith("error:") for line in command.shown)
        assert code == (2 if is_refused else 0), "\n".join(printed)
        if command.shown:
            assert is_as_shown(command.shown, printed), "\n".join([f"{command.where}: prints", *printed])


def test_commands_in_the_text_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.M))
    for page in pages():
        for code in words(prose(page)):
            program, *rest = code.split() or [""]
            if program == "make" and rest:
                assert rest[0] in targets, f"{page}: {code}"
            if program.endswith("maniple") and rest and rest[0].islower():
                assert rest[0] in COMMANDS, f"{page}: {code}"


def test_files_named_in_the_text_exist() -> None:
    """Below the root, or below `maniple/`. The changelog also names files that have moved."""
    rooms = "|".join(path.name for path in (ROOT / "maniple").iterdir() if path.is_dir() and path.name.isalpha())
    for page in pages():
        for code in words(prose(page)):
            if page.name != "CHANGELOG.md" and re.fullmatch(rf"(maniple|tests|tools|examples|{rooms})/[\w/.-]*", code):
                assert (ROOT / code).exists() or (ROOT / "maniple" / code).exists(), f"{page}: {code}"


def test_every_command_is_in_the_index() -> None:
    listed = {word for row in table_rows(section("docs/index.md", "Commands")) for word in words(row[0])}
    assert listed == {f"maniple {name}" for name in COMMANDS}


def test_every_option_of_plan_is_described() -> None:
    plan = group.get_command(click.Context(group), "plan")
    assert plan is not None
    text = prose(DOCS / "plan.md")
    for parameter in plan.params:
        assert parameter.opts[-1] in text or isinstance(parameter, click.Argument), parameter.opts


def test_the_demo_shows_the_numbered_examples_and_fails_when_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run("make demo")
    assert code == 0, "\n".join(printed)
    for path in (ROOT / "examples").glob("[0-9]*.yaml"):
        assert any(line.startswith(f"examples/{path.name}: ") for line in printed)
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import demo_examples  # type: ignore[import-not-found, unused-ignore]  # found where it is run from

    monkeypatch.setattr(demo_examples, "EXPECTED", {"03-room-for-nine": (demo_examples.gangs, {"default/ten": 10})})
    with pytest.raises(SystemExit) as stopped:
        demo_examples.main()
    assert stopped.value.code == 1
    assert "03-room-for-nine: expected {'default/ten': 10}, found {}" in capsys.readouterr().err


# YAML and JSON.


def is_policy(text: str) -> bool:
    return re.search(r"^(actions|tiers):|^\W*kind\W+Policy\b", text, re.M) is not None


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, id=block.where) for block in ALL_BLOCKS if block.language in ("yaml", "json")],
)
def test_yaml_loads(block: Block) -> None:
    if is_policy(block.body):
        load_policy(block.body.encode(), block.where)
    else:
        assert decode([(block.where, block.body.encode())]).objects, f"{block.where}: no object"


def test_included_files_are_shown_as_they_are() -> None:
    shown = {block.included for block in ALL_BLOCKS if block.included}
    for block in ALL_BLOCKS:
        if block.included:
            assert block.body == block.included.read_text(encoding="utf-8"), block.where
    folders = [
        ROOT / "examples" / name for name in ("objects", "actions", "plugins", "kubernetes-podgroup", "coming-from")
    ]
    examples = {path for folder in folders for path in folder.iterdir()}
    examples |= set((ROOT / "examples" / "topology").glob("*.yaml"))  # the rest is text of nvidia-smi
    assert examples <= shown, "an example that no page shows"


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level."""
    lines = read(page).splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip("#").strip() == heading and line.startswith("#"))
    level = len(lines[start]) - len(lines[start].lstrip("#"))
    rest = lines[start + 1 :]
    end = next((i for i, line in enumerate(rest) if re.match(rf"#{{1,{level}}} ", line)), len(rest))
    return "\n".join(rest[:end])


@pytest.mark.parametrize(
    ("heading", "file"),
    [
        ("The built-in policy", "maniple/scheduler/default_policy.yaml"),
        ("kube-batch's file", "examples/policies/kube-batch.yaml"),
        ("Volcano's configuration", "examples/policies/volcano.yaml"),
        ("kube-scheduler's Policy file", "examples/policies/kube-scheduler.json"),
    ],
)
def test_policies_are_shown_as_they_are(heading: str, file: str) -> None:
    match = re.search(r"^```\w+\n(.*?)^```", section("docs/policy.md", heading), re.DOTALL | re.M)
    assert match is not None
    assert load_one(match[1].encode(), heading) == load_one((ROOT / file).read_bytes(), file)


def test_variants_of_the_built_in_policy_differ_in_one_plugin() -> None:
    def policy(file: str) -> tuple[object, dict[str, dict[str, object]]]:
        document: Any = load_one((ROOT / file).read_bytes(), file)
        return document["actions"], {plugin["name"]: plugin for tier in document["tiers"] for plugin in tier["plugins"]}

    actions, plugins = policy("maniple/scheduler/default_policy.yaml")
    without = {name: plugin for name, plugin in plugins.items() if name != "fragmentation"}
    assert policy("examples/policies/no-fragmentation.yaml") == (actions, without)
    elastic = {"name": "elastic", "arguments": {"horizon": "3600", "crossing": "0"}}
    assert policy("examples/policies/one-node.yaml") == (actions, {**plugins, "elastic": elastic})


# Pages agree with the code.


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_has_a_page_with_all_its_arguments(name: str) -> None:
    text = read(f"docs/plugins/{name}.md")
    arguments = Arguments(name, {}, "docs")
    PLUGINS[name](arguments)
    listed = {word for row in table_rows(section(f"docs/plugins/{name}.md", "Arguments")) for word in words(row[0])}
    assert listed == arguments._known
    assert f"examples/plugins/{name}.yaml" in text


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_has_a_page(name: str) -> None:
    assert f"examples/actions/{name}.yaml" in read(f"docs/actions/{name}.md")


def test_pages_are_of_plugins_and_actions_that_exist() -> None:
    assert {path.stem for path in (DOCS / "plugins").iterdir()} == set(PLUGINS)
    assert {path.stem for path in (DOCS / "actions").iterdir()} == set(ACTIONS)


def test_the_policy_page_names_every_action_plugin_and_switch() -> None:
    text = read("docs/policy.md")
    for name in (*ACTIONS, *PLUGINS, *SWITCHES):
        assert re.search(rf"[`\[]{name}[`\]]", text), name


def test_the_tables_of_kube_scheduler_names_match_the_code() -> None:
    rows = list(table_rows(section("docs/policy.md", "kube-scheduler's Policy file")))
    checks = {name: set(row[1].split(", ")) for row in rows for name in words(row[0])}
    for name, expected in PREDICATES.items():
        assert checks[name] == set(expected) or (not expected and row_is_none(checks[name])), name
    for name, argument in PRIORITIES.items():
        assert checks[name] == {argument} or (argument is None and row_is_none(checks[name])), name
    assert checks.keys() == PREDICATES.keys() | PRIORITIES.keys()


def test_the_tables_of_volcano_name_every_action_and_plugin_that_is_known() -> None:
    text = section("docs/policy.md", "Volcano's configuration")
    listed = {word for row in table_rows(text) for word in words(row[0])}
    known = {*volcano_policy.ACTIONS_LEFT_OUT, *volcano_policy.ACTIONS_READ_AS}
    known |= {*volcano_policy.PLUGINS_LEFT_OUT, *volcano_policy.PLUGINS_READ_AS}
    assert known <= listed
    left_out = {word for row in table_rows(text) if row[1].startswith("left out") for word in words(row[0])}
    assert left_out == {*volcano_policy.ACTIONS_LEFT_OUT, *volcano_policy.PLUGINS_LEFT_OUT}


def row_is_none(cells: set[str]) -> bool:
    return any(cell.startswith("none:") for cell in cells)


def test_every_check_of_predicates_is_described() -> None:
    rows = table_rows(section("docs/plugins/predicates.md", "Rule"))
    assert [word for row in rows for word in words(row[0])] == list(CHECKS)


def reason_codes() -> set[str]:
    """The first argument of every `Reason(…)` in the code; a variable means what its function assigns to it."""
    codes: set[str] = set()
    for path in (ROOT / "maniple" / "scheduler").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Reason":
                    codes |= strings_in(call.args[0], function)
    return codes


def strings_in(expression: ast.expr, function: ast.FunctionDef) -> set[str]:
    if isinstance(expression, ast.Name):
        assigned = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and any(ast.unparse(t) == expression.id for t in node.targets)
        ]
        return {text for value in assigned for text in strings_in(value, function)}
    return {
        node.value for node in ast.walk(expression) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_reason_to_wait_is_described() -> None:
    listed = {word for row in table_rows(section("docs/plan.md", "Why a gang waits")) for word in words(row[0])}
    assert listed - {"reason"} == reason_codes()


KINDS: dict[str, type[msgspec.Struct]] = {
    "queue": types.QueueSpec,
    "podgroup": types.PodGroupSpec,
    "elasticjob": types.ElasticJobSpec,
    "topology": types.TopologySpec,
}


def fields(struct: type[msgspec.Struct], before: str = "") -> Iterator[tuple[str, object]]:
    """Path and default of every field that a user writes; the pods' own spec is Kubernetes'."""
    for info in msgspec.structs.fields(struct):
        path = before + info.encode_name
        inner, is_list = struct_in(info.type)
        if inner in (None, types.PodTemplate, types.SpeedupPoint):
            yield path + ("[]" if is_list and inner else ""), "required" if info.required else info.default
        elif inner is not None:
            yield from fields(inner, path + ("[]." if is_list else "."))


def struct_in(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    shown = msgspec.inspect.type_info(kind)
    while isinstance(shown, msgspec.inspect.Metadata):
        shown = shown.type
    is_list = isinstance(shown, msgspec.inspect.VarTupleType)
    if isinstance(shown, msgspec.inspect.VarTupleType):
        shown = shown.item_type
    return (shown.cls, is_list) if isinstance(shown, msgspec.inspect.StructType) else (None, is_list)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_with_its_default(kind: str) -> None:
    rows: dict[str, str] = {}
    for row in table_rows(section(f"docs/objects/{kind}.md", "Fields")):
        for word in words(row[0]):
            # "`topology.required`, `.preferred`" names the second by its last part.
            name = word if not word.startswith(".") else words(row[0])[0].rpartition(".")[0] + word
            rows.setdefault(name, row[1])
    for path, default in fields(KINDS[kind]):
        assert path in rows, f"docs/objects/{kind}.md does not describe spec.{path}"
        written = str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")
        is_said = isinstance(default, bool) or (isinstance(default, str | int | float) and bool(default))
        # An empty queue is the queue `default`; other empty defaults are none.
        expected = {written} if is_said else {"none", "default", "0"}
        assert rows[path].strip("`") in expected, path


def test_the_promises_page_names_every_property_test() -> None:
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {word for page in pages() for word in words(prose(page)) if re.fullmatch(r"test_\w+", word)}
    assert named
    assert named <= defined
    promised = set[str]()
    for path in (ROOT / "tests" / "properties").glob("test_*.py"):
        if not path.name.startswith("test_referee"):  # those test the referee
            promised |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
    assert promised <= named, "a promise that docs/promises.md does not list"


# Proportion as worked out on its page.

UNITS = {"GPU": "nvidia.com/gpu", "CPU": "cpu"}


def amounts(text: str) -> dict[str, Fraction]:
    """`8 GPUs, 40 CPUs` as a resource list."""
    return {UNITS[unit]: Fraction(number) for number, unit in re.findall(r"(\d+) (GPU|CPU)s?", text)}


def paper_examples() -> list[str]:
    return re.findall(r"^### (.*)$", section("docs/plugins/proportion.md", "On paper"), re.M)


@pytest.mark.parametrize("heading", paper_examples())
def test_proportion_as_worked_out_on_the_page_matches_the_code(heading: str) -> None:
    text = section("docs/plugins/proportion.md", heading)
    cluster = re.search(r"^Cluster: ([^.]*)\.", text, re.M)
    assert cluster is not None
    (header, *rows) = table_rows(text)
    offered: dict[str, object] = {name: str(value) for name, value in amounts(cluster[1]).items()}
    objects: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": offered}}
    ]
    expected: dict[str, dict[str, Fraction]] = {"default": {}}
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        queue, weight, asks = cells["queue"], cells["weight"], cells["asks for"]
        spec = {
            "parent": cells["parent"],
            "weight": int(weight.partition(",")[0]),
            "weights": {UNITS[unit]: int(number) for unit, number in re.findall(r"(GPU|CPU)s (\d+)", weight)},
            "priority": int(cells.get("priority") or 0),
            "guaranteed": {name: str(value) for name, value in amounts(cells["guaranteed"]).items()},
            "limit": {name: str(value) for name, value in amounts(cells["limit"]).items()},
        }
        ours = "maniple.dev/v1alpha1"
        objects.append({"apiVersion": ours, "kind": "Queue", "metadata": {"name": queue}, "spec": spec})
        expected[queue] = amounts(cells["deserved"])
        if asks:
            objects.append(
                {"apiVersion": ours, "kind": "PodGroup", "metadata": {"name": queue}, "spec": {"queue": queue}}
            )
        objects += [
            pod(f"{queue}-{UNIT_NAMES[name]}-{index}", queue, name)
            for name, value in amounts(asks).items()
            for index in range(int(value))
        ]
    by_priority = {"divide.byPriority": "true"} if "`divide.byPriority`" in text else {}
    policy = {"actions": "allocate", "tiers": [{"plugins": [{"name": "proportion", "arguments": by_priority}]}]}
    shares = plan_objects(objects, policy=json.dumps(policy))["queues"]
    assert isinstance(shares, list | tuple)
    planned = {share["name"]: share["deserved"] for share in shares}
    assert {
        queue: {name: parse_quantity(value) for name, value in due.items()} for queue, due in planned.items()
    } == expected


UNIT_NAMES = {resource: unit.lower() for unit, resource in UNITS.items()}


def pod(name: str, queue: str, resource: str) -> dict[str, object]:
    """One unit of demand."""
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {POD_GROUP_LABEL: queue}},
        "spec": {"schedulerName": "maniple", "containers": [container]},
    }


# Links and the two READMEs.


@functools.cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces to hyphens, other signs dropped."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_the_index_leads_to_every_page() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    assert set(DOCS.rglob("*.md")) - {DOCS / "index.md"} <= linked


def test_the_chinese_readme_has_the_same_structure() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"

    def skeleton(page: Path) -> list[str]:
        """Levels of headings, items of lists and rows of tables, in order."""
        return re.findall(r"^(#+ |\* |\|)", prose(page), re.M)

    def shown(page: Path) -> list[tuple[str, str]]:
        return [(block.language, block.body) for block in blocks(page) if block.language]

    assert skeleton(chinese) == skeleton(english)
    assert shown(chinese) == shown(english)
    assert sorted({*links(chinese), chinese.name}) == sorted({*links(english), english.name})
