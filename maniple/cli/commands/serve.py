"""`maniple serve`: schedules a cluster until it is stopped."""

import asyncio
import os
import signal
import socket
import uuid
from typing import TYPE_CHECKING

import click

from maniple.api.errors import InputError
from maniple.api.keys import Key, split_name
from maniple.api.validate.kubernetes import is_name
from maniple.cli.support.cluster_input import POLICY_OPTION, SCHEDULER_NAME_OPTION, read_policy
from maniple.cli.support.cluster_options import KUBECONFIG_OPTIONS, add_options, run_async, seconds_option
from maniple.cli.support.terminal import say
from maniple.model.pods_we_schedule import Ours

if TYPE_CHECKING:
    from maniple.kube.jobs.agent_endpoint import Endpoint
    from maniple.kube.serve.server import Settings


@click.command(
    epilog="""\b
Examples:
  maniple serve
  maniple serve --dry-run
  maniple serve --once --policy examples/policies/kube-batch.yaml
  maniple serve --listen 0.0.0.0:8080 --scheduler-name night-shift

Plans the pods with schedulerName maniple; the resources of all other pods are counted.
Exit codes: 0 stopped, 2 wrong input or no cluster, 3 with --once: another replica leads.
"""
)
@add_options(*KUBECONFIG_OPTIONS, POLICY_OPTION, SCHEDULER_NAME_OPTION)
@click.option("--once", is_flag=True, help="Run one cycle and exit.")
@click.option("--dry-run", is_flag=True, help="Print what would be done now, and change nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How --dry-run and --once print the plan.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Elect a leader among replicas, by a Lease.",
)
@click.option(
    "--lease",
    metavar="NS/NAME",
    help="The Lease; without it kube-system/ and the scheduler's name, which all replicas for the same pods share.",
)
@click.option(
    "--identity", metavar="NAME", help="Name of this replica in the Lease; without it the pod's name, or a random one."
)
@seconds_option(
    "--gang-timeout",
    "gang_timeout_s",
    "A gang that stays partly bound for this long is evicted and starts over.",
    least=1,
    default=60.0,
)
@seconds_option(
    "--drift-check", "drift_s", "How often the cache is compared with a fresh list.", least=5, default=600.0
)
@click.option("--jobs/--no-jobs", default=True, show_default=True, help="Create and delete the pods of ElasticJobs.")
@click.option(
    "--agents", metavar="HOST:PORT", help="Serve the agents in the pods of ElasticJobs at this address, by HTTPS."
)
@click.option("--agents-url", metavar="URL", help="The URL of --agents for pods, if not https://HOST:PORT.")
@click.option("--listen", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz at this address.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    scheduler_name: str,
    once: bool,
    dry_run: bool,
    output: str,
    leader_elect: bool,
    lease: str | None,
    identity: str | None,
    gang_timeout_s: float,
    drift_s: float,
    jobs: bool,
    agents: str | None,
    agents_url: str | None,
    listen: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Schedule the pods of a Kubernetes cluster."""
    from maniple.kube.serve.logging_setup import set_up_logs
    from maniple.kube.serve.server import Settings

    set_up_logs(log_format, log_level)
    if not scheduler_name:
        raise InputError(["--scheduler-name: expected a name, such as maniple, found none"])
    lease_key = _lease(lease, scheduler_name)
    settings = Settings(
        ours=Ours(scheduler_name),
        policy=read_policy(policy),
        lease=lease_key if leader_elect else None,
        identity=identity or _identity(),
        gang_timeout_s=gang_timeout_s,
        drift_s=drift_s,
        listen=_address(listen, "--listen"),
        runs_jobs=jobs,
        agents=_endpoint(agents, agents_url, lease_key),
    )
    if dry_run or once:
        _once(kubeconfig, context, settings, dry_run, output)
    else:
        run_async(lambda: _serve(kubeconfig, context, settings), is_long=True)


async def _serve(kubeconfig: str | None, context: str | None, settings: "Settings") -> None:
    from maniple.kube.serve.server import serve
    from maniple.kube.transport.login import log_in

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(await log_in(kubeconfig, context), settings, stop)


def _once(kubeconfig: str | None, context: str | None, settings: "Settings", dry_run: bool, output: str) -> None:
    from maniple.cli.commands.plan import show
    from maniple.kube.serve.single_cycle import one_cycle
    from maniple.views.plan import plan_view

    cycle = run_async(lambda: one_cycle(kubeconfig, context, settings, dry_run=dry_run))
    if cycle is None:
        say("error: another replica leads; nothing was done", err=True)
        raise SystemExit(3)
    if cycle.missing:
        say(f"note: {cycle.missing}", err=True)
        if output == "table" and plan_view(cycle.outcome).rounds[-1].is_idle:
            return  # "Nothing to do" would be said of gangs that cannot be seen
    show(cycle.outcome, output)


def _lease(text: str | None, scheduler_name: str) -> Key:
    if text is None:
        if not is_name(scheduler_name):
            raise InputError(
                [f"--lease: required, because {scheduler_name!r} cannot be its name; such as kube-system/maniple"]
            )
        return "kube-system", scheduler_name
    namespace, name = split_name(text)
    if not namespace or not name or "/" in name:
        raise InputError([f"--lease: expected a namespace and a name, such as kube-system/maniple, found {text!r}"])
    return namespace, name


def _identity() -> str:
    host = socket.gethostname()
    # The host name of a pod is its name: a restarted container need not wait for its own Lease.
    return host if "KUBERNETES_SERVICE_HOST" in os.environ else f"{host}_{uuid.uuid4().hex[:8]}"


def _endpoint(text: str | None, url: str | None, lease: Key) -> "Endpoint | None":
    from maniple.kube.jobs.agent_endpoint import Endpoint

    address = _address(text, "--agents")
    if address is None:
        if url is not None:
            raise InputError(["--agents-url: needs --agents, the address to listen at"])
        return None
    host, port = address
    if url is None and (host in ("0.0.0.0", "::") or not port):
        raise InputError([f"--agents: pods cannot reach {text!r}: add --agents-url"])
    if url is not None and not url.startswith("https://"):
        raise InputError([f"--agents-url: expected https://HOST:PORT, found {url!r}"])
    return Endpoint(host, port, url or f"https://{text}", (lease[0], f"{lease[1]}-agents"))


def _address(text: str | None, option: str) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError([f"{option}: expected HOST:PORT, such as 127.0.0.1:8080, found {text!r}"])
    return host.strip("[]") or "0.0.0.0", int(port)
