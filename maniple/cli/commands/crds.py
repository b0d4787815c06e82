"""`maniple crds`: the CustomResourceDefinitions as YAML, made from the types."""

from pathlib import Path

import click

from maniple.api.crds import crds
from maniple.cli.support.terminal import say
from maniple.cli.support.yaml_text import to_yaml

HEADER = "# Written by `make crds` from maniple/api/types.py; do not edit.\n"


def files() -> dict[str, str]:
    """File name to text, one for each CRD."""
    return {f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": HEADER + to_yaml(crd) for crd in crds()}


@click.command("crds")
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write one file for each CRD into DIR instead.",
)
def command(folder: Path | None) -> None:
    """Print the CustomResourceDefinitions of Queue, PodGroup, ElasticJob and Topology.

    \b
    Example:
      maniple crds | kubectl apply --server-side -f -
    """
    if folder is None:
        say("---\n".join(files().values()), nl=False)
        return
    for name, text in files().items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise OSError(f"{folder / name}: cannot be written: {error.strerror}") from None
        say(folder / name)
