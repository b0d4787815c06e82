"""Prometheus' /metrics, and /healthz and /readyz for the kubelet."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from maniple.kube.serve.metrics import Metrics

Answer = Callable[[], str]  # what is wrong; nothing, if all is well


async def start_web(host: str, port: int, metrics: Metrics, is_healthy: Answer, is_ready: Answer) -> web.AppRunner:
    """Serves until the runner is cleaned up."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def answer(ask: Answer) -> Callable[[web.Request], web.Response]:
        def respond(_: web.Request) -> web.Response:
            wrong = ask()
            return web.Response(text=(wrong or "ok") + "\n", status=503 if wrong else 200)

        return respond

    app = web.Application()
    healthy, ready = answer(is_healthy), answer(is_ready)

    async def healthz(request: web.Request) -> web.Response:
        return healthy(request)

    async def readyz(request: web.Request) -> web.Response:
        return ready(request)

    app.add_routes([web.get("/metrics", show), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
