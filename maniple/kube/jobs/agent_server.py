"""The server's end of the checkpoint handshake: agents in pods hear of generations here, and answer.

HTTPS, a token per job: whoever has it can hear of this job and speak for it, and for no other. Everything here is in
memory and can be lost at any moment: what was published is in the ElasticJob's status first, and agents repeat their
last answer whenever a request of theirs failed. There is no Kubernetes in here; the controller publishes, and is told.
"""

import asyncio
import functools
import hashlib
import hmac
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger("maniple.agents")

POLL_S = 25.0  # below the 30 s after which proxies on the way give up on a silent connection
ASK_S = 30.0  # for what an agent wants to say, from its connection to the end of the request
BODY_BYTES = 4096
_LEADING_S = 0.5
_IDLE_S = 60.0  # for the next request of a connection; whoever has more to say opens another
_COMPLAIN_S = 60.0  # at most one line in so long of requests that are none
_STOP_S = 1.0
_HANDSHAKE_S = 10.0
_NOT_HERE = "another replica leads, or this one does not know its jobs yet"
_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Speed = Annotated[float, msgspec.Meta(gt=0)]
State = Literal["stopped", "running", "failed", "done"]


class Ack(msgspec.Struct, frozen=True):
    """What became of a replica: see /v1/jobs/NS/JOB/ack in docs/training.md. Told at least once, maybe more often."""

    job: str  # namespace/name
    pod: str
    uid: str
    generation: int
    state: State
    exit: int | None = None


class Report(msgspec.Struct, frozen=True):
    """How far a job has come, and how fast it is in this generation."""

    job: str
    pod: str
    generation: int
    step: int
    throughput: float | None = None
    total: int | None = None


class _AckBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod: _Name
    uid: _Name
    generation: _Count
    state: State
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None


class _ReportBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod: _Name
    generation: _Count
    step: _Count
    throughput: _Speed | None = None
    total: _Count | None = None


_Body = TypeVar("_Body", _AckBody, _ReportBody)


class _NoticeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod: _Name
    uid: _Name
    after: _Count


