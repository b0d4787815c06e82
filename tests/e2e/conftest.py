"""A cluster for tests: started once a run, shared by all workers. Each test has its own namespace."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from e2e import clusters_of_this_run
from e2e.serve_process import Bench, install_crds
from e2e.user_at_shell import People, Person
from tools.cluster import ApiError, Cluster, Spec


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The run's cluster; create simulated nodes in it under your own names."""
    return clusters_of_this_run.shared_cluster()


@pytest.fixture(scope="session")
def real_node() -> Cluster:
    """The run's cluster with one real node, which runs containers."""
    return clusters_of_this_run.shared_real_node()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The test's own namespace in the run's cluster."""
    yield from _namespace_in(cluster)


@pytest.fixture
def real_namespace(real_node: Cluster) -> Iterator[str]:
    """The test's own namespace in the cluster with the real node."""
    yield from _namespace_in(real_node)


def _namespace_in(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.create_namespace(name)
    yield name
    with cluster.client() as client, suppress(ApiError):
        client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def new_cluster() -> Iterator[clusters_of_this_run.NewCluster]:
    """Makes clusters for one test alone: `new_cluster(nodes=3)`; they end with it."""
    made: list[Cluster] = []

    def make(**wanted: object) -> Cluster:
        spec = Spec(name=clusters_of_this_run.own_name(), owner_pid=clusters_of_this_run.run_pid(), **wanted)  # type: ignore[arg-type]
        clusters_of_this_run.need(spec)
        made.append(Cluster.up(spec))
        return made[-1]

    yield make
    for each in made:
        each.down()


@pytest.fixture(scope="session")
def with_crds(cluster: Cluster) -> Cluster:
    """The run's cluster with our CRDs in it."""
    install_crds(cluster)
    return cluster


@pytest.fixture
def bench(with_crds: Cluster, namespace: str) -> Iterator[Bench]:
    """The test's own corner of the run's cluster: nodes, schedulerName and lease."""
    made = Bench(with_crds, namespace)
    yield made
    made.close()


@pytest.fixture
def people() -> Iterator[People]:
    """Makes persons on any cluster; what they leave open is closed when the test ends, however it ends."""
    with ExitStack() as stack:

        def make(cluster: Cluster, namespace: str, user: str = "admin") -> Person:
            return stack.enter_context(closing(Person(cluster, namespace, user)))

        yield make


@pytest.fixture
def person(with_crds: Cluster, namespace: str, people: People) -> Person:
    return people(with_crds, namespace)
