"""The server side of the checkpoint handshake: agents in pods get notices of generations here, and acknowledge them.

HTTPS, with a token for each job, which is good for this job only. All state is in memory and may be lost at any moment:
what is published is in the ElasticJob's status first, and agents repeat their last answer after a failed request. No
Kubernetes in here; the controller publishes, and gets acks and reports by callback.
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

from maniple.api.keys import join_key, split_name

log = logging.getLogger("maniple.agents")

POLL_S = 25.0  # below the 30 s after which proxies close a silent connection
ASK_S = 30.0  # from an agent's connection to the end of its request
BODY_BYTES = 4096
_LEADING_S = 0.5
_IDLE_S = 60.0  # until the next request of a connection
_COMPLAIN_S = 60.0  # between two log lines about malformed requests
_STOP_S = 1.0
_HANDSHAKE_S = 10.0
_NOT_HERE = "another replica leads, or this one does not know its jobs yet"
_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
State = Literal["stopped", "running", "failed", "done"]


class Ack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica's state: see /v1/jobs/NS/JOB/ack in docs/training.md. Delivered at least once."""

    pod: _Name
    uid: _Name
    generation: _Count
    state: State
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None

    def __post_init__(self) -> None:
        if (self.exit is None) != (self.state != "failed"):
            raise ValueError("exit: expected with the state failed, and only then")


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job's progress, and its speed in this generation."""

    pod: _Name
    generation: _Count
    step: _Count
    throughput: Annotated[float, msgspec.Meta(gt=0)] | None = None
    total: _Count | None = None


_Body = TypeVar("_Body", Ack, Report)
_Answer = Callable[[web.Request, str, "_Job"], Awaitable[web.Response]]


class _NoticeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod: _Name
    uid: _Name
    after: _Count


