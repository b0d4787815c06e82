"""Logs in to the API server: with a kubeconfig (certificates, tokens, exec plugins) or a pod's service account.

kubernetes_asyncio reads those. Nothing else of that library is used:
docs/decisions/013-own-http-client-library-login.md.
"""

import os
import ssl
import time
from pathlib import Path

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import load_incluster_config
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, load_kube_config

from maniple.api.errors import InputError, shown
from maniple.api.validate.kubernetes import A_LABEL, is_label
from maniple.kube.transport.http1 import Address

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
LOGIN_ERRORS = (InputError, ConfigException, OSError, ValueError)
_LOOK_AGAIN_S = 60.0  # the library calls an exec plugin again five minutes before its token expires


class Login:
    """The address of the API server and the credentials for it. Made by `log_in`."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._loader: KubeConfigLoader | None = None
        self._configuration = Configuration()
        self._look_again = 0.0
        self._certificate: tuple[str | None, str | None] = (None, None)
        self._ssl: ssl.SSLContext | None = None

    @property
    def address(self) -> Address:
        settings = self._configuration
        server = str(settings.host).rstrip("/")
        return Address(server, self._ssl, settings.tls_server_name or None, settings.proxy or None)

    @property
    def namespace(self) -> str:
        """The namespace of commands that name none: the context's, and in a pod its own."""
        namespace = ""
        if self._loader is not None and (current := self._loader.current_context):
            namespace = current["context"].get("namespace", "")
        elif _POD_NAMESPACE.is_file():
            namespace = _POD_NAMESPACE.read_text(encoding="utf-8").strip()
        if namespace and not (isinstance(namespace, str) and is_label(namespace)):
            raise InputError([f"{self._source}: namespace: expected {A_LABEL}, found {shown(namespace)}"])
        return namespace or "default"

    @property
    def _source(self) -> str:
        return self._kubeconfig or "the pod's service account"

    async def authorization(self) -> str | None:
        """The Authorization header of a request. Tokens are renewed before they expire."""
        if self._loader is not None and time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + _LOOK_AGAIN_S
            if self._loader.provider or hasattr(self._loader, "exec_plugin_expiry"):
                await self._loader.load_and_set(self._configuration)
                self._read_certificates()
        token: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        return token

    async def renew(self) -> None:
        """Reads everything again, after the server has refused a token: files may have changed, tokens been revoked."""
        self._configuration = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(client_configuration=self._configuration)  # type: ignore[no-untyped-call]
            else:
                self._loader = await load_kube_config(
                    self._kubeconfig, self._context, client_configuration=self._configuration
                )
            self._read_certificates()
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # the library raises anything for a wrong file
            problem = " ".join(str(error).split()) or type(error).__name__
            raise InputError([f"{self._source}: expected a kubeconfig that can be used: {problem}"]) from None
        for what, text in (("the user's token", token), ("the cluster's server", self.address.server)):
            if text is not None and not (text.isascii() and text.isprintable()):
                # A header must not contain a line break. The token itself is not for the screen.
                raise InputError([f"{self._source}: {what}: expected printable ASCII characters on one line"])
        self._look_again = time.monotonic() + _LOOK_AGAIN_S

    def _read_certificates(self) -> None:
        """Loads them into the same context: new connections use them, old ones go on."""
        configuration = self._configuration
        if not self.address.server.startswith("https"):
            return
        if self._ssl is None:
            self._ssl = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            # Kubernetes' own certificates fail the strict checks of newer Pythons.
            self._ssl.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
            if not configuration.verify_ssl:
                self._ssl.check_hostname = False
                self._ssl.verify_mode = ssl.CERT_NONE
        certificate = (configuration.cert_file, configuration.key_file)
        if configuration.cert_file and certificate != self._certificate:
            self._ssl.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
            self._certificate = certificate


async def log_in(kubeconfig: str | None = None, context: str | None = None) -> Login:
    """Like kubectl: the given file, $KUBECONFIG, ~/.kube/config, or in a pod its service account."""
    default = Path.home() / ".kube" / "config"
    chosen = kubeconfig or os.environ.get("KUBECONFIG") or (str(default) if default.is_file() else None)
    if chosen is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise InputError(
            ["no cluster to talk to: expected --kubeconfig, $KUBECONFIG, ~/.kube/config, or to run in a pod"]
        )
    if chosen is not None and not any(Path(part).is_file() for part in chosen.split(os.pathsep)):
        raise InputError([f"{chosen}: no such file; expected a kubeconfig"])
    login = Login(chosen, context)
    await login.renew()
    return login
