"""`maniple policy`: prints the built-in policy, and explains a policy file."""

from collections.abc import Iterator

import click

from maniple.api.decode.documents import load_one
from maniple.api.errors import InputError
from maniple.api.terminal_text import printable
from maniple.cli.support.read_files import read_sources
from maniple.cli.support.table import echo_json, render
from maniple.cli.support.terminal import say
from maniple.scheduler import load_policy
from maniple.scheduler.framework.policy import default_policy_text
from maniple.views.policy import PluginView, PolicyView, policy_view


@click.group(
    "policy",
    invoke_without_command=True,
    epilog="""\b
Examples:
  maniple policy > mine.yaml
  maniple policy check mine.yaml
  kubectl get configmap -n volcano-system volcano-scheduler-configmap -o yaml | maniple policy check -

Exit codes: 0 printed, 2 wrong input.
""",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Print the built-in policy; `maniple policy check FILE` explains a file."""
    if ctx.invoked_subcommand is not None:
        return
    text = default_policy_text()
    if output == "json":
        echo_json(load_one(text, "default policy"))
    else:
        say(text.decode(), nl=False)


@command.command(
    short_help="Explain a policy file, and what of it is not read.",
    epilog="""\b
Examples:
  maniple policy check examples/policies/kube-batch.yaml
  maniple policy check examples/policies/volcano.yaml -o json
  maniple policy check mine.yaml --strict

FILE is a policy of Maniple or kube-batch, Volcano's configuration or the ConfigMap that holds
it, or kube-scheduler's Policy; '-' for standard input.
Exit codes: 0 it can be used, 2 it cannot, or with --strict not all of it is read as it is meant.
""",
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--strict", is_flag=True, help="What is left out, or read as something else, is an error.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(file: str, strict: bool, output: str) -> None:
    """Explain a policy file: what its actions, plugins and arguments do, and what is not read."""
    sources = read_sources((file,))
    if len(sources) > 1:
        raise InputError([f"{file}: expected one file, found a directory of {len(sources)}"])
    ((name, data),) = sources
    policy = load_policy(data, name)
    if strict and policy.notes:
        raise InputError(f"{name}: {note}" for note in policy.notes)
    view = policy_view(policy, name)
    if output == "json":
        echo_json(view)
    else:
        say("\n\n".join(_sections(view)))


def _sections(view: PolicyView) -> Iterator[str]:
    rows = [[action.name, action.does] for action in view.actions]
    yield f"Actions of {printable(view.source)} ({view.format}), in this order\n" + render(["ACTION", "DOES"], rows)
    if view.plugins:
        plugins = [[str(plugin.tier), plugin.name, plugin.decides + _off(plugin)] for plugin in view.plugins]
        yield "Plugins\n" + render(["TIER", "PLUGIN", "DECIDES"], plugins)
    arguments = [
        [plugin.name, argument.name, argument.does, "default" if argument.is_default else "file", argument.value]
        for plugin in view.plugins
        for argument in plugin.arguments
    ]
    if arguments:
        yield "Arguments\n" + render(["PLUGIN", "ARGUMENT", "MEANING", "FROM", "VALUE"], arguments)
    unused = {"action": view.unused_actions, "plugin": view.unused_plugins}
    if any(unused.values()):
        rows = [[kind, ", ".join(names)] for kind, names in unused.items() if names]
        yield "Not used\n" + render(["KIND", "NAMES"], rows)
    if view.notes:
        yield "Not as in that file\n" + render(["WHERE", "WHAT"], [[note.where, note.what] for note in view.notes])


def _off(plugin: PluginView) -> str:
    return f"; off: {', '.join(plugin.off)}" if plugin.off else ""
