"""Helm for tests, built once into the cache. Where it cannot be built, tests are skipped, or fail in CI."""

import os

import pytest

from tools import helm
from tools.cluster.build import REQUIRE_VARIABLE


@pytest.fixture(scope="session")
def need_helm() -> None:
    if not helm.is_built():
        give_up = pytest.fail if os.environ.get(REQUIRE_VARIABLE) == "1" else pytest.skip
        give_up("no helm here: `python -m tools.cluster build` builds it, or says why it cannot")
