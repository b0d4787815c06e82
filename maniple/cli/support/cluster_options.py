"""Options that several commands share, as one argument of the command, and how commands that talk to a cluster run."""

import asyncio
import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import click

from maniple.cli.support.terminal import SaidLogs

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]

KUBECONFIG_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="The cluster to talk to; without it $KUBECONFIG, ~/.kube/config, or in a pod its service account.",
    ),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig; without it the current one."),
)


class _Seconds(click.FloatRange):
    """A range of finite numbers."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def seconds_option(
    flag: str, name: str, text: str, *, least: float, most: float | None = None, default: float | None = None
) -> Option:
    kind = _Seconds(least, most)
    return click.option(flag, name, type=kind, default=default, show_default=True, metavar="SECONDS", help=text)


def add_options(*options: Option) -> Callable[[F], F]:
    """A decorator that adds these options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def options_as(argument: str, struct: type, *options: Option) -> Callable[[F], F]:
    """Adds the options too, but the command gets them as one argument: a dataclass with a field for each."""
    names = [field.name for field in dataclasses.fields(struct)]

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_struct(*args: Any, **values: Any) -> Any:
            values[argument] = struct(**{name: values.pop(name) for name in names})
            return command(*args, **values)

        return add_options(*options)(cast(F, with_struct))

    return decorate


def run_async(work: Callable[[], Any], *, is_long: bool = False) -> Any:
    """Runs a coroutine function. An API server that refuses or does not answer is an error of one line."""
    from maniple.api.errors import InputError
    from maniple.kube.transport.client import ApiError, UnansweredError

    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if is_long:
        with suppress(ImportError):
            import uvloop  # takes longer to import than a quick command may take

            loop_factory = uvloop.new_event_loop  # a fifth less CPU time for each request
    if not logging.getLogger().handlers:  # `serve` has set up its own
        logging.getLogger().addHandler(SaidLogs(logging.WARNING))
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work())
    except ApiError as error:
        raise InputError([f"the API server refused: {error}"]) from None
    except UnansweredError as error:
        raise InputError([f"the API server did not answer: {error}"]) from None
