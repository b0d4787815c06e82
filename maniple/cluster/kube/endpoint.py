"""The agents' endpoint of this replica. Its certificates are in a Secret that all replicas share."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from maniple.cluster.kube.agents import Ack, Agents, Report
from maniple.cluster.kube.client import ApiError, Backoff, Client, UnansweredError
from maniple.cluster.kube.credentials import Credentials, create, from_secret, renewed, server_context

log = logging.getLogger("maniple.agents")

_ANSWER_S = 10.0


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
) -> tuple[Agents, Credentials]:
    """Tries until the API server has given or taken the certificates."""
    backoff = Backoff()
    while True:
        try:
            credentials = await _credentials(client, endpoint)
            break
        except (ApiError, UnansweredError) as error:
            log.warning("no certificates for agents yet", extra={"error": str(error)})
            await backoff.wait(error)
    agents = Agents(credentials.token_key, listener.on_ack, listener.on_report, is_leading)
    await agents.start(endpoint.host, endpoint.port, server_context(credentials))
    return agents, credentials


async def _credentials(client: Client, endpoint: Endpoint) -> Credentials:
    namespace, name = endpoint.secret
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        found = msgspec.json.decode(await client.get(f"{folder}/{name}"))
    except ApiError as error:
        if error.status != 404:
            raise
        made = create(endpoint.names)
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
