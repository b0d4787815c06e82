"""The certificate of the agents' endpoint is renewed while the endpoint runs, on a real API server."""

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from cryptography import x509

from maniple.kube.jobs import agent_credentials
from maniple.kube.jobs.agent_endpoint import Endpoint, keep_certified, open_endpoint
from maniple.kube.transport.client import Client
from maniple.kube.transport.login import log_in
from tools.cluster import Cluster


def nobody(_job: str, _message: object) -> None:
    """Ignores what agents report."""


def test_a_certificate_is_renewed_without_a_restart_and_running_jobs_keep_trusting_it(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets/maniple-agents"
    endpoint = Endpoint("127.0.0.1", 0, "https://127.0.0.1", (namespace, "maniple-agents"))

    async def shown(port: int, trusted: ssl.SSLContext) -> x509.Certificate:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return x509.load_der_x509_certificate(found)

    async def renew() -> None:
        async with Client(await log_in(str(cluster.kubeconfig()))) as client, asyncio.timeout(180):
            agents, made, tls = await open_endpoint(client, endpoint, nobody, nobody, lambda: True)
            trusted = ssl.create_default_context(cadata=made.authority.decode())
            first = await shown(agents.port, trusted)
            # As if a year had nearly passed: the certificate in the Secret expires in a month.
            then = datetime.now(UTC) - timedelta(days=agent_credentials.SERVER_DAYS - 30)
            old = agent_credentials.renewed(made, ["10.0.0.1", "127.0.0.1"], then)
            with cluster.client() as admin:
                admin.patch(path, {"data": old.to_secret()})
            keeping = asyncio.create_task(keep_certified(client, endpoint, made, tls, every_s=0.1))
            while (now := await shown(agents.port, trusted)) == first:
                await asyncio.sleep(0.05)
            with cluster.client() as admin:
                kept = agent_credentials.from_secret(admin.get(path)["data"])
                # A deleted Secret is restored as it was, because running jobs trust its authority.
                admin.delete(path)
                while not admin.exists(path):
                    await asyncio.sleep(0.05)
                again = agent_credentials.from_secret(admin.get(path)["data"])
            keeping.cancel()
            await agents.stop()
            assert now.not_valid_after_utc > datetime.now(UTC) + timedelta(days=agent_credentials.RENEW_DAYS)
            assert kept is not None
            assert again is not None
            assert x509.load_pem_x509_certificate(kept.certificate) == now
            for each in (kept, again):
                assert (each.authority, each.token_key) == (made.authority, made.token_key)

    asyncio.run(renew())
