"""Waits until jobs have finished: prints a line for each change, and returns an exit code for how they ended."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from maniple.api.errors import InputError
from maniple.api.keys import Key, join_key
from maniple.api.phases import FINISHED
from maniple.api.terminal_text import printable
from maniple.cli.support.job_options import report_trouble
from maniple.cli.support.terminal import say, say_log
from maniple.views.jobs import status_line

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient
    from maniple.kube.user.replica_pod import ReplicaPod

SUCCEEDED, FAILED, TIMED_OUT = 0, 1, 3


async def wait_for_jobs(client: "UserClient", jobs: list[Key], *, with_logs: bool, timeout_s: float | None) -> int:
    """Changes go to standard error, logs to standard output."""
    report_trouble(client)
    logs = [asyncio.create_task(_print_log(client, key, len(jobs) > 1)) for key in jobs] if with_logs else []
    try:
        async with asyncio.timeout(timeout_s):
            codes = await asyncio.gather(*(_wait(client, key) for key in jobs))
            await asyncio.gather(*logs)
    except TimeoutError:
        say(f"error: not finished after {timeout_s:g} s; the jobs go on", err=True)
        return TIMED_OUT
    finally:
        for task in logs:
            task.cancel()
    return max(codes, default=SUCCEEDED)


async def _wait(client: "UserClient", key: Key) -> int:
    printed = ""
    async with aclosing(client.follow_job(key)) as changes:
        async for job in changes:
            if job is None:
                say(f"{join_key(key)}: deleted", err=True)
                return FAILED
            line = status_line(job)
            if line != printed:
                printed = line
                say(f"{join_key(key)}: {printable(line)}", err=True)
            if job.status.phase in FINISHED:
                return SUCCEEDED if job.status.phase == "Succeeded" else FAILED
    return FAILED


async def _print_log(client: "UserClient", key: Key, with_name: bool) -> None:
    from maniple.kube.user.job_logs import Choice, follow_logs

    first = ((await client.job(key)).spec.lead, 0)

    def on_line(replica: "ReplicaPod", line: str) -> None:
        say_log(f"[{replica.name}] {line}" if with_name else line)

    choice = Choice(lambda replica: (replica.role, replica.index) == first)
    try:
        await follow_logs(client, key, choice, on_line)
    except InputError as error:  # the exit code is about the job, not its log
        say(f"note: {error}", err=True)
