"""How soon a notice reaches every replica of a large job: `python -m benchmarks.notice_latency`.

The endpoint is that of `maniple serve`. The agents are connections of one other process on the same machine.
"""

import argparse
import asyncio
import multiprocessing
import ssl
import time
from multiprocessing.connection import Connection

import aiohttp
import msgspec
import uvloop

from benchmarks.timing_and_results import Result
from maniple.api import types
from maniple.elastic.generations import notice
from maniple.elastic.job_spec import read_job_spec
from maniple.kube.jobs import agent_credentials
from maniple.kube.jobs.agent_server import AgentServer

JOB, UID = "team/bert", "job-uid"
AIM_S = 1.0
TIMES = 5


def make_notice(count: int, number: int) -> bytes:
    """The notice of a generation with `count` members."""
    members = tuple(
        types.GenerationMember(pod(index), f"{index:036d}", "worker", index, f"10.0.{index // 256}.{index % 256}", 8)
        for index in range(count)
    )
    role = {"name": "worker", "min": 1, "max": count, "template": {"spec": {"containers": [{"name": "main"}]}}}
    item = {"metadata": {"name": "bert", "namespace": "team", "uid": UID}, "spec": {"roles": [role]}}
    job = msgspec.convert(item, types.ElasticJob)
    return notice(read_job_spec(job), types.JobGeneration(number=number, members=members, port=29500))


def pod(index: int) -> str:
    return f"bert-worker-{index}"


async def publish(count: int, pipe: Connection) -> list[float]:
    """Seconds from each publication until the last agent had the notice."""
    credentials = agent_credentials.create(["127.0.0.1"])
    agents = AgentServer(credentials.token_key, lambda *_: None, lambda *_: None, lambda: True)
    agents.expect(JOB, UID)
    await agents.start("127.0.0.1", 0, agent_credentials.server_context(credentials))
    pipe.send((agents.port, agents.token(JOB, UID), credentials.authority))
    durations = []
    for number in range(1, TIMES + 1):
        while not all(pod(index) in agents._jobs[JOB].polls for index in range(count)):
            await asyncio.sleep(0.05)
        start = time.monotonic()
        agents.publish(JOB, UID, make_notice(count, number), number)
        durations.append(await asyncio.to_thread(pipe.recv) - start)
    await agents.stop()
    return durations


def listen(count: int, pipe: Connection) -> None:
    uvloop.run(_listen(count, pipe))


async def _listen(count: int, pipe: Connection) -> None:
    port, token, authority = pipe.recv()
    tls = ssl.create_default_context(cadata=authority.decode())
    headers = {"Authorization": f"Bearer {token}"}
    url = f"https://127.0.0.1:{port}/v1/jobs/{JOB}/notice"
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def hear(index: int, after: int) -> None:
            query = {"pod": pod(index), "uid": f"{index}", "after": str(after)}
            while True:
                async with session.get(url, params=query) as answer:
                    if answer.status == 200 and await answer.read():
                        return

        for number in range(TIMES):
            await asyncio.gather(*(hear(index, number) for index in range(count)))
            pipe.send(time.monotonic())


def seconds(count: int) -> list[float]:
    """Seconds that each of a few notices took to reach `count` agents, sorted."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=listen, args=(count, theirs))
    process.start()
    try:
        return sorted(uvloop.run(publish(count, ours)))
    finally:
        process.terminate()
        process.join()


def measure(count: int) -> Result:
    durations = seconds(count)
    size = len(make_notice(count, 1)) / 1000
    figure = f"{durations[len(durations) // 2]:.2f} s, at most {durations[-1]:.2f} s"
    name = f"a notice of {size:.0f} kB to {count:,} agents"
    return Result(name, figure, f"<= {AIM_S:.0f} s", durations[-1] <= AIM_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notice_latency", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[8, 64, 512, 1024])
    options = parser.parse_args()
    print("| what | measured | aim | |\n|---|---|---|---|")
    for count in options.agents:
        result = measure(count)
        print(f"| {result.name} | {result.figure} | {result.aim} | {'met' if result.met else 'MISSED'} |", flush=True)


if __name__ == "__main__":
    main()
