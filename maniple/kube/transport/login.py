"""Logs in to the API server: with a kubeconfig (certificates, tokens, exec plugins) or a pod's service account.

Plain credentials are read here; for all else a library is loaded:
docs/decisions/013-own-http-client-library-login.md.
"""

import os
import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from maniple.api.errors import InputError, shown
from maniple.api.validate.kubernetes import A_LABEL, is_label
from maniple.kube.transport.credentials import Credentials, read_plain_kubeconfig, read_service_account
from maniple.kube.transport.http1 import Address

if TYPE_CHECKING:
    from maniple.kube.transport.library_login import LibraryLogin

LOGIN_ERRORS = (InputError, OSError, ValueError)
_LOOK_AGAIN_S = 60.0  # a token may be replaced; an exec plugin is called again five minutes before its token expires


class Login:
    """The address of the API server and the credentials for it. Made by `log_in`."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._library: LibraryLogin | None = None
        self._credentials = Credentials()
        self._look_again = 0.0
        self._certificate: tuple[bytes | None, bytes | None] = (None, None)
        self._ssl: ssl.SSLContext | None = None

    @property
    def address(self) -> Address:
        credentials = self._credentials
        return Address(credentials.server, self._ssl, credentials.server_name, credentials.proxy)

    @property
    def namespace(self) -> str:
        """The namespace of commands that name none: the context's, and in a pod its own."""
        namespace = self._credentials.namespace
        if namespace and not (isinstance(namespace, str) and is_label(namespace)):
            raise InputError([f"{self._source}: namespace: expected {A_LABEL}, found {shown(namespace)}"])
        return namespace or "default"

    @property
    def _source(self) -> str:
        return self._kubeconfig or "the pod's service account"

    async def authorization(self) -> str | None:
        """The Authorization header of a request. Tokens are renewed before they expire."""
        if time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + _LOOK_AGAIN_S
            if self._library is None:
                self._credentials = self._credentials.with_token_as_it_is()
            else:
                try:
                    renewed = await self._library.renewed()
                except LOGIN_ERRORS:
                    raise
                except Exception as error:  # the library raises anything
                    raise InputError([str(error)]) from None
                if renewed is not None:
                    self._credentials = renewed
                    self._read_certificates()
        return self._credentials.authorization

    async def renew(self) -> None:
        """Reads everything again, after the server has refused a token: files may have changed, tokens been revoked."""
        try:
            self._credentials = await self._read()
            self._read_certificates()
        except Exception as error:  # the library raises anything for a wrong file
            problem = " ".join(str(error).split()) or type(error).__name__
            raise InputError([f"{self._source}: expected a kubeconfig that can be used: {problem}"]) from None
        token, server = self._credentials.authorization, self._credentials.server
        for what, text in (("the user's token", token), ("the cluster's server", server)):
            if text is not None and not (text.isascii() and text.isprintable()):
                # A header must not contain a line break. The token itself is not for the screen.
                raise InputError([f"{self._source}: {what}: expected printable ASCII characters on one line"])
        self._look_again = time.monotonic() + _LOOK_AGAIN_S

    async def _read(self) -> Credentials:
        if self._kubeconfig is None:
            return read_service_account()
        if self._library is None:
            files = [Path(part).expanduser() for part in self._kubeconfig.split(os.pathsep) if part]
            plain = read_plain_kubeconfig(files[0], self._context) if len(files) == 1 else None
            if plain is not None:
                return plain
            from maniple.kube.transport.library_login import LibraryLogin

            self._library = LibraryLogin(self._kubeconfig, self._context)
        return await self._library.read()

    def _read_certificates(self) -> None:
        """Loads them into the same context: new connections use them, old ones go on."""
        credentials = self._credentials
        if not credentials.server.startswith("https"):
            return
        if self._ssl is None:
            self._ssl = ssl.create_default_context(cadata=credentials.authority)
            # Kubernetes' own certificates fail the strict checks of newer Pythons.
            self._ssl.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
            if not credentials.verifies:
                self._ssl.check_hostname = False
                self._ssl.verify_mode = ssl.CERT_NONE
        certificate = (credentials.certificate, credentials.key)
        if credentials.certificate and certificate != self._certificate:
            _load_certificate(self._ssl, credentials.certificate, credentials.key)
            self._certificate = certificate


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Python reads them from a file only: one that only we can read, and that is gone at once."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(filter(None, (certificate, key))))
        file.flush()
        context.load_cert_chain(file.name)


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
