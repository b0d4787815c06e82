"""One style of error for all commands; colours on a terminal, and the same text without them."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest

from cli.run_maniple import COMMAND, EXAMPLES, ROOT, run, run_here
from maniple.cli.main import COMMANDS
from maniple.cli.support.terminal import paint

EXAMPLE = EXAMPLES / "plugins" / "gang.yaml"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(*arguments: str, **env: str) -> str:
    """What the command prints where both of its streams are a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm", "COLUMNS": "160", **env}
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # Linux: the other end is closed
            pass
        process.wait()
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_otherwise_the_same_text() -> None:
    coloured = on_a_terminal("plan", "-f", str(EXAMPLE))
    assert "\x1b[32m\x1b[1mStarts\x1b[0m\n\x1b[2m  GANG " in coloured
    assert ESCAPE.sub("", coloured) == run("plan", "-f", EXAMPLE, env={"NO_COLOR": ""}).stdout


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_colours_can_be_turned_off(env: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal("plan", "-f", str(EXAMPLE), **env)
    assert "\x1b" not in on_a_terminal("plan", "-f", "nosuch.yaml", **env)


def test_elsewhere_there_are_none_unless_forced() -> None:
    assert "\x1b" not in run_here("plan", "-f", EXAMPLE, env={"NO_COLOR": None, "FORCE_COLOR": None}).stdout  # type: ignore[dict-item]
    assert "\x1b" in run_here("plan", "-f", EXAMPLE, env={"NO_COLOR": "", "FORCE_COLOR": "1"}).stdout


def test_a_completion_script_is_never_coloured() -> None:
    assert "\x1b" not in run_here("completion", "bash", env={"NO_COLOR": "", "FORCE_COLOR": "1"}).stdout


def test_json_and_yaml_have_no_colours_on_a_terminal() -> None:
    for output in ("json", "yaml"):
        assert "\x1b" not in on_a_terminal("plan", "-f", str(EXAMPLE), "-o", output)


def test_an_error_has_a_red_prefix_on_a_terminal() -> None:
    assert on_a_terminal("plan", "-f", "nosuch.yaml").startswith("\x1b[31m\x1b[1merror:\x1b[0m nosuch.yaml: cannot be")


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\rb", "\x9b31m", "a\x07"])
def test_what_is_in_the_input_is_escaped_before_colours_are_added(name: str) -> None:
    for arguments in (["plan", "-f", name], ["policy", "check", name], ["plan", "-f", str(EXAMPLE), "--policy", name]):
        done = run_here(*arguments, env={"NO_COLOR": "", "FORCE_COLOR": "1"})
        assert done.returncode == 2
        assert name not in done.stderr
        assert set(ESCAPE.findall(done.stderr)) == {"\x1b[31m", "\x1b[1m", "\x1b[0m"}
        assert ESCAPE.sub("", done.stderr).strip().isprintable()


def test_only_titles_and_headers_are_painted() -> None:
    text = "Waits (NoRoom)\n  Why:   A\n\nNothing to do.\n\nQueues\n  NAME  SHARE\n  A     B"
    painted = paint(text).split("\n")
    assert ESCAPE.sub("", "\n".join(painted)) == text
    assert [number for number, line in enumerate(painted) if "\x1b" in line] == [0, 5, 6]


@pytest.mark.parametrize("command", ["", *(name for name in COMMANDS if name != "agent")])  # its words are a command
def test_wrong_usage_looks_the_same_in_all_commands(command: str) -> None:
    done = run_here(*([command] if command else []), "--no-such-option-at-all")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: no such option")
    assert not error.endswith(".")
    assert hint == f"note: '{f'maniple {command}'.strip()} --help' says what can be written"


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_a_group_without_a_command_prints_its_help_to_standard_error(arguments: list[str]) -> None:
    done = run_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: maniple")


def test_a_reader_that_stops_early_is_no_traceback() -> None:
    script = f"{' '.join(COMMAND)} plan -f {EXAMPLE} -o json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)  # 0: it had written everything before
    assert done.stderr == ""
