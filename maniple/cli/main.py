"""`maniple`: the group of commands. Each is imported when it is used, so that `--help` and completion are quick."""

import importlib
import io
import os
import sys
from contextlib import suppress

import click

from maniple import __version__
from maniple.api.errors import InputError, did_you_mean
from maniple.cli.support.given_once import check_given_once
from maniple.cli.support.terminal import say, say_error, say_note

COMMANDS = {
    "plan": "Plan a cluster given as YAML or JSON: what starts where, what waits and why.",
    "serve": "Schedule the pods of a Kubernetes cluster.",
    "agent": "Run the workers of an elastic job, one generation after another.",
    "explain": "Explain one job: where its pods are or go, on which GPUs, or why it waits.",
    "submit": "Submit jobs: the objects of files, or one job from options.",
    "jobs": "List jobs: their phase, size and target, GPUs, and why they wait.",
    "describe": "Describe a job: its sizes, replicas, GPUs, events, and why it waits.",
    "logs": "Print the logs of a job's replicas.",
    "resize": "Pin the size of a running job, or change its minimum and maximum.",
    "suspend": "Suspend jobs: they release their GPUs until they are resumed.",
    "resume": "Resume suspended jobs.",
    "delete": "Delete jobs and their pods.",
    "watch": "Watch jobs live: sizes over time, GPUs, queues.",
    "policy": "Print the built-in policy, or explain a policy file.",
    "topology": "Show how the GPUs of a node are linked, or write it as an annotation.",
    "bench": "Run published benchmarks on their data, to see what a policy is worth.",
    "crds": "Print or write the CustomResourceDefinitions.",
    "completion": "Print the completion script of a shell.",
}
# The modules of the extra maniple[cluster], without which commands that talk to a cluster do not run.
CLUSTER_EXTRA = ("aiohttp", "cryptography", "httptools", "kubernetes_asyncio", "prometheus_client", "uvloop")
WRONG, INTERRUPTED = 2, 130  # exit codes
EPILOG = """\b
Examples:
  maniple plan -f cluster.yaml
  kubectl get nodes,pods,podgroups,queues -A -o json | maniple plan -f - --all -o json
  maniple crds | kubectl apply -f -
  maniple serve --dry-run
  maniple submit --name bert --gpus 4:8 --image training:1 -- python train.py
"""


_HELP = ["-h", "--help"]


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"maniple.cli.commands.{cmd_name}").command
        # Click keeps a command's help option from the first context that asks, which may have no parent.
        command.context_settings.setdefault("help_option_names", _HELP)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click does not know the names of what is imported later, and so cannot say which is meant."""
        word = args[0]
        if word not in COMMANDS and not word.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {word!r}{did_you_mean(word, COMMANDS) or '.'}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            check_given_once(name, command, rest, ctx)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": _HELP})
@click.version_option(__version__, prog_name="maniple")
def group() -> None:
    """Maniple schedules GPU work on Kubernetes: gangs whole, close and elastic."""


def main() -> None:
    """Exit codes: 0 done, 2 wrong input or usage, 130 interrupted, 1 anything else. Some commands have more."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × shows ?, and no traceback
    code = _run()
    if code:
        sys.exit(code)


def _run() -> int:
    """Runs the command. Every error is a line `error: …` on standard error; the answer is the exit code."""
    try:
        code = group.main(prog_name="maniple", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except InputError as error:
        for message in error.messages:
            say_error(message)
        return WRONG
    except click.UsageError as error:
        return _show_usage_error(error)
    except click.ClickException as error:
        say_error(_lower(error.format_message()))
        return error.exit_code
    except click.Abort:  # Ctrl-C
        return INTERRUPTED
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in CLUSTER_EXTRA:
            raise
        needed = f"this command needs the extra 'cluster', and its module {module} is not installed"
        say_error(f"{needed}: pip install 'maniple[cluster]', or in a checkout make install")
        return WRONG
    except BrokenPipeError:  # `maniple plan … | head`
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at its end
        return 1
    except OSError as error:  # a full disk, a folder that cannot be written to
        say_error(str(error))
        return 1


def _show_usage_error(error: click.UsageError) -> int:
    if error.ctx is not None and isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        say(error.ctx.get_help(), err=True)  # a group without a command
        return WRONG
    say_error(_lower(error.format_message()))
    if error.ctx is not None:
        say_note(f"'{error.ctx.command_path} --help' says what can be written")
    return WRONG


def _lower(sentence: str) -> str:
    """Click's sentences as ours: one line, without a capital and a full stop."""
    sentence = " ".join(sentence.split()).removesuffix(".")
    sentence = sentence.replace(". Did you mean", "; did you mean").replace(". Choose from", "; choose from")
    is_word = sentence[:1].isupper() and not sentence[1:2].isupper()
    return sentence[:1].lower() + sentence[1:] if is_word else sentence


if __name__ == "__main__":
    main()
