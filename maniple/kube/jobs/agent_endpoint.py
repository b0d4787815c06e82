"""The agents' endpoint of this replica. Its certificates are in a Secret that all replicas share."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from maniple.api.keys import Key, join_key
from maniple.kube.jobs.agent_credentials import (
    Credentials,
    create,
    from_secret,
    load_certificate,
    renewed,
    server_context,
)
from maniple.kube.jobs.agent_server import Ack, AgentServer, Report
from maniple.kube.transport.client import ApiError, Client, UnansweredError

log = logging.getLogger("maniple.agents")

_ANSWER_S = 10.0
_RENEW_S = 24 * 3600.0  # between two checks; a certificate is renewed two months before it expires


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int
    url: str  # for pods
    secret: Key  # the Secret with its certificates

    @property
    def names(self) -> list[str]:
        return [urlsplit(self.url).hostname or self.host]


async def open_endpoint(
    client: Client,
    endpoint: Endpoint,
    on_ack: Callable[[str, Ack], None],
    on_report: Callable[[str, Report], None],
    is_leading: Callable[[], bool],
) -> tuple[AgentServer, Credentials, ssl.SSLContext]:
    """Retries until the certificates are read from the API server, or stored there."""
    credentials = await _wait_for_credentials(client, endpoint)
    tls = server_context(credentials)
    agents = AgentServer(credentials.token_key, on_ack, on_report, is_leading)
    await agents.start(endpoint.host, endpoint.port, tls)
    return agents, credentials, tls


async def keep_certified(
    client: Client, endpoint: Endpoint, ours: Credentials, tls: ssl.SSLContext, every_s: float = _RENEW_S
) -> None:
    """Renews the certificate in time, or loads the one that another replica has renewed, without a restart.

    Running jobs trust our authority: a deleted Secret is created again with it, and that of another is not loaded.
    """
    while True:
        await asyncio.sleep(every_s)
        stored = await _wait_for_credentials(client, endpoint, ours)
        if stored.authority == ours.authority:
            load_certificate(tls, stored)
        else:
            name = join_key(endpoint.secret)
            log.error("the agents' certificates are of another authority: restart all replicas", extra={"secret": name})


async def _wait_for_credentials(client: Client, endpoint: Endpoint, ours: Credentials | None = None) -> Credentials:
    backoff = client.backoff()
    while True:
        try:
            return await _credentials(client, endpoint, ours)
        except (ApiError, UnansweredError) as error:
            log.warning("no certificates for agents yet", extra={"error": str(error)})
            await backoff.wait(error)


async def _credentials(client: Client, endpoint: Endpoint, ours: Credentials | None) -> Credentials:
    namespace, name = endpoint.secret
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        secret = msgspec.json.decode(await client.get(f"{folder}/{name}"))
    except ApiError as error:
        if error.status != 404:
            raise
        new = create(endpoint.names) if ours is None else renewed(ours, endpoint.names)
        meta = {"name": name, "namespace": namespace}
        # All replicas may do this at once: one succeeds, and the others (409) read its Secret in their next attempt.
        await client.contend("POST", folder, _body(meta, new), _ANSWER_S)
        return new
    stored = from_secret(secret.get("data") or {})
    if stored is None:
        label = f"Secret {join_key(endpoint.secret)}"
        raise ApiError(409, "Conflict", f"{label} has no credentials of ours: delete it, and it is created again")
    new = renewed(stored, endpoint.names)
    if new is not stored:
        meta = {key: secret["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
        await client.contend("PUT", f"{folder}/{name}", _body(meta, new), _ANSWER_S)
    return new


def _body(meta: dict[str, Any], credentials: Credentials) -> bytes:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": credentials.to_secret()}
    return msgspec.json.encode(secret)
