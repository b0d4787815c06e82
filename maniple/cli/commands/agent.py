"""`maniple agent -- COMMAND`: the entry point of an elastic job's container. All of it is in `maniple.worker.agent`."""

import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  maniple agent -- python train.py
  maniple agent --nproc 2 -- python train.py --epochs 3

In a pod of an ElasticJob it runs one generation after another; elsewhere it runs the
command once, as workers on this machine. A pod whose image has no maniple runs the
same program from the Secret of its job:

\b
  python3 /var/run/maniple/agent/agent.pyz -- python train.py

Exit codes: 0 done, 143 stopped, otherwise that of the first worker that failed.
""",
)
@click.option(
    "--nproc", type=click.IntRange(1), default=1, show_default=True, help="Workers, outside of a pod of an ElasticJob."
)
@click.argument("words", metavar="-- COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(nproc: int, words: tuple[str, ...]) -> None:
    """Run the workers of an elastic job, one generation after another."""
    from maniple.worker.agent import Agent
    from maniple.worker.controller_connection import from_environment

    sys.exit(Agent(words, from_environment(), nproc).run())
