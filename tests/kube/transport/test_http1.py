"""Requests to servers that are real but not always polite: each is a server on loopback that says what it likes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from maniple.kube.transport.http1 import TRANSIENT, Address, Pool
from tools.cluster.certificates import Certificates

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HI = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Said: hi\r\n\r\nhi"


Play = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


@asynccontextmanager
async def server(handle: Handle, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Its port. A connection stays until the client closes it, unless `handle` has."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            await handle(reader, writer)
            await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    made = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield made.sockets[0].getsockname()[1]
        await asyncio.gather(*tasks)
    finally:
        made.close()


@asynccontextmanager
async def pool(handle: Handle) -> AsyncIterator[Pool]:
    async with server(handle) as port:
        made = Pool(lambda: Address(f"http://127.0.0.1:{port}"))
        yield made
        made.close()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def test_a_connection_is_used_again_and_what_was_sent_is_well_formed(play: Play) -> None:
    connections: list[int] = []
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while not reader.at_eof():
            heads.append(await read_head(reader))
            await reader.readexactly(4)
            writer.write(HI)

    async def run() -> None:
        async with pool(handle) as there:
            for _ in range(3):
                answer = await there.request("POST", "/a?b=c", {"Accept": "x"}, b"body", 60)
                assert (answer.status, answer.body, answer.headers["x-said"]) == (200, b"hi", "hi")

    play(run())
    assert len(connections) == 1
    assert heads[0].startswith(b"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAccept: x\r\nContent-Length: 4\r\n\r\n" in heads[0]


def test_an_answer_in_chunks_byte_by_byte(play: Play) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        for byte in b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()

    async def run() -> None:
        async with pool(handle) as there:
            answer = await there.request("GET", "/", {}, None, 60)
            assert (answer.status, answer.body) == (404, b"abcde")

    play(run())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_kept_connection_that_the_server_closed_is_not_held_against_it(play: Play, method: str) -> None:
    """Reading is tried again on a new connection. Writing is not, unless it was known to be closed before."""
    served: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(served)
        served.append(number)
        await read_head(reader)
        writer.write(HI)
        if number == 0:
            await read_head(reader)  # the second request is read, and never answered
            writer.close()

    async def run() -> None:
        async with pool(handle) as there:
            await there.request("GET", "/", {}, None, 60)
            if method == "GET":
                assert (await there.request(method, "/", {}, None, 60)).status == 200
            else:
                with pytest.raises(TRANSIENT):
                    await there.request(method, "/", {}, b"", 60)

    play(run())
    assert len(served) == (2 if method == "GET" else 1)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_half_an_answer_or_nonsense_is_no_answer(play: Play, said: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(said)
        writer.close()

    async def run() -> None:
        async with pool(handle) as there:
            with pytest.raises(TRANSIENT):
                await there.request("GET", "/", {}, None, 60)

    play(run())


def test_silence_ends_in_a_timeout_and_the_connection_is_not_used_again(play: Play) -> None:
    served: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(1)
        await read_head(reader)
        if len(served) > 1:
            writer.write(HI)

    async def run() -> None:
        async with pool(handle) as there:
            with pytest.raises(TimeoutError):
                await there.request("GET", "/", {}, None, 0.05)
            assert (await there.request("GET", "/", {}, None, 60)).body == b"hi"

    play(run())
    assert len(served) == 2


def test_after_one_silence_no_other_kept_connection_is_trusted(play: Play) -> None:
    """As when a cable was pulled: without this each of them would cost a timeout of its own."""
    served: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(1)
        is_mute_later = len(served) <= 3
        await read_head(reader)
        writer.write(HI)
        if not is_mute_later:
            await read_head(reader)
            writer.write(HI)

    async def run() -> None:
        async with pool(handle) as there:
            await asyncio.gather(*(there.request("GET", "/", {}, None, 60) for _ in range(3)))
            with pytest.raises(TimeoutError):
                await there.request("GET", "/", {}, None, 0.05)
            assert (await there.request("GET", "/", {}, None, 60)).body == b"hi"

    play(run())
    assert len(served) == 4


def test_what_the_server_says_unasked_is_nobodys_answer(play: Play) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(HI)
        await writer.drain()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    async def run() -> None:
        async with pool(handle) as there:
            for _ in range(3):
                assert (await there.request("GET", "/", {}, None, 60)).status == 200
                await asyncio.sleep(0.02)  # for what nobody asked for to arrive

    play(run())


def test_a_stream_block_by_block_until_its_end_or_its_silence(play: Play) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for block in (b"one\n", b"two\n"):
            writer.write(b"4\r\n" + block + b"\r\n")
            await writer.drain()
        if b"/ends" in head:
            writer.write(b"0\r\n\r\n")
        elif b"/breaks" in head:
            writer.close()

    async def read(there: Pool, path: str) -> bytes:
        read = b""
        async with there.stream(path, {}, 1.0) as (head, blocks):
            assert head.status == 200
            try:
                async for block in blocks:
                    read += block
            finally:
                assert read == b"one\ntwo\n"
        return read

    async def run() -> None:
        async with pool(handle) as there:
            assert await read(there, "/ends") == b"one\ntwo\n"
            with pytest.raises(TimeoutError):
                await read(there, "/silent")
            with pytest.raises(ConnectionError):
                await read(there, "/breaks")

    play(run())


def test_a_stream_that_nobody_reads_is_held_back(play: Play) -> None:
    sent = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        while sent < 200_000_000:
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            sent += 1_000_000

    async def run() -> None:
        async with pool(handle) as there, there.stream("/", {}, 60) as (_, blocks):
            last = -1
            while sent != last:  # until no more is taken
                last = sent
                await asyncio.sleep(0.2)
            assert sent < 100_000_000
            read = 0
            async for block in blocks:
                read += len(block)
            assert read == 200_000_000

    play(run())


def test_a_line_break_in_a_header_is_refused(play: Play) -> None:
    async def run() -> None:
        with pytest.raises(ValueError, match="line break"):
            await Pool(lambda: Address("http://127.0.0.1:1")).request("GET", "/", {"A": "b\r\nC: d"}, None, 1)

    play(run())


def test_through_a_proxy_that_wants_a_password(play: Play, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    certificates.issue_all(None)
    certificates.issue("server", "server", names=["inside.test"])
    inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    inside.load_cert_chain(certificates.certificate("server"), certificates.key("server"))
    trusted = ssl.create_default_context(cafile=str(certificates.certificate("cluster")))
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            await read_head(reader)
            writer.write(HI)

    async def run() -> None:
        async with server(answer, inside) as port:

            async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                asked.append(await read_head(reader))
                if b"Proxy-Authorization: Basic bWU6aHVzaA==" not in asked[-1]:
                    writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                    return
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

            async with server(tunnel) as proxy:
                place = Address("https://inside.test:6443", trusted, None, f"http://me:hush@127.0.0.1:{proxy}")
                there = Pool(lambda: place)
                assert (await there.request("GET", "/", {}, None, 60)).body == b"hi"
                assert (await there.request("GET", "/", {}, None, 60)).body == b"hi"
                there.close()
                refused = Pool(lambda: place._replace(proxy=f"http://127.0.0.1:{proxy}"))
                with pytest.raises(ConnectionError, match="answered 407"):
                    await refused.request("GET", "/", {}, None, 60)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(65536):
            writer.write(block)
        writer.close()

    play(run())
    assert len(asked) == 2
    assert asked[0].startswith(b"CONNECT inside.test:6443 HTTP/1.1\r\n")


def test_a_server_that_is_gone_without_a_word_is_noticed(play: Play) -> None:
    """By the system: it asks on idle connections, so that a watch need not wait for a bookmark that never comes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(HI)

    async def run() -> None:
        async with pool(handle) as there:
            await there.request("GET", "/", {}, None, 5.0)
            (connection,) = there._kept
            assert connection._transport is not None
            opened = connection._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 30

    play(run())
