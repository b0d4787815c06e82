"""The agents' endpoint, asked over real HTTPS: who listens is told at once, and nobody speaks for another's job."""

import asyncio
import json
import socket
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
import uvloop

from maniple.kube.jobs import agent_credentials
from maniple.kube.jobs.agent_server import BODY_BYTES, Ack, AgentServer, Report

JOB, UID, POD, POD_UID = "team/bert", "job-uid", "bert-worker-0", "pod-uid"
CREDENTIALS = agent_credentials.create(["127.0.0.1", "maniple-agents.maniple-system.svc"])


class Desk:
    """An endpoint on loopback, and a client that trusts its authority and nobody else."""

    def __init__(self) -> None:
        self.acks: list[tuple[str, Ack]] = []
        self.reports: list[tuple[str, Report]] = []
        self.leads = True
        self.is_broken = False
        self.agents = AgentServer(
            CREDENTIALS.token_key,
            on_ack=self._on_ack,
            on_report=lambda job, report: self.reports.append((job, report)),
            is_leading=lambda: self.leads,
        )

    def _on_ack(self, job: str, ack: Ack) -> None:
        if self.is_broken:
            raise ZeroDivisionError
        self.acks.append((job, ack))

    def is_polled(self, job: str, pod: str) -> bool:
        """Whether the pod's agent waits for an answer."""
        return job in self.agents._jobs and pod in self.agents._jobs[job].polls

    async def start(self, port: int = 0) -> None:
        await self.agents.start("127.0.0.1", port, agent_credentials.server_context(CREDENTIALS))
        tls = ssl.create_default_context(cadata=CREDENTIALS.authority.decode())
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))

    async def stop(self) -> None:
        await self.session.close()
        await self.agents.stop()

    async def ask(
        self,
        method: str,
        what: str,
        *,
        job: str = JOB,
        token: str | None = None,
        body: Any = None,
        raw: bytes | None = None,
        **query: Any,
    ) -> tuple[int, bytes, Any]:
        headers = {"Authorization": f"Bearer {self.agents.token(JOB, UID) if token is None else token}"}
        url = f"https://127.0.0.1:{self.agents.port}/v1/jobs/{job}/{what}"
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        async with self.session.request(method, url, params=query, data=data, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers

    async def poll(self, after: int = 0, pod: str = POD, **more: Any) -> tuple[int, bytes, Any]:
        return await self.ask("GET", "notice", pod=pod, uid=POD_UID, after=after, **more)

    async def ack(self, **said: Any) -> int:
        body = {"pod": POD, "uid": POD_UID, "generation": 1, "state": "running"} | said
        return (await self.ask("POST", "ack", body=body))[0]


@asynccontextmanager
async def at_the_desk() -> AsyncIterator[Desk]:
    desk = Desk()
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()


def run(test: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with at_the_desk() as desk, asyncio.timeout(120):
            await test(desk)

    asyncio.run(within())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_after_a_stop_no_connection_is_left_even_of_clients_that_say_nothing() -> None:
    silent = []

    async def within() -> None:
        desk = Desk()
        await desk.start()
        tls = ssl.create_default_context(cadata=CREDENTIALS.authority.decode())
        for _ in range(3):
            plain = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", desk.agents.port))
            silent.append(await asyncio.to_thread(tls.wrap_socket, plain, server_hostname="127.0.0.1"))
        await desk.stop()

    with warnings.catch_warnings(record=True) as complaints:  # of what is open when the loop ends
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(within())
    assert [str(one.message) for one in complaints] == []
    for one in silent:
        assert one.recv(1) == b""
        one.close()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (b"GET /v1/jobs/team/bert/notice HTTP/1.1\r\nHost: x\r\n", b""),
        (b"POST /v1/jobs/team/bert/ack HTTP/1.1\r\nHost: x\r\n%b\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 408 "),
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_who_does_not_end_a_request_loses_the_connection(said: bytes, answer: bytes) -> None:
    async def test(desk: Desk) -> None:
        desk.agents.ask_s = 1.0  # a handshake is part of it
        desk.agents.expect(JOB, UID)
        tls = ssl.create_default_context(cadata=CREDENTIALS.authority.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", desk.agents.port, ssl=tls)
        writer.write(said.replace(b"%b", b"Authorization: Bearer " + desk.agents.token(JOB, UID).encode()))
        assert (await reader.read()).startswith(answer)
        writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()

    run(test)


def test_who_has_asked_before_keeps_the_connection() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.ask_s = 1.0  # a handshake is part of it
        desk.agents.poll_s = 1.5  # which is longer
        desk.agents.publish(JOB, UID, b"one", 1)
        assert (await desk.poll(after=1))[0] == 204
        assert (await desk.poll(after=0))[0] == 200

    run(test)


def test_who_listens_hears_of_a_new_generation_at_once() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.expect(JOB, UID)
        pods, took = [f"bert-worker-{index}" for index in range(50)], []
        for number in (1, 2, 3):
            polls = [asyncio.create_task(desk.poll(after=number - 1, pod=pod)) for pod in pods]
            await until(lambda: all(desk.is_polled(JOB, pod) for pod in pods))
            published_at = time.monotonic()
            desk.agents.publish(JOB, UID, b"generation %d" % number, number)
            answers = await asyncio.gather(*polls)
            took.append(time.monotonic() - published_at)
            assert {(status, body) for status, body, _ in answers} == {(200, b"generation %d" % number)}
        assert min(took) < 1  # of the one that was least disturbed

    run(test)


def test_what_is_newer_is_answered_at_once_and_what_is_not_with_nothing() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.poll_s = 0.05
        desk.agents.publish(JOB, UID, b"three", 3)
        assert (await desk.poll(after=2))[:2] == (200, b"three")
        assert (await desk.poll(after=3))[:2] == (204, b"")
        desk.agents.publish(JOB, UID, b"two", 2)  # an old one changes nothing
        assert (await desk.poll(after=1))[:2] == (200, b"three")

    run(test)


def test_answers_and_reports_reach_the_controller() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 2)
        assert await desk.ack(generation=2) == 204
        assert await desk.ack(generation=1, state="failed", exit=137) == 204
        body = {"pod": POD, "generation": 2, "step": 70, "throughput": 12.5}
        assert (await desk.ask("POST", "report", body=body))[0] == 204
        assert (await desk.ask("POST", "report", body={**body, "step": 71, "total": 90}))[0] == 204
        assert desk.acks == [
            (JOB, Ack(POD, POD_UID, 2, "running")),
            (JOB, Ack(POD, POD_UID, 1, "failed", 137)),
        ]
        assert desk.reports == [(JOB, Report(POD, 2, 70, 12.5)), (JOB, Report(POD, 2, 71, 12.5, 90))]

    run(test)


def test_a_token_speaks_for_its_own_job_only() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        desk.agents.publish("team/other", "other-uid", b"secret", 1)
        others = desk.agents.token("team/other", "other-uid")
        for token in (others, "", "x", desk.agents.token(JOB, "an older uid"), "ünïcode".encode().decode("latin-1")):
            status, body, _ = await desk.poll(token=token)
            assert status == 403, token
            assert b"{}" not in body
        assert (await desk.poll(job="team/other"))[0] == 403
        assert (await desk.poll(job="team/other", token=others, pod="other-worker-0"))[:2] == (200, b"secret")
        # Nor does a job speak for a pod of another.
        assert (await desk.poll(pod="other-worker-0"))[0] == 403
        assert await desk.ack(pod="other-worker-0") == 403
        assert desk.acks == []

    run(test)


def test_a_job_made_anew_with_the_same_name_has_another_token() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"old", 7)
        desk.agents.publish(JOB, "second uid", b"new", 1)
        assert (await desk.poll())[0] == 403
        assert (await desk.poll(token=desk.agents.token(JOB, "second uid")))[:2] == (200, b"new")

    run(test)


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "fine"},
        {"generation": -1},
        {"generation": "1"},
        {"generation": 1.5},
        {"generation": 1 << 60},
        {"exit": 1},
        {"state": "failed"},
        {"state": "failed", "exit": 256},
        {"extra": 1},
        {"uid": ""},
        {"uid": None},
    ],
)
def test_an_answer_that_is_not_one_is_refused(wrong: dict[str, Any]) -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        assert await desk.ack(**wrong) == 400
        assert desk.acks == []

    run(test)


