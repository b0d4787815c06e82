"""The clusters of this test run, and what to do where none can run.

They are named after the process that started the run, which all workers share, and end with it.
"""

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from tools.cluster import Cluster, Spec, build
from tools.cluster.cluster import programs_for, why_no_real_node

NewCluster = Callable[..., Cluster]


def run_pid() -> int:
    """The process that started the run: with several workers their parent, else this one."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def shared_names(pid: int) -> list[str]:
    return [f"test-{pid}", f"test-{pid}-real"]


def shared_cluster() -> Cluster:
    """The run's cluster for simulated nodes; the first test that needs it starts it."""
    return _started(Spec(name=shared_names(run_pid())[0], owner_pid=run_pid()))


def shared_real_node() -> Cluster:
    """The run's cluster with one real node."""
    return _started(Spec(name=shared_names(run_pid())[1], owner_pid=run_pid(), real_node=True))


def own_name() -> str:
    """For a cluster of this process alone. Tests of one module may run in two workers at the same time."""
    return f"test-{run_pid()}-{uuid.uuid4().hex[:6]}"


@contextmanager
def alone_on(node: Cluster) -> Iterator[None]:
    """One test at a time may use the real node's GPUs and the port by which its pods reach a controller."""
    with (node.layout.folder / "in-use").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def need(spec: Spec) -> None:
    """Skips the test if such a cluster cannot run here, or fails it where a cluster is required."""
    reason = why_no_real_node() if spec.real_node else ""
    if reason:
        _refuse(reason)
    if not build.is_built(programs_for(spec), with_packages=spec.real_node):
        _refuse("its programs are not built: `python -m tools.cluster build` builds them, or says why it cannot")


def _started(spec: Spec) -> Cluster:
    need(spec)
    return Cluster.up_or_attach(spec)


def _refuse(reason: str) -> NoReturn:
    give_up: Callable[[str], NoReturn] = pytest.fail if os.environ.get(build.REQUIRE_VARIABLE) == "1" else pytest.skip
    give_up(f"no cluster here: {reason}")


def stop_shared(pid: int) -> None:
    """Stops what the run started. Clusters of a killed run end by themselves."""
    from tools.cluster.cluster_layout import all_layouts

    for layout in all_layouts():
        if layout.name in shared_names(pid):
            Cluster(layout).down()
