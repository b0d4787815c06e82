"""`maniple watch`: the jobs of a cluster, live."""

import asyncio
import shutil
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from maniple.cli.support.job_options import check_queues, run_visit, tell_of_trouble, visit_options
from maniple.cli.support.watch_screen import History, changes, frame
from maniple.views.jobs import JobView, views

if TYPE_CHECKING:
    from maniple.kube.user.client import Visit
    from maniple.kube.user.observer import Picture

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen without a cursor, and back
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_SHORTEST_S = 0.2  # between two frames


@click.command(
    epilog="""\b
Examples:
  maniple watch
  maniple watch -A -q research
  maniple watch --once
  maniple watch -A | tee changes.log

In a terminal the view is drawn in place until Ctrl-C. Elsewhere there is a line for each
job, and one more whenever its phase, size, GPUs or reason to wait change. While the API
server does not answer, both say so, and go on when it does.
Exit codes: 0 shown once, 2 wrong input or no cluster, 130 interrupted.
"""
)
@visit_options
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@click.option("-q", "--queue", "queues", multiple=True, metavar="NAME", help="Only jobs of this queue; repeatable.")
@click.option("--once", is_flag=True, help="Draw it once and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="One bar of the sizes over time for each of these.",
)
def command(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    queues: tuple[str, ...],
    once: bool,
    interval_s: float,
) -> None:
    """Watch jobs live: sizes over time, GPUs, how far they are, queues."""

    async def work(visit: "Visit") -> None:
        from maniple.kube.user.observer import Picture

        picture = Picture(visit, None if all_namespaces else visit.namespace)
        viewer = _Viewer(visit, picture, queues, None if all_namespaces else visit.namespace)
        watching = asyncio.create_task(picture.run())
        begun = asyncio.create_task(picture.begun.wait())
        try:
            await asyncio.wait({watching, begun}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            used = (job.spec.queue for job in picture.jobs.values())
            check_queues(queues, picture.queue_names, used)
            await _show(viewer, watching, once, interval_s)
        finally:
            watching.cancel()
            begun.cancel()

    run_visit(kubeconfig, context, namespace, work)


async def _show(viewer: "_Viewer", watching: "asyncio.Task[None]", once: bool, interval_s: float) -> None:
    if once:
        viewer.history.remember(viewer.jobs())
        click.echo("\n".join(viewer.frame(_width(), None)))
    elif sys.stdout.isatty():
        await viewer.draw(watching, interval_s)
    else:
        tell_of_trouble(viewer.visit)
        await viewer.tell(watching)


class _Viewer:
    """Shows a picture as it changes."""

    def __init__(self, visit: "Visit", picture: "Picture", queues: tuple[str, ...], namespace: str | None) -> None:
        self.visit = visit
        self._picture = picture
        self._queues = queues
        self._namespace = namespace
        self.history = History()

    def jobs(self) -> list[JobView]:
        made = views(self._picture.jobs.values(), self._picture.replicas)
        return [job for job in made if not self._queues or job.queue in self._queues]

    def frame(self, width: int, height: int | None) -> list[str]:
        picture, now = self._picture, datetime.now(UTC)
        queues = [one for one in picture.queues.values() if not self._queues or one.metadata.name in self._queues]
        return frame(
            self.jobs(),
            queues,
            picture.gpus,
            self.history,
            self._namespace or "all namespaces",
            now,
            width,
            height,
            trouble=self.visit.trouble,
            with_namespace=self._namespace is None,
        )

    async def draw(self, watching: "asyncio.Task[None]", interval_s: float) -> None:
        """In place, when something has changed and once a second, for the clock."""
        me, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert me is not None  # we run in one
        loop.add_signal_handler(signal.SIGTERM, me.cancel)  # so that the terminal is left as it was
        sampled = -interval_s
        sys.stdout.write(_ENTER)
        try:
            while not watching.done():
                self._picture.changed.clear()
                if loop.time() - sampled >= interval_s:
                    sampled = loop.time()
                    self.history.remember(self.jobs())
                size = shutil.get_terminal_size()
                lines = self.frame(size.columns, size.lines - 1)
                text = "".join(f"{line}{_END_OF_LINE}\n" for line in lines)
                sys.stdout.write(f"{_HOME}{text}{_END_OF_SCREEN}")
                sys.stdout.flush()
                await asyncio.sleep(_SHORTEST_S)
                await _changed(self._picture.changed, min(1.0, interval_s) - _SHORTEST_S)
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
        watching.result()

    async def tell(self, watching: "asyncio.Task[None]") -> None:
        """A line for each change."""
        before: dict[tuple[str, str], JobView] = {}
        while not watching.done():
            self._picture.changed.clear()
            after = {(job.namespace, job.name): job for job in self.jobs()}
            for line in changes(before, after, datetime.now(UTC)):
                click.echo(line)
            before = after
            await asyncio.sleep(_SHORTEST_S)
            await _changed(self._picture.changed, 5.0)
        watching.result()


async def _changed(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, at_most_s)):
            await event.wait()
    except TimeoutError:
        pass


def _width() -> int:
    return shutil.get_terminal_size((160, 40)).columns if sys.stdout.isatty() else 160