def test_a_request_that_is_not_one_is_refused() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        for body in (b"", b"[]", b"{", b"\xff", b'{"pod":"bert-worker-0","generation":1,"step":1,"throughput":1e999}'):
            assert (await desk.ask("POST", "report", raw=body))[0] == 400, body
        for throughput in (0, -1, "fast", True):
            said = {"pod": POD, "generation": 1, "step": 1, "throughput": throughput}
            assert (await desk.ask("POST", "report", body=said))[0] == 400, throughput
        too_long = json.dumps({"pod": POD, "uid": "u" * BODY_BYTES, "generation": 1, "state": "done"}).encode()
        assert (await desk.ask("POST", "ack", raw=too_long))[0] == 413
        assert (await desk.ask("GET", "notice", pod=POD, uid=POD_UID))[0] == 400
        assert (await desk.poll(after=-1))[0] == 400
        assert (await desk.poll(colour="red"))[0] == 400
        assert (await desk.ask("GET", "ack"))[0] == 405
        assert (await desk.ask("GET", "secrets"))[0] == 404
        assert desk.acks == []
        assert desk.reports == []

    run(test)


def test_who_does_not_lead_sends_agents_away_also_those_who_wait() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        waiting = asyncio.create_task(desk.poll(after=1))
        await until(lambda: desk.is_polled(JOB, POD))
        desk.leads = False
        for status, _, headers in (await waiting, await desk.poll()):
            assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")
        assert await desk.ack() == 503
        assert desk.acks == []

    run(test)


