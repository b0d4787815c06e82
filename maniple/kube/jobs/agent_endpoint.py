"""The agents' endpoint of this replica. Its certificates are in a Secret that all replicas share."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from maniple.kube.jobs.agent_credentials import (
    Credentials,
    create,
    from_secret,
    load_certificate,
    renewed,
    server_context,
)
from maniple.kube.jobs.agent_server import Ack, Agents, Report
from maniple.kube.transport.client import ApiError, Backoff, Client, UnansweredError

log = logging.getLogger("maniple.agents")

_ANSWER_S = 10.0
_LOOK_S = 24 * 3600.0  # a certificate is renewed two months before its end


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int
    url: str  # as pods reach it
    secret: tuple[str, str]  # namespace and name of the Secret with its certificates

    @property
    def names(self) -> list[str]:
        return [urlsplit(self.url).hostname or self.host]


class Listener(Protocol):
    def on_ack(self, ack: Ack) -> None: ...

    def on_report(self, report: Report) -> None: ...


async def open_endpoint(
    client: Client, endpoint: Endpoint, listener: Listener, is_leading: Callable[[], bool]
) -> tuple[Agents, Credentials, ssl.SSLContext]:
    """Tries until the API server has given or taken the certificates."""
    credentials = await _sure_credentials(client, endpoint)
    tls = server_context(credentials)
    agents = Agents(credentials.token_key, listener.on_ack, listener.on_report, is_leading)
    await agents.start(endpoint.host, endpoint.port, tls)
    return agents, credentials, tls


async def keep_certified(
    client: Client, endpoint: Endpoint, ours: Credentials, tls: ssl.SSLContext, every_s: float = _LOOK_S
) -> None:
    """Renews the certificate in time, or takes the one that another replica has renewed, without a restart.

    Running jobs trust our authority: a Secret that was deleted is made again with it, and another's is not taken.
    """
    while True:
        await asyncio.sleep(every_s)
        found = await _sure_credentials(client, endpoint, ours)
        if found.authority == ours.authority:
            load_certificate(tls, found)
        else:
            name = "/".join(endpoint.secret)
            log.error("the agents' certificates are of another authority: restart all replicas", extra={"secret": name})


async def _sure_credentials(client: Client, endpoint: Endpoint, ours: Credentials | None = None) -> Credentials:
    backoff = Backoff()
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
        found = msgspec.json.decode(await client.get(f"{folder}/{name}"))
    except ApiError as error:
        if error.status != 404:
            raise
        made = create(endpoint.names) if ours is None else renewed(ours, endpoint.names)
        head = {"name": name, "namespace": namespace}
        # All replicas may do this at once; one of them is the first, and the others take what it made (409).
        await client.contend("POST", folder, _body(head, made), _ANSWER_S)
        return made
    known = from_secret(found.get("data") or {})
    if known is None:
        raise ApiError(409, "Conflict", f"Secret {namespace}/{name} is not one of ours: delete it, and it is made anew")
    now = renewed(known, endpoint.names)
    if now is not known:
        head = {key: found["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
        await client.contend("PUT", f"{folder}/{name}", _body(head, now), _ANSWER_S)
    return now


def _body(head: dict[str, Any], credentials: Credentials) -> bytes:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": credentials.to_secret()}
    return msgspec.json.encode(secret)
