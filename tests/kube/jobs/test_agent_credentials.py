"""Certificates and the key of tokens: one Secret, the same for all replicas, and running jobs trust it for ever."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from maniple.kube.jobs import agent_credentials

NAMES = ["127.0.0.1", "maniple-agents.maniple-system.svc"]


def test_a_secret_gives_back_what_was_put_into_it() -> None:
    made = agent_credentials.create(NAMES)
    assert agent_credentials.from_secret(made.to_secret()) == made
    assert agent_credentials.create(NAMES).token_key != made.token_key


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key", "token.key"])
def test_a_secret_that_lacks_something_is_none(name: str) -> None:
    data = agent_credentials.create(NAMES).to_secret()
    for broken in ("", "%", base64.b64encode(b"x").decode()):
        assert agent_credentials.from_secret(data | {name: broken}) is None
    assert agent_credentials.from_secret({key: value for key, value in data.items() if key != name}) is None


def test_only_the_certificate_is_renewed_and_only_when_it_must_be() -> None:
    made = agent_credentials.create(NAMES)
    assert agent_credentials.renewed(made, NAMES[:1]) is made
    late = datetime.now(UTC) + timedelta(days=agent_credentials.SERVER_DAYS - 10)
    for renewed in (agent_credentials.renewed(made, NAMES, late), agent_credentials.renewed(made, ["10.0.0.1"])):
        assert renewed.certificate != made.certificate
        assert (renewed.authority, renewed.token_key) == (made.authority, made.token_key)
        authority = x509.load_pem_x509_certificate(renewed.authority)
        x509.load_pem_x509_certificate(renewed.certificate).verify_directly_issued_by(authority)
    assert x509.load_pem_x509_certificate(renewed.certificate).not_valid_after_utc > datetime.now(UTC)
