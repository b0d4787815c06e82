"""`maniple watch`: the jobs of a cluster, live."""

import asyncio
import shutil
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from maniple.api.keys import Key
from maniple.api.terminal_text import printable
from maniple.cli.support.cluster_options import seconds_option
from maniple.cli.support.job_options import Connection, check_queues, list_options, report_trouble, run_with_client
from maniple.cli.support.table import screen_width
from maniple.cli.support.terminal import say
from maniple.cli.support.watch_screen import SAMPLES, change_lines, frame
from maniple.views.cluster import ClusterView, cluster_view
from maniple.views.jobs import JobView, SizeHistory, changed_jobs

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient
    from maniple.kube.user.observer import Observer

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate screen without a cursor, and back
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_MIN_PAUSE_S = 0.2  # between two frames


@click.command(
    epilog="""\b
Examples:
  maniple watch
  maniple watch -A -q research
  maniple watch --once
  maniple watch -A | tee changes.log

In a terminal the view is drawn in place until Ctrl-C. Elsewhere a line is printed for each
job, and one more whenever its phase, size, GPUs or reason change. While the API server
does not answer, both say so, and continue when it does.
Exit codes: 0 shown once, 2 wrong input or no cluster, 130 interrupted.
"""
)
@list_options
@click.option("--once", is_flag=True, help="Draw it once and exit.")
@seconds_option("--interval", "interval_s", "Time between two bars of OVER TIME.", least=0.2, most=3600, default=2.0)
def command(
    connection: Connection, all_namespaces: bool, queues: tuple[str, ...], once: bool, interval_s: float
) -> None:
    """Watch jobs live: sizes over time, GPUs, progress, queues."""

    async def work(client: "UserClient") -> None:
        from maniple.kube.user.observer import Observer

        namespace = None if all_namespaces else client.namespace
        observer = Observer(client, namespace)
        viewer = _Viewer(client, observer, queues, namespace)
        watching = asyncio.create_task(observer.run())
        begun = asyncio.create_task(observer.begun.wait())
        try:
            await asyncio.wait({watching, begun}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            check_queues(queues, observer.queue_names, (job.spec.queue for job in observer.jobs.values()))
            if once:
                viewer.print_once()
            elif sys.stdout.isatty():
                await viewer.draw(watching, interval_s)
            else:
                report_trouble(client)
                await viewer.print_changes(watching)
        finally:
            watching.cancel()
            begun.cancel()

    run_with_client(connection, work)


class _Viewer:
    """Shows what the observer sees, as it changes."""

    def __init__(
        self, client: "UserClient", observer: "Observer", queues: tuple[str, ...], namespace: str | None
    ) -> None:
        self._client = client
        self._observer = observer
        self._queues = queues
        self._namespace = namespace
        self._history = SizeHistory(SAMPLES)

    def print_once(self) -> None:
        view = self._view()
        self._history.sample(view.jobs)
        say("\n".join(self._frame(view, screen_width(), None)))

    async def draw(self, watching: "asyncio.Task[None]", interval_s: float) -> None:
        """In place, after each change and once a second, for the clock."""
        me, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert me is not None  # a coroutine runs in a task
        loop.add_signal_handler(signal.SIGTERM, me.cancel)  # so that the terminal is restored
        sampled = -interval_s
        sys.stdout.write(_ENTER)
        try:
            while not watching.done():
                self._observer.changed.clear()
                view = self._view()
                if loop.time() - sampled >= interval_s:
                    sampled = loop.time()
                    self._history.sample(view.jobs)
                size = shutil.get_terminal_size()
                lines = self._frame(view, size.columns, size.lines - 1)
                text = "".join(f"{printable(line)}{_END_OF_LINE}\n" for line in lines)
                sys.stdout.write(f"{_HOME}{text}{_END_OF_SCREEN}")
                sys.stdout.flush()
                await asyncio.sleep(_MIN_PAUSE_S)
                await self._wait_for_change(min(1.0, interval_s) - _MIN_PAUSE_S)
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
        watching.result()

    async def print_changes(self, watching: "asyncio.Task[None]") -> None:
        """A line for each change."""
        before: dict[Key, JobView] = {}
        while not watching.done():
            self._observer.changed.clear()
            after = {job.key: job for job in self._view().jobs}
            for line in change_lines(changed_jobs(before, after), datetime.now(UTC)):
                say(line)
            before = after
            await asyncio.sleep(_MIN_PAUSE_S)
            await self._wait_for_change(5.0)
        watching.result()

    def _view(self) -> ClusterView:
        observer = self._observer
        return cluster_view(
            observer.jobs.values(), observer.queues.values(), observer.node_gpus, observer.pods.values(), self._queues
        )

    def _frame(self, view: ClusterView, width: int, height: int | None) -> list[str]:
        return frame(view, self._history, self._namespace, datetime.now(UTC), width, height, self._client.trouble)

    async def _wait_for_change(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, at_most_s)):
                await self._observer.changed.wait()
        except TimeoutError:
            pass
