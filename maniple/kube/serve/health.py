"""Prometheus' /metrics, and /healthz and /readyz for the kubelet."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from maniple.kube.serve.metrics import Metrics

Check = Callable[[], str]  # returns the problem; empty: all is well


async def start_web(
    host: str, port: int, metrics: Metrics, measure: Callable[[], None], is_healthy: Check, is_ready: Check
) -> web.AppRunner:
    """Serves until the runner is cleaned up. `measure` is called before metrics are shown."""

    async def show(_: web.Request) -> web.Response:
        measure()
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def answering(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.StreamResponse:
            problem = check()
            return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)

        return answer

    app = web.Application()
    app.router.add_get("/metrics", show)
    app.router.add_get("/healthz", answering(is_healthy))
    app.router.add_get("/readyz", answering(is_ready))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