class _Job:
    """What is known of one job, and who listens."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.generation = 0
        self.notice = b""
        self.is_over = False
        self.most: int | None = None  # who may listen at once
        self._polls: dict[str, asyncio.Event] = {}

    def wake(self) -> None:
        for poll in self._polls.values():
            poll.set()

    def listens(self, pod: str) -> bool:
        return pod in self._polls

    def is_full(self, pod: str) -> bool:
        return self.most is not None and pod not in self._polls and len(self._polls) >= self.most

    async def newer(self, pod: str, after: int, within_s: float) -> bool:
        """Returns when there is a newer generation, when it is woken, or when the time is over; whether nobody else has
        asked for the pod meanwhile."""
        if self.generation > after or self.is_over:
            return True
        mine = asyncio.Event()
        if pod in self._polls:
            self._polls[pod].set()  # an agent has one poll: the older one is what a broken connection left behind
        self._polls[pod] = mine
        try:
            async with asyncio.timeout(within_s):
                await mine.wait()
        except TimeoutError:
            pass
        finally:
            is_last = self._polls.get(pod) is mine
            if is_last:
                del self._polls[pod]
        return is_last


class _Quietly(logging.LoggerAdapter[logging.Logger]):
    """What anybody can send who reaches the port must not fill our log: a line now and then, and no traceback."""

    def __init__(self) -> None:
        super().__init__(log)
        self._said_at = -_COMPLAIN_S

    def exception(self, msg: object, *args: object, **more: Any) -> None:
        error = more.get("exc_info")
        if not isinstance(error, HttpProcessingError | ConnectionError):
            super().exception(msg, *args, **more)  # a mistake of ours
        elif time.monotonic() - self._said_at >= _COMPLAIN_S:
            self._said_at = time.monotonic()
            log.warning("a request that is none", extra={"error": " ".join(str(error).split())[:200]})


class Agents:
    """Publishes notices and hears answers. All methods are called in the event loop that `start` ran in."""

    def __init__(
        self,
        key: bytes,
        on_ack: Callable[[Ack], None],
        on_report: Callable[[Report], None],
        is_leading: Callable[[], bool],
    ) -> None:
        self.port = 0  # where it listens, once it does
        self.poll_s = POLL_S
        self.ask_s = ASK_S
        self._key = key
        self._on_ack = on_ack
        self._on_report = on_report
        self._is_leading = is_leading
        self._jobs: dict[str, _Job] = {}
        self._silent: set[web.RequestHandler] = set()  # new connections that have not asked for anything yet
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    # -- for the controller

    def token(self, job: str, uid: str) -> str:
        """What lets an agent speak for this job: `job` is namespace/name, `uid` the ElasticJob's."""
        return hmac.new(self._key, f"{job}/{uid}".encode(), hashlib.sha256).hexdigest()

    def expect(self, job: str, uid: str, most: int | None = None) -> None:
        """From now on agents of this job may call. With another uid it is another job: the old one is forgotten.

        `most`: its replicas. So many may listen, and as many again that are about to go.
        """
        if job not in self._jobs or self._jobs[job].uid != uid:
            self.forget(job)
            self._jobs[job] = _Job(uid)
        if most is not None:
            self._jobs[job].most = 2 * most

    def publish(self, job: str, uid: str, notice: bytes, generation: int) -> None:
        """Tells every agent of the job that listens, and everyone who asks later. Older than what is out: nothing."""
        self.expect(job, uid)
        known = self._jobs[job]
        if generation < known.generation:
            return
        known.generation, known.notice = generation, notice
        known.wake()

    def end(self, job: str, uid: str) -> None:
        """Nothing will follow: agents are to end, so that their pods stay with what they have said."""
        self.expect(job, uid)
        known = self._jobs[job]
        if not known.is_over:
            known.is_over = True
            known.wake()

    def forget(self, job: str) -> None:
        """The job is gone, and its token is worth nothing: agents that still call are refused, as strangers are."""
        gone = self._jobs.pop(job, None)
        if gone is not None:
            gone.wake()

    def listens(self, job: str, pod: str) -> bool:
        """Whether the pod's agent waits for an answer."""
        known = self._jobs.get(job)
        return known is not None and known.listens(pod)

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Listens; port 0 takes any, and `self.port` says which."""
        app = web.Application(client_max_size=BODY_BYTES)
        app.add_routes(
            [
                web.get("/v1/jobs/{namespace}/{name}/notice", self._answering(self._notice)),
                web.post("/v1/jobs/{namespace}/{name}/ack", self._answering(self._ack)),
                web.post("/v1/jobs/{namespace}/{name}/report", self._answering(self._report)),
            ]
        )
        # An agent that hung up must not be counted as listening: its handler is cancelled.
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_Quietly(),
            shutdown_timeout=_STOP_S,
            handler_cancellation=True,
            keepalive_timeout=_IDLE_S,
        )
        await runner.setup()
        assert runner.server is not None
        # No web.TCPSite: that leaves connections open which are still saying good-bye when it says that it has stopped.
        server = await asyncio.get_running_loop().create_server(
            functools.partial(self._connected, runner.server),
            host,
            port,
            ssl=tls,
            backlog=1024,
            ssl_handshake_timeout=_HANDSHAKE_S,
            ssl_shutdown_timeout=_STOP_S,
        )
        self._runner, self._server = runner, server
        self.port = server.sockets[0].getsockname()[1]
        self._watch = asyncio.create_task(self._watch_leading())
        log.info("agents may call", extra={"host": host, "port": self.port})

    def _connected(self, server: web.Server) -> web.RequestHandler:
        """A connection; who has not asked for anything in time is a stranger who holds it open, and loses it."""
        made = server()
        self._silent.add(made)

        def look() -> None:
            if made in self._silent:
                self._silent.discard(made)
                made.force_close()

        asyncio.get_running_loop().call_later(self.ask_s, look)
        return made

    async def stop(self) -> None:
        """Every agent that waits is told to come again; then the port is closed."""
        if self._watch is not None:
            self._watch.cancel()
        for job in [*self._jobs]:
            self.forget(job)
        if self._runner is not None and self._server is not None:
            gone = asyncio.create_task(self._server.wait_closed())
            await asyncio.sleep(0)  # who begins to wait after close() does not wait for connections
            self._server.close()
            await self._runner.cleanup()
            await asyncio.wait([gone], timeout=2 * _STOP_S)
            self._runner = self._server = None

    async def _watch_leading(self) -> None:
        """Whoever waits here while another leads would hear of the next generation only when its poll is over."""
        while True:
            await asyncio.sleep(_LEADING_S)
            if not self._is_leading():
                for job in self._jobs.values():
                    job.wake()

    # -- for agents

    async def _notice(self, request: web.Request, name: str, job: _Job) -> web.Response:
        query = _decoded_query(request)
        _check_pod(query.pod, name)
        if job.is_full(query.pod):
            _refuse(web.HTTPTooManyRequests, f"{job.most} listen for {name}, twice as many as it has replicas at most")
        is_last = await job.newer(query.pod, query.after, self.poll_s)
        self._known(name, job)
        if job.is_over:
            _refuse(web.HTTPGone, f"{name} is over")
        if job.generation <= query.after:
            if not is_last:  # two who ask in turn without a pause would keep us busy
                _refuse(web.HTTPConflict, f"somebody else listens for {query.pod} since")
            return web.Response(status=204)
        return web.Response(body=job.notice, content_type="application/json")

    async def _ack(self, request: web.Request, name: str, job: _Job) -> web.Response:
        said = _decoded_body(await self._body(request), _AckBody)
        _check_pod(said.pod, name)
        if (said.exit is None) != (said.state != "failed"):
            _refuse(web.HTTPBadRequest, "exit: say it with the state failed, and only then")
        self._known(name, job, said.generation)
        self._on_ack(Ack(name, said.pod, said.uid, said.generation, said.state, said.exit))
        return web.Response(status=204)

    async def _report(self, request: web.Request, name: str, job: _Job) -> web.Response:
        said = _decoded_body(await self._body(request), _ReportBody)
        _check_pod(said.pod, name)
        self._known(name, job, said.generation)
        self._on_report(Report(name, said.pod, said.generation, said.step, said.throughput, said.total))
        return web.Response(status=204)

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self.ask_s):
                return await request.read()
        except TimeoutError:
            _refuse(web.HTTPRequestTimeout, f"the request did not end within {self.ask_s:g} seconds")

    def _answering(
        self, answer: Callable[[web.Request, str, _Job], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler around an answer: who may not, or not here, is refused before anything is read."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self._silent.discard(request.protocol)
            name = f"{request.match_info['namespace']}/{request.match_info['name']}"
            return await answer(request, name, self._authorised(request, name))

        return handle

    def _authorised(self, request: web.Request, name: str) -> _Job:
        """Who has no token of the job is not told whether there is such a job."""
        if not self._is_leading():
            _come_again(_NOT_HERE)
        job = self._jobs.get(name)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        wanted = self.token(name, "" if job is None else job.uid)
        is_right = scheme == "Bearer" and hmac.compare_digest(token.strip().encode(errors="replace"), wanted.encode())
        if job is None or not is_right:
            _refuse(web.HTTPForbidden, f"this token does not speak for {name}")
        return job

    def _known(self, name: str, job: _Job, generation: int = 0) -> None:
        """Refuses, unless it is ours to answer for at this moment, and this generation of it has been published."""
        if not self._is_leading():
            _come_again(_NOT_HERE)
        if self._jobs.get(name) is not job:  # it has gone while the agent waited
            _come_again(f"{name} is not known here")
        if generation > job.generation:
            _come_again(f"generation {generation} of {name} is not known here")


def _decoded_query(request: web.Request) -> _NoticeQuery:
    if len(request.query) != len(set(request.query)):
        _refuse(web.HTTPBadRequest, "a parameter is there twice")
    try:
        return msgspec.convert(dict(request.query), _NoticeQuery, strict=False)
    except msgspec.ValidationError as error:
        _refuse(web.HTTPBadRequest, str(error))


def _decoded_body(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        _refuse(web.HTTPBadRequest, str(error))


def _check_pod(pod: str, job: str) -> None:
    name = job.partition("/")[2]
    if not (_POD_NAME.fullmatch(pod) and pod.startswith(f"{name}-")):
        _refuse(web.HTTPForbidden, f"pod: {pod!r} is none of {job}; its pods are {name}-ROLE-INDEX")


def _refuse(kind: type[web.HTTPException], why: str) -> NoReturn:
    raise kind(text=why + "\n")


def _come_again(why: str) -> NoReturn:
    # A new connection may reach another replica behind the same Service.
    raise web.HTTPServiceUnavailable(text=why + "\n", headers={"Retry-After": "1", "Connection": "close"})
