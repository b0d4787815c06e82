"""`maniple completion`: the completion script of a shell."""

import click
from click.shell_completion import get_completion_class

from maniple.cli.support.terminal import say


@click.command(
    epilog="""\b
Examples:
  maniple completion bash > /etc/bash_completion.d/maniple
  maniple completion zsh  > "${fpath[1]}/_maniple"
  maniple completion fish > ~/.config/fish/completions/maniple.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from maniple.cli.main import group

    completer = get_completion_class(shell)
    assert completer is not None  # Choice allows only shells that click has one for
    # Not .source(): it fails if the shell itself is not installed, as in a container build.
    complete = completer(group, {}, "maniple", "_MANIPLE_COMPLETE")
    say(complete.source_template % complete.source_vars())