class _Job:
    """One job: what is published, and the polls that wait for more."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.generation = 0
        self.notice = b""
        self.is_over = False
        self.max_polls: int | None = None
        self.polls: dict[str, asyncio.Event] = {}

    def wake(self) -> None:
        for poll in self.polls.values():
            poll.set()

    def is_full(self, pod: str) -> bool:
        return self.max_polls is not None and pod not in self.polls and len(self.polls) >= self.max_polls

    async def wait_for_newer(self, pod: str, after: int, within_s: float) -> bool:
        """Until there is a newer generation, the job is woken, or the time is over. False: a newer poll of the pod has
        replaced this one."""
        if self.generation > after or self.is_over:
            return True
        mine = asyncio.Event()
        if pod in self.polls:
            self.polls[pod].set()  # an agent has one poll: the older one is left from a broken connection
        self.polls[pod] = mine
        try:
            async with asyncio.timeout(within_s):
                await mine.wait()
        except TimeoutError:
            pass
        finally:
            is_last = self.polls.get(pod) is mine
            if is_last:
                del self.polls[pod]
        return is_last


class _QuietLog(logging.LoggerAdapter[logging.Logger]):
    """Malformed requests from anywhere must not fill the log: one line a minute, and no traceback."""

    def __init__(self) -> None:
        super().__init__(log)
        self._logged_at = -_COMPLAIN_S

    def exception(self, msg: object, *args: object, **more: Any) -> None:
        error = more.get("exc_info")
        if not isinstance(error, HttpProcessingError | ConnectionError):
            super().exception(msg, *args, **more)  # our own bug
        elif time.monotonic() - self._logged_at >= _COMPLAIN_S:
            self._logged_at = time.monotonic()
            log.warning("malformed request", extra={"error": " ".join(str(error).split())[:200]})


class AgentServer:
    """Publishes notices and takes acks and reports. All methods are called in the event loop of `start`.

    A job is always given as namespace/name.
    """

    def __init__(
        self,
        key: bytes,
        on_ack: Callable[[str, Ack], None],
        on_report: Callable[[str, Report], None],
        is_leading: Callable[[], bool],
    ) -> None:
        self.port = 0  # where it listens, after `start`
        self.poll_s = POLL_S
        self.ask_s = ASK_S
        self._key = key
        self._on_ack = on_ack
        self._on_report = on_report
        self._is_leading = is_leading
        self._jobs: dict[str, _Job] = {}
        self._silent: set[web.RequestHandler] = set()  # new connections without a request yet
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    # -- for the controller

    def token(self, job: str, uid: str) -> str:
        """An agent's proof that it belongs to the job with this uid."""
        return hmac.new(self._key, f"{job}/{uid}".encode(), hashlib.sha256).hexdigest()

    def expect(self, job: str, uid: str, max_replicas: int | None = None) -> None:
        """From now on agents of this job are let in. With another uid it is another job: the old one is forgotten.

        Twice `max_replicas` may poll at once: terminating replicas still do.
        """
        if job not in self._jobs or self._jobs[job].uid != uid:
            self.forget(job)
            self._jobs[job] = _Job(uid)
        if max_replicas is not None:
            self._jobs[job].max_polls = 2 * max_replicas

    def publish(self, job: str, uid: str, notice: bytes, generation: int) -> None:
        """Sends the notice to every agent that polls now or later. A generation older than the published is ignored."""
        self.expect(job, uid)
        entry = self._jobs[job]
        if generation < entry.generation:
            return
        entry.generation, entry.notice = generation, notice
        entry.wake()

    def end(self, job: str, uid: str) -> None:
        """No generation will follow: agents exit, and their pods keep their logs."""
        self.expect(job, uid)
        entry = self._jobs[job]
        if not entry.is_over:
            entry.is_over = True
            entry.wake()

    def forget(self, job: str) -> None:
        """The job is gone and its token is void: its agents are refused."""
        entry = self._jobs.pop(job, None)
        if entry is not None:
            entry.wake()

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Listens. Port 0 takes any free one: see `self.port`."""
        app = web.Application(client_max_size=BODY_BYTES)
        job = "/v1/jobs/{namespace}/{name}"
        receive_ack, receive_report = self._receiving(Ack, self._on_ack), self._receiving(Report, self._on_report)
        app.router.add_get(f"{job}/notice", self._answering(self._notice))
        app.router.add_post(f"{job}/ack", self._answering(receive_ack))
        app.router.add_post(f"{job}/report", self._answering(receive_report))
        # An agent that closed its connection must not count as polling: its handler is cancelled.
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_QuietLog(),
            shutdown_timeout=_STOP_S,
            handler_cancellation=True,
            keepalive_timeout=_IDLE_S,
        )
        await runner.setup()
        assert runner.server is not None
        # Not web.TCPSite: it reports that it has stopped while connections are still closing.
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
        log.info("serving agents", extra={"host": host, "port": self.port})

    def _connected(self, server: web.Server) -> web.RequestHandler:
        """A connection without a request in time is closed: it is no agent's."""
        handler = server()
        self._silent.add(handler)

        def close_if_silent() -> None:
            if handler in self._silent:
                self._silent.discard(handler)
                handler.force_close()

        asyncio.get_running_loop().call_later(self.ask_s, close_if_silent)
        return handler

    async def stop(self) -> None:
        """Every polling agent is told to retry; then the port is closed."""
        if self._watch is not None:
            self._watch.cancel()
        for job in [*self._jobs]:
            self.forget(job)
        if self._runner is not None and self._server is not None:
            closed = asyncio.create_task(self._server.wait_closed())
            await asyncio.sleep(0)  # wait_closed() after close() would not wait for connections
            self._server.close()
            await self._runner.cleanup()
            await asyncio.wait([closed], timeout=2 * _STOP_S)
            self._runner = self._server = None

    async def _watch_leading(self) -> None:
        """Wakes polls while another replica leads: they would get the next generation only after their timeout."""
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
            _refuse(web.HTTPTooManyRequests, f"{job.max_polls} poll for {name}, twice its maximum of replicas")
        is_last = await job.wait_for_newer(query.pod, query.after, self.poll_s)
        self._check_published(name, job)
        if job.is_over:
            _refuse(web.HTTPGone, f"{name} is over")
        if job.generation <= query.after:
            if not is_last:  # two pollers that replace each other without a pause would keep the server busy
                _refuse(web.HTTPConflict, f"a newer poll for {query.pod} has replaced this one")
            return web.Response(status=204)
        return web.Response(body=job.notice, content_type="application/json")

    def _receiving(self, kind: type[_Body], on_message: Callable[[str, _Body], None]) -> _Answer:
        async def answer(request: web.Request, name: str, job: _Job) -> web.Response:
            try:
                async with asyncio.timeout(self.ask_s):
                    body = msgspec.json.decode(await request.read(), type=kind)
            except TimeoutError:
                _refuse(web.HTTPRequestTimeout, f"the request did not end within {self.ask_s:g} seconds")
            except msgspec.DecodeError as error:
                _refuse(web.HTTPBadRequest, str(error))
            _check_pod(body.pod, name)
            self._check_published(name, job, body.generation)
            on_message(name, body)
            return web.Response(status=204)

        return answer

    def _answering(self, answer: _Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler around an answer: authorises before anything is read."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self._silent.discard(request.protocol)
            name = join_key((request.match_info["namespace"], request.match_info["name"]))
            return await answer(request, name, self._authorised(request, name))

        return handle

    def _authorised(self, request: web.Request, name: str) -> _Job:
        """Without the token of a job it cannot be learnt whether the job exists."""
        if not self._is_leading():
            _retry_later(_NOT_HERE)
        job = self._jobs.get(name)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        wanted = self.token(name, "" if job is None else job.uid)
        is_right = scheme == "Bearer" and hmac.compare_digest(token.strip().encode(errors="replace"), wanted.encode())
        if job is None or not is_right:
            _refuse(web.HTTPForbidden, f"this token is not for {name}")
        return job

    def _check_published(self, name: str, job: _Job, generation: int = 0) -> None:
        """Refuses, unless this replica leads and knows the job, and the generation has been published."""
        if not self._is_leading():
            _retry_later(_NOT_HERE)
        if self._jobs.get(name) is not job:  # it was deleted while the agent polled
            _retry_later(f"{name} is not known here")
        if generation > job.generation:
            _retry_later(f"generation {generation} of {name} is not known here")


def _decoded_query(request: web.Request) -> _NoticeQuery:
    if len(request.query) != len(set(request.query)):
        _refuse(web.HTTPBadRequest, "a parameter is given twice")
    try:
        return msgspec.convert(dict(request.query), _NoticeQuery, strict=False)
    except msgspec.ValidationError as error:
        _refuse(web.HTTPBadRequest, str(error))


def _check_pod(pod: str, job: str) -> None:
    name = split_name(job)[1]
    if not (_POD_NAME.fullmatch(pod) and pod.startswith(f"{name}-")):
        _refuse(web.HTTPForbidden, f"pod: {pod!r} is not a pod of {job}; its pods are {name}-ROLE-INDEX")


def _refuse(kind: type[web.HTTPException], why: str) -> NoReturn:
    raise kind(text=why + "\n")


def _retry_later(why: str) -> NoReturn:
    # A new connection may reach another replica behind the same Service.
    raise web.HTTPServiceUnavailable(text=why + "\n", headers={"Retry-After": "1", "Connection": "close"})
