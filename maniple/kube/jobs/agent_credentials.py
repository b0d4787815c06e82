"""The credentials of the agents' endpoint: a certificate authority, a server certificate, and the key of tokens.

They are kept in a Secret, so that all replicas have the same, also after restarts; pods get the authority's certificate
and trust no other. Nothing here touches the network or the disk.
"""

import ipaddress
import os
import secrets
import ssl
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650  # running jobs hold its certificate: longer than any job runs
SERVER_DAYS = 365
RENEW_DAYS = 60
_NO_USAGE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "encipher_only": False,
    "decipher_only": False,
}


class Credentials(msgspec.Struct, frozen=True):
    """In PEM, except the key of tokens, which is 32 random bytes."""

    authority: bytes = msgspec.field(name="ca.crt")
    authority_key: bytes = msgspec.field(name="ca.key")
    certificate: bytes = msgspec.field(name="tls.crt")
    key: bytes = msgspec.field(name="tls.key")
    token_key: bytes = msgspec.field(name="token.key")

    def to_secret(self) -> dict[str, str]:
        """The `data` of a Secret: bytes are encoded in base64."""
        data: dict[str, str] = msgspec.to_builtins(self)
        return data


def from_secret(data: dict[str, str]) -> Credentials | None:
    """None if it is incomplete: another's Secret, or a damaged one."""
    try:
        credentials = msgspec.convert(data, Credentials)
        x509.load_pem_x509_certificate(credentials.authority)
        x509.load_pem_x509_certificate(credentials.certificate)
        _private_key(credentials.authority_key)
        _private_key(credentials.key)
    except (msgspec.ValidationError, ValueError):
        return None
    return credentials if len(credentials.token_key) >= 32 else None


def create(names: list[str], now: datetime | None = None) -> Credentials:
    """New credentials, for a server with these names and addresses."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "maniple agents")])
    authority = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **_NO_USAGE), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, server_key = _issue(authority, key, names, now)
    return Credentials(_pem(authority), _private_pem(key), certificate, server_key, secrets.token_bytes(32))


def renewed(old: Credentials, names: list[str], now: datetime | None = None) -> Credentials:
    """The same object if the certificate has these names and does not expire soon; otherwise with a new certificate.

    Running jobs trust the authority and hold tokens: the authority and the key of tokens never change.
    """
    now = now or datetime.now(UTC)
    certificate = x509.load_pem_x509_certificate(old.certificate)
    has_time = certificate.not_valid_after_utc > now + timedelta(days=RENEW_DAYS)
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if has_time and set(map(_general, names)) <= set(named):
        return old
    authority = x509.load_pem_x509_certificate(old.authority)
    certificate_pem, key = _issue(authority, _private_key(old.authority_key), names, now)
    return Credentials(old.authority, old.authority_key, certificate_pem, key, old.token_key)


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """For `AgentServer.start`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, credentials)
    return context


def load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """For all new connections, also of a server that uses the context already."""
    # Python reads certificates only from files; this one is in memory, because the file system may be read-only.
    handle = os.memfd_create("certificate")
    try:
        os.write(handle, credentials.certificate + credentials.key)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def _issue(
    authority: x509.Certificate, signer: ec.EllipticCurvePrivateKey, names: list[str], now: datetime
) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        _builder(subject, authority.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pem(certificate), _private_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks of nodes differ
        .not_valid_after(now + timedelta(days=days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key
