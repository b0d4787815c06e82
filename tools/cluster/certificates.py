"""The certificates of one cluster: three authorities, a leaf for every component, and any user on request.

They are real because the tests cover authorisation. They are in the cluster's private folder and removed with it.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NODE_ADDRESS = "10.99.0.1"
SERVICE_ADDRESS = "10.96.0.1"
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
AUTHORITIES = ("cluster", "front-proxy", "etcd")
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Certificates:
    """Issues into and reads from one folder; `NAME.crt` and `NAME.key` are PEM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def issue_all(self, real_node: str | None) -> None:
        """Everything that the components of a cluster present to each other."""
        self.folder.mkdir(mode=0o700)
        for authority in AUTHORITIES:
            self._issue_authority(authority)
        servers = ["127.0.0.1", *SERVER_NAMES]
        self.issue("apiserver", "kube-apiserver", names=[*servers, SERVICE_ADDRESS, NODE_ADDRESS])
        self.issue("etcd-server", "etcd", authority="etcd", names=servers)
        self.issue("etcd-client", "kube-apiserver", authority="etcd")
        self.issue("kubelet-client", "kube-apiserver-kubelet-client")
        self.issue("front-proxy-client", "front-proxy-client", authority="front-proxy")
        self.issue("admin", "admin", groups=["system:masters"])
        self.issue("controller-manager", "system:kube-controller-manager", names=servers)
        self.issue("scheduler", "system:kube-scheduler", names=servers)
        self.issue("kwok", "kwok-controller")
        if real_node:
            self.issue("kubelet", f"system:node:{real_node}", groups=["system:nodes"])
            self.issue("kubelet-server", real_node, names=["127.0.0.1", NODE_ADDRESS, real_node])
        self._write_service_account_keys()

    def issue(
        self,
        name: str,
        user: str,
        groups: list[str] | None = None,
        authority: str = "cluster",
        names: list[str] | None = None,
    ) -> None:
        """A leaf for `user` in `groups`; with `names`, also for a server with these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups or []]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        issuer = x509.load_pem_x509_certificate(self.certificate(authority).read_bytes())
        signer = serialization.load_pem_private_key(self.key(authority).read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        builder = (
            _valid_for_a_year(x509.Name(subject), issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        self._write(name, key, builder.sign(signer, hashes.SHA256()))

    def _issue_authority(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        builder = (
            _valid_for_a_year(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        self._write(name, key, builder.sign(key, hashes.SHA256()))

    def _write_service_account_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        _write_private(self.key("service-account"), _private_bytes(key))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "service-account.pub").write_bytes(public)

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        _write_private(self.key(name), _private_bytes(key))
        self.certificate(name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _valid_for_a_year(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
