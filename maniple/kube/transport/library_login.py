"""Reads kubeconfigs with kubernetes_asyncio: exec plugins, OIDC, several files, and whatever else kubectl understands.

Nothing else of that library is used, and only this file imports it:
docs/decisions/013-own-http-client-library-login.md.
"""

from pathlib import Path

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, load_kube_config

from maniple.kube.transport.credentials import Credentials


class LibraryLogin:
    def __init__(self, kubeconfig: str, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._loader: KubeConfigLoader | None = None
        self._configuration = Configuration()

    async def read(self) -> Credentials:
        """Reads everything anew. It raises anything for a wrong file."""
        self._configuration = Configuration()
        self._loader = await load_kube_config(self._kubeconfig, self._context, client_configuration=self._configuration)
        return await self._credentials()

    async def renewed(self) -> Credentials | None:
        """Asks a plugin or provider whose token or certificate will expire within five minutes; None: there is none."""
        if self._loader is None or not (self._loader.provider or hasattr(self._loader, "exec_plugin_expiry")):
            return None
        await self._loader.load_and_set(self._configuration)
        return await self._credentials()

    async def _credentials(self) -> Credentials:
        settings = self._configuration
        current = None if self._loader is None else self._loader.current_context
        return Credentials(
            server=str(settings.host).rstrip("/"),
            authority=Path(settings.ssl_ca_cert).read_text(encoding="utf-8") if settings.ssl_ca_cert else None,
            verifies=settings.verify_ssl,
            server_name=settings.tls_server_name or None,
            proxy=settings.proxy or None,
            certificate=Path(settings.cert_file).read_bytes() if settings.cert_file else None,
            key=Path(settings.key_file).read_bytes() if settings.key_file else None,
            authorization=await settings.get_api_key_with_prefix("BearerToken"),
            namespace="" if not current else current["context"].get("namespace") or "",
        )
