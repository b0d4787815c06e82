"""The command line: `python -m tools.cluster build | up | down | status | kubeconfig | kubectl | kill | start`."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from tools.cluster import build as building
from tools.cluster.cluster import Cluster, clean_up
from tools.cluster.cluster_layout import ClusterError, Spec, all_layouts
from tools.cluster.go_build import CannotBuildError
from tools.cluster.program_versions import program_path

DEFAULT_NAME = "default"
name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster.")


def say(line: str) -> None:
    click.echo(f"cluster: {line}", err=True)


@click.group()
def cli() -> None:
    """A real Kubernetes on one machine, for tests and for trying things out."""


@cli.command()
@click.option("--only", multiple=True, type=click.Choice(building.ALL), help="Just this program; may be repeated.")
@click.option("--if-possible", is_flag=True, help="Say why, and go on, where it cannot be done.")
@click.option("--dry-run", is_flag=True, help="Only say what is missing, and how long that takes.")
def build(only: tuple[str, ...], if_possible: bool, dry_run: bool) -> None:
    """Build what is missing into the cache, once."""
    if dry_run:
        if missing := building.what_is_missing():
            say(f"to be built first, once on this machine: {missing}")
        return
    try:
        building.ensure(say, only or building.ALL, with_packages=not only, with_torch=not only)
    except CannotBuildError as error:
        if not if_possible or os.environ.get(building.REQUIRE_VARIABLE) == "1":
            raise
        say(f"cannot build everything, tests that need what is missing are skipped: {error}")


@cli.command()
@name_option
@click.option("--nodes", default=0, show_default=True, help="How many simulated nodes.")
@click.option("--gpus", default=8, show_default=True, help="GPUs of each simulated node.")
@click.option("--node-template", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="YAML of a Node.")
@click.option("--real-node", is_flag=True, help="One real node: kubelet, containerd, runc. Needs root.")
@click.option("--kube-scheduler", is_flag=True, help="Run the default scheduler too.")
@click.option("--feature-gates", default="", help="As Kubernetes' flag takes them: A=true,B=false.")
@click.option("--runtime-config", default="", help="As the API server's flag takes it: group/version=true.")
@click.option("--detach", is_flag=True, help="Return when it is up, instead of running it until Ctrl-C.")
def up(
    name: str,
    nodes: int,
    gpus: int,
    node_template: Path | None,
    real_node: bool,
    kube_scheduler: bool,
    feature_gates: str,
    runtime_config: str,
    detach: bool,
) -> None:
    """Start a cluster."""
    spec = Spec(
        name=name,
        nodes=nodes,
        gpus=gpus,
        node_template=node_template.read_text() if node_template else "",
        real_node=real_node,
        kube_scheduler=kube_scheduler,
        feature_gates=feature_gates,
        runtime_config=runtime_config,
        # One in the foreground ends with the command, however that ends.
        owner_pid=0 if detach else os.getpid(),
    )
    cluster = Cluster.up(spec, say)
    say(f"export KUBECONFIG={cluster.kubeconfig()}")
    if detach:
        say(f"`python -m tools.cluster down --name {name}` ends it")
        return
    say("Ctrl-C ends it")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        while cluster.layout.is_held():
            time.sleep(0.5)
    finally:
        cluster.down()


def _clusters() -> Iterator[Cluster]:
    """All clusters, without those that ended meanwhile."""
    for layout in all_layouts():
        with suppress(FileNotFoundError):
            yield Cluster(layout)


@cli.command()
@name_option
@click.option("--all", "every", is_flag=True, help="All of this user's clusters.")
def down(name: str, every: bool) -> None:
    """Stop a cluster and remove everything of it."""
    for left in clean_up():
        say(f"removed what was left of cluster {left}")
    for cluster in _clusters():
        if every or cluster.name == name:
            cluster.down()
            say(f"cluster {cluster.name} is down")


@cli.command()
def status() -> None:
    """List the clusters and their components."""
    for left in clean_up():
        say(f"removed what was left of cluster {left}")
    for cluster in _clusters():
        try:
            components = cluster.status()
        except ClusterError:
            click.echo(f"{cluster.name}: starting or ending")
            continue
        click.echo(f"{cluster.name}: {cluster.server}")
        for component, pid in components.items():
            click.echo(f"  {component:24} {f'process {pid}' if pid else 'not running'}")


@cli.command()
@name_option
@click.option("--user", default="admin", show_default=True, help="Any name: a certificate is issued for it.")
@click.option("--group", "groups", multiple=True, help="A group of the user; may be repeated.")
@click.option("--service-account", help="NAMESPACE/NAME, instead of a user.")
def kubeconfig(name: str, user: str, groups: tuple[str, ...], service_account: str | None) -> None:
    """Print the path of a kubeconfig."""
    cluster = Cluster.attach(name)
    if service_account:
        namespace, _, account = service_account.partition("/")
        click.echo(cluster.service_account_kubeconfig(namespace, account))
    else:
        click.echo(cluster.kubeconfig(user, list(groups)))


@cli.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl, of the cluster's own version, as admin."""
    cluster = Cluster.attach(name)
    environment = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig()),
        "KUBECACHEDIR": str(cluster.layout.kubectl_cache),
    }
    os.execve(program_path("kubectl"), ["kubectl", *arguments], environment)


@cli.command()
@name_option
@click.argument("component")
def kill(name: str, component: str) -> None:
    """Kill a component with SIGKILL; it stays down until `start`."""
    Cluster.attach(name).kill(component)


@cli.command()
@name_option
@click.argument("component")
def start(name: str, component: str) -> None:
    """Start a component that was killed."""
    Cluster.attach(name).start(component)


@cli.command()
@name_option
@click.argument("component")
def restart(name: str, component: str) -> None:
    """Kill a component with SIGKILL, start it, and wait for the API server."""
    Cluster.attach(name).restart(component)


def main() -> None:
    try:
        cli(prog_name="python -m tools.cluster")
    except (ClusterError, CannotBuildError) as error:
        say(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