def test_nobody_without_its_token_learns_whether_there_is_a_job() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        asked = ("GET", "notice"), ("POST", "ack"), ("POST", "report")
        for token in ("", "x", desk.agents.token("team/none", "")):
            for method, what in asked:
                there = await desk.ask(method, what, token=token)
                not_there = await desk.ask(method, what, token=token, job="team/none")
                assert there[0] == not_there[0] == 403
                assert there[1].replace(b"bert", b"none") == not_there[1]
        desk.agents.forget(JOB)
        assert (await desk.poll())[0] == 403
        desk.leads = False  # as long as it does not know all jobs: everybody is to come again
        assert {(await desk.poll(job=job))[0] for job in (JOB, "team/none")} == {503}

    run(test)


def test_what_is_no_http_is_refused_and_leaves_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        tls = ssl.create_default_context(cadata=CREDENTIALS.authority.decode())
        path = f"/v1/jobs/{JOB}/ack HTTP/1.1\r\nHost: a\r\n".encode()
        for request in (
            b"POST " + path + b"Content-Length: abc\r\n\r\n",
            b"POST " + path + b"Content-Length: -1\r\n\r\n",
            b"POST " + path + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST " + path + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
            b"GET " + path + b"A" * 20_000 + b": b\r\n\r\n",
            b"GET \xff HTTP/9.9\r\n\r\n",
            b"GET " + path.replace(b"ack", b"notice") + b"Authorization: Bearer \xff\xfe\r\n\r\n",  # no UTF-8
            b"\0\x01\x02\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", desk.agents.port, ssl=tls)
            writer.write(request)
            assert (await reader.readline()).split()[1] in (b"400", b"403"), request
            writer.close()
        plain = await asyncio.open_connection("127.0.0.1", desk.agents.port)
        plain[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with suppress(ConnectionError):
            await plain[0].read()
        plain[1].close()
        assert (await desk.poll())[0] == 200
        (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "Content-Length" in vars(said)["error"]
        assert not any(record.exc_info for record in caplog.records), caplog.text

    with caplog.at_level("INFO"):
        run(test)


def test_a_mistake_of_ours_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"{}", 1)
        desk.is_broken = True
        assert await desk.ack() == 500
        assert "ZeroDivisionError" in caplog.text

    run(test)


def test_a_generation_that_is_not_known_yet_is_asked_for_again() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.expect(JOB, UID)
        assert await desk.ack() == 503  # what it answers to is in the job's status, and will be published
        desk.agents.publish(JOB, UID, b"{}", 1)
        assert await desk.ack() == 204
        waiting = asyncio.create_task(desk.poll(after=1))
        await until(lambda: desk.is_polled(JOB, POD))
        desk.agents.forget(JOB)
        assert (await waiting)[0] == 503

    run(test)


def test_an_agent_that_hung_up_does_not_count_as_listening() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.expect(JOB, UID)
        assert not desk.is_polled(JOB, POD)
        waiting = asyncio.create_task(desk.poll())
        await until(lambda: desk.is_polled(JOB, POD))
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await until(lambda: not desk.is_polled(JOB, POD))

    run(test)


def test_who_waits_or_asks_when_the_job_is_over_is_told_so_and_may_still_speak() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"one", 1)
        waiting = asyncio.create_task(desk.poll(after=1))
        await until(lambda: desk.is_polled(JOB, POD))
        desk.agents.end(JOB, UID)
        assert (await waiting)[0] == 410
        assert (await desk.poll(after=0))[0] == 410
        assert await desk.ack() == 204
        assert (await desk.poll(token="wrong"))[0] == 403

    run(test)


def test_a_second_poll_of_a_pod_ends_the_first() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"one", 1)
        first = asyncio.create_task(desk.poll(after=1))
        await until(lambda: desk.is_polled(JOB, POD))
        second = asyncio.create_task(desk.poll(after=1))
        assert (await first)[0] == 409  # and not 204: two who ask in turn are to pause
        desk.agents.publish(JOB, UID, b"two", 2)
        assert (await second)[:2] == (200, b"two")

    run(test)


def test_no_more_may_listen_than_twice_the_replicas_of_a_job() -> None:
    async def test(desk: Desk) -> None:
        desk.agents.publish(JOB, UID, b"one", 1)
        desk.agents.expect(JOB, UID, 1)
        pods = [f"{POD}{number}" for number in range(2)]
        polls = [asyncio.create_task(desk.poll(after=1, pod=pod)) for pod in pods]
        await until(lambda: all(desk.is_polled(JOB, pod) for pod in pods))
        assert (await desk.poll(after=1, pod=f"{POD}2"))[0] == 429
        desk.agents.publish(JOB, UID, b"two", 2)
        assert [(await poll)[0] for poll in polls] == [200, 200]

    run(test)


def test_without_the_authority_nobody_is_trusted() -> None:
    async def test(desk: Desk) -> None:
        stranger = ssl.create_default_context(cadata=agent_credentials.create(["127.0.0.1"]).authority.decode())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=stranger)) as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(f"https://127.0.0.1:{desk.agents.port}/")

    run(test)
